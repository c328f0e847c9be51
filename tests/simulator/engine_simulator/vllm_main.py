"""The API server process of the simulated vLLM: `vllm serve ...`."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import threading
import time
import uuid
from typing import Any

from . import flags, frontend, head, host, logs, misbehaviour, model, titles, vllm_args, web
from .channel import Channel
from .frontend import Frontend
from .generation import Generator
from .launch import Launch
from .misbehaviour import Misbehaviour
from .vllm_api import VllmApi

CORE_FAILED = (
    "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}"
)
ENGINE_DEATH_SECONDS = 5.0  # from a dead engine core to the end of the API server
FROZEN_CORE_SECONDS = 1.0  # how long a stop waits for an engine core that does not react


def log(text: str, place: str = "entry.py:140", level: str = "INFO") -> None:
    logs.vllm("APIServer", text, place, level)


def fail(lines: list[str]) -> None:
    """End with a traceback on the log, as an exception in the API server does."""
    logs.raw("Traceback (most recent call last):\n" + "\n".join(lines))
    os._exit(1)


def parse(argv: list[str], version: str) -> Any:
    """`vllm serve` arguments; exits 2 with the argparse line as the real parser does."""
    import argparse

    outer = vllm_args.FlexibleArgumentParser(prog="vllm", description="vLLM CLI")
    outer.add_argument("-v", "--version", action="version", version=version)
    commands = outer.add_subparsers(required=False, dest="subparser")
    parser = commands.add_parser("serve", usage="vllm serve [model_tag] [options]")
    vllm_args.make_arg_parser(parser, version)
    args = outer.parse_args(argv)
    if args.subparser is None:
        outer.print_help()
        sys.exit(0)
    try:
        vllm_args.speculation(args)
    except argparse.ArgumentTypeError as error:
        parser.error(f"argument --speculative-config/-sc: {error}")
    return args


class ApiServer(Frontend):
    serving = False
    lost_signals = 0

    def run(self) -> None:
        log(f"  █     version {self.launch.version}  model   {self.launch.model_path}", "api_utils.py:347")
        log(f"non-default args: {non_default(self.launch)}", "api_utils.py:286")
        try:
            listening = web.bind(self.launch.host, self.launch.port)
        except OSError as error:
            fail([f"OSError: [Errno {error.errno}] {os.strerror(error.errno or 0)}"])
        log(f"Resolved architecture: {(self.launch.config.get('architectures') or ['?'])[0]}", "model.py:733")
        log(f"Using max model len {self.launch.context}", "model.py:2152")
        leave_sockets()
        mine, theirs = Channel.pair()
        self.children.append(
            frontend.fork(
                lambda: head.run_engine_core(theirs, self.launch, self.bad), [theirs.fileno()], "VLLM::EngineCore"
            )
        )
        theirs.end.close()
        self.start_timers()
        self.catch_signals()
        message = self._wait(mine)
        self.not_if_leaving()
        if message is None or "failed" in message:
            fail([CORE_FAILED])
        self._serve(listening, mine, message or {})

    def _wait(self, channel: Channel) -> Any:
        """The engine core's first message; None when it died."""
        message = channel.receive()
        while message is None and self.lost_signals:
            signal.pause()  # a SIGTERM to the whole group leaves the API server waiting for a second one
        return message

    def _on_sigterm(self, signum: int, frame: Any) -> None:
        """While the engine core loads, the first SIGTERM has no effect and the second ends all (seen with 0.32.0)."""
        if self.serving:
            self.terminated.set()
            return
        self.lost_signals += 1
        if self.lost_signals > 1:
            self.leave(130)

    def _serve(self, listening: socket.socket, channel: Channel, ready: Any) -> None:
        if self.bad.never_ready:
            while True:
                time.sleep(1)
                log("Still waiting for the remaining weights.", "core_client.py:500")
        self.serving = True
        generator = self.make_generator(channel)
        api = VllmApi(self.launch, self.bad, generator)
        server = web.Server("vllm", listening)
        api.install(server)
        self.leave_orphan(listening, ready.get("segments", []))
        if not self.bad.silent_load:
            host = self.launch.host
            log(f"Starting vLLM server on http://{host}:{self.launch.port}")
            log("Available routes are:", "launcher.py:186")
            for path, methods in server.routes.items():
                log(f"Route: {path}, Methods: {', '.join(methods)}", "launcher.py:195")
            logs.raw(f"INFO:     Started server process [{os.getpid()}]")
            logs.raw("INFO:     Waiting for application startup.")
        listening.listen(2048)
        self.serve(server)
        if not self.bad.silent_load:
            logs.raw("INFO:     Application startup complete.")
        frontend.later(self.bad.exit_when_ready_after, lambda: self.leave(self.bad.exit_code))
        threading.Thread(target=self._watch_core, args=(generator,), daemon=True).start()
        self.terminated.wait()
        self._stop(generator)

    def _watch_core(self, generator: Generator) -> None:
        """Exit 0 some seconds after the engine core died: Restart=on-failure does not notice."""
        os.waitpid(self.children[0], 0)
        if self.terminated.is_set():
            return
        self.not_if_leaving()
        generator.link.dead.set()
        log("Engine core proc EngineCore died unexpectedly, shutting down client.", "core_client.py:700", "ERROR")
        time.sleep(ENGINE_DEATH_SECONDS * self.bad.life_scale)
        logs.raw("INFO:     Shutting down")
        logs.raw("INFO:     Application shutdown complete.")
        self.leave(0)

    def _stop(self, generator: Generator) -> None:
        drain = self.launch.drain_seconds or 0.0
        mode = "drain" if drain else "abort"
        log(f"[shutdown] API server: stopping engine client mode={mode} timeout={drain:.0f}s", "launcher.py:270")
        deadline = time.monotonic() + drain
        while generator.counters.running and time.monotonic() < deadline:
            time.sleep(0.05)
        generator.aborted.set()
        frontend.kill(self.children, signal.SIGTERM)
        deadline = time.monotonic() + FROZEN_CORE_SECONDS * self.bad.life_scale
        while host.start_time(self.children[0]) is not None and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.15)  # lets the handlers of aborted requests close their connections
        log("[shutdown] API server: shutting down FastAPI HTTP server", "launcher.py:304")
        for text in ("Shutting down", "Waiting for application shutdown.", "Application shutdown complete."):
            logs.raw(f"INFO:     {text}")
        self.leave(0)


