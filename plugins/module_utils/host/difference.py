"""The semantic difference of two releases: fields, and what taking each up costs."""

from __future__ import annotations

from .nccl import debug

STOP, RESTART, RELOAD, NONE = "stop", "restart", "reload", "none"

_LOG_FOLDER = "Service.TemporaryFileSystem " + debug.FOLDER  # needed by the next start whose log is read, not before
# Unit settings that systemd takes up by daemon-reload, without touching the process.
_RELOAD_ONLY = frozenset(
    (
        "Unit.Description",
        "Unit.After",
        "Unit.Wants",
        "Unit.StartLimitIntervalSec",
        "Unit.StartLimitBurst",
        "Service.ExecStartPre",
        "Service.ExecStopPost",
        "Service.Restart",
        "Service.RestartPreventExitStatus",
        "Service.RestartSec",
        "Service.TimeoutStartSec",
        "Service.TimeoutStopSec",
        "Service.KillMode",
        "Service.EnvironmentFile",
        _LOG_FOLDER,
        "Install.WantedBy",
    )
)
# Compared below in their own terms.
_SKIP = ("Service.ExecStart", "Service.Environment")


def between(old, new, secrets_changed=()):
    """Changes from one release to another: a list of {"field", "old", "new", "consequence"}.

    `old` None means that everything is new. `secrets_changed` are names of secrets whose value differs.
    """
    if old is None:
        return [
            {
                "field": "service",
                "old": None,
                "new": "{} {}".format(new["engine"], new["version"]),
                "consequence": RESTART,
            }
        ]
    found = []
    for name in ("engine", "version", "venv"):
        found += _pair(name, old[name], new[name], RESTART)
    found += mapping("model.", old["model"], new["model"], lambda name: RESTART)
    found += mapping("flag ", flags(old["argv"]), flags(new["argv"]), lambda name: RESTART)
    found += mapping("environment.", old["environment"], new["environment"], lambda name: RESTART)
    for name in sorted(set(old["secrets"]) | set(new["secrets"])):
        if name not in new["secrets"] or name not in old["secrets"] or name in secrets_changed:
            found.append(
                {
                    "field": "secret " + name,
                    "old": "(secret)" if name in old["secrets"] else None,
                    "new": "(secret, changed)" if name in new["secrets"] else None,
                    "consequence": RESTART,
                }
            )
    found += mapping(
        "unit ",
        unit_settings(old["unit"]),
        unit_settings(new["unit"]),
        lambda name: RELOAD if name in _RELOAD_ONLY else RESTART,
    )
    found += mapping("verify.", old["verify"], new["verify"], lambda name: NONE)
    found += mapping("keep.", old["keep"], new["keep"], lambda name: NONE)
    # Releases of earlier versions have no windows and no watch.
    found += _pair("maintenance", old.get("maintenance", []), new.get("maintenance", []), NONE)
    found += mapping("watch.", old.get("watch") or {}, new.get("watch") or {}, lambda name: NONE)
    found += mapping("expected.", old["expected"], new["expected"], lambda name: NONE)
    return found


def _pair(field, old, new, consequence):
    return [] if old == new else [{"field": field, "old": old, "new": new, "consequence": consequence}]


def mapping(prefix, old, new, consequence):
    """Changes of named values; `consequence` gives that of a name."""
    found = []
    for name in sorted(set(old) | set(new)):
        found += _pair(prefix + name, old.get(name), new.get(name), consequence(name))
    return found


def flags(argv):
    """Flags of an argument list as a mapping; words before the first flag are 'command'."""
    found, current = {"command": []}, "command"
    for word in argv:
        if word.startswith("--"):
            current = word
            found.setdefault(current, [])
        else:
            found[current].append(word)
    return {name: " ".join(words) for name, words in found.items()}


def unit_settings(text):
    """Settings of a unit by "Section.Name"; lines of one name are joined, and fields compared elsewhere left out."""
    section, settings = "", {}
    lines = iter(text.splitlines())
    for line in lines:
        if line.startswith("#") or not line.strip():
            continue
        if line.startswith("["):
            section = line.strip("[]")
            continue
        while line.endswith("\\"):
            line = line[:-1] + next(lines, "")
        name, _equals, value = line.partition("=")
        key = f"{section}.{name.strip()}"
        if f"{key} {value}".startswith(_LOG_FOLDER + ":"):
            key = _LOG_FOLDER
        if key not in _SKIP and section != "X-Servewright":
            settings[key] = settings[key] + " " + value if key in settings else value
    return settings
