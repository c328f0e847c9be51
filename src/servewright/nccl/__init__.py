"""NCCL settings: a registry of variables, a linter, named profiles and a reader of NCCL's own log."""
