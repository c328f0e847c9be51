"""Log lines in the engines' formats, one write each so that lines of several processes never mix.

SGLang writes its log to stderr, vLLM to stdout; the web server's access lines go to stdout in both.
"""

from __future__ import annotations

import contextlib
import os
import time


def text(content: str, fd: int = 2) -> None:
    """Exactly this text; a reader of the log that is gone does not stop an engine."""
    with contextlib.suppress(OSError):
        os.write(fd, content.encode())


def raw(line: str, fd: int = 2) -> None:
    text(line + "\n", fd)


def sglang(line: str, rank: str = "") -> None:
    """`rank`: TP0, TP1, ... as schedulers of a tensor-parallel group put it."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    raw(f"[{stamp}{' ' + rank if rank else ''}] {line}")


def vllm(process: str, lines: str, place: str = "core.py:100", level: str = "INFO") -> None:
    """`process`: APIServer, EngineCore, Worker_TP0, ...; `place`: the source file and line named in the log."""
    stamp = time.strftime("%m-%d %H:%M:%S")
    head = f"({process} pid={os.getpid()}) {level} {stamp} [{place}] "
    for line in lines.split("\n"):
        raw(head + line, 1)


def access(engine: str, client: str, request: str, status: str) -> None:
    line = f'INFO:     {client} - "{request}" {status}'
    raw(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {line}" if engine == "sglang" else line, 1)


def bar(engine: str, title: str, percent: int, done: int, total: int, seconds: float) -> str:
    """One update of the weight loading bar.

    vLLM ends each update with a newline, SGLang (0.5.17, 0.5.23) only the last one, so in a journal its
    progress shows up as one line when loading is over.
    """
    clock = f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
    end = "\n" if engine == "vllm" or done == total else ""
    return f"\r{title}: {percent:3d}% Completed | {done}/{total} [{clock}<00:00,  1.00it/s]{end}"


def capture(title: str, done: int, total: int) -> str:
    """One update of the graph capture bar: a plain bar, one line in the end."""
    full = done * 10 // total
    end = "\n" if done == total else ""
    return f"\r{title}: {done * 100 // total:3d}%|{'█' * full}{' ' * (10 - full)}| {done}/{total}{end}"
