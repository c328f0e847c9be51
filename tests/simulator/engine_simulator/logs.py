"""Log lines in the engines' formats, one write each so that lines of several processes never mix.

SGLang writes its log to stderr, vLLM to stdout; the web server's access lines go to stdout in both.
"""

from __future__ import annotations

import os
import time


def raw(line: str, fd: int = 2) -> None:
    try:
        os.write(fd, (line + "\n").encode())
    except OSError:
        pass  # the reader of the log is gone; the engines do not stop for that either


def sglang(text: str, rank: str = "") -> None:
    """`rank`: TP0, TP1, ... as schedulers of a tensor-parallel group put it."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S")
    raw(f"[{stamp}{' ' + rank if rank else ''}] {text}")


def vllm(process: str, text: str, place: str = "core.py:100", level: str = "INFO") -> None:
    """`process`: APIServer, EngineCore, Worker_TP0, ...; `place`: the source file and line named in the log."""
    stamp = time.strftime("%m-%d %H:%M:%S")
    head = f"({process} pid={os.getpid()}) {level} {stamp} [{place}] "
    for line in text.split("\n"):
        raw(head + line, 1)


def access(engine: str, client: str, request: str, status: str) -> None:
    line = f'INFO:     {client} - "{request}" {status}'
    raw(f"[{time.strftime('%Y-%m-%d %H:%M:%S')}] {line}" if engine == "sglang" else line, 1)


def progress(title: str, percent: int, done: int, total: int, seconds: float) -> str:
    """One update of the weight loading bar; both engines end each update with a newline."""
    clock = f"{int(seconds) // 60:02d}:{int(seconds) % 60:02d}"
    return f"\r{title}: {percent:3d}% Completed | {done}/{total} [{clock}<00:00,  1.00it/s]\n"
