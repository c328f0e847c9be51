"""A valid declaration for tests to change one thing of."""

from __future__ import annotations

from typing import Any


def service(**changes: Any) -> dict[str, Any]:
    """A small valid service; `changes` replace top-level keys."""
    return {
        "name": "tiny",
        "engine": "sglang",
        "version": "0.5.23",
        "model": {"path": "/models/tiny", "served_name": "tiny"},
        "listen": {"port": 30000},
        **changes,
    }
