"""The host library: everything that happens on a host. Python 3.9 standard library only.

It travels to the host with an Ansible module and is packed there into /usr/local/lib/servewright/host.pyz, so that
the unit, the transaction and the modules run the same code.
"""
