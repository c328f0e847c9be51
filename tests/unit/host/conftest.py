"""The host library on this machine, with its folders below a temporary one."""

from __future__ import annotations

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import paths


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Folders of the host library, below a temporary one."""
    for name in ("ETC", "VAR", "RUN", "UNITS"):
        monkeypatch.setattr(paths, name, str(tmp_path / name.lower()))
    return tmp_path
