"""Time for a token of a real engine under load while drift is looked for, beside that of a quiet host.

The engine is vLLM on CPU with a tiny model and one thread: every token is computed, by cores that a look shares. Three
more services, simulated, make up the host. Drift is looked for once while answers come, by the unit of the timer and as
the module does it, and by the timer's unit without a pause, which nobody does, but which shows what a look takes from
its neighbours. The quiet host is measured twice, so that the noise of the machine is told, too. The engine's core has a
processor of its own, and its HTTP server and the client share another: else what is measured is which of them the
kernel lets wait.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

from bench import record
from bench.options import options
from bench.table import table
from bench.timing import BenchError, in_turn, ratio, spread
from tests.engines.environments import EnvironmentFailure, ensure_models, ensure_vllm
from tests.engines.tiny import CORE
from tests.engines.tiny import service as real_service
from tests.hosts.commands import Library, rendered
from tests.hosts.commands import service as simulated_service
from tests.simulator.install import install
from tests.testbed import Host, Testbed, TestbedError

NAMES = ("tiny", "two", "three", "four")
STREAMS, TOKENS = 4, 1500  # which takes about 6 s
QUIET, AGAIN = "quiet", "quiet again"
TARGET_RATIO = 1.02
TIMER = "systemctl start servewright-drift.service"
MODULE = "python3 -I /usr/local/lib/servewright/host.pyz drift > /dev/null"
# What runs on the host while answers come, each in a login of its own, which takes time, too.
ONE_LOOK = {"one look of the timer": f"sleep 1; {TIMER}", "one look of the module": f"sleep 1; {MODULE}"}
BESIDE = {
    QUIET: "sleep 1",
    AGAIN: "sleep 1",
    **ONE_LOOK,
    "looks of the timer without a pause": f"sleep 1; while [ -e /run/looking ]; do {TIMER} || exit; done",
}
METRICS = "/run/metrics"

STREAM = """
import http.client, json, sys, threading, time
streams, tokens = map(int, sys.argv[1:])
body = {"model": "tiny", "prompt": "Write a long story.", "max_tokens": tokens, "stream": True, "ignore_eos": True,
        "temperature": 0}
def stream(found):
    connection = http.client.HTTPConnection("127.0.0.1", 30000)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    found += [time.monotonic() for line in connection.getresponse() if line.startswith(b"data: {")]
