"""servewright deploys LLM engines as systemd services, verifies them, and rolls back by itself."""

__version__ = "0.1.0"
