"""Stand-ins for packages that SGLang imports everywhere but never calls when it serves text on a CPU.

A test double, not an implementation: every name can be imported, passed around and subclassed, and calling one
raises. Installed into the test environment only.
"""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType


class Absent:
    """A name that exists and does nothing."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, attribute: str) -> Absent:
        # Dunder probes (copy, inspect, typing) must see a plain object, not one with every protocol.
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        return Absent(f"{self.__name__}.{attribute}")

    def __call__(self, *arguments: object, **named: object) -> object:
        raise NotImplementedError(f"{self.__name__} is a test double: the CPU test environment has no such code")

    def __mro_entries__(self, bases: tuple[object, ...]) -> tuple[type, ...]:
        return ()

    def __instancecheck__(self, instance: object) -> bool:
        return False


class _SubmoduleFinder(MetaPathFinder, Loader):
    """Imports any submodule of one package as an empty module whose names are all Absent."""

    def __init__(self, package: str) -> None:
        self._prefix = package + "."

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self, is_package=True) if fullname.startswith(self._prefix) else None

    def exec_module(self, module: ModuleType) -> None:
        _answer_every_name(module)


def _answer_every_name(module: ModuleType) -> None:
    def absent(name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{module.__name__}.{name}")

    module.__dict__["__getattr__"] = absent


def double(package: str) -> None:
    """Turn the package of this name, being imported, into a test double."""
    _answer_every_name(sys.modules[package])
    sys.meta_path.append(_SubmoduleFinder(package))
