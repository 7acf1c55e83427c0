"""The verdict on all tests: read from what pytest writes, and on the page as it is recorded."""

from __future__ import annotations

import json
from pathlib import Path

import click
import nightly
import pytest
from click.testing import CliRunner
from parts import files_of_part, part_asked_for


def test_the_page_has_what_is_recorded() -> None:
    assert nightly.PAGE.read_text() == nightly.page(), "run: python docs/nightly.py --page"


RESULTS = """<testsuites><testsuite>
<testcase classname="tests.a.test_one" name="test_x"/>
<testcase classname="tests.a.test_one" name="test_y[1]"><failure message="no"/></testcase>
<testcase classname="tests.b" name="test_z"><skipped/></testcase>
<testcase classname="tests.b" name="test_w"><error/></testcase>
</testsuite></testsuites>"""


def test_a_verdict_counts_and_names_what_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "results.xml").write_text(RESULTS)
    found = nightly.verdict_of(tmp_path / "results.xml", "0123456789ab", 61.4)
    assert (found.passed, found.skipped, found.minutes) == (1, 1, 61)
    assert found.failed == ("tests/a/test_one.py::test_y[1]", "tests/b.py::test_w")
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"2/12": nightly.asdict(found)}))
    monkeypatch.setattr(nightly, "RECORD", record)
    text = nightly.page()
    assert f"| 2/12 | {found.date} | `0123456789ab` | 1 | 2 | 1 | 61 |" in text
    assert "Not run yet: 1/12, 3/12, 4/12," in text
    assert "Failed: `tests/a/test_one.py::test_y[1]`, `tests/b.py::test_w`." in text


def test_a_part_that_cannot_be_run_leaves_the_others_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def run_part(part: str, workers: int) -> nightly.Verdict:
        asked.append(part)
        if part == "2/12":
            raise click.ClickException("pytest ended with 3")
        return nightly.Verdict("2026-01-01", "0123456789ab+", workers, 5, 0, ("test_a",) * (part == "3/12"), "")

    monkeypatch.setattr(nightly, "run_part", run_part)
    done = CliRunner().invoke(nightly.main, [])
    assert asked == [f"{number}/12" for number in range(1, 13)] and done.exit_code == 1
    assert "Error: pytest ended with 3; 1 tests failed" in done.output


def test_parts_have_each_file_once_and_are_about_as_long() -> None:
    weights = {f"test_{n}.py": n % 7 * 13 + 1 for n in range(60)}
    parts = [files_of_part(weights, number, 4) for number in range(1, 5)]
    assert set().union(*parts) == weights.keys()
    assert sum(map(len, parts)) == len(weights)
    loads = [sum(weights[file] for file in part) for part in parts]
    assert max(loads) - min(loads) <= max(weights.values())


@pytest.mark.parametrize(("part", "number"), [("1/4", 1), ("4/4", 4)])
def test_a_part_is_named_by_its_number(part: str, number: int) -> None:
    assert part_asked_for(part) == (number, 4)


@pytest.mark.parametrize("part", ["0/4", "5/4", "two", "1/"])
def test_parts_that_are_none_are_refused(part: str) -> None:
    with pytest.raises(pytest.UsageError, match=f"--part {part}: such as 2/4"):
        part_asked_for(part)
