"""Progress lines in a file that is being written."""

from __future__ import annotations

from pathlib import Path

from servewright.driver.progress import Progress, Tail

LINE = '{"time": 1, "host": "gpu1", "service": "kimi", "step": "loading", "elapsed": 3.5, "line": "43%"}\n'


def test_a_line_is_given_once_and_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "progress"
    tail = Tail(path)
    assert tail.read() == []
    with path.open("a") as stream:
        stream.write(LINE + LINE[:20])
        stream.flush()
        assert tail.read() == [Progress("gpu1", "kimi", "loading", 3.5, "43%")]
        assert tail.read() == []
        stream.write(LINE[20:])
    assert len(tail.read()) == 1
    tail.close()


def test_a_line_that_makes_no_sense_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "progress"
    tail = Tail(path)
    path.write_text("nonsense\n[]\n{}\n\n" + LINE.replace("3.5", '"soon"') + LINE)

    assert len(tail.read()) == 1
    tail.close()
