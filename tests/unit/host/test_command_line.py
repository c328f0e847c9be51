"""What preflight makes of an engine's refusal of its configuration."""

from __future__ import annotations

import pytest

from ansible_collections.servewright.llm.plugins.module_utils.host.preflight import command_line

NO_GPU = "RuntimeError: No accelerator (CUDA, XPU, HPU, NPU, MUSA, MPS) or platform plugin is available."


@pytest.mark.parametrize(
    ("gpus", "text", "severity"),
    [
        ([0, 1], "", None),
        ([0, 1], NO_GPU, None),  # it was given none: nothing to tell a person at every deploy
        ([], NO_GPU, "fatal"),
        ([0, 1], "ValueError: num_heads must be divisible by tp_size", "fatal"),
        ([0, 1], "ValueError: something of a new version", "warning"),
    ],
)
def test_only_what_a_gpu_could_not_change_refuses(gpus, text, severity):
    found = command_line._deeper({"engine": "sglang", "gpus": gpus}, "sglang 0.5.17", text)
    assert [item["severity"] for item in found] == ([] if severity is None else [severity])
