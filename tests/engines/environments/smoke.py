"""Start each engine for real, get one completion, end it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.engines.environments.engines import ensure_sglang, ensure_vllm
from tests.engines.environments.failure import EnvironmentFailure
from tests.engines.environments.models import ensure_models

_READY_SECONDS = 180.0
_ANSWER_SECONDS = 60.0
_STOP_SECONDS = 30.0
_RATE_TOKENS = 128


# More threads than this gain a model of two layers nothing, and OpenMP's threads wait for each other by spinning:
# on a busy machine that makes generation ten times slower.
_ONE_THREAD = {"OMP_NUM_THREADS": "1"}
_VLLM = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1"}
_SGLANG = {"SGLANG_USE_CPU_ENGINE": "1"}


def smoke() -> None:
    """Run both engines one after the other and print how they did. Raises EnvironmentFailure."""
    models = ensure_models()
    listen = ["--served-model-name", "tiny", "--host", "127.0.0.1", "--port"]
    port = _free_port()
    command = [str(ensure_vllm() / "bin" / "vllm"), "serve", str(models / "tiny-deepseek"), *listen, str(port)]
    _try("vllm", port, [*command, "--max-model-len", "2048", "--enforce-eager"], _ONE_THREAD | _VLLM)
    port = _free_port()
    command = [str(ensure_sglang() / "bin" / "python"), "-m", "sglang.launch_server", *listen, str(port)]
    command += ["--model-path", str(models / "tiny-qwen3moe"), "--device", "cpu", "--attention-backend", "torch_native"]
    command += ["--mem-fraction-static", "0.3", "--max-total-tokens", "8192"]
    _try("sglang", port, command, _ONE_THREAD | _SGLANG)


def _try(name: str, port: int, command: list[str], variables: dict[str, str]) -> None:
    begin = time.monotonic()
    with _running(command, variables) as (process, log):
        while True:
            try:
                _complete(port, 1)
                break
            except OSError:  # which a refused connection and an HTTP error are
                _still_hoping(name, process, log, time.monotonic() - begin)
                time.sleep(0.5)
        ready = time.monotonic() - begin
        begin = time.monotonic()
        try:
            tokens = _complete(port, _RATE_TOKENS)
        except OSError as error:
            raise EnvironmentFailure(f"{name} was ready, then failed: {error}; its log:\n{_text(log)}") from error
        rate = tokens / (time.monotonic() - begin)
    print(f"{name}: ready after {ready:.0f} s, {rate:.0f} tokens/s in a single stream", flush=True)


@contextmanager
def _running(command: list[str], variables: dict[str, str]) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """The engine with an environment of its own in a process group of its own, all gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="servewright-smoke-", ignore_cleanup_errors=True) as scratch:
        log = Path(scratch) / "log"
        environment = {
            "PATH": "/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "HOME": scratch,
            "TMPDIR": scratch,
            "HF_HUB_OFFLINE": "1",
            **variables,
        }
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                env=environment,
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        try:
            yield process, log
        finally:
            shared = _shared_memory_of(process.pid)
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_STOP_SECONDS)
            # The group outlives a main process that died alone: vLLM's engine core and workers would go on.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for leftover in shared:  # SGLang does not remove its own, not even on SIGTERM
                leftover.unlink(missing_ok=True)


def _shared_memory_of(group: int) -> set[Path]:
    """Files in /dev/shm that processes of this group have mapped."""
    found: set[Path] = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The command name, in parentheses, may hold spaces; the process group is the third field after it.
            if int(stat.read_text().rpartition(")")[2].split()[2]) == group:
                found.update(
                    Path(name) for name in re.findall(r"/dev/shm/\S+$", (stat.parent / "maps").read_text(), re.M)
                )
        except (OSError, IndexError, ValueError):
            continue  # it ended meanwhile
    return found


def _complete(port: int, tokens: int) -> int:
    """Generate so many tokens; the number the engine says it generated. Raises OSError until it can."""
    body = {"model": "tiny", "prompt": "Hello", "max_tokens": tokens, "temperature": 0, "ignore_eos": True}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as response:
        return int(json.load(response)["usage"]["completion_tokens"])


def _still_hoping(name: str, process: subprocess.Popen[bytes], log: Path, seconds: float) -> None:
    ended = process.poll()
    if ended is None and seconds < _READY_SECONDS:
        return
    what = f"answered nothing for {seconds:.0f} s" if ended is None else f"ended with {ended} before it was ready"
    raise EnvironmentFailure(f"{name} {what}; its log:\n{_text(log)}")


def _text(log: Path) -> str:
    # Nearly all of it: vLLM's last traceback says only that a process died, the cause is a hundred lines above.
    return log.read_text(errors="replace")[-30_000:]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
