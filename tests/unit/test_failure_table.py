"""The table of failures cannot pass over a row in silence."""

from __future__ import annotations

import failure_table
import pytest

ENTRY = "{what: it breaks, does: mends it, sources: [a/b#1]"
MARKED = '@pytest.mark.failure("1.2")\ndef test_1_2_it():\n    pass\n'


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Writes rows and tests of a project; rows that no test is marked with get the text given."""

    def write(rows: str, tests: str) -> None:
        (tmp_path / "tests").mkdir()
        (tmp_path / "tests/failures.yml").write_text(rows)
        (tmp_path / "tests/test_x.py").write_text(tests)
        monkeypatch.setattr(failure_table, "ROOT", tmp_path)
        monkeypatch.setattr(failure_table, "ROWS", tmp_path / "tests/failures.yml")

    return write


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (f'"1.2": {ENTRY}}}\n"1.3": {ENTRY}}}', "row 1.3 has no test marked with it, and no reason why"),
        (f'"1.2": {ENTRY}, reason: needs a GPU}}', "row 1.2 has a reason for having no test, but"),
        (f'"1.3": {ENTRY}, reason: needs a GPU}}', "test_x.py::test_1_2_it is marked with failure '1.2', which"),
        ('"1.2": {what: it breaks, does: mends it}', "row 1.2 has no 'sources'"),
    ],
)
def test_what_is_missing_is_named(tree, rows, message):
    tree(rows, MARKED)
    with pytest.raises(ValueError, match=message):
        failure_table.table("")


def test_a_row_has_a_test_that_is_named_after_it(tree):
    tree(f'"1.2": {ENTRY}}}', MARKED.replace("1_2", "11_2_and_1_21"))
    with pytest.raises(ValueError, match=r"row 1\.2 has no test named after it; tests/test_x.py::test_11_2_and"):
        failure_table.table("")


def test_outcomes_of_one_run_are_kept_when_another_runs_other_tests(tree):
    tree(f'"1.2": {ENTRY}}}', MARKED + MARKED.replace("test_1_2_it", "test_that"))
    first = failure_table.table("", {"tests/test_x.py::test_1_2_it": True})
    assert "| `test_x.py::test_1_2_it`<br>`test_x.py::test_that` | passed<br>not run |" in first
    second = failure_table.table(first, {"tests/test_x.py::test_that": False})
    assert "| passed<br>**failed** |" in second
    assert failure_table.table(second) == second
