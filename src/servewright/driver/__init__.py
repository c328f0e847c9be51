"""Runs a playbook of the collection with ansible-runner and turns its events into results."""
