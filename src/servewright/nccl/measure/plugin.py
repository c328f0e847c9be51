"""The tuner plugin: C source in this package, built on the host by its own compiler."""

from __future__ import annotations

from importlib import resources

LIBRARY = "libservewright-tuner.so"
OLDEST_NCCL = (2, 23, 0)
"""The first NCCL with version 3 of the tuner interface, the oldest that the plugin speaks."""


def source() -> str:
    return resources.files(__package__).joinpath("tuner_plugin.c").read_text(encoding="utf-8")


def build(compiler: str, source_path: str, library_path: str) -> list[str]:
    """The command that compiles it. Nothing but a C compiler is needed: engines need one as well, for Triton."""
    return [compiler, "-O2", "-shared", "-fPIC", "-o", library_path, source_path]
