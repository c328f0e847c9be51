"""The launcher process of the simulated SGLang: `python -m sglang.launch_server ...`."""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import tempfile
import threading
import time
from typing import Any

from . import frontend, gpus, head, logs, misbehaviour, model, sglang_args, shm, web
from .channel import Channel, Lifeline
from .frontend import Frontend
from .generation import Generator
from .launch import Launch
from .misbehaviour import Misbehaviour
from .sglang_api import SglangApi

CHILD_DEATH_SECONDS = 6.0  # from a killed scheduler to the end of the launcher
FROZEN_SCHEDULER_SECONDS = 80.0  # how long a frozen scheduler makes the launcher ignore SIGTERM (0.5.23)
CHILD_FAILED_AT_START = "Received sigquit from a child process. It usually means the child failed."


class Launcher(Frontend):
    def __init__(self, launch: Launch, bad: Misbehaviour) -> None:
        super().__init__(launch, bad)
        self.temporary: list[str] = []
        self.lifeline = Lifeline()

    def run(self) -> None:
        given = {k: v for k, v in vars(self.launch.args).items() if not k.startswith("_")}
        logs.sglang(f"server_args={given}")  # with the API key in clear, as the real one (0.5.23)
        if not reserve_nccl_port(self.launch.args):
            self._child_failed(CHILD_FAILED_AT_START)
        for _ in range(5):  # names of inter-process sockets, left behind at every stop
            os.close(tempfile.mkstemp(prefix="tmp")[0])
        first = self._fork_schedulers()
        life = self.lifeline.reader
        self.children.append(frontend.fork(lambda: idle(life), [life], "sglang::detokenizer"))
        self.start_timers()
        ready = self._wait(first)
        if ready is None:
            self._child_failed(CHILD_FAILED_AT_START)
            return
        self._serve(first[0], ready)

    def _fork_schedulers(self) -> list[Channel]:
        """Start one scheduler per rank; returns the main process's channels, the first rank's first."""
        launch, bad = self.launch, self.bad
        mine: list[Channel] = []
        theirs: list[Channel] = []
        for _ in range(launch.ranks):
            left, right = Channel.pair()
            mine.append(left)
            theirs.append(right)
        links = [Channel.pair() for _ in range(launch.ranks - 1)]
        for rank in range(launch.ranks):
            title = f"sglang::scheduler_TP{rank}" if launch.ranks > 1 else "sglang::scheduler"
            others = [left for left, _ in links] if rank == 0 else []
            to_first = links[rank - 1][1] if rank else None
            keep = (
                [self.lifeline.reader, theirs[rank].fileno()]
                + [c.fileno() for c in others]
                + ([to_first.fileno()] if to_first else [])
            )

            def run(rank: int = rank, others: list[Channel] = others, to_first: Channel | None = to_first) -> None:
                Lifeline.hang_on(self.lifeline.reader)
                head.run_scheduler(theirs[rank], launch, bad, rank, others, to_first)

            self.children.append(frontend.fork(run, keep, title))
        for channel in theirs + [end for pair in links for end in pair]:
            channel.end.close()
        return mine

    def _wait(self, channels: list[Channel]) -> Any:
        """The first scheduler's report, or None when any scheduler failed. SIGTERM kills meanwhile (0.5.23)."""
        readable, _, _ = select.select(channels, [], [])
        message = readable[0].receive()
        return None if message is None or "failed" in message else message

    def _child_failed(self, text: str) -> None:
        """SGLang's launcher kills its tree and itself when a child fails."""
        self.not_if_leaving()
        logs.sglang(text)
        frontend.kill(self.children)
        os.kill(os.getpid(), signal.SIGKILL)

    def _serve(self, channel: Channel, ready: Any) -> None:
        self.temporary = ready.get("temporary", [])
        if self.bad.never_ready:
            while True:
                time.sleep(1)
                logs.sglang("Still waiting for the remaining weights.")
        generator = self.make_generator(channel)
        api = SglangApi(self.launch, self.bad, generator, int(ready["tokens"]))
        self.say(f"INFO:     Started server process [{os.getpid()}]")
        self.say("INFO:     Application startup complete.")
        try:
            listening = web.bind(self.launch.host, self.launch.port)
        except OSError as error:
            self._hang_on_taken_port(error)
            return
        server = web.Server("sglang", listening)
        api.install(server)
        self.leave_orphan(listening, ready.get("segments", []))
        self.catch_signals()
        listening.listen(2048)
        self.serve(server)
        self.say(f"INFO:     Uvicorn running on http://{self.launch.host}:{self.launch.port} (Press CTRL+C to quit)")
        threading.Thread(target=self._watch_children, args=(generator,), daemon=True).start()
        self._warm_up(api, generator)
        frontend.later(self.bad.exit_when_ready_after, lambda: self.leave(self.bad.exit_code))
        self.terminated.wait()
        self._stop(api, generator)

    def say(self, text: str) -> None:
        if not self.bad.silent_load:
            logs.sglang(text)

    def _hang_on_taken_port(self, error: OSError) -> None:
        """Seen with 0.5.23: the launcher neither serves nor ends, and does not react to SIGTERM."""
        address = (self.launch.host, self.launch.port)
        logs.sglang(
            f"ERROR:    [Errno {error.errno}] error while attempting to bind on address {address}: "
            "address already in use"
        )
        logs.sglang("INFO:     Waiting for application shutdown.")
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(3600)

    def _warm_up(self, api: SglangApi, generator: Generator) -> None:
        """The first request, from inside; a kernel that does not fit the GPU fails here."""
        launch = self.launch
        unfit = launch.on_gpu and model.is_mla(launch.config) and float(gpus.facts()["compute_cap"]) >= 12
        if unfit and getattr(launch.args, "attention_backend", None) == "trtllm_mla":
            generator.link.fatal("RuntimeError: Error in function 'TllmGenFmhaRunner': Unsupported architecture")
            return
        if not generator.warm_up():
            return
        self.say(
            "Prefill batch, #new-seq: 1, #new-token: 6, #cached-token: 0, token usage: 0.00, #running-req: 0, "
            "#queue-req: 0, input throughput (token/s): 120.00"
        )
        api.up = True
        api.ready_since = time.monotonic()
        self.say("The server is fired up and ready to roll!")

    def _watch_children(self, generator: Generator) -> None:
        """A child's death ends everything, a SIGTERM to the whole group included: it kills the schedulers."""
        pid, status = os.waitpid(-1, 0)
        self.not_if_leaving()
        generator.link.dead.set()
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status)
        logs.sglang(
            f"Subprocess scheduler_0 (pid={pid}) crashed with exit code {code}. Triggering SIGQUIT for cleanup..."
        )
        logs.sglang("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        logs.sglang("Sleeping 5 seconds before crash diagnostics to let GPU activity settle.")
        time.sleep(CHILD_DEATH_SECONDS * self.bad.life_scale)
        self._child_failed(
            f"kill_process_tree called: parent_pid={os.getpid()}, include_parent=True, pid={os.getpid()}"
        )

    def _stop(self, api: SglangApi, generator: Generator) -> None:
        api.exiting = True
        logs.sglang("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        answered = generator.link.confirm(3.0 * self.bad.life_scale)
        if generator.link.dead.is_set():
            threading.Event().wait()  # the thread that watches the children ends this
        if not answered:
            logs.sglang("Signal SIGTERM received while health check failed. Force exiting.")
            logs.sglang("Waiting 60.0 seconds for CUDA coredumps before exiting.")
            time.sleep(FROZEN_SCHEDULER_SECONDS * self.bad.life_scale)
            self.temporary = []
            self._leave_cleanly()
        while generator.counters.running:
            time.sleep(0.05)
        time.sleep(min(0.5, self.bad.life_scale * 0.5))
        self._leave_cleanly()

    def _leave_cleanly(self) -> None:
        logs.sglang(f"kill_process_tree called: parent_pid={os.getpid()}, include_parent=False, pid={os.getpid()}")
        shm.remove(self.temporary)
        for text in ("Shutting down", "Waiting for application shutdown.", "Application shutdown complete."):
            logs.sglang(f"INFO:     {text}")
        logs.sglang(f"INFO:     Finished server process [{os.getpid()}]")
        self.leave(0)


def idle(life: int) -> None:
    """The detokenizer: exists until the launcher is gone."""
    os.read(life, 1)
    os._exit(1)


_nccl_port: socket.socket | None = None


def reserve_nccl_port(args: Any) -> bool:
    """Listen on the rendezvous port that was asked for; False, with the log line, when it is taken."""
    global _nccl_port
    if args.nccl_port is None:
        return True
    try:
        _nccl_port = web.bind("0.0.0.0", args.nccl_port)
        _nccl_port.listen(16)
        return True
    except OSError:
        logs.sglang(
            "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
            f"port: {args.nccl_port}, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use"
        )
        return False


def main(argv: list[str], version: str) -> None:
    bad: Misbehaviour = misbehaviour.read(os.environ)
    logs.raw(
        "UserWarning: 'python -m sglang.launch_server' is still supported, but 'sglang serve' is the recommended "
        "entrypoint."
    )
    args = sglang_args.prepare_server_args(argv, version)
    try:
        launch = sglang_args.launch(args, version, bad)
    except model.ModelError as error:
        logs.raw("Traceback (most recent call last):")
        logs.raw(str(error))
        sys.exit(1)
    Launcher(launch, bad).run()
