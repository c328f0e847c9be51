"""Tests that need real systemd hosts: see `tests.testbed`."""
