"""Real vLLM and SGLang environments and tiny models for the tests that run real engines on a CPU.

`ensure_vllm()`, `ensure_sglang()` and `ensure_models()` build what is missing and return its folder;
`python3 -m tests.engines.environments` does the same from a shell.
"""

from tests.engines.environments.engines import ensure_sglang, ensure_vllm
from tests.engines.environments.failure import EnvironmentFailure
from tests.engines.environments.models import ensure_models

__all__ = ["EnvironmentFailure", "ensure_models", "ensure_sglang", "ensure_vllm"]