def non_default(launch: Launch) -> str:
    """The arguments that were given; vLLM hides its API keys here, SGLang does not."""
    defaults = {flag.dest: flag.default for flag in flags.table("vllm", launch.version)}
    given = {k: v for k, v in vars(launch.args).items() if v != defaults.get(k) and v is not None}
    return repr({k: "***" if k == "api_key" else v for k, v in given.items() if k != "subparser"})


def leave_sockets() -> None:
    """The inter-process sockets that vLLM leaves in TMPDIR at every stop."""
    for _ in range(7):
        path = f"{tempfile.gettempdir()}/{uuid.uuid4()}"
        try:
            end = socket.socket(socket.AF_UNIX)
            end.bind(path)
            end.close()
        except OSError:
            return  # a path too long for a socket: nothing depends on them


def main(argv: list[str], version: str) -> None:
    bad: Misbehaviour = misbehaviour.read(os.environ)
    titles.set_name("vllm")
    args = parse(argv, version)
    try:
        vllm_args.validate_parsed_serve_args(args)
        launch = vllm_args.launch(args, version, bad)
    except (model.ModelError, TypeError, ValueError) as error:
        text = str(error)
        fail([text] if isinstance(error, model.ModelError) else [f"{type(error).__name__}: {text}"])
        return
    ApiServer(launch, bad).run()
