"""Times NCCL collectives on this host under given environments, and checks their results.

Runs alone, on Python 3.9 or newer, with nothing but the standard library and the torch of the environment whose
NCCL is to be measured:

    /opt/.../bin/python probe.py [--output RESULT.json] JOB.json        ("-" reads the job from standard input)

The job, one JSON object (times in seconds, sizes in bytes of the larger of a collective's two buffers):

    ranks         processes, one GPU each
    backend       "nccl", or "gloo" for a rehearsal on CPUs that says nothing about GPUs
    environment   variables set for every case
    cases         [{name, environment, files, round, sizes, record}]: name and environment as measured; files maps a
                  variable to a text that is written to a file, whose path becomes the variable's value; sizes,
                  collectives and repeats replace the job's; record true makes the case short and has NCCL write its
                  log; settings {name: {table, sizes}} are measured in turn on this case's one communicator, each as a
                  case of its own in the result: a tuner plugin that reads NCCL_TUNER_CONFIG_FILE again for every
                  message chooses among them; prune, a factor: a setting that is slower than the best so far of its
                  size by more is timed once and left
    gang          cases whose processes start at once; they are measured one after another all the same
    collectives   of all_reduce, all_gather, reduce_scatter
    calls         calls per graph, at most: large messages get fewer
    sizes, dtype, repeats, graph, timeout (per case), debug_directory (where records go)

The result, one JSON object on standard output or in the file: what the host and the library are, and for each case
the times per collective and size, or a diagnosis with a name and what to do. The exit status is 0 when every case
was measured and right, 1 when one was not, 2 when the job cannot be used.

The process that reads the job imports torch and never touches a GPU; each rank of each case is a fork of it. So a
case costs no import of torch, and a rank that hangs in the driver takes nothing else with it. What is left of a
start, CUDA and the communicator, a gang shares: its ranks start together, and idle until theirs is the turn.
"""

# ruff: noqa: B905, UP017 (this runs on Python 3.9: zip has no `strict`, datetime no `UTC`)
from __future__ import annotations

import argparse
import contextlib
import ctypes
import datetime
import hashlib
import importlib
import json
import math
import os
import platform
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

Json = dict[str, Any]
# torch and its objects: this file is read where torch is not installed, too.
Torch = Any

SCHEMA = "servewright.nccl.probe/1"
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")
DTYPES = {"bfloat16": 2, "float16": 2, "float32": 4}
# A variable that only takes effect when a program is started cannot be set in a fork.
NEEDS_EXEC = ("LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH")
# The environment of whoever starts the probe must not change what is measured. Switching NVLink multicast off is a
# statement about the hardware, though, and stays.
INHERITED = ("NCCL_NVLS_ENABLE",)
TABLE = "NCCL_TUNER_CONFIG_FILE"
RELOAD = "SERVEWRIGHT_TUNER_RELOAD"
RECORDED = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,ENV,GRAPH,TUNING,P2P,SHM"}
# Graph memory and buffers are kept below this by capturing fewer calls of large messages.
BYTES_PER_GRAPH = 128 << 20
WARM_UP = 3
GRACE = 10.0
FACTS_TIMEOUT = 90.0
# The tail of what a rank printed that is kept for a diagnosis.
TAIL = 4000

WHAT_TO_DO = {
    "bad-job": "correct the job",
    "model-config": "the size of messages follows from hidden_size and dtype of the model's config.json, which the "
    "service's user must be able to read",
    "torch-missing": "run the probe with the Python of the engine's virtual environment",
    "cuda-missing": "check that nvidia-smi works, that /dev/nvidia* may be read and written by this user, and that "
    "torch is a CUDA build that this driver supports",
    "nccl-missing": "install the torch build with NCCL (torch.distributed.is_nccl_available() is false here)",
    "too-few-gpus": "measure with as many ranks as there are visible GPUs; with one GPU there is no NCCL traffic and "
    "nothing to tune",
    "mixed-gpus": "the slowest GPU sets the pace and NCCL treats the group differently; measure the GPUs of one model, "
    "chosen with CUDA_VISIBLE_DEVICES, unless the service really spans both",
    "gpus-in-use": "stop the services that hold these GPUs, or the times are wrong",
    "driver-hang": "a CUDA call did not return; look for Xid lines in the kernel log and restart the host if a GPU "
    "has fallen off the bus",
    "initialisation-failed": "NCCL refused to start with these settings; its own words are in the detail",
    "initialisation-hang": "the ranks did not find one another; check NCCL_SOCKET_IFNAME and a firewall on the "
    "loopback and local interfaces",
    "first-collective-hang": "NCCL started and the first message never arrived, the sign of an IOMMU that translates "
    "or of PCIe ACS between the GPUs; boot with iommu=pt (or amd_iommu=off / intel_iommu=off), switch ACS off on the "
    "root ports and on the switch ports (lspci -vvv, ACSCtl), and compare with NCCL_P2P_DISABLE=1 to confirm",
    "hang": "raise the time limit if the case was only slow; else read the stage in the detail",
    "out-of-memory": "free the GPUs or measure smaller messages and fewer channels",
    "no-algorithm": "NCCL_ALGO and NCCL_PROTO leave this collective no way to run; widen one of them",
    "unsupported": "this backend does not have the collective",
    "wrong-data": "the sums were wrong: do not serve with this environment; with P2P in use, check the IOMMU and ACS "
    "as for a hang, and LL128 must not be forced on links that do not keep 128-byte stores together",
    "rank-failed": "a rank ended early; its last words are in the detail",
    "unkillable": "a rank did not end even on SIGKILL, so the driver holds it; restart the host",
}


