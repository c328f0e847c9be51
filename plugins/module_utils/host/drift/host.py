"""The host: kernel parameters, driver, IOMMU, ACS, sysctl, logind, the manager's environment."""

from __future__ import annotations

from collections import Counter

from .. import surroundings
from ..commands import run
from ..errors import HostError
from .finding import GATES, PERSON, RESTART, UNDO, compared, finding

_ACCEPT = "or have the gates prove the running service again, which records it"


def find(subject):
    old = subject.recorded.get("host")
    if old is None:
        return
    new = subject.host.host
    # Earlier versions recorded more of the command line, more settings of the kernel, and the number of IOMMU groups.
    before, after = (Counter(surroundings.host.command_line(" ".join(f["command_line"]))) for f in (old, new))
    if before != after:
        lines = [f"gone: {word}" for word in (before - after).elements()]
        lines += [f"new: {word}" for word in (after - before).elements()]
        message = "the kernel was started with other parameters"
        yield _proven("host.command_line", message, lines, "boot with the old ones")
    yield from _driver(old["driver"], new["driver"])
    lines = compared({**old["iommu"], "groups": bool(old["iommu"]["groups"])}, new["iommu"])
    if lines:
        yield _proven("host.iommu", "the IOMMU works in another way", lines, "boot as before")
    # A bridge comes and goes with what is plugged in.
    lines = compared(*({name: f"{value:#06x}" for name, value in f.items()} for f in _in_both(old["acs"], new["acs"])))
    if lines:
        yield _proven("host.acs", "ACS of PCI bridges has changed", lines, "set it as it was, with setpci or a boot")
    settings = _in_both(old["sysctl"], new["sysctl"])  # kernels come to know and forget them
    if _differing(*settings):
        yield finding(
            "host.sysctl",
            "settings of the kernel have changed: {}".format(", ".join(_differing(*settings))),
            compared(*settings),
            "the service may not start again, or be slower",
            "write the old values back; look for who sets them in /etc/sysctl.d, too",
            UNDO,
        )
    if old["logind"] != new["logind"]:
        yield _proven(
            "host.logind",
            "settings of logind have changed",
            compared(old["logind"], new["logind"]),
            "put them back in /etc/systemd/logind.conf",
            "shared memory or processes of a login user may be removed when its last session ends",
        )
    yield from _manager(subject, old["manager_environment"], new["manager_environment"])


def _proven(name, message, lines, repair, consequence="transfers between GPUs may be slower, or wrong"):
    return finding(name, message, lines, consequence, f"{repair}, {_ACCEPT}", GATES)


def _driver(old, new):
    if old == new:
        return
    if None not in (new["module"], new["library"]) and new["module"] != new["library"]:
        yield finding(
            "host.driver",
            "the driver's library is {library}, its loaded module {module}".format(**new),
            compared(old, new),
            "what runs goes on, but nothing that uses the GPUs can be started until the next boot",
            "reboot in a maintenance window, and keep the driver's packages from upgrading by themselves",
            PERSON,
        )
    else:
        yield _proven("host.driver", "the driver is another one", compared(old, new), "install the old one")


def _manager(subject, old, new):
    # What the unit sets itself wins over what the manager hands down.
    names = [name for name in _differing(old, new) if name not in subject.release["environment"]]
    if not names:
        return
    where = "what stays is set by DefaultEnvironment= in /etc/systemd/system.conf or system.conf.d"
    undo = "systemctl unset-environment {}; {}".format(" ".join(names), where)
    # Only digests of the old values are kept, so what had one cannot be put back.
    known = any(name in old for name in names)
    yield finding(
        "host.manager_environment",
        "systemd hands other variables to every service: {}".format(", ".join(names)),
        [f"{name}: {_words(name in old, name in new)}" for name in names],
        "the next start has them in its environment",
        "put the old values back with systemctl set-environment, or have a restart take these up" if known else undo,
        RESTART if known else UNDO,
    )


def _words(before, after):
    return "changed" if before and after else "new" if after else "gone"


def _differing(old, new):
    return [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]


def _in_both(old, new):
    """Two mappings without the names that only one of them has."""
    return tuple({name: every[name] for name in every if name in old and name in new} for every in (old, new))


def undo_sysctl(subject):
    old, new = _in_both(subject.recorded["host"]["sysctl"], surroundings.host.sysctls())
    for name in _differing(old, new):
        try:
            with open(surroundings.host.sysctl_path(name), "w") as stream:
                stream.write(old[name] + "\n")
        except OSError as error:
            raise HostError(f"cannot set {name}: {error.strerror}") from None


def undo_manager(subject):
    names = _differing(subject.recorded["host"]["manager_environment"], surroundings.host.manager_environment())
    run(["systemctl", "unset-environment", *names])


UNDO_BY_ID = {"host.sysctl": undo_sysctl, "host.manager_environment": undo_manager}
