"""The probe of the performance gate beside `vllm bench serve`, on one server at a steady pace: the simulated engine."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from ansible_collections.servewright.llm.plugins.module_utils.host.http import Client
from ansible_collections.servewright.llm.plugins.module_utils.host.performance import measure
from bench import record
from bench.options import options
from bench.table import table
from bench.timing import BenchError, in_turn, ratio, spread
from tests.hosts.commands import rendered, service
from tests.simulator.install import install
from tests.unit.test_simulator import Engine

TARGET = 0.03
TOKENS, STREAMS, REQUESTS, PROMPT_TOKENS = 64, 8, 10, 32
SPEED = "0.15"  # of 250 tokens a second: what a busy machine adds to a token is small beside 27 ms


def main() -> int:
    """Run the bench; 1 when the two differ by more than the target."""
    parser = options("probe", __doc__ or "", repeats=3)
    parser.add_argument("--vllm", type=Path, required=True, help="the `vllm` command of an environment of vLLM")
    arguments = parser.parse_args()
    load = record.load()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        install(root, engines=[("vllm", "0.32.0")])
        engine = Engine(root, "vllm", SIM_SPEED=SPEED)
        try:
            engine.ready()
            results = in_turn(
                {
                    "probe": lambda: ours(engine.port),
                    "vllm bench serve": lambda: theirs(arguments.vllm, engine.port, root),
                },
                arguments.repeats,
            )
        except BenchError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        finally:
            engine.destroy()
    figures = {name: {figure: [run[figure] for run in runs] for figure in runs[0]} for name, runs in results.items()}
    probe, peer = figures["probe"], figures["vllm bench serve"]
    ratios = {figure: ratio(probe[figure], peer[figure]) for figure in probe}
    print(
        table(
            ("figure", "probe", "vllm bench serve", "ratio"),
            [
                (figure, *(str(spread(of[figure])) for of in (probe, peer)), f"{ratios[figure].median:.3f}")
                for figure in probe
            ],
        )
    )
    worst = max(abs(ratios[figure].median - 1) for figure in ratios)
    print(f"\ntarget: within {TARGET:.0%}; the figure that differs most does so by {worst:.1%}; load before: {load}")
    record.write(
        arguments.record,
        bench="probe",
        load_before=load,
        target=TARGET,
        worst=worst,
        figures=figures,
        ratios={figure: vars(found) for figure, found in ratios.items()},
    )
    return int(worst > TARGET)


def ours(port: int) -> dict[str, float]:
    """What the probe measures."""
    settings = {"tokens": TOKENS, "long_prompt": 600}
    release = rendered(service("vllm", verify={"performance": settings}))
    release["model"]["served_name"] = "kimi"
    meter = measure.Meter(release, Client("127.0.0.1", port), 600)
    meter.warm_up()
    values = meter.single_stream(REQUESTS, REQUESTS)
    return {
        "decode, tok/s": statistics.median(values["decode"]),
        "first token, ms": statistics.median(values["ttft"]) * 1000,
        f"{STREAMS} streams, tok/s": meter.streams(STREAMS)["throughput"],
    }


def theirs(vllm: Path, port: int, folder: Path) -> dict[str, float]:
    """The same by vLLM's client."""
    alone = _serve(vllm, port, folder, 1, REQUESTS)
    together = _serve(vllm, port, folder, STREAMS, STREAMS * measure.ROUNDS)
    return {
        "decode, tok/s": 1000 / alone["median_tpot_ms"],
        "first token, ms": alone["median_ttft_ms"],
        f"{STREAMS} streams, tok/s": together["output_throughput"],
    }


def _serve(vllm: Path, port: int, folder: Path, streams: int, requests: int) -> dict[str, Any]:
    target = folder / "result.json"
    argv: list[str | Path] = [
        *(vllm, "bench", "serve", "--backend", "openai", "--base-url", f"http://127.0.0.1:{port}"),
        *("--endpoint", "/v1/completions", "--model", "kimi", "--tokenizer", folder / "opt/simulator/model"),
        *("--dataset-name", "random"),
        *("--random-input-len", str(PROMPT_TOKENS), "--random-output-len", str(TOKENS), "--ignore-eos"),
        *("--num-prompts", str(requests), "--max-concurrency", str(streams), "--num-warmups", str(streams)),
        *("--disable-tqdm", "--save-result", "--result-dir", folder, "--result-filename", target.name),
    ]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "PYTHONPATH": ""}
    done = subprocess.run(argv, capture_output=True, text=True, env=environment, cwd=folder, check=False)
    if done.returncode != 0 or not target.exists():
        raise BenchError(f"vllm bench serve ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    result: dict[str, Any] = json.loads(target.read_text())
    target.unlink()
    if result["completed"] != requests or result["total_output_tokens"] != requests * TOKENS:
        raise BenchError(f"vllm bench serve: {result['completed']} of {requests} requests were answered")
    return result


if __name__ == "__main__":
    sys.exit(main())
