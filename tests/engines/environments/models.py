"""The folder of tiny models."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.engines.environments import cache
from tests.engines.environments.engines import ensure_vllm
from tests.engines.environments.failure import EnvironmentFailure

_MAKER = Path(__file__).with_name("make_models.py")


def ensure_models() -> Path:
    """A folder with the models `tiny-deepseek` and `tiny-qwen3moe`, one folder each. Raises EnvironmentFailure.

    They are made with torch and transformers, so vLLM's environment is built first.
    """
    environment = ensure_vllm()
    parts = [_MAKER.read_bytes(), environment.name.encode()]

    def build(folder: Path) -> None:
        done = subprocess.run([environment / "bin" / "python", _MAKER, folder], capture_output=True, text=True)
        if done.returncode:
            raise EnvironmentFailure(f"{_MAKER.name} ended with {done.returncode}:\n{done.stderr[-3000:]}")

    return cache.built(cache.root() / "models" / f"tiny-{cache.digest(parts)}", build)