class BadJob(Exception):
    """The job cannot be used; the text says where and why."""


def diagnosis(name: str, detail: str = "", stops: bool = True) -> Json:
    return {"name": name, "detail": detail, "to_do": WHAT_TO_DO[name], "stops": stops}


# ---------------------------------------------------------------------------------------------------------------- job


def _want(condition: object, text: str) -> None:
    if not condition:
        raise BadJob(text)


def _whole(value: object, lowest: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= lowest


def _is_environment(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(name, str) and re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) and isinstance(text, str)
        for name, text in value.items()
    )


def _sizes(value: Any, where: str) -> None:
    _want(
        isinstance(value, list) and value and all(_whole(size, 4) for size in value),
        f"{where} must be a list of sizes in bytes, each 4 or more",
    )


def _collectives(value: Any, where: str) -> None:
    _want(
        isinstance(value, list) and value and all(name in COLLECTIVES for name in value),
        f"{where} must be a list out of {', '.join(COLLECTIVES)}",
    )


def read_job(text: str) -> Json:
    """The job with defaults filled in. Raises BadJob."""
    try:
        job = json.loads(text)
    except ValueError as error:
        raise BadJob(f"not JSON: {error}") from None
    _want(isinstance(job, dict), "the job is not a JSON object")
    known: Json = {
        "ranks": 2,
        "backend": "nccl",
        "environment": {},
        "cases": None,
        "collectives": ["all_reduce"],
        "sizes": None,
        "dtype": "bfloat16",
        "repeats": 20,
        "calls": 50,
        "graph": True,
        "timeout": 60,
        "debug_directory": None,
        "gang": 1,
    }
    unknown = sorted(set(job) - set(known))
    _want(not unknown, f"unknown key {unknown[0]!r}; there are: {', '.join(known)}" if unknown else "")
    job = {**known, **job}
    _want(_whole(job["ranks"], 2), "ranks must be 2 or more: one rank sends nothing")
    _want(job["backend"] in ("nccl", "gloo"), "backend must be nccl or gloo")
    _want(job["dtype"] in DTYPES, f"dtype must be one of {', '.join(DTYPES)}")
    for key in ("repeats", "calls", "gang"):
        _want(_whole(job[key], 1), f"{key} must be 1 or more")
    _want(isinstance(job["graph"], bool), "graph must be true or false")
    _want(
        isinstance(job["timeout"], (int, float)) and job["timeout"] > 0, "timeout must be a number of seconds"
    )
    _want(_is_environment(job["environment"]), "environment must map variable names to texts")
    _sizes(job["sizes"], "sizes")
    _collectives(job["collectives"], "collectives")
    _want(isinstance(job["cases"], list) and job["cases"], "cases must be a list with at least one case")
    if job["backend"] == "gloo":
        job["graph"] = False  # graphs are CUDA's
    job["cases"] = [read_case(case, f"cases[{place}]", job) for place, case in enumerate(job["cases"])]
    return job


def read_case(given: Any, where: str, job: Json) -> Json:
    _want(isinstance(given, dict), f"{where} is not an object")
    known: Json = {
        "name": None,
        "environment": {},
        "files": {},
        "round": 1,
        "record": False,
        "sizes": job["sizes"],
        "collectives": job["collectives"],
        "repeats": job["repeats"],
        "settings": {},
        "prune": None,
    }
    unknown = sorted(set(given) - set(known))
    _want(
        not unknown, f"{where}: unknown key {unknown[0]!r}; there are: {', '.join(known)}" if unknown else ""
    )
    case: Json = {**known, **given}
    _want(isinstance(case["name"], str) and case["name"], f"{where}.name must be a text")
    _want(_whole(case["round"], 1), f"{where}.round must be 1 or more")
    _want(isinstance(case["record"], bool), f"{where}.record must be true or false")
    _want(not case["record"] or job["debug_directory"], f"{where}.record needs the job's debug_directory")
    for key in ("environment", "files"):
        _want(_is_environment(case[key]), f"{where}.{key} must map variable names to texts")
        for name in NEEDS_EXEC:
            _want(
                name not in case[key],
                f"{where}.{key}: {name} acts on starting programs only; set it for the probe",
            )
    _sizes(case["sizes"], f"{where}.sizes")
    _collectives(case["collectives"], f"{where}.collectives")
    _want(_whole(case["repeats"], 1), f"{where}.repeats must be 1 or more")
    _want(isinstance(case["settings"], dict), f"{where}.settings must map names to tables and sizes")
    for name, setting in case["settings"].items():
        _want(
            isinstance(setting, dict) and set(setting) == {"table", "sizes"} and isinstance(setting["table"], str),
            f"{where}.settings: {name} must have a table, a text, and sizes",
        )
        _sizes(setting["sizes"], f"{where}.settings: {name}: sizes")
    _want(
        case["prune"] is None or (isinstance(case["prune"], (int, float)) and case["prune"] > 1),
        f"{where}.prune must be above 1",
    )
    return case


