"""What a rank does: it joins its group, times a collective at each size, and checks every result."""

from __future__ import annotations

import datetime
import math
import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .cases import TABLE, Case, Job
from .forks import GRACE, Pipe

# torch and its objects: this file is read where torch is not installed, too.
Torch = Any

RELOAD = "SERVEWRIGHT_TUNER_RELOAD"
"""Has the tuner plugin read its table again for every message."""
BYTES_PER_GRAPH = 128 << 20
"""Graph memory and buffers are kept below this by capturing fewer calls of large messages."""
WARM_UP = 3


def quantile(values: Iterable[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(part * (len(ordered) - 1))))]


class Group:
    """The calls of torch.distributed that a rank needs, for GPUs with NCCL and for a rehearsal with gloo."""

    def __init__(self, torch: Torch, job: Job, rank: int, rendezvous: Path) -> None:
        self.torch, self.rank, self.ranks = torch, rank, job.ranks
        self.dtype = getattr(torch, job.dtype)
        self.gpu = not job.rehearsal
        self.device = torch.device("cuda", rank) if self.gpu else torch.device("cpu")
        self.store = torch.distributed.FileStore(str(rendezvous), self.ranks)
        options = {
            "backend": job.backend,
            "store": self.store,
            "rank": rank,
            "world_size": self.ranks,
            "timeout": datetime.timedelta(seconds=2 * job.timeout),  # the probe's own limit comes first
        }
        if self.gpu:
            torch.cuda.set_device(self.device)
            options["device_id"] = self.device  # so that the communicator starts here and not in the first call
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
    if group.gpu:
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


def rank_main(torch: Torch, job: Job, case: Case, rank: int, folder: Path, pipe: Pipe) -> None:
    pipe.tell(stage="starting")
    table = folder / f"table.{rank}"
    if case.trials:
        table.write_text(next(iter(case.trials.values())).table, encoding="utf-8")
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
    for collective in job.collectives:
        for size in case.sizes or job.sizes:
            pipe.tell(stage=f"{collective} {size}")
            try:
                load = Load(group, collective, size, job.calls)
                measure_size(group, case, load, size, case.repeats or job.repeats, table, pipe)
            except RuntimeError as error:
                if group.gpu or "support" not in str(error).lower():
                    raise
                pipe.tell(unsupported=collective, size=size)
    group.wait()
    group.meet("end")
    pipe.tell(done=True)
    pipe.wait()  # an end takes driver and GPU as much as a start: not in another's turn


def measure_size(group: Group, case: Case, load: Load, size: int, repeats: int, table: Path, pipe: Pipe) -> None:
    """One row, or with trials one for each of those that are to be measured at this size."""
    best = math.inf
    for name, trial in case.trials.items() or [(None, None)]:
        if trial is not None:
            if size not in trial.sizes:
                continue
            table.write_text(trial.table, encoding="utf-8")
            pipe.tell(stage=f"{load.collective} {size} {name}")
        least = best * case.prune if case.prune and best < math.inf else 0.0
        times, wrong = measure(group, load, repeats, least)
        if case.prune:
            best = min(best, group.mean(quantile(times, 0.5)))
        row = {"collective": load.collective, "size": size, "bytes": load.size, "calls": load.calls}
        pipe.tell(trial=name, times=times, wrong=wrong, **row)
