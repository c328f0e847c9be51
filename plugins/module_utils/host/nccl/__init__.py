"""What NCCL did in a running service: its own log, the libraries in its processes, and what was declared."""
