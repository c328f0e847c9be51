"""The host: kernel parameters, driver, IOMMU, ACS, sysctl, logind, the manager's environment."""

from __future__ import annotations

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
    if old["command_line"] != new["command_line"]:
        lines = [f"gone: {word}" for word in old["command_line"] if word not in new["command_line"]]
        lines += [f"new: {word}" for word in new["command_line"] if word not in old["command_line"]]
        message = "the kernel was started with other parameters"
        yield _proven("host.command_line", message, lines, "boot with the old ones")
    yield from _driver(old["driver"], new["driver"])
    if old["iommu"] != new["iommu"]:
        message = "the IOMMU works in another way"
        yield _proven("host.iommu", message, compared(old["iommu"], new["iommu"]), "boot as before")
    if old["acs"] != new["acs"]:
        lines = compared(*({name: f"{value:#06x}" for name, value in found["acs"].items()} for found in (old, new)))
        yield _proven("host.acs", "ACS of PCI bridges has changed", lines, "set it as it was, with setpci or a boot")
    if old["sysctl"] != new["sysctl"]:
        yield finding(
            "host.sysctl",
            "settings of the kernel have changed: {}".format(", ".join(_differing(old["sysctl"], new["sysctl"]))),
            compared(old["sysctl"], new["sysctl"]),
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
    undo = "systemctl unset-environment {}; look in /etc/systemd/system.conf, too".format(" ".join(names))
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


def undo_sysctl(subject):
    old = subject.recorded["host"]["sysctl"]
    for name in _differing(old, surroundings.host.sysctls()):
        try:
            with open(surroundings.host.sysctl_path(name), "w") as stream:
                stream.write(old.get(name, "") + "\n")
        except OSError as error:
            raise HostError(f"cannot set {name}: {error.strerror}") from None


def undo_manager(subject):
    names = _differing(subject.recorded["host"]["manager_environment"], surroundings.host.manager_environment())
    run(["systemctl", "unset-environment", *names])


UNDO_BY_ID = {"host.sysctl": undo_sysctl, "host.manager_environment": undo_manager}
