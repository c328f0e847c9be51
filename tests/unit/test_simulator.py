"""The engine simulator behaves like the engines where a deploy tool looks. Needs no systemd and no GPU."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from tests.simulator.install import engine_folder, install

VERSIONS = {"sglang": "0.5.23", "vllm": "0.32.0"}
TITLES = {
    "sglang": {"sglang::scheduler_TP0", "sglang::scheduler_TP1", "sglang::detokenizer"},
    "vllm": {"VLLM::EngineCore", "VLLM::Worker_TP0", "VLLM::Worker_TP1"},
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("root")
    install(folder)
    return folder


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Engine:
    """A running simulated engine in a session of its own."""

    def __init__(self, root: pathlib.Path, name: str, *flags: str, port: int = 0, **environment: str) -> None:
        self.name = name
        self.port = port or free_port()
        folder = engine_folder(root, name, VERSIONS[name])
        model = str(root / "opt/simulator/model")
        where = ["--host", "127.0.0.1", "--port", str(self.port), "--served-model-name", "kimi"]
        if name == "sglang":
            argv = [str(folder / "bin/python"), "-m", "sglang.launch_server", "--model-path", model]
            argv += ["--context-length", "8192"]
        else:
            argv = [str(folder / "bin/vllm"), "serve", model, "--max-model-len", "8192"]
        self.log = root / f"{name}-{self.port}.log"
        self.shm = root / "shm"
        self.shm.mkdir(exist_ok=True)
        base = {"PATH": "/usr/bin:/bin", "TMPDIR": str(root), "SIM_LOAD_SECONDS": "0.1", "SIM_LIFE_SCALE": "0.02"}
        base["SIM_SHM_FOLDER"] = str(self.shm)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [*argv, *where, *flags],
                env={**base, **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=root,
            )

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.port}{path}"

    def get(self, path: str, **headers: str) -> tuple[int, Any]:
        return send(urllib.request.Request(self.url(path), headers=headers))

    def post(self, path: str, body: dict[str, Any], timeout: float = 20, **headers: str) -> tuple[int, Any]:
        data = json.dumps(body).encode()
        return send(urllib.request.Request(self.url(path), data, {**JSON, **headers}), timeout)

    def ready(self) -> Engine:
        line = "fired up" if self.name == "sglang" else "Application startup complete"
        self.wait_for(line)
        return self

    def wait_for(self, line: str) -> None:
        deadline = time.monotonic() + 30
        while line not in self.text():
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < deadline, self.text()
            time.sleep(0.02)

    def text(self) -> str:
        return self.log.read_text(errors="replace")

    def pids(self) -> dict[int, str]:
        """Living processes of the session and their titles."""
        found = {}
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                head, _, rest = stat.read_text().rpartition(")")
                state, _, _, session = rest.split()[:4]
                pid = int(head.split()[0])
                if int(session) == self.process.pid and state not in "ZX":
                    found[pid] = (stat.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode().strip()
        return found

    def segments(self) -> set[pathlib.Path]:
        """Shared memory files that a process of the session has mapped, by inode."""
        inodes = set()
        for pid in self.pids():
            with contextlib.suppress(OSError):
                for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
                    if str(self.shm) in line:
                        inodes.add(int(line.split()[4]))
        return {file for file in self.shm.iterdir() if file.stat().st_ino in inodes}

    def pid_of(self, title: str) -> int:
        return next(pid for pid, shown in self.pids().items() if shown == title)

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(20)

    def destroy(self) -> None:
        for pid in self.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait(10)


def send(request: urllib.request.Request, timeout: float = 20) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(request, timeout=timeout) as response:
            body = response.read().decode()
            status = response.status
    except urllib.error.HTTPError as error:
        body = error.read().decode()
        status = error.code
    try:
        return status, json.loads(body)
    except ValueError:
        return status, body


@pytest.fixture
def start(root: pathlib.Path) -> Iterator[Any]:
    """Starts engines and leaves nothing of them behind."""
    engines: list[Engine] = []

    def start_one(name: str, *flags: str, port: int = 0, **environment: str) -> Engine:
        first = 2 * len(engines)
        own_gpus = {"CUDA_VISIBLE_DEVICES": f"{first},{first + 1}"}
        engines.append(Engine(root, name, *flags, port=port, **{**own_gpus, **environment}))
        return engines[-1]

    yield start_one
    for engine in engines:
        engine.destroy()


JSON = {"Content-Type": "application/json"}
ASK = {"model": "kimi", "prompt": "The capital of France is", "max_tokens": 8, "temperature": 0}
both = pytest.mark.parametrize("name", ["sglang", "vllm"])


@both
def test_serves_and_stops_like_the_engine(start: Any, name: str) -> None:
    engine = start(name, "--tensor-parallel-size", "2").ready()
    status, answer = engine.post("/v1/completions", ASK)
    assert (status, answer["choices"][0]["text"]) == (200, " Paris.")
    assert answer["usage"]["completion_tokens"] == 2
    status, models = engine.get("/v1/models")
    assert (models["data"][0]["id"], models["data"][0]["max_model_len"]) == ("kimi", 8192)
    assert set(engine.pids().values()) >= TITLES[name]

    kinds = {file.name.split("_")[0].split("-")[0] for file in engine.segments()}
    assert kinds == ({"psm", "nccl", "sem.mp"} if name == "vllm" else {"sglang", "sgl", "nccl", "sem.mp"})
    mapped = engine.segments()
    assert engine.stop() == 0
    left = {file for file in mapped if file.exists()}
    assert sorted(file.name[:7] for file in left) == ([] if name == "vllm" else ["sgl_shm", "sglang_"])
    assert engine.pids() == {}


def test_sglang_tells_what_is_in_force(start: Any) -> None:
    engine = start("sglang", "--tp", "2", "--speculative-algorithm", "EAGLE3", "--api-key", "k").ready()
    assert engine.get("/server_info")[0] == 401
    assert engine.get("/health")[0] == 200
    status, info = engine.get("/server_info", Authorization="Bearer k")
    assert status == 200
    assert info["attention_backend"] == "triton"  # an MLA model on compute capability 12.0
    assert (info["tp_size"], info["version"], info["status"]) == (2, "0.5.23", "ready")
    assert info["max_running_requests"] is None
    assert info["internal_states"][0]["effective_max_running_requests_per_dp"] == 48
    assert engine.get("/metrics", Authorization="Bearer k")[0] == 404


def test_vllm_hides_its_server_info(start: Any) -> None:
    engine = start("vllm", VLLM_API_KEY="k").ready()
    assert engine.get("/server_info")[0] == 404
    assert engine.get("/version") == (200, {"version": "0.32.0"})
    assert engine.get("/v1/models")[0] == 401
    assert engine.post("/v1/completions", ASK, Authorization="Bearer k")[0] == 200
    assert "vllm:generation_tokens_total" in engine.get("/metrics")[1]
    assert "Using TRITON_MLA attention backend" in engine.text()


@both
def test_refuses_like_the_engine(start: Any, name: str) -> None:
    engine = start(name).ready()
    status, answer = engine.post("/v1/completions", {**ASK, "model": "other"})
    assert status == (404 if name == "vllm" else 200)  # SGLang does not look at the name
    status, answer = engine.post("/v1/completions", {**ASK, "prompt": [1] * 9000})
    assert status == 400
    assert "context length" in (answer["error"] if name == "vllm" else answer)["message"]
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}]
    chat = {"messages": [{"role": "user", "content": "What is the weather?"}], "tools": tools}
    assert engine.post("/v1/chat/completions", chat)[0] == (400 if name == "vllm" else 200)


@both
def test_streams_with_usage(start: Any, name: str) -> None:
    engine = start(name, SIM_SPEED="20").ready()
    body = {**ASK, "max_tokens": 50, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}
    events = [line[6:] for line in engine.post("/v1/completions", body)[1].split("\n") if line]
    assert events[-1] == "[DONE]"
    assert json.loads(events[-2])["usage"]["completion_tokens"] == 50
    assert json.loads(events[-3])["choices"][0]["finish_reason"] == "length"
    again = [line[6:] for line in engine.post("/v1/completions", body)[1].split("\n") if line]
    texts = ["".join(json.loads(e)["choices"][0]["text"] for e in run[:-2]) for run in (events, again)]
    assert texts[0] == texts[1]


@both
def test_sigterm_under_load(start: Any, name: str) -> None:
    engine = start(name).ready()
    body = {**ASK, "max_tokens": 200, "ignore_eos": True, "stream": True}
    request = urllib.request.Request(engine.url("/v1/completions"), json.dumps(body).encode(), JSON)
    with urllib.request.urlopen(request, timeout=20) as response:
        response.readline()
        engine.process.terminate()
        events = [line[6:].strip() for line in response if line.strip()]
    assert events[-1] == b"[DONE]"
    last = json.loads(events[-2])
    assert last["choices"][0]["finish_reason"] == ("length" if name == "sglang" else "abort")
    assert engine.process.wait(20) == 0


def test_calls_tools_and_speaks_json(start: Any) -> None:
    engine = start("vllm", "--enable-auto-tool-choice", "--tool-call-parser", "kimi_k2").ready()
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": parameters}}]
    chat = {"messages": [{"role": "user", "content": "What is the weather in Oslo?"}], "tools": tools}
    choice = engine.post("/v1/chat/completions", chat)[1]["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) == {"city": "Oslo"}
    chat = {"messages": [{"role": "user", "content": "2+2="}], "response_format": {"type": "json_object"}}
    assert json.loads(engine.post("/v1/chat/completions", chat)[1]["choices"][0]["message"]["content"])


@both
def test_bad_command_lines_end_as_in_the_engine(start: Any, name: str) -> None:
    unknown = start(name, "--foo")
    choice = start(name, "--dtype", "int3")
    heads = start(name, "--tensor-parallel-size", "7")
    assert [engine.process.wait(20) for engine in (unknown, choice, heads)] == [2, 2, 1]
    assert "error: unrecognized arguments: --foo" in unknown.text()
    assert "invalid choice: 'int3'" in choice.text()


def test_argv_can_be_checked_without_a_start(root: pathlib.Path) -> None:
    model = root / "opt/simulator/model"
    sglang = (
        "from sglang.srt.server_args import prepare_server_args as p;"
        f"a = p(['--model-path', '{model}', '--tp-siz', '2', '--context-length', '4k']);"
        "print(a.tp_size, a.context_length)"
    )
    vllm = (
        "from vllm.utils.argparse_utils import FlexibleArgumentParser as F;"
        "from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args;"
        "from vllm.engine.arg_utils import AsyncEngineArgs;"
        f"a = make_arg_parser(F(prog='vllm serve')).parse_args(['{model}', '--max_model_len', '4k', '-tp', '2']);"
        "validate_parsed_serve_args(a); a.model = a.model_tag;"
        "c = AsyncEngineArgs.from_cli_args(a).create_engine_config();"
        "print(c.parallel_config.tensor_parallel_size, c.model_config.max_model_len)"
    )
    for name, code in (("sglang", sglang), ("vllm", vllm)):
        python = engine_folder(root, name, VERSIONS[name]) / "bin/python"
        version = f"import importlib.metadata as m, {name}; print(m.version('{name}'), {name}.__version__)"
        run = subprocess.run([python, "-c", f"{code}\n{version}"], capture_output=True, text=True, check=True)
        assert run.stdout.split() == ["2", "4000", VERSIONS[name], VERSIONS[name]]


def test_a_killed_rank_ends_the_engine(start: Any) -> None:
    vllm = start("vllm", "-tp", "2").ready()
    sglang = start("sglang", "--tp", "2").ready()
    os.kill(vllm.pid_of("VLLM::Worker_TP1"), signal.SIGKILL)
    os.kill(sglang.pid_of("sglang::scheduler_TP1"), signal.SIGKILL)
    assert vllm.process.wait(20) == 0  # Restart=on-failure would not restart it
    assert sglang.process.wait(20) == -signal.SIGKILL


def test_sigterm_to_the_whole_group(start: Any) -> None:
    """What systemd does with KillMode=control-group: it kills SGLang's schedulers under their launcher."""
    vllm = start("vllm").ready()
    sglang = start("sglang").ready()
    for engine in (vllm, sglang):
        os.killpg(engine.process.pid, signal.SIGTERM)
    assert vllm.process.wait(20) == 0
    assert sglang.process.wait(20) == -signal.SIGKILL


