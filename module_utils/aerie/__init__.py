"""Shared code of Aerie's Ansible modules: standard library only."""