times = [[] for _ in range(streams)]
threads = [threading.Thread(target=stream, args=[found]) for found in times]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps(times))
"""
RECORD = """
import sys, time
sys.path.insert(0, "/usr/local/lib/servewright/host.pyz")
from servewright_host import releases, surroundings
begin = time.monotonic()
surroundings.record(releases.load("tiny", 1), 1, True)
print(time.monotonic() - begin)
"""


def main() -> int:
    """Run the bench; 1 when the target was missed."""
    arguments = options("drift", (__doc__ or "").partition("\n")[0], repeats=9).parse_args()
    load = record.load()
    try:
        folders = {"vllm": ensure_vllm(), "models": ensure_models()}
        with Testbed("bench") as testbed:
            testbed.ensure_image()
            binds = {path: str(path) for path in folders.values()}
            host = testbed.boot("gpu1", binds=binds, prepare=install)
            deploy(host, folders)
            server = host.run("systemctl show tiny -p MainPID --value").stdout.strip()
            host.run(f"taskset -acp 0 $(pgrep -f ^{CORE['vllm']}) && taskset -acp 1 {server}")
            peers = {name: partial(stream, host, command) for name, command in BESIDE.items()}
            times = in_turn(peers, arguments.repeats)
            looks = {command: [seconds_of_look(host, command) for _ in range(5)] for command in (TIMER, MODULE)}
            records = [float(host.run(["python3", "-c", RECORD]).stdout) for _ in range(5)]
    except (BenchError, TestbedError, EnvironmentFailure) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    means = {name: [mean_gap(each) for each in found] for name, found in times.items()}
    slow = {name: [slow_gap(each) for each in found] for name, found in times.items()}
    ratios = {name: ratio(found, means[QUIET]) for name, found in means.items() if name != QUIET}
    rows = [
        (name, str(spread(milliseconds(means[name]))), str(spread(milliseconds(slow[name]))), str(ratios.get(name, "")))
        for name in peers
    ]
    print(table(("host", "ms a token, mean", "99th percentile", "ratio of the means"), rows))
    print(f"\nthe aim is a ratio of at most {TARGET_RATIO} with one look; load before: {load}")
    for command, seconds in looks.items():
        print(f"{spread(seconds)} s for {len(NAMES)} services: {command}")
    print(f"what is recorded at a commit: {spread(records)} s")
    facts: dict[str, Any] = {"load_before": load, "target_ratio": TARGET_RATIO, "streams": STREAMS, "tokens": TOKENS}
    facts |= {"ratio_to_quiet": {name: vars(found) for name, found in ratios.items()}}
    facts |= {"mean_ms": {name: milliseconds(found) for name, found in means.items()}}
    facts |= {"gap_99_ms": {name: milliseconds(found) for name, found in slow.items()}}
    record.write(arguments.record, bench="drift", **facts, look_seconds=looks, record_seconds=records)
    return int(max(ratios[name].median for name in ONE_LOOK) > TARGET_RATIO)


def deploy(host: Host, folders: dict[str, Any]) -> None:
    """Four services on one host, and the timer, which does not come round meanwhile."""
    library = Library(host)
    services = [real_service("vllm", folders)]
    for number, name in enumerate(NAMES[1:], 1):
        gpus = [2 * number, 2 * number + 1]
        services.append(
            simulated_service(name=name, gpus=gpus, parallelism={"tensor": 2}, listen={"port": 30000 + number})
        )
    host_facts = {"drift_timer": {"schedule": "*-01-01"}, "metrics_folder": METRICS}
    for declared in services:
        (started,) = library.call("deploy", [rendered(declared)], {}, False, "bench", "", 0, host_facts)
        result = library.settle(started, timeout=600)
        if result["verdict"] != "committed":
            raise BenchError(f"{declared['name']}: {result['message']}")


def stream(host: Host, command: str) -> list[list[float]]:
    """When each part of each of some answers at once came, in seconds; meanwhile a command runs on the host."""
    with beside(host, command):
        client = ["taskset", "-c", "1", "python3", "-c", STREAM, str(STREAMS), str(TOKENS)]
        times: list[list[float]] = json.loads(host.run(client).stdout)
    if any(len(found) < 2 for found in times):
        raise BenchError(f"answers came in {', '.join(str(len(found)) for found in times)} parts")
    return times


@contextlib.contextmanager
def beside(host: Host, command: str) -> Iterator[None]:
    """A command that runs on the host meanwhile; as long as /run/looking exists, if it likes."""
    host.run("touch /run/looking")
    with subprocess.Popen([*host.ssh_command(), f"echo begun; {command}"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            host.run("rm /run/looking")
    if process.returncode != 0:
        raise BenchError(f"{command} ended with {process.returncode}")


def mean_gap(times: list[list[float]]) -> float:
    """Seconds a token after the first, over all streams: a part may hold several tokens, an answer has them all."""
    return sum(found[-1] - found[0] for found in times) / (len(times) * (TOKENS - 1))


def slow_gap(times: list[list[float]]) -> float:
    """The gap between parts that one in a hundred exceeds, in seconds."""
    gaps = sorted(b - a for found in times for a, b in itertools.pairwise(found))
    return gaps[len(gaps) * 99 // 100]


def milliseconds(seconds: list[float]) -> list[float]:
    return [1000 * value for value in seconds]


def seconds_of_look(host: Host, command: str) -> float:
    """How long a look takes on the host, by the host's own clock."""
    begin, end = host.run(f"date +%s.%N; {command}; date +%s.%N").stdout.split()
    return float(end) - float(begin)


if __name__ == "__main__":
    sys.exit(main())