def test_sigterm_while_loading(start: Any) -> None:
    """vLLM loses the first one and would go on to serve; it takes a second."""
    deaf = start("vllm", SIM_LOAD_SECONDS="1")
    twice = start("vllm", SIM_STALL_AT="10")
    sglang = start("sglang", SIM_STALL_AT="10")
    deaf.wait_for("Initializing a V1 LLM engine")
    deaf.process.terminate()
    twice.wait_for("10% Completed")
    sglang.wait_for("10% Completed")
    sglang.process.terminate()
    twice.process.terminate()
    assert sglang.process.wait(20) == -signal.SIGTERM
    assert deaf.ready().post("/v1/completions", ASK)[0] == 200
    assert deaf.stop() == 0
    assert twice.process.poll() is None
    assert twice.stop() == 130


def test_a_killed_main_process(start: Any) -> None:
    vllm = start("vllm", SIM_LIFE_SCALE="1").ready()
    sglang = start("sglang").ready()
    for engine in (vllm, sglang):
        engine.process.kill()
        engine.process.wait()
    deadline = time.monotonic() + 10
    while sglang.pids() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert sglang.pids() == {}
    assert set(vllm.pids().values()) == {"VLLM::EngineCore", "VLLM::Worker"}  # orphans that hold the GPU


