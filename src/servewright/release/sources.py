"""Where the new value of a planned change comes from: a line of the inventory, an NCCL profile, or a default."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from servewright.engines import ENGINES
from servewright.engines.base import flag_words
from servewright.nccl.profiles import Profile
from servewright.release.service import valid
from servewright.spec import nccl
from servewright.spec.host import Host
from servewright.spec.problems import Path, Positions
from servewright.spec.service import Service
from servewright.spec.validate import HOST_VARIABLE, SERVICES_VARIABLE

Source = dict[str, Any]
"""`origin` in words ("" for a plain line of the inventory), `file` ("" where there is none) and `line`."""

DEFAULT = "default"
OURS = "servewright"
# Which key of a service decides a setting of its unit. What is not here is the same in every unit.
_UNIT: Mapping[str, Path] = {
    "Unit.Description": ("description",),
    "Unit.StartLimitBurst": ("limits", "restart_burst"),
    "Unit.StartLimitIntervalSec": ("limits", "restart_burst"),
    "Service.CacheDirectory": ("version",),
    "Service.EnvironmentFile": ("secrets",),
    "Service.LimitNOFILE": ("limits", "open_files"),
    "Service.RestartSec": ("limits", "restart_delay"),
    "Service.TimeoutStartSec": ("limits", "start_timeout"),
    "Service.TimeoutStopSec": ("limits", "stop_timeout"),
    "Service.User": ("user",),
}
_PLAIN: Mapping[str, Path] = {
    "engine": ("engine",),
    "version": ("version",),
    "venv": ("venv",),
    "user": ("user",),
    "service": (),
    "limits.open_files": ("limits", "open_files"),
    "flag command": ("version",),
    "expected.tp_size": ("parallelism", "tensor"),
}


def annotate(results: Iterable[Mapping[str, Any]], variables: Mapping[str, Any]) -> None:
    """Give each change in the results of a deploy its `source`, where one is known.

    `variables` are those of the host, which were valid when the releases were made of them.
    """
    changing = [result for result in results if result.get("changes")]
    if not changing:
        return
    services, host, own, positions = valid(variables)
    for index, service in enumerate(services):
        for result in changing:
            if result["service"] == service.name:
                find = _Sources(service, (SERVICES_VARIABLE, index), positions, host, own)
                for change in result["changes"]:
                    source = find(str(change["field"]), change["new"])
                    if source is not None:
                        change["source"] = source


class _Sources:
    def __init__(self, service: Service, top: Path, positions: Positions, host: Host, own: Sequence[Profile]):
        self._service, self._top, self._positions = service, top, positions
        self._nccl = {setting.row.variable: setting for setting in nccl.settings(service, top, host, own)}

    def __call__(self, field: str, new: object) -> Source | None:
        kind, _, name = field.removeprefix("running ").partition(" ")
        field = field.removeprefix("running ")
        if field in _PLAIN:
            return self._at(_PLAIN[field])
        if kind == "flag":
            return self._flag(name)
        if kind == "host":
            return self._place((HOST_VARIABLE, name)) or _words("not declared")
        if kind == "secret":
            return self._at(("secrets", name))
        if kind == "service":
            return self._at(("gpus",))
        if kind == "unit" and "." in name and not name.startswith("file "):
            return self._at(_UNIT[name]) if name in _UNIT else _words(OURS)
        group, _, name = field.partition(".")
        if field == "watch.metrics_folder":
            return self._place((HOST_VARIABLE, name)) or _words(DEFAULT)
        if group == "environment":
            return self._environment(name, new)
        if group in ("model", "verify", "keep", "watch", "maintenance"):
            return self._at((group, *name.split(".")) if name else (group,))
        if group == "expected":
            return self._at(("options", name))
        return None

    def _flag(self, flag: str) -> Source:
        owned = ENGINES[self._service.engine].owned.get(flag)
        if owned is not None:
            return self._at(tuple(owned.split(".")))
        for name, value in self._service.extra_args.items():
            if any(words[0] == flag for words in flag_words(name, value)):
                return self._at(("extra_args", name))
        return self._at(("options", flag.removeprefix("--").replace("-", "_")))

    def _environment(self, name: str, new: object) -> Source:
        setting = self._nccl.get(name)
        if setting is not None:
            origin = "" if setting.row.origin == "inventory" else setting.row.origin
            return {**(self._place(setting.path) or {"file": "", "line": 0}), "origin": origin}
        if name == "CUDA_VISIBLE_DEVICES":
            return self._at(("gpus",))
        if new is None and name.startswith("NCCL_"):
            return self._at(("nccl", "profile"))
        return _words("not declared" if new is None else OURS)

    def _at(self, path: Path) -> Source:
        return self._place((*self._top, *path)) or _words(DEFAULT)

    def _place(self, path: Path) -> Source | None:
        if path not in self._positions:
            return None
        file, line = self._positions[path]
        return {"file": file, "line": line, "origin": ""}


def _words(origin: str) -> Source:
    return {"file": "", "line": 0, "origin": origin}
