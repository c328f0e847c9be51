"""The tuner plugin, compiled and called as NCCL calls it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from servewright.nccl import measure

COMPILER = shutil.which("cc")
pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler here")

ALGORITHMS, PROTOCOLS, IGNORE = 7, 3, -1.0
TREE, RING, LL, SIMPLE = 0, 1, 0, 2
ALL_GATHER, ALL_REDUCE = 2, 4
WARN = 2
# level, subsystems, file, line, format; what is formatted is left out.
LOGGER = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_ulong, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    source = Path(measure.__file__).with_name("tuner_plugin.c")
    target = tmp_path_factory.mktemp("plugin") / "tuner.so"
    options = ("-O2", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror")
    subprocess.run([str(COMPILER), *options, "-o", target, source], check=True)
    return ctypes.CDLL(str(target))


class Tuner:
    """One communicator of two ranks on one node, through one version of the interface."""

    def __init__(self, library: ctypes.CDLL, version: int) -> None:
        functions = (ctypes.c_void_p * 4).in_dll(library, f"ncclTunerPlugin_v{version}")
        self.version, self.said, self.context = version, [], ctypes.c_void_p()
        self._log = LOGGER(lambda level, _subsystems, _file, _line, text: self.said.append((level, text.decode())))
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        common = [pointer, ctypes.c_int, size, ctypes.c_int, pointer, ctypes.c_int, ctypes.c_int]
        registered = [] if version == 3 else [ctypes.c_int]
        self._get = ctypes.CFUNCTYPE(ctypes.c_int, *common, *registered, pointer)(functions[2])
        if version == 5:
            start = ctypes.CFUNCTYPE(ctypes.c_int, pointer, ctypes.c_uint64, size, size, LOGGER, pointer, pointer)
            status = start(functions[1])(ctypes.addressof(self.context), 1, 2, 1, self._log, None, None)
        else:
            start = ctypes.CFUNCTYPE(ctypes.c_int, size, size, LOGGER, pointer)
            status = start(functions[1])(2, 1, self._log, ctypes.addressof(self.context))
        assert status == 0
        self._stop = ctypes.CFUNCTYPE(ctypes.c_int, pointer)(functions[3])

    def choose(
        self, collective: int, size: int, off: tuple[tuple[int, int], ...] = ()
    ) -> tuple[tuple[int, int] | None, int]:
        """The algorithm and protocol it makes the cheapest, None for NCCL's own; channels, 0 for NCCL's own."""
        costs = (ctypes.c_float * PROTOCOLS * ALGORITHMS)(
            *[(ctypes.c_float * PROTOCOLS)(9, 9, 9) for _ in range(ALGORITHMS)]
        )
        for algorithm, protocol in off:
            costs[algorithm][protocol] = IGNORE
        channels = ctypes.c_int(0)
        registered = [] if self.version == 3 else [0]
        status = self._get(
            self.context,
            collective,
            size,
            1,
            ctypes.addressof(costs),
            ALGORITHMS,
            PROTOCOLS,
            *registered,
            ctypes.addressof(channels),
        )
        assert status == 0
        free = [(a, p) for a in range(ALGORITHMS) for p in range(PROTOCOLS) if costs[a][p] == 0]
        assert len(free) < 2
        assert all(costs[a][p] == IGNORE for a, p in off), "what NCCL cannot run must stay so"
        return (free[0] if free else None), channels.value

    def close(self) -> None:
        assert self._stop(self.context) == 0


def _tuner(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, version: int = 5) -> Tuner:
    path = tmp_path / "table.csv"
    path.write_text(text, encoding="utf-8")
    monkeypatch.setenv("NCCL_TUNER_CONFIG_FILE", str(path))
    return Tuner(library, version)


TABLE = """# a remark

allreduce,0,1048576,ring,ll,2,1,2
 allreduce , 1048577 , 9223372036854775807 , tree , simple , -1 , -1 , -1
