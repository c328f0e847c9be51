"""Files that say again what can be declared: for editors, for Ansible, for readers."""
