"""A systemd host with real vLLM and SGLang in it, on CPU."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.engines.environments import EnvironmentFailure, ensure_models, ensure_sglang, ensure_vllm
from tests.testbed import Host, Testbed, TestbedError

# The fixtures of the simulated hosts serve here, too.
from tests.hosts.conftest import inventory, pytest_runtest_makereport, testbed  # noqa: F401  isort: skip


@pytest.fixture(scope="session")
def environments() -> dict[str, Path]:
    """Folders of the engines' environments and of the models, built when missing."""
    try:
        # Processes, because a build sets the umask, which threads share.
        with ProcessPoolExecutor(2, get_context("spawn")) as pool:
            vllm, sglang = pool.submit(ensure_vllm), pool.submit(ensure_sglang)
            return {"vllm": vllm.result(), "models": ensure_models(), "sglang": sglang.result()}
    except EnvironmentFailure as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def real_host(testbed: Testbed, environments: dict[str, Path]) -> Iterator[Host]:  # noqa: F811
    """A clean host that sees the environments at the path they were built for."""
    try:
        host = testbed.boot("gpu1", binds={path: str(path) for path in environments.values()})
    except TestbedError as error:
        pytest.fail(str(error), pytrace=False)
    yield host
    testbed.destroy(host)
