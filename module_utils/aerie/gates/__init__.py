"""Checks of a host before anything is changed: functions that gather facts, and functions that judge them."""
