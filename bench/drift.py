"""Gaps between streamed tokens while drift is looked for, beside those of a quiet host; seconds of one look."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from bench import record
from bench.options import options
from bench.table import table
from bench.timing import BenchError, in_turn, ratio, spread
from tests.hosts.commands import Library, rendered, service
from tests.simulator.install import install
from tests.testbed import Host, Testbed, TestbedError

NAMES = ("one", "two", "three", "four")
TOKENS = 1000
QUIET, LOOKING = "quiet", "looking for drift"
TARGET_RATIO = 1.1
# As the unit of the timer runs it, again and again.
LOOK = "nice -n 19 python3 -I /usr/local/lib/servewright/host.pyz drift"

STREAM = """
import http.client, json, sys, time
body = {"model": "kimi-k2.5", "prompt": "Write a long story.", "max_tokens": int(sys.argv[1]), "stream": True,
        "ignore_eos": True}
connection = http.client.HTTPConnection("127.0.0.1", 30000)
connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
times = [time.monotonic() for line in connection.getresponse() if line.startswith(b"data: {")]
print(json.dumps(sorted(b - a for a, b in zip(times, times[1:]))))
"""
RECORD = """
import sys, time
sys.path.insert(0, "/usr/local/lib/servewright/host.pyz")
from servewright_host import releases, surroundings
begin = time.monotonic()
surroundings.record(releases.load("one", 1), 1, True)
print(time.monotonic() - begin)
"""


def main() -> int:
    """Run the bench; 1 when the target was missed."""
    arguments = options("drift", __doc__ or "", repeats=9).parse_args()
    load = record.load()
    try:
        with Testbed("bench") as testbed:
            testbed.ensure_image()
            host = testbed.boot("gpu1", prepare=install)
            deploy(host)
            peers = {QUIET: lambda: stream(host), LOOKING: lambda: stream_while_looking(host)}
            gaps = in_turn(peers, arguments.repeats)
            looks = [seconds_of(host, f"{LOOK} --metrics-folder /run/metrics") for _ in range(arguments.repeats)]
            records = [float(host.run(["python3", "-c", RECORD]).stdout) for _ in range(arguments.repeats)]
    except (BenchError, TestbedError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    medians = {name: [gap[len(gap) // 2] for gap in found] for name, found in gaps.items()}
    slow = {name: [gap[len(gap) * 99 // 100] for gap in found] for name, found in gaps.items()}
    found = ratio(medians[LOOKING], medians[QUIET])
    rows = [(name, *(str(spread([1000 * value for value in kind[name]])) for kind in (medians, slow))) for name in gaps]
    print(table(("host", "ms between tokens, median", "99th percentile"), rows))
    print(f"\nratio of the medians: {found}, the aim is {TARGET_RATIO}")
    print(f"a look at {len(NAMES)} services: {spread(looks)} s; what is recorded at a commit: {spread(records)} s")
    facts: dict[str, Any] = {"load_before": load, "target_ratio": TARGET_RATIO, "ratio": vars(found)}
    facts |= {"median_gap": medians, "gap_99": slow, "look": looks, "record": records}
    record.write(arguments.record, bench="drift", **facts)
    return int(found.median > TARGET_RATIO)


def deploy(host: Host) -> None:
    """Four services on one host."""
    library = Library(host)
    for number, name in enumerate(NAMES):
        gpus = [2 * number, 2 * number + 1]
        declared = service(name=name, gpus=gpus, parallelism={"tensor": 2}, listen={"port": 30000 + number})
        result = library.deploy(rendered(declared))
        if result["verdict"] != "committed":
            raise BenchError(f"{name}: {result['message']}")


def stream(host: Host) -> list[float]:
    """Seconds between the tokens of one answer, ascending."""
    gaps: list[float] = json.loads(host.run(["python3", "-c", STREAM, str(TOKENS)]).stdout)
    if len(gaps) < TOKENS // 2:
        raise BenchError(f"the answer has {len(gaps)} tokens")
    return gaps


def stream_while_looking(host: Host) -> list[float]:
    """The same while drift is looked for without a pause."""
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            host.run(LOOK)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        return stream(host)
    finally:
        done.set()
        thread.join()


def seconds_of(host: Host, command: str) -> float:
    """How long a command takes on the host, by the host's own account."""
    metrics = host.run(f"{command} > /dev/null && cat /run/metrics/servewright_drift.prom").stdout
    return float(metrics.rsplit("duration_seconds ", 1)[1])


if __name__ == "__main__":
    sys.exit(main())
