"""Strangers on what the service claims: its GPUs and its port. They are named, never ended."""

from __future__ import annotations

from .. import masks, ports, proc
from .finding import PERSON, finding


def find(subject):
    if subject.release["gpus"]:
        yield from _gpus(subject)
    listen = subject.release["listen"]
    holders = ports.holders(listen["host"], listen["port"])
    strangers = [pid for pid in holders if pid == 0 or proc.unit(pid) != subject.unit]
    if strangers:
        who = [_described(pid) if pid else "a process that cannot be seen" for pid in strangers]
        yield finding(
            "claim.port",
            "port {} is held by {}".format(listen["port"], ", ".join(who)),
            who,
            "clients reach something else, and the service cannot start",
            "end that process, or give it another port",
            PERSON,
        )


def _described(pid):
    return masks.shown(proc.describe(pid))  # its command line may hold a secret


def _gpus(subject):
    known, clients, error = subject.host.gpus
    if error is not None:
        yield finding(
            "host.nvidia_smi",
            f"the GPUs cannot be read: {error}",
            error.splitlines(),
            "what runs may go on, but nothing that uses the GPUs can be started",
            "mend the driver, mostly by a reboot in a maintenance window",
            PERSON,
        )
        return
    missing = [index for index in subject.release["gpus"] if index not in known]
    if missing:
        yield finding(
            "claim.gpus_missing",
            "GPU {} is not there".format(", ".join(map(str, missing))),
            ["nvidia-smi lists {}".format(", ".join(map(str, sorted(known))) or "none")],
            "the service cannot start again",
            "look for Xid messages in the kernel's log; a GPU that has gone needs a reboot",
            PERSON,
        )
    wanted = {known[index]["uuid"]: index for index in subject.release["gpus"] if index in known}
    strangers = [
        f"GPU {wanted[uuid]}: {used} MiB by {_described(pid)}"
        for pid, uuid, used in clients
        if uuid in wanted and proc.unit(pid) != subject.unit
    ]
    if strangers:
        yield finding(
            "claim.gpus",
            "claimed GPUs are used by others: {}".format("; ".join(strangers)),
            strangers,
            "the service is slower, may run out of memory, and cannot start again",
            "end those processes, or claim other GPUs",
            PERSON,
        )


UNDO_BY_ID = {}
