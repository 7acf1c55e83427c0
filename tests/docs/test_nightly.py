"""The verdict on all tests: read from what pytest writes, and on the page as it is recorded."""

from __future__ import annotations

import json
from pathlib import Path

import click
import nightly
import pytest
from click.testing import CliRunner
from parts import QUICK_SECONDS, SLOW_SECONDS, part_asked_for, seconds_of, slice_of_part


def test_the_page_has_what_is_recorded() -> None:
    assert nightly.PAGE.read_text() == nightly.page(), "run: python docs/nightly.py --page"


RESULTS = """<testsuites><testsuite>
<testcase classname="tests.a.test_one" name="test_x"/>
<testcase classname="tests.a.test_one" name="test_y[1]"><failure message="no"/></testcase>
<testcase classname="tests.b" name="test_z"><skipped/></testcase>
<testcase classname="tests.b" name="test_w"><error/></testcase>
<testcase classname="" name="tests.c.test_absent"><skipped/></testcase>
</testsuite></testsuites>"""


def test_a_verdict_counts_and_names_what_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "results.xml").write_text(RESULTS)
    found = nightly.verdict_of(tmp_path / "results.xml", "0123456789ab", 61.4, 90.5)
    assert (found.passed, found.skipped, found.minutes, found.processor_minutes) == (1, 1, 61, 90)
    assert found.left_out == ("tests/c/test_absent.py",)
    assert found.failed == ("tests/a/test_one.py::test_y[1]", "tests/b.py::test_w")
    record = tmp_path / "record.json"
    record.write_text(json.dumps({"2/8": nightly.asdict(found)}))
    monkeypatch.setattr(nightly, "RECORD", record)
    text = nightly.page()
    assert (
        f"| 2/8 | `tests/a/test_one.py` | `tests/b.py` | {found.date} | `0123456789ab` | 1 | 2 | 1 | 61 | 90 |" in text
    )
    assert "Not run yet: 1/8, 3/8, 4/8," in text
    assert "Left out, for packages that are not there: `tests/c/test_absent.py`." in text
    assert "Failed: `tests/a/test_one.py::test_y[1]`, `tests/b.py::test_w`." in text


def test_a_part_that_cannot_be_run_leaves_the_others_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def run_part(part: str, workers: int) -> nightly.Verdict:
        asked.append(part)
        if part == "2/8":
            raise click.ClickException("pytest ended with 3")
        return verdict("2026-01-03", "+", ("test_a",) * (part == "3/8"))

    record = tmp_path / "record.json"
    ended = {"1/8": "2026-01-02", "4/8": "2026-01-01", "5/12": "2026-01-01"}
    record.write_text(json.dumps({part: nightly.asdict(verdict(date)) for part, date in ended.items()}))
    monkeypatch.setattr(nightly, "RECORD", record)
    monkeypatch.setattr(nightly, "run_part", run_part)
    done = CliRunner().invoke(nightly.main, [])
    waiting = [f"{number}/8" for number in (2, 3, *range(5, 9))]
    assert asked == [*waiting, "4/8", "1/8"] and done.exit_code == 1
    assert "Error: pytest ended with 3; 1 tests failed" in done.output


def verdict(date: str, changed: str = "", failed: tuple[str, ...] = ()) -> nightly.Verdict:
    return nightly.Verdict(date, "0123456789ab" + changed, 2, 3, 5, 0, failed, "", ("tests/a.py", "tests/b.py"), ())


def test_a_verdict_is_recorded_and_written_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record, written = tmp_path / "record.json", tmp_path / "page.md"
    record.write_text("{}")
    written.write_text("# Page\n\n<!-- nightly -->\n<!-- end of nightly -->\n\nMore.\n")
    for name, value in {"RECORD": record, "PAGE": written, "run_part": lambda *_: verdict("2026-01-03")}.items():
        monkeypatch.setattr(nightly, name, value)
    assert CliRunner().invoke(nightly.main, ["--part", "7/8"]).exit_code == 0
    assert nightly.recorded().keys() == {"7/8"}
    assert (
        "\n| 7/8 | `tests/a.py` | `tests/b.py` | 2026-01-03 | `0123456789ab` | 5 | 0 | 0 | 2 | 3 |"
        in written.read_text()
    )
    assert written.read_text().endswith("\n<!-- end of nightly -->\n\nMore.\n")


@pytest.mark.parametrize("count", [1, 4, 24, 100])
def test_parts_have_each_test_once_and_are_about_as_long(count: int) -> None:
    seconds = [0.5 if n % 7 else 10.0 + n % 3 * 40 for n in range(600)]
    parts = [slice_of_part(seconds, number, count) for number in range(1, count + 1)]
    assert [test for part in parts for test in range(600)[part]] == list(range(600))
    assert max(abs(sum(seconds[part]) - sum(seconds) / count) for part in parts) <= max(seconds)


def test_a_test_that_is_added_moves_few_to_another_part() -> None:
    seconds = [1.0] * 600
    before, after = (set(range(600)[slice_of_part(all_, 2, 4)]) for all_ in (seconds, [*seconds, 1.0]))
    assert len(before ^ after) <= 2


class _Marked:
    def __init__(self, *marks: pytest.MarkDecorator) -> None:
        self.marks = [mark.mark for mark in marks]

    def iter_markers(self, name: str) -> list[pytest.Mark]:
        return [mark for mark in self.marks if mark.name == name]


@pytest.mark.parametrize(
    ("marks", "seconds"),
    [
        ([], QUICK_SECONDS),
        ([pytest.mark.sample(3)], QUICK_SECONDS),
        ([pytest.mark.slow], SLOW_SECONDS),
        ([pytest.mark.slow, pytest.mark.slow(600)], 600),
    ],
)
def test_the_marker_says_how_long_a_test_takes(marks: list[pytest.MarkDecorator], seconds: float) -> None:
    assert seconds_of(_Marked(*marks)) == seconds


@pytest.mark.parametrize(("part", "number"), [("1/4", 1), ("4/4", 4)])
def test_a_part_is_named_by_its_number(part: str, number: int) -> None:
    assert part_asked_for(part) == (number, 4)


@pytest.mark.parametrize("part", ["0/4", "5/4", "two", "1/"])
def test_parts_that_are_none_are_refused(part: str) -> None:
    with pytest.raises(pytest.UsageError, match=f"--part {part}: such as 2/4"):
        part_asked_for(part)