allgather,0,100,ring,simple,4,1,8
"""


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_message_gets_what_its_row_says(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: int
) -> None:
    tuner = _tuner(library, monkeypatch, tmp_path, TABLE, version)
    assert tuner.choose(ALL_REDUCE, 14336) == ((RING, LL), 2)
    assert tuner.choose(ALL_REDUCE, 1048576) == ((RING, LL), 2)
    assert tuner.choose(ALL_REDUCE, 1048577) == ((TREE, SIMPLE), 0)
    assert not [said for said in tuner.said if said[0] == WARN]
    tuner.close()


def test_what_no_row_covers_is_left_to_nccl(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tuner = _tuner(library, monkeypatch, tmp_path, TABLE)
    # The table's row is for eight ranks; here are two.
    assert tuner.choose(ALL_GATHER, 50) == (None, 0)
    tuner.close()


def test_what_cannot_run_here_gives_way_to_the_next_row(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = "allreduce,0,100,ring,ll,2,-1,-1\nallreduce,0,100,ring,simple,3,-1,-1\n"
    tuner = _tuner(library, monkeypatch, tmp_path, text)
    assert tuner.choose(ALL_REDUCE, 50, off=((RING, LL),)) == ((RING, SIMPLE), 3)
    assert tuner.choose(ALL_REDUCE, 50, off=((RING, LL), (RING, SIMPLE))) == (None, 0)
    tuner.close()


@pytest.mark.parametrize(
    "row",
    [
        "allreduce,0,100,rings,ll,2,1,2",
        "allreduce,0,100,ring,LL,2,1,2",
        "all_reduce,0,100,ring,ll,2,1,2",
        "allreduce,0,1M,ring,ll,2,1,2",
        "allreduce,100,0,ring,ll,2,1,2",
        "allreduce,0,100,ring,ll,0,1,2",
        "allreduce,0,100,ring,ll,2,1",
        "allreduce,0,100,ring,ll,2,1,2,0,0,0",
        "allreduce,,100,ring,ll,2,1,2",
        "allreduce,0,100,ring,ll,2,1,2" + " " * 600,
    ],
)
def test_a_bad_row_is_reported_and_the_whole_table_left_alone(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, row: str
) -> None:
    tuner = _tuner(library, monkeypatch, tmp_path, f"allreduce,0,100,ring,ll,2,1,2\n{row}\n")
    assert [level for level, _ in tuner.said] == [WARN]
    assert tuner.choose(ALL_REDUCE, 50) == (None, 0)
    tuner.close()


@pytest.mark.parametrize("path", ["/nonexistent/table.csv", ""])
def test_a_table_that_is_not_there_is_reported(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setenv("NCCL_TUNER_CONFIG_FILE", path)
    tuner = Tuner(library, 5)
    assert [level for level, _ in tuner.said] == [WARN]
    assert tuner.choose(ALL_REDUCE, 50) == (None, 0)
    tuner.close()


def test_many_rows(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = "".join(f"allreduce,{size},{size},ring,ll,{size},-1,-1\n" for size in range(1, 300))
    tuner = _tuner(library, monkeypatch, tmp_path, rows)
    assert tuner.choose(ALL_REDUCE, 299) == ((RING, LL), 299)
    tuner.close()


def test_a_table_that_is_read_again_counts_for_the_next_message(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SERVEWRIGHT_TUNER_RELOAD", "1")
    tuner = _tuner(library, monkeypatch, tmp_path, TABLE)
    assert tuner.choose(ALL_REDUCE, 14336) == ((RING, LL), 2)
    for channels in range(1, 40):
        (tmp_path / "table.csv").write_text(f"allreduce,0,{2**40},ring,simple,{channels},-1,-1\n" * channels)
        assert tuner.choose(ALL_REDUCE, 14336) == ((RING, SIMPLE), channels)
    (tmp_path / "table.csv").write_text("nonsense\n")
    assert tuner.choose(ALL_REDUCE, 14336) == (None, 0)
    tuner.close()


def test_a_table_is_read_once_unless_asked(
    library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tuner = _tuner(library, monkeypatch, tmp_path, TABLE)
    (tmp_path / "table.csv").write_text("")
    assert tuner.choose(ALL_REDUCE, 14336) == ((RING, LL), 2)
    tuner.close()
