"""The watch: a light look at a service that serves, again and again, and a restart of a dead one where declared."""
