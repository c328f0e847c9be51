"""What systemd has given the main process beyond its arguments and environment, as the kernel has it."""

from __future__ import annotations

from .. import proc

# The kernel computes these at every boot, from the memory there is; whoever sets none has what PID 1 has.
_COMPUTED = ("nproc", "nproc.hard", "sigpending", "sigpending.hard")
_DEFAULT = "default"


def of(pid):
    """{"limits": {...}, "user": {...}} of a process: plain values by name; both are empty when it has ended."""
    limits, status, priority = proc.limits(pid), proc.status(pid), proc.priority(pid)
    if not (limits and status and priority):  # a file of one that ends while it is read is empty
        return {"limits": {}, "user": {}}
    manager, cpus = proc.limits(1) or {}, status["Cpus_allowed_list"].strip()
    computed = {name: _DEFAULT for name in _COMPUTED if limits[name] == manager.get(name)}
    every = (proc.status(1) or {}).get("Cpus_allowed_list", "").strip()
    return {
        "limits": {**limits, **computed, **priority, "cpus": _DEFAULT if cpus == every else cpus},
        "user": {
            "group": int(status["Gid"].split()[0]),
            "groups": sorted(map(int, status["Groups"].split())),
            "no_new_privileges": status.get("NoNewPrivs", "").strip(),
        },
    }
