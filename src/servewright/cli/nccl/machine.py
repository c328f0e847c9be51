"""NCCL settings of this machine: units with their drop-ins, environment files and running processes."""

from __future__ import annotations

import pwd
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from servewright.nccl.sources import Entry

UNIT_FOLDERS = (Path("/etc/systemd/system"), Path("/run/systemd/system"), Path("/usr/lib/systemd/system"))
"""Earlier ones win. Source: systemd.unit(5), unit file load path."""


class Source(NamedTuple):
    """What a unit, file or process sets.

    facts are those that the engine's command line tells, as fields of Facts. unread are files that it names and that
    could not be read, so that what they set is missing here.
    """

    name: str
    entries: list[Entry]
    facts: dict[str, Any]
    unread: list[str]


def unit(name: str) -> Source:
    """A unit by the path of its file, or by name with its drop-ins.

    Raises FileNotFoundError when there is no such unit, OSError when it cannot be read, ValueError for no service.
    """
    from servewright.nccl import sources, systemd

    files = _unit_files(name)
    # One text, as systemd reads drop-ins; a line of it is brought back to its file afterwards.
    lines = [(file, number, line) for file in files for number, line in enumerate(_text(file).splitlines(), start=1)]
    text = "\n".join(line for *_, line in lines)
    whole = str(files[0])
    if not any(line.strip() == "[Service]" for *_, line in lines):
        raise ValueError(f"{whole} has no section [Service]")
    named = systemd.unit(text, whole).files
    contents: dict[str, str] = {}
    for path in named:
        try:
            contents[path.removeprefix("-")] = _text(Path(path.removeprefix("-")))
        except OSError:
            continue
    found = systemd.unit(text, whole, contents)
    entries = []
    for entry in found.entries:
        file, line = entry.origin
        if file == whole and line is not None:
            entry = entry._replace(origin=sources.Location(str(lines[line - 1][0]), lines[line - 1][1]))
        entries.append(entry)
    unread = [path for path in found.files if not path.startswith("-") or Path(path[1:]).exists()]
    return Source(whole, entries, _engine(systemd.command(text)), unread)


def environment_file(path: str) -> Source:
    """A file in the form of EnvironmentFile=, or a copy of a process's /proc/PID/environ.

    Raises OSError when it cannot be read, ValueError for anything else.
    """
    from servewright.nccl import sources, systemd

    content = Path(path).read_bytes()
    if b"\0" in content:
        entries = sources.environ(content, path)
        # A process may have written over part of its environment.
        if 2 * sum(systemd.is_name(entry.name) for entry in entries) < len(content.strip(b"\0").split(b"\0")):
            raise ValueError(f"{path} is neither an environment file nor the environment of a process")
        return Source(path, entries, {}, [])
    try:
        text = content.decode()
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8, so systemd does not read it") from None
    return Source(path, systemd.environment_file(text, path), {}, [])


def conf(path: str, nccl: tuple[int, int, int] | None) -> Source:
    """A file in the form of /etc/nccl.conf."""
    from servewright.nccl import sources

    chosen = sources.effective((), sources.conf_file(_text(Path(path)), path, nccl))
    return Source(path, list(chosen.values()), {}, [])


def process(pid: int, nccl: tuple[int, int, int] | None, proc: Path = Path("/proc")) -> Source:
    """The environment that a process was started with, and the settings files that NCCL reads in it.

    Raises OSError when it is not there or not ours to read.
    """
    from servewright.nccl import sources

    folder = proc / str(pid)
    environ = folder / "environ"
    environment = sources.environ(environ.read_bytes(), str(environ))
    command = (folder / "cmdline").read_bytes().decode("utf-8", "surrogateescape").rstrip("\0").split("\0")
    given = {entry.name: entry.value for entry in environment}
    unread: list[str] = []
    files: list[list[Entry]] = []
    for path in (given.get("NCCL_CONF_FILE") or _home_conf(folder), "/etc/nccl.conf"):
        # Below the root of the process: in a container it is another one.
        seen = folder / "root" / path.lstrip("/")
        try:
            files.append(sources.conf_file(_text(seen), path, nccl))
        except (FileNotFoundError, NotADirectoryError):
            files.append([])
        except OSError:
            files.append([])
            unread.append(path)
    chosen = sources.effective(environment, *files)
    return Source(str(environ), list(chosen.values()), _engine(command), unread)


def _home_conf(folder: Path) -> str:
    try:
        return f"{pwd.getpwuid(folder.stat().st_uid).pw_dir}/.nccl.conf"
    except KeyError:
        return "/.nccl.conf"


def _unit_files(name: str) -> list[Path]:
    """The file of a unit and its drop-ins, in the order in which systemd reads them."""
    if "/" in name or (Path(name).is_file() and not any((folder / name).exists() for folder in UNIT_FOLDERS)):
        return [Path(name)]
    full = name if "." in name else f"{name}.service"
    file = next((folder / full for folder in UNIT_FOLDERS if (folder / full).exists()), None)
    if file is None:
        raise FileNotFoundError(2, f"no such unit in {', '.join(map(str, UNIT_FOLDERS))}", full)
    drop_ins: dict[str, Path] = {}
    for folder in UNIT_FOLDERS:
        for path in (folder / f"{full}.d").glob("*.conf"):
            drop_ins.setdefault(path.name, path)
    return [file, *(drop_ins[key] for key in sorted(drop_ins))]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def _engine(command: list[str]) -> dict[str, Any]:
    """Facts from an engine's argument list; {} when it is not an engine's, as with a wrapper script."""
    # A program in a bin folder or found by PATH, or a module; a model's path may hold an engine's name, too.
    paths = [PurePosixPath(word) for word in command if not word.startswith("-")]
    programs = [path.name.partition(".")[0] for path in paths if len(path.parts) == 1 or path.parent.name == "bin"]
    engine = next((program for program in programs if program in ("vllm", "sglang")), None)
    if engine is None:
        return {}
    sizes = [size for size in _tensor_parallel(command) if size.isdigit()]
    return {
        "engine": engine,
        "flags": command,
        "nodes": 1 if not any(word.split("=")[0].endswith("nnodes") for word in command) else None,
        "tensor_parallel": int(sizes[-1]) if sizes else 1,
    }


def _tensor_parallel(command: list[str]) -> Iterator[str]:
    """Values of the flag for the tensor parallel size, in every spelling of the two engines."""
    for word, following in zip(command, [*command[1:], ""], strict=True):
        flag, equals, value = word.partition("=")
        if flag.replace("_", "-") in ("--tensor-parallel-size", "-tp", "--tp-size", "--tp"):
            yield value if equals else following
