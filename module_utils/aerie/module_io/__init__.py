"""Inputs and results of Ansible modules: secrets, process variables, the form of a result."""