def test_a_frozen_rank(start: Any) -> None:
    vllm = start("vllm").ready()
    sglang = start("sglang").ready()
    os.kill(vllm.pid_of("VLLM::EngineCore"), signal.SIGSTOP)
    os.kill(sglang.pid_of("sglang::scheduler"), signal.SIGSTOP)
    assert vllm.get("/health")[0] == 200
    assert sglang.get("/health")[0] == 503
    with pytest.raises(TimeoutError):
        vllm.post("/v1/completions", ASK, timeout=0.5)


def test_sglang_hangs_on_a_taken_port(start: Any) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        vllm = start("vllm", port=port)
        sglang = start("sglang", port=port)
        sglang.wait_for("[Errno 98]")
        sglang.process.terminate()
        assert vllm.process.wait(20) == 1
        with pytest.raises(subprocess.TimeoutExpired):
            sglang.process.wait(0.5)


def smi(root: pathlib.Path, *arguments: str) -> list[str]:
    run = subprocess.run([root / "usr/local/bin/nvidia-smi", *arguments], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    return run.stdout.splitlines()


def test_gpu_memory_is_held_and_given_back(root: pathlib.Path, start: Any) -> None:
    used = ("--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "3")
    apps = ("--query-compute-apps=pid,gpu_uuid,used_memory", "--format=csv,noheader")
    engine = start("vllm", CUDA_VISIBLE_DEVICES="3", SIM_GPU_LINGER="1").ready()
    assert int(smi(root, *used)[0]) > 80000
    assert str(engine.pid_of("VLLM::Worker")) in smi(root, *apps)[0]
    second = start("vllm", CUDA_VISIBLE_DEVICES="3")
    assert second.process.wait(20) == 1
    assert "is less than desired GPU memory utilization" in second.text()
    engine.stop()
    assert smi(root, *apps) == []
    assert int(smi(root, *used)[0]) > 80000  # nobody's any more, and still not free
    deadline = time.monotonic() + 10
    while smi(root, *used) != ["0"] and time.monotonic() < deadline:
        time.sleep(0.1)
    assert smi(root, *used) == ["0"]


def test_nvidia_smi_fails_on_request(root: pathlib.Path) -> None:
    assert len(smi(root, "-L")) == 8
    misbehaviour = root / "etc/simulator/nvidia-smi.json"
    try:
        misbehaviour.write_text('{"hide": [7]}')
        assert len(smi(root, "-L")) == 7
        misbehaviour.write_text('{"mismatch": true}')
        run = subprocess.run([root / "usr/local/bin/nvidia-smi"], capture_output=True, text=True, check=False)
        assert run.returncode == 18
        assert "Driver/library version mismatch" in run.stdout
    finally:
        misbehaviour.unlink()


def test_misbehaviours_while_loading(start: Any) -> None:
    stalled = start("vllm", SIM_STALL_AT="30")
    died = start("vllm", SIM_LOAD_SECONDS="30", SIM_DIE_AFTER="0.2")
    left = start("sglang", SIM_EXIT_AFTER="0.3", SIM_EXIT_CODE="7", SIM_LOAD_SECONDS="30")
    silent = start("sglang", SIM_SILENT_LOAD="1")
    typo = start("sglang", SIM_STAL_AT="30")
    stalled.wait_for("30% Completed")
    assert died.process.wait(20) == 1
    assert "shapes cannot be multiplied" in died.text()
    assert "Engine core initialization failed" in died.text()
    assert left.process.wait(20) == 7
    assert typo.process.wait(20) == 64
    while silent.get("/health")[0] != 200 if _listens(silent) else True:
        time.sleep(0.05)
    assert "fired up" not in silent.text()
    assert "40% Completed" not in stalled.text()
    assert stalled.process.poll() is None


def _listens(engine: Engine) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", engine.port)) == 0


def test_misbehaviours_while_serving(start: Any) -> None:
    liar = start("sglang", SIM_GARBAGE="1", SIM_WRONG_NAME="1", SIM_INFO_ENDPOINT="old", SIM_MAX_RUNNING="6").ready()
    assert set(liar.post("/v1/completions", ASK)[1]["choices"][0]["text"]) == {"!"}
    assert liar.get("/v1/models")[1]["data"][0]["id"] != "kimi"
    assert liar.get("/server_info")[0] == 404
    state = liar.get("/get_server_info")[1]["internal_states"][0]
    assert state["effective_max_running_requests_per_dp"] == 6
    mute = start("vllm", SIM_HANG_AFTER_REQUESTS="2", SIM_TRUNCATE_STREAM="1").ready()
    assert "[DONE]" not in truncated(mute)
    assert "[DONE]" not in truncated(mute)
    with pytest.raises(TimeoutError):
        mute.post("/v1/completions", ASK, timeout=0.5)
    assert mute.get("/health")[0] == 200


def truncated(engine: Engine) -> str:
    """What arrives of a stream that breaks off."""
    body = json.dumps({**ASK, "stream": True, "ignore_eos": True}).encode()
    request = urllib.request.Request(engine.url("/v1/completions"), body, JSON)
    text = b""
    with contextlib.suppress(OSError, ValueError), urllib.request.urlopen(request, timeout=10) as response:
        for line in response:
            text += line
    return text.decode()


def test_workers_may_lose_their_environment(start: Any) -> None:
    engine = start("vllm", "-tp", "2", SIM_CHILD_ENV_DROP="NCCL_", NCCL_PROTO="LL").ready()
    worker = pathlib.Path(f"/proc/{engine.pid_of('VLLM::Worker_TP1')}/environ").read_bytes()
    main = pathlib.Path(f"/proc/{engine.process.pid}/environ").read_bytes()
    assert b"NCCL_PROTO=LL" in main
    assert b"NCCL_PROTO" not in worker
    assert b"SIM_CHILD_ENV_DROP" in worker


def test_an_orphan_keeps_port_and_segments(start: Any) -> None:
    engine = start("sglang", "--tp", "2", SIM_ORPHAN="both").ready()
    mapped = engine.segments()
    assert engine.stop() == 0
    assert _listens(engine)
    holders = [
        int(maps.parent.name)
        for maps in pathlib.Path("/proc").glob("[0-9]*/maps")
        if any(str(file) in _read(maps) for file in mapped)
    ]
    for pid in holders:
        os.kill(pid, signal.SIGKILL)
    assert len(holders) == 1


def _read(file: pathlib.Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
