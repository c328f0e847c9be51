"""The cache builds once and completely, and a CUDA build of torch is refused."""

from __future__ import annotations

import os
import stat
import threading
import time
from pathlib import Path

import pytest

from tests.engines.environments import EnvironmentFailure, cache, engines


def test_a_folder_is_built_once_by_many(tmp_path: Path) -> None:
    builds: list[Path] = []
    start = threading.Barrier(4)

    def build(folder: Path) -> None:
        builds.append(folder)
        time.sleep(0.1)  # long enough for the others to come in
        (folder / "content").touch()

    def use() -> None:
        start.wait()
        assert (cache.built(tmp_path / "cache" / "x", build) / "content").exists()

    users = [threading.Thread(target=use) for _ in range(4)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    assert builds == [tmp_path / "cache" / "x"]


def test_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    def interrupted(folder: Path) -> None:
        (folder / "half").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.built(tmp_path / "x", interrupted)
    assert not (tmp_path / "x").exists()


def test_the_rest_of_a_killed_build_is_deleted(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "half").touch()
    whole = cache.built(tmp_path / "x", lambda folder: (folder / "whole").touch())
    assert sorted(file.name for file in whole.iterdir()) == [".complete", "whole"]


def test_other_users_can_read_what_a_strict_umask_built(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        folder = cache.built(tmp_path / "x", lambda folder: (folder / "file").touch())
        assert os.umask(0o077) == 0o077, "the caller's umask must come back"
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert stat.S_IMODE((folder / "file").stat().st_mode) == 0o644


def test_a_cache_that_cannot_be_written_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EnvironmentFailure, match=r"cannot build .*SERVEWRIGHT_ENGINE_CACHE"):
        cache.built(tmp_path / "file" / "x", lambda folder: None)


def test_the_digest_follows_names_and_contents(tmp_path: Path) -> None:
    seen = set()
    for name, content in [("a", "1"), ("a", "2"), ("b", "2")]:
        for old in tmp_path.iterdir():
            old.unlink()
        (tmp_path / name).write_text(content)
        seen.add(cache.digest(cache.tree(tmp_path)))
    assert len(seen) == 3


@pytest.mark.parametrize(("cuda", "refused"), [("None", False), ("'13.0'", True)])
def test_a_cuda_build_of_torch_is_refused(tmp_path: Path, cuda: str, refused: bool) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "version.py").write_text(f"__version__ = '2.13.0'\ncuda = {cuda}\n")
    if refused:
        with pytest.raises(EnvironmentFailure, match="PIP_EXTRA_INDEX_URL"):
            engines.refuse_cuda(tmp_path)
    else:
        engines.refuse_cuda(tmp_path)


@pytest.mark.parametrize("recipe", [engines.VLLM, engines.SGLANG], ids=lambda recipe: recipe.engine)
def test_every_package_is_pinned(recipe: engines.Recipe) -> None:
    lines = [line for line in recipe.requirements.read_text().splitlines() if not line.startswith("#")]
    assert "torch==2.13.0" in lines
    assert [line for line in lines if line.count("==") != 1 or "://" in line or "@" in line or "+" in line] == []