# --------------------------------------------------------------------------------------------------------------- host


def _command(*argv: str) -> str:
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _text(path: str | Path) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def host_facts() -> Json:
    """GPUs, driver, topology and what the kernel says about the IOMMU. Nothing that names the host."""
    rows = [
        [field.strip() for field in line.split(",")]
        for line in _command(
            "nvidia-smi",
            "--query-gpu=name,driver_version,memory.total,memory.used",
            "--format=csv,noheader,nounits",
        ).splitlines()
    ]
    rows = [row for row in rows if len(row) == 4]
    matrix = [
        line.rstrip()
        for line in re.sub(r"\x1b\[[0-9;]*m", "", _command("nvidia-smi", "topo", "-m"))
        .split("Legend:")[0]
        .splitlines()
        if line.strip()
    ]
    words = [word for word in _text("/proc/cmdline").split() if "iommu" in word or word.startswith("pci=")]
    kinds: dict[str, int] = {}
    for group in Path("/sys/kernel/iommu_groups").glob("*/type"):
        kind = _text(group).strip() or "unknown"
        kinds[kind] = kinds.get(kind, 0) + 1
    return {
        "gpus": [row[0] for row in rows],
        "driver": rows[0][1] if rows else None,
        "memory_mib": [int(row[2]) if row[2].isdigit() else None for row in rows],
        "used_mib": [int(row[3]) if row[3].isdigit() else None for row in rows],
        "topology": matrix,
        "iommu": {"command_line": words, "groups": kinds},
        "kernel": re.split(r"[^\d.]", platform.release())[0],
        "cpus": os.cpu_count(),
    }


def _iommu_words(facts: Json) -> str:
    iommu = facts["iommu"]
    groups = ", ".join(f"{count} groups of type {kind}" for kind, count in sorted(iommu["groups"].items()))
    return f"kernel command line: {' '.join(iommu['command_line']) or 'says nothing'}; IOMMU: {groups or 'no groups'}"


def _configuration_files() -> dict[str, list[str]]:
    """NCCL also reads its settings from files, and those never show in an environment."""
    found = {}
    own = os.environ.get("NCCL_CONF_FILE") or Path("~/.nccl.conf").expanduser()
    for name, path in (("user's file", own), ("/etc/nccl.conf", "/etc/nccl.conf")):
        lines = [
            line.strip() for line in _text(path).splitlines() if line.strip() and not line.startswith("#")
        ]
        if lines:
            found[name] = lines
    return found


