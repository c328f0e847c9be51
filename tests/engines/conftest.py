"""Systemd hosts with real vLLM and SGLang in them, on CPU: one for each engine, which its tests share.

Starting an engine takes most of the time, so a test leaves `tiny` as it found it: committed as declared, and serving.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.engines.environments import EnvironmentFailure, ensure_models, ensure_sglang, ensure_vllm
from tests.engines.tiny import Tiny
from tests.testbed import Host, Testbed, TestbedError

# The fixtures of the simulated hosts serve here, too.
from tests.hosts.conftest import inventory, pytest_runtest_makereport, testbed  # noqa: F401  isort: skip

# With --dist loadgroup the tests of each engine run in a process of their own, beside those of the other.
ENGINES = [pytest.param(engine, marks=pytest.mark.xdist_group(engine)) for engine in ("vllm", "sglang")]


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


@pytest.fixture(scope="session", params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _boot(testbed: Testbed, name: str, environments: dict[str, Path]) -> Host:  # noqa: F811
    """A host that sees the environments at the path they were built for."""
    try:
        return testbed.boot(name, binds={path: str(path) for path in environments.values()})
    except TestbedError as error:
        pytest.fail(str(error), pytrace=False)


@pytest.fixture
def real_host(testbed: Testbed, environments: dict[str, Path]) -> Iterator[Host]:  # noqa: F811
    """A clean host, for a test that leaves traces on it."""
    host = _boot(testbed, "gpu1", environments)
    yield host
    testbed.destroy(host)


@pytest.fixture(scope="session")
def engine_host(testbed: Testbed, environments: dict[str, Path], engine: str) -> Iterator[Host]:  # noqa: F811
    """The host that the tests of an engine share."""
    host = _boot(testbed, engine, environments)
    yield host
    testbed.destroy(host)


@pytest.fixture
def tiny(
    engine: str,
    engine_host: Host,
    environments: dict[str, Path],
    inventory: Callable[..., Path],  # noqa: F811
) -> Tiny:
    """The service `tiny`: committed as it is declared, and serving."""
    found = Tiny(engine, engine_host, environments, inventory)
    done, _service = found.run("deploy")
    assert done.code == 0, done.text
    return found
