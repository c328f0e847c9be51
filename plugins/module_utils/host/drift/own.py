"""What servewright itself has put on the host for the service: releases, library, recovery units."""

from __future__ import annotations

import os
import stat
import zipfile

from .. import files, library, paths, releases, systemd, timers
from ..watch import timer
from .finding import PERSON, UNDO, finding


def find(subject):
    if releases.unit_on_disk(subject.service, subject.number) != _unit(subject):
        yield finding(
            "release.unit",
            f"the unit in {subject.folder} was edited by hand or is missing",
            [os.path.join(subject.folder, "unit")],
            "deploys and rollbacks refuse this release",
            "write it again from release.json",
            UNDO,
        )
    lost = releases.secrets_lost(subject.release, subject.number)
    if lost:
        yield finding(
            "release.damaged",
            f"the release cannot be started again: {lost}",
            [lost],
            "the service does not come back after a crash or a boot, and deploys and repairs refuse to stop it",
            'write it again, of root and mode 0600, with a line NAME="value" for each secret; what still runs has them '
            f"in /proc/{subject.pid or 'PID'}/environ",
            PERSON,
        )
    environment = os.path.join(subject.folder, "environment")
    state = os.stat(environment) if os.path.exists(environment) else None
    if state is not None and (state.st_uid != 0 or stat.S_IMODE(state.st_mode) & 0o077):
        yield finding(
            "release.permissions",
            f"{environment} can be read by others than root",
            ["owner %d, mode %04o" % (state.st_uid, stat.S_IMODE(state.st_mode))],
            "secrets of the service can be read",
            f"chown root:root and chmod 0600 {environment}; give the service new secrets",
            UNDO,
        )
    edited = library.edited()
    state = edited.pop(paths.HOST_PYZ, None) or (None if zipfile.is_zipfile(paths.HOST_PYZ) else "damaged")
    if state:
        yield finding(
            "host.library",
            f"{paths.HOST_PYZ} is {state}",
            [paths.HOST_PYZ],
            "no service of this host may start again, or stop as it should: its unit calls it",
            "install it again",
            UNDO,
        )
    broken = [f"{os.path.basename(path)} ({word})" for path, word in edited.items()]
    if not broken and systemd.show(paths.RECOVER_UNIT)["UnitFileState"] != "enabled":
        broken = [f"{paths.RECOVER_UNIT} (not enabled)"]
    if broken:
        yield finding(
            "host.recovery",
            "units that finish an interrupted deploy are edited, missing or not enabled: {}".format(", ".join(broken)),
            broken,
            "a deploy that a power failure interrupts is not finished at boot",
            "install and enable them again",
            UNDO,
        )

    differing = timers.differing(timer.written(subject.release))
    if differing:
        yield finding(
            "watch.timer",
            "the timer that looks whether it answers is not as released: {}".format(", ".join(differing)),
            differing,
            "nobody may see when the service no longer answers",
            "write its units again, and start it",
            UNDO,
        )


def _unit(subject):
    return releases.unit_text(subject.release, subject.number)


def restore_unit(subject):
    files.write(os.path.join(subject.folder, "unit"), _unit(subject))


def restore_permissions(subject):
    path = os.path.join(subject.folder, "environment")
    os.chown(path, 0, 0)
    os.chmod(path, 0o600)


def restore_timer(subject):
    timer.put(subject.release)


def install(subject):
    library.install()
    systemd.enable(paths.RECOVER_UNIT)
    systemd.daemon_reload()


UNDO_BY_ID = {
    "release.unit": restore_unit,
    "release.permissions": restore_permissions,
    "host.library": install,
    "host.recovery": install,
    "watch.timer": restore_timer,
}