def _digest(path: str) -> str | None:
    digest = hashlib.sha256()
    try:
        with Path(path).open("rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                digest.update(block)
    except OSError:
        return None
    return digest.hexdigest()


class _SymbolInfo(ctypes.Structure):
    """What dladdr tells (dlfcn.h)."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def loaded_nccl() -> tuple[str, str] | None:
    """Version and path of the NCCL that torch's calls reach in this process.

    torch.cuda.nccl.version() is that of torch's build, and with LD_PRELOAD two libraries are mapped. So the symbol is
    looked up as the linker did for torch: first in the global scope, then among what torch's library needs.
    """
    torch_libraries = [
        line.split()[-1] for line in _text("/proc/self/maps").splitlines() if "libtorch_cuda." in line
    ]
    for scope in (None, *torch_libraries[:1]):
        try:
            library = ctypes.CDLL(scope)
            get = library.ncclGetVersion
        except (OSError, AttributeError):
            continue
        code, info = ctypes.c_int(), _SymbolInfo()
        get(ctypes.byref(code))
        ctypes.CDLL(None).dladdr(ctypes.cast(get, ctypes.c_void_p), ctypes.byref(info))
        number = code.value
        base = 10000 if number >= 10000 else 1000  # 2.9 changed the encoding
        version = f"{number // base}.{number % base // 100}.{number % 100}"
        return version, (info.file or b"").decode()
    return None


# --------------------------------------------------------------------------------------------------------------- rank


class Pipe:
    """What a rank tells the probe: one JSON object a line, written at once, so that a killed rank was heard."""

    def __init__(self, descriptor: int, turn: int) -> None:
        self.descriptor, self.turn = descriptor, turn

    def wait(self) -> None:
        """Until the probe says to go on."""
        if not os.read(self.turn, 1):
            raise RuntimeError("the probe ended")

    def tell(self, **message: Any) -> None:
        data = memoryview((json.dumps(message) + "\n").encode())
        while data:
            data = data[os.write(self.descriptor, data) :]


def _fork(work: Callable[[Pipe], None], environment: dict[str, str], log: Path) -> Followed:
    """Run work(pipe) in a fork with its own session."""
    reading, writing = os.pipe()
    turn, giving = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if not pid:
        os.close(reading)
        os.close(giving)
        _in_fork(work, environment, log, Pipe(writing, turn), parent)
    os.close(writing)
    os.close(turn)
    return Followed(pid, reading, giving)


def _in_fork(
    work: Callable[[Pipe], None], environment: dict[str, str], log: Path, pipe: Pipe, parent: int
) -> NoReturn:
    status = 1
    try:
        os.setsid()
        # Ranks must not outlive a probe that was killed: they hold the GPUs.
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        os.environ.clear()
        os.environ.update(environment)
        writing = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        for descriptor, opened in ((0, os.open(os.devnull, os.O_RDONLY)), (1, writing), (2, writing)):
            os.dup2(opened, descriptor)
        try:
            work(pipe)
            status = 0
        except BaseException as error:
            pipe.tell(error=f"{type(error).__name__}: {error}")
            traceback.print_exc()
            sys.stderr.flush()
    finally:
        # Neither Python's nor CUDA's shutdown: after a graph capture it can hang.
        os._exit(status)


def library_facts(torch: Torch, pipe: Pipe) -> None:
    """Told by a fork, because it has to touch the GPU."""
    facts = {"torch": torch.__version__, "python": platform.python_version(), "cuda": torch.version.cuda}
    if torch.distributed.is_available() and torch.distributed.is_nccl_available():
        found = loaded_nccl()
        facts["nccl"], facts["library"] = found or ("unknown", None)
    facts["count"] = torch.cuda.device_count() if torch.cuda.is_available() else 0
    facts["visible"] = [torch.cuda.get_device_name(index) for index in range(facts["count"])]
    facts["capability"] = [list(torch.cuda.get_device_capability(index)) for index in range(facts["count"])]
    pipe.tell(facts=facts)


class Group:
    """The calls of torch.distributed that a rank needs, for GPUs with NCCL and for a rehearsal with gloo."""

    def __init__(self, torch: Torch, job: Json, rank: int, rendezvous: Path) -> None:
        self.torch, self.rank, self.ranks = torch, rank, job["ranks"]
        self.graph = job["graph"]
        self.dtype = getattr(torch, job["dtype"])
        self.gpu = job["backend"] == "nccl"
        self.device = torch.device("cuda", rank) if self.gpu else torch.device("cpu")
        limit = datetime.timedelta(seconds=2 * job["timeout"])  # the probe's own limit comes first
        self.store = torch.distributed.FileStore(str(rendezvous), self.ranks)
        options = {
            "backend": job["backend"],
            "store": self.store,
            "rank": rank,
            "world_size": self.ranks,
            "timeout": limit,
        }
        if self.gpu:
            torch.cuda.set_device(self.device)
            options["device_id"] = (
                self.device
            )  # so that the communicator starts here and not in the first call
        else:
            torch.set_num_threads(1)
        torch.distributed.init_process_group(**options)

    def wait(self) -> None:
        if self.gpu:
            self.torch.cuda.synchronize()

    def meet(self, name: str) -> None:
        """No rank may end while another still reads from its memory."""
        self.store.set(f"{name}{self.rank}", "1")
        self.store.wait([f"{name}{rank}" for rank in range(self.ranks)], datetime.timedelta(seconds=GRACE))

    def mean(self, value: float) -> float:
        """Of all ranks' values, the same on each of them."""
        total = self.torch.ones(1, device=self.device)
        total.fill_(value)
        self.torch.distributed.all_reduce(total)
        self.wait()
        mean: float = total.item() / self.ranks
        return mean

    def call(self, collective: str, source: Any, target: Any) -> None:
        distributed = self.torch.distributed
        if collective == "all_reduce":
            distributed.all_reduce(target)
            return
        # torch 2.13 renamed these two.
        old = {"all_gather": "all_gather_into_tensor", "reduce_scatter": "reduce_scatter_tensor"}[collective]
        new = f"{collective}_single"
        getattr(distributed, new if hasattr(distributed, new) else old)(target, source)

    def pattern(self, length: int, call: int, rank: int, start: int = 0) -> Any:
        """Small whole numbers that differ by place, call and rank: exact in every dtype, even when summed.

        The period is odd, so data that lands a power of two away is seen.
        """
        index = self.torch.arange(start, start + length, device=self.device, dtype=self.torch.int32)
        return ((index + 3 * call + 5 * rank) % 11 - 5).to(self.torch.float32)

    def buffers(self, collective: str, size: int, calls: int) -> tuple[Any, Any, Any]:
        """Per call: what to send, what is received into, and what must be there afterwards."""
        torch, ranks = self.torch, self.ranks
        length = size // torch.empty(0, dtype=self.dtype).element_size()
        part = length // ranks
        sources, expected = [], []
        for call in range(calls):
            if collective == "all_gather":
                sources.append(self.pattern(part, call, self.rank))
                expected.append(torch.cat([self.pattern(part, call, rank) for rank in range(ranks)]))
                continue
            sources.append(self.pattern(length, call, self.rank))
            start, end = (0, length) if collective == "all_reduce" else (self.rank * part, part)
            expected.append(sum(self.pattern(end, call, rank, start) for rank in range(ranks)))
        source, right = (torch.stack(rows).to(self.dtype) for rows in (sources, expected))
        return source, torch.empty_like(right), right


class Load:
    """Buffers for one collective at one size: every timed call works on its own fresh data, so that each result can
    be checked and none overflows."""

    def __init__(self, group: Group, collective: str, size: int, most: int) -> None:
        element = group.torch.empty(0, dtype=group.dtype).element_size()
        unit = element * group.ranks
        self.group, self.collective = group, collective
        self.size = -(-size // unit) * unit
        self.calls = max(1, min(most, BYTES_PER_GRAPH // self.size))
        self.source, self.target, self.right = group.buffers(collective, self.size, self.calls)

    def refresh(self) -> None:
        if self.collective == "all_reduce":
            self.target.copy_(self.source)
        else:
            self.target.fill_(math.nan)

    def run(self) -> None:
        for call in range(self.calls):
            self.group.call(self.collective, self.source[call], self.target[call])


def measure(group: Group, load: Load, repeats: int, least: float = 0.0) -> tuple[list[float], int]:
    """Microseconds per call for each repeat, and wrong elements in all of them.

    least: when the first repeat's mean over the ranks is above, the others are left out; 0 for never.
    """
    torch = group.torch
    token = torch.ones(1, device=group.device)
    load.refresh()
    torch.distributed.all_reduce(token)
    load.run()
    group.wait()
    timed = load.run
    if group.graph:
        graph = torch.cuda.CUDAGraph()
        # NCCL's watchdog thread may call CUDA during the capture.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            load.run()
        timed = graph.replay
    wrong = torch.zeros(1, device=group.device, dtype=torch.int64)
    times: list[float] = []
    warm_up = WARM_UP if repeats > 1 else 0
    for repeat in range(warm_up + repeats):
        load.refresh()
        torch.distributed.all_reduce(token)  # ranks start together, so that waiting for the slower one is not timed
        if group.gpu:
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            timed()
            end.record()
            end.synchronize()
            took = start.elapsed_time(end) * 1e3
        else:
            before = time.perf_counter()
            timed()
            took = (time.perf_counter() - before) * 1e6
        wrong += (load.target != load.right).sum()
        if repeat >= warm_up:
            times.append(took / load.calls)
            if least and len(times) == 1 and group.mean(times[0]) > least:
                break
    return times, int(wrong.item())


def rank_main(torch: Torch, job: Json, case: Json, rank: int, folder: Path, pipe: Pipe) -> None:
    pipe.tell(stage="starting")
    table = folder / f"table.{rank}"
    if case["settings"]:
        table.write_text(next(iter(case["settings"].values()))["table"], encoding="utf-8")
        os.environ.update({TABLE: str(table), RELOAD: "1"})
    group = Group(torch, job, rank, folder / "rendezvous")
    pipe.tell(
        stage="initialised",
        environment={name: text for name, text in sorted(os.environ.items()) if name.startswith("NCCL_")},
    )
    first = torch.ones(1, device=group.device)
    torch.distributed.all_reduce(first)
    group.wait()
    if first.item() != group.ranks:
        raise RuntimeError(f"wrong data in the first all_reduce: {first.item()} instead of {group.ranks}")
    pipe.tell(stage="waiting", ready=True)
    pipe.wait()
    pipe.tell(stage="measuring")
    for collective in case["collectives"]:
        for size in case["sizes"]:
            pipe.tell(stage=f"{collective} {size}")
            try:
                load = Load(group, collective, size, 1 if case["record"] else job["calls"])
                measure_size(group, case, load, size, table, pipe)
            except RuntimeError as error:
                if group.gpu or "support" not in str(error).lower():
                    raise
                pipe.tell(unsupported=collective, size=size)
    group.wait()
    group.meet("end")
    pipe.tell(done=True)
    pipe.wait()  # an end takes driver and GPU as much as a start: not in another's turn


def measure_size(group: Group, case: Json, load: Load, size: int, table: Path, pipe: Pipe) -> None:
    """One row, or with settings one for each of those that are to be measured at this size."""
    repeats = 1 if case["record"] else case["repeats"]
    best = math.inf
    for name, setting in case["settings"].items() or [(None, None)]:
        if setting is not None:
            if size not in setting["sizes"]:
                continue
            table.write_text(setting["table"], encoding="utf-8")
            pipe.tell(stage=f"{load.collective} {size} {name}")
        least = best * case["prune"] if case["prune"] and best < math.inf else 0.0
        times, wrong = measure(group, load, repeats, least)
        if case["prune"]:
            best = min(best, group.mean(quantile(times, 0.5)))
        pipe.tell(
            setting=name,
            collective=load.collective,
            size=size,
            bytes=load.size,
            times=times,
            wrong=wrong,
            calls=load.calls,
        )


# --------------------------------------------------------------------------------------------------------- supervision


class Followed:
    """A fork and what it has told so far."""

    def __init__(self, pid: int, reading: int, giving: int) -> None:
        self.pid, self.reading, self.giving = pid, reading, giving
        self.open = True
        self.messages: list[Json] = []
        self.rest = b""
        self.status: int | None = None

    def read(self) -> bool:
        """False at the end of the pipe."""
        data = os.read(self.reading, 1 << 16)
        *lines, self.rest = (self.rest + data).split(b"\n")
        self.messages += [json.loads(line) for line in lines]
        self.open = bool(data)
        return self.open

    def go_on(self) -> None:
        """Lets a rank that waits go on."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self.giving, b".")

    def last(self, key: str, default: Any = None) -> Any:
        return next((message[key] for message in reversed(self.messages) if key in message), default)

    def ended_by(self) -> str | None:
        """The signal that ended it, by name."""
        if self.status is None or not os.WIFSIGNALED(self.status):
            return None
        return signal.Signals(os.WTERMSIG(self.status)).name


class Start:
    """The ranks of one case."""

    def __init__(self, forks: list[Followed]) -> None:
        self.forks = forks
        self.late: list[int] = []
        self.stuck: list[int] = []

    def said(self, word: str) -> bool:
        return all(fork.last(word, False) for fork in self.forks)

    def kill(self) -> None:
        """End what has not ended by itself, and remember it as late."""
        self.late = [fork.pid for fork in self.forks if fork.open]
        for pid in self.late:
            with contextlib.suppress(ProcessLookupError):  # not yet the leader of its own group
                os.killpg(pid, signal.SIGKILL)

    def reap(self) -> None:
        """Wait for every rank that ended or is about to; one that even SIGKILL does not end is stuck."""
        deadline = time.monotonic() + GRACE
        for fork in self.forks:
            while fork.status is None:
                pid, status = os.waitpid(fork.pid, os.WNOHANG)
                if pid:
                    fork.status = status
                elif time.monotonic() > deadline:
                    self.stuck.append(fork.pid)
                    break
                else:
                    time.sleep(0.01)
            os.close(fork.reading)
            os.close(fork.giving)


def hear(starts: list[Start], word: str, limit: float) -> None:
    """Until every rank has said the word, or never will: its time is over, or it ended.

    One that ends without the word dooms the others of its start, which wait for it: they get a short grace.
    """
    deadlines = {id(start): time.monotonic() + limit for start in starts}
    with selectors.DefaultSelector() as selector:
        for start in starts:
            for fork in start.forks:
                if fork.open and not fork.last(word, False):
                    selector.register(fork.reading, selectors.EVENT_READ, (start, fork))
        while selector.get_map():
            now = time.monotonic()
            waiting = [key.data for key in selector.get_map().values()]
            for start, fork in waiting:
                if now >= deadlines[id(start)]:
                    selector.unregister(fork.reading)
            if not selector.get_map():
                return
            left = min(deadlines[id(key.data[0])] for key in selector.get_map().values()) - now
            for key, _ in selector.select(max(0.0, min(1.0, left))):
                start, fork = key.data
                if not fork.read():
                    selector.unregister(fork.reading)
                    if not fork.last(word, False):
                        deadlines[id(start)] = min(deadlines[id(start)], time.monotonic() + 3)
                elif fork.last(word, False):
                    selector.unregister(fork.reading)


def explain(start: Start, log: Path, facts: Json) -> Json:
    """The diagnosis of a case whose ranks were not all done."""
    forks, late = start.forks, start.late
    words = _text(log)[-TAIL:].strip()
    errors = [fork.last("error") for fork in forks if fork.last("error")]
    crashes = sorted(
        {f"a rank ended by {fork.ended_by()}" for fork in forks if fork.ended_by() and fork.pid not in late}
    )
    stages = sorted(
        {str(fork.last("stage", "not started")) for fork in forks if not fork.last("done", False)}
    )
    detail = "; ".join([f"stage: {', '.join(stages)}", *crashes, *errors[:1]]) + (
        f"\n{words}" if words else ""
    )
    text = detail.lower()
    if start.stuck:
        return diagnosis("unkillable", detail)
    if "out of memory" in text:
        return diagnosis("out-of-memory", detail)
    if "no algorithm/protocol available" in text:
        return diagnosis("no-algorithm", detail)
    if "wrong data in the first" in text:
        return diagnosis("wrong-data", detail)
    if errors or crashes or not late:
        return diagnosis("initialisation-failed" if stages[0] == "starting" else "rank-failed", detail)
    if "starting" in stages:
        return diagnosis("initialisation-hang", detail)
    if "initialised" in stages:
        return diagnosis("first-collective-hang", f"{_iommu_words(facts)}; {detail}")
    return diagnosis("hang", detail)


def case_environment(job: Json, case: Json, folder: Path, name: str) -> dict[str, str]:
    environment = {
        key: text for key, text in os.environ.items() if not key.startswith("NCCL_") or key in INHERITED
    }
    environment.update(job["environment"])
    environment.update(case["environment"])
    for variable, text in case["files"].items():
        path = folder / variable
        path.write_text(text, encoding="utf-8")
        environment[variable] = str(path)
    if case["record"]:
        environment.update(RECORDED)
        environment["NCCL_DEBUG_FILE"] = f"{job['debug_directory']}/{name}.%p.log"
    elif "NCCL_DEBUG" not in environment:
        environment["NCCL_DEBUG"] = "WARN"  # to standard output, kept for a diagnosis
    return environment


def quantile(values: Iterable[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(part * (len(ordered) - 1))))]


def bus_factor(collective: str, ranks: int) -> float:
    """How often a byte of the message crosses the slowest link, as nccl-tests defines bus bandwidth."""
    return (2 if collective == "all_reduce" else 1) * (ranks - 1) / ranks


def results_of(forks: list[Followed], ranks: int, setting: str | None) -> list[Json]:
    """One row per collective and size: a call lasts as long as on its slowest rank."""
    rows = []
    for message in forks[0].messages:
        if "times" not in message or message["setting"] != setting:
            continue
        key = (message["collective"], message["size"], setting)
        same = [
            other
            for fork in forks
            for other in fork.messages
            if "times" in other and (other["collective"], other["size"], other["setting"]) == key
        ]
        if len(same) < ranks:
            continue
        times = [max(column) for column in zip(*(other["times"] for other in same))]
        median = quantile(times, 0.5)
        wrong = sum(other["wrong"] for other in same)
        rows.append(
            {
                "collective": message["collective"],
                "bytes": message["bytes"],
                "median_us": round(median, 3),
                "p10_us": round(quantile(times, 0.1), 3),
                "p90_us": round(quantile(times, 0.9), 3),
                "bus_gb_per_s": round(
                    message["bytes"] / median / 1e3 * bus_factor(message["collective"], ranks), 3
                ),
                "correct": wrong == 0,
                "wrong_elements": wrong,
                "calls": message["calls"],
                "repeats": len(times),
            }
        )
    return rows


def _keep_records(folder: Path, name: str, forks: list[Followed]) -> list[str]:
    """Name each rank's log after the rank."""
    kept = []
    for rank, fork in enumerate(forks):
        target = f"{name}.rank{rank}.log"
        try:
            (folder / f"{name}.{fork.pid}.log").replace(folder / target)
            kept.append(target)
        except FileNotFoundError:
            pass  # the rank died before NCCL opened it
    return kept


class Run:
    """One case: its folder, its ranks and what came of it."""

    def __init__(self, torch: Torch, job: Json, case: Json, place: int) -> None:
        self.job, self.case, self.began = job, case, time.monotonic()
        self.folder = Path(tempfile.mkdtemp(prefix="nccl-probe-"))
        self.name = f"{place:03d}-{re.sub(r'[^A-Za-z0-9.=_-]+', '-', case['name'])}"
        self.log = self.folder / "log"
        self.seconds = 0.0
        environment = case_environment(job, case, self.folder, self.name)

        def rank_work(rank: int) -> Callable[[Pipe], None]:
            return lambda pipe: rank_main(torch, job, case, rank, self.folder, pipe)

        self.start = Start([_fork(rank_work(rank), environment, self.log) for rank in range(job["ranks"])])

    def turn(self) -> None:
        """Have it measured, if it is ready; what is not done by then is killed at once."""
        began = time.monotonic()
        if self.start.said("ready"):
            for fork in self.start.forks:
                fork.go_on()
            hear([self.start], "done", self.job["timeout"])
        if not self.start.said("done"):
            self.start.kill()
        self.seconds += time.monotonic() - began

    def entries(self, facts: Json) -> list[Json]:
        """The case as it goes into the result: one entry, or one for each setting."""
        case, forks = self.case, self.start.forks
        records = []
        if case["record"]:
            records = _keep_records(Path(self.job["debug_directory"]), self.name, forks)
        settings = list(case["settings"]) or [None]
        rows = {name: results_of(forks, self.job["ranks"], name) for name in settings}
        every = [row for listed in rows.values() for row in listed]
        found = None
        if not self.start.said("done"):
            found = explain(self.start, self.log, facts)
        elif not all(row["correct"] for row in every):
            first = next(row for row in every if not row["correct"])
            found = diagnosis(
                "wrong-data",
                f"{first['collective']} of {first['bytes']} bytes: {first['wrong_elements']} wrong elements",
            )
        elif any(fork.last("unsupported") for fork in forks):
            found = diagnosis("unsupported", forks[0].last("unsupported"), stops=False)
        return [
            {
                "name": name or case["name"],
                "round": case["round"],
                "environment": case["environment"],
                "files": {**case["files"], TABLE: case["settings"][name]["table"]} if name else case["files"],
                # As the ranks had it, less the paths of this run.
                "effective": {
                    key: "(file)" if key in case["files"] or key in ("NCCL_DEBUG_FILE", TABLE) else text
                    for key, text in (forks[0].last("environment") or {}).items()
                },
                "records": records,
                "status": "failed" if found and found["stops"] else "measured",
                "diagnosis": found,
                "seconds": round(self.seconds / len(settings), 2),
                "results": rows[name],
            }
            for name in settings
        ]


def run_gang(torch: Torch, job: Json, cases: list[Json], place: int, facts: Json) -> list[Json]:
    """Cases whose ranks start together and are measured one after another. place: of the first, from 1."""
    began = time.monotonic()
    runs: list[Run] = []
    try:
        for number, case in enumerate(cases):
            runs.append(Run(torch, job, case, place + number))
        hear([run.start for run in runs], "ready", job["timeout"])
        for run in runs:
            if not run.start.said("ready"):
                run.start.kill()
        for run in runs:
            run.seconds = (time.monotonic() - began) / len(runs)
        for run in runs:
            run.turn()
        for run in runs:
            for fork in run.start.forks:
                fork.go_on()
        for run in runs:
            run.start.reap()
        return [entry for run in runs for entry in run.entries(facts)]
    finally:
        for run in runs:
            shutil.rmtree(run.folder, ignore_errors=True)


def inspect(torch: Torch, job: Json, facts: Json) -> tuple[Json, list[Json]]:
    """What the library says of itself, and what speaks against measuring."""
    with tempfile.TemporaryDirectory(prefix="nccl-probe-") as folder:
        log = Path(folder) / "log"
        environment = case_environment(job, {"environment": {}, "files": {}, "record": False}, log.parent, "")
        fork = _fork(lambda pipe: library_facts(torch, pipe), environment, log)
        start = Start([fork])
        hear([start], "facts", FACTS_TIMEOUT)
        late = fork.open and not start.said("facts")
        start.kill()  # it has told all it had to tell
        start.reap()
        words = _text(log)[-TAIL:].strip()
    library: Json = fork.last("facts", {})
    if job["backend"] == "gloo":
        return library, []
    if late:
        return library, [diagnosis("driver-hang", words)]
    if not library.get("count"):
        return library, [diagnosis("cuda-missing", fork.last("error") or words)]
    if "nccl" not in library:
        return library, [diagnosis("nccl-missing")]
    if library.get("library"):
        library["sha256"] = _digest(library["library"])
    found = []
    if library["count"] < job["ranks"]:
        found.append(diagnosis("too-few-gpus", f"{library['count']} visible, {job['ranks']} ranks asked for"))
    models = sorted(set(library["visible"]))
    if len(models) > 1:
        found.append(diagnosis("mixed-gpus", ", ".join(models), stops=False))
    # An idle GPU of a datacenter driver holds well below this.
    busy = [
        f"GPU {index}: {used} MiB" for index, used in enumerate(facts["used_mib"]) if used and used > 2048
    ]
    if busy:
        found.append(diagnosis("gpus-in-use", ", ".join(busy), stops=False))
    return library, found


class Session:
    """Torch imported and the library asked once, for any number of results."""

    def __init__(self, job: Json) -> None:
        self.job, self.place = job, 1
        self.facts = host_facts()
        self.library: Json = {}
        try:
            self.torch = importlib.import_module("torch")
            importlib.import_module("torch.distributed")
        except ImportError as error:
            self.diagnoses = [diagnosis("torch-missing", str(error))]
            return
        self.library, self.diagnoses = inspect(self.torch, job, self.facts)
        if job["debug_directory"]:
            Path(job["debug_directory"]).mkdir(parents=True, exist_ok=True)

    @property
    def usable(self) -> bool:
        return not any(found["stops"] for found in self.diagnoses)

    def measure(self, gangs: Iterable[list[Json]], save: Callable[[Json], None]) -> Json:
        """One whole result, saved after every gang, so that a run cut short leaves what it measured.

        gangs: asked for the next when the one before was measured, so it may look at the clock.
        """
        job = self.job
        result: Json = {
            "schema": SCHEMA,
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "complete": False,
            "rehearsal": job["backend"] != "nccl",
            "job": {
                key: job[key]
                for key in ("ranks", "backend", "environment", "dtype", "repeats", "graph", "timeout", "gang")
            },
            "host": self.facts,
            "configuration_files": _configuration_files(),
            "library": self.library,
            "diagnoses": self.diagnoses,
            "cases": [],
        }
        if not self.usable:
            return result
        for gang in gangs:
            done = run_gang(self.torch, job, gang, self.place, self.facts)
            self.place += len(gang)
            result["cases"] += done
            save(result)
            for entry in done:
                said = entry["diagnosis"]["name"] if entry["diagnosis"] else "ok"
                print(
                    f"[{len(result['cases'])}] {entry['name']} round {entry['round']}: {said}, {entry['seconds']} s",
                    file=sys.stderr,
                    flush=True,
                )
                if said == "unkillable":
                    return result  # the GPUs are lost to every further case
        result["complete"] = True
        return result


def run(job: Json, save: Callable[[Json], None]) -> Json:
    """The cases of the job, in gangs."""
    cases, size = job["cases"], job["gang"]
    return Session(job).measure((cases[at : at + size] for at in range(0, len(cases), size)), save)


def write(path: Path, result: Json) -> None:
    """A reader sees the old or the new text, never half of one."""
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(result, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    part.replace(path)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Time NCCL collectives on this host.")
    parser.add_argument("job", help="the job as JSON; - reads standard input")
    parser.add_argument("--output", help="where the result goes (default: standard output)")
    options = parser.parse_args(arguments)
    target = Path(options.output) if options.output else None
    try:
        text = sys.stdin.read() if options.job == "-" else Path(options.job).read_text(encoding="utf-8")
        result = run(read_job(text), lambda partial: write(target, partial) if target else None)
    except (BadJob, OSError, UnicodeDecodeError) as error:
        result = {"schema": SCHEMA, "diagnoses": [diagnosis("bad-job", str(error))], "cases": []}
    if target:
        write(target, result)
    else:
        print(json.dumps(result, indent=1, sort_keys=True), flush=True)
    if any(found["name"] == "bad-job" for found in result["diagnoses"]):
        return 2
    unusable = any(found["stops"] for found in result["diagnoses"])
    return int(unusable or any(case["status"] != "measured" for case in result["cases"]))


if __name__ == "__main__":
    sys.exit(main())
