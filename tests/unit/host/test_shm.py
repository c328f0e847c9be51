"""Shared memory that may be alive stays, where no test host can be brought to show it."""

from __future__ import annotations

import fcntl
import os
import pwd

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host import paths, shm
from ansible_collections.servewright.llm.plugins.module_utils.host.errors import HostError

HELD = shm.held
ME = pwd.getpwuid(os.geteuid()).pw_name


@pytest.fixture
def folder(root, monkeypatch):
    """An empty /dev/shm in which nothing is held, told of by /proc, and whose user has no other process."""
    monkeypatch.setattr(shm, "held", set)
    monkeypatch.setattr(shm, "_others", lambda service, uid: False)
    (root / "shm").mkdir()
    return root / "shm"


def clean(folder, **options):
    said = []
    return shm.clean("tiny", ME, folder=str(folder), report=said.append, **{"grace": 0, **options}), said


def test_a_dead_segment_goes_and_is_told(folder):
    (folder / "psm_dead").write_bytes(bytes(77))
    removed, said = clean(folder)
    assert removed == ["psm_dead"]
    assert said == [f"removed dead shared memory {folder}/psm_dead: 77 bytes, owner {ME}, 0 s old"]
    assert list(folder.iterdir()) == []


def test_a_lock_of_the_host_is_held_from_the_first_look_to_the_last_removal(folder, root, monkeypatch):
    locked, remove = [], shm._remove

    def look(*arguments):
        with open(os.path.join(paths.RUN, "shm.lock"), "w") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        locked.append(True)
        return remove(*arguments) if len(locked) > 1 else candidates(*arguments)

    candidates = shm._candidates
    monkeypatch.setattr(shm, "_candidates", look)
    monkeypatch.setattr(shm, "_remove", look)
    (folder / "psm_dead").touch()
    assert (clean(folder)[0], locked) == (["psm_dead"], [True, True])


def test_a_name_that_another_segment_took_meanwhile_stays(folder):
    path = folder / "psm_x"
    path.touch()
    before = os.lstat(path)
    (folder / "new").touch()
    os.replace(folder / "new", path)
    assert not shm._remove(str(path), before, os.geteuid())
    assert path.exists()
    assert shm._remove(str(path), os.lstat(path), os.geteuid())
    assert not shm._remove(str(path), before, os.geteuid())  # somebody else was faster


def test_a_segment_that_is_open_where_proc_does_not_show_it_stays(folder):
    path = folder / "psm_x"
    with path.open("w"):
        assert clean(folder) == ([], [])
    assert clean(folder)[0] == ["psm_x"]


def test_a_segment_younger_than_the_grace_or_from_the_future_stays(folder):
    for name, age in (("psm_now", 0), ("psm_future", -100)):
        (folder / name).touch()
        os.utime(folder / name, (0, folder.stat().st_mtime - age))
    assert clean(folder, grace=5)[0] == []
    assert clean(folder)[0] == ["psm_now"]  # after the clock was set back nobody knows the age of the other


def test_a_segment_as_old_as_the_grace_goes(folder, monkeypatch):
    (folder / "psm_x").touch()
    entry = (folder / "psm_x").stat()
    monkeypatch.setattr(shm.time, "time", lambda: max(entry.st_mtime, entry.st_ctime) + 5)
    assert clean(folder, grace=5.1)[0] == []
    monkeypatch.setattr(shm, "_others", lambda service, uid: True)
    assert clean(folder, grace=5, shared_grace=5.1)[0] == []
    assert clean(folder, grace=5, shared_grace=5)[0] == ["psm_x"]


def test_only_files_of_the_user_by_a_known_name_are_looked_at(folder):
    (folder / "psm_folder").mkdir()
    (folder / "psm_link").symlink_to("/etc/passwd")
    (folder / "notes").touch()
    (folder / "psm_x").touch()
    assert list(shm._candidates(str(folder), os.geteuid(), 0)) == ["psm_x"]
    assert list(shm._candidates(str(folder), os.geteuid() + 1, 0)) == []


def test_a_segment_that_a_process_holds_stays(folder, monkeypatch):
    entry = (folder / "psm_x").touch() or (folder / "psm_x").stat()
    monkeypatch.setattr(shm, "held", lambda inodes: {(entry.st_dev, entry.st_ino)})
    assert clean(folder) == ([], [])


def test_segments_of_a_user_with_other_processes_have_a_longer_grace(folder, monkeypatch):
    monkeypatch.setattr(shm, "_others", lambda service, uid: True)
    (folder / "psm_x").touch()
    assert clean(folder)[0] == []
    assert clean(folder, shared_grace=0)[0] == ["psm_x"]


def test_only_processes_of_that_user_outside_of_the_unit_are_others(monkeypatch):
    monkeypatch.setattr(shm.proc, "all_pids", lambda: [1, 2])
    monkeypatch.setattr(shm.proc, "uid", lambda pid: pid)
    monkeypatch.setattr(shm.proc, "unit", lambda pid: "tiny.service" if pid == 2 else "")
    assert [shm._others("tiny", uid) for uid in (1, 2, 3)] == [True, False, False]


def test_nothing_is_removed_when_a_process_cannot_be_looked_into(folder, monkeypatch):
    def refuse(process, found):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(shm, "held", HELD)
    monkeypatch.setattr(shm, "_CAP_SYS_PTRACE", 0)
    monkeypatch.setattr(shm.proc, "status", lambda pid: {"CapEff": "1", "Name": "x"})
    monkeypatch.setattr(shm, "_mapped", refuse)
    (folder / "psm_x").touch()
    with pytest.raises(HostError, match=r"cannot see what pid \d+ .* holds: Permission denied"):
        clean(folder)
    assert (folder / "psm_x").exists()


def test_without_the_right_to_see_all_processes_nothing_is_sure(monkeypatch):
    for status in ({"CapEff": "7ffff"}, {}, None):  # all rights below the one that is needed
        monkeypatch.setattr(shm.proc, "status", lambda pid, status=status: status)
        with pytest.raises(HostError, match="without CAP_SYS_PTRACE"):
            HELD({1})


def test_what_a_process_maps_and_opens_is_told_by_device_and_inode(tmp_path):
    with open(tmp_path / "x", "w") as stream:
        found, entry = set(), os.fstat(stream.fileno())
        shm._open("self", {entry.st_ino}, found)
    assert (entry.st_dev, entry.st_ino) in found
    assert shm._mapped("self", found)
    entry = os.stat(os.path.realpath("/proc/self/exe"))
    assert entry.st_ino in {inode for _device, inode in found}


@pytest.mark.parametrize("told", [True, False])
def test_a_file_system_that_does_not_answer_is_asked_only_where_the_kernel_tells_no_inode(tmp_path, monkeypatch, told):
    """An open file on NFS whose server is gone: whoever asks for its state waits for ever."""
    asked, found = [], set()
    monkeypatch.setattr(shm.os, "stat", lambda path: asked.append(path) or os.lstat("/"))
    if not told:
        monkeypatch.setattr(shm.re, "search", lambda *_words: None)
    with open(tmp_path / "on_nfs", "w"), open(tmp_path / "segment", "w") as segment:
        shm._open("self", {os.fstat(segment.fileno()).st_ino}, found)
        assert asked == [f"/proc/self/fd/{segment.fileno()}"] if told else len(asked) > 2


def test_a_service_whose_user_is_not_made_yet_has_no_segments(root):
    assert shm.clean("tiny", "no such user", folder="/nowhere") == []
    with pytest.raises(HostError, match="cannot clean /nowhere"):
        shm.clean("tiny", ME, folder="/nowhere")
