"""Build hook: a wheel carries the Ansible collection beside the Python package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Every file or folder of the tree that is part of the published collection servewright.llm.
COLLECTION_PARTS = (
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "galaxy.yml",
    "meta",
    "playbooks",
    "plugins",
    "roles",
    "templates",
)
COLLECTION_TARGET = "ansible_collections/servewright/llm"


class CollectionHook(BuildHookInterface[Any]):
    """Adds the collection to a wheel, except to an editable one, where dev/ links to the live tree."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Extend ``force_include``; hatchling copies folders recursively and leaves out ``__pycache__``."""
        if version == "editable":
            return
        for part in COLLECTION_PARTS:
            source = Path(self.root, part)
            if source.exists():
                build_data["force_include"][str(source)] = f"{COLLECTION_TARGET}/{part}"
