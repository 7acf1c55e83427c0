"""Pages of results that the README or the table of what works cites describe the compiler as it is."""

from __future__ import annotations

from pathlib import Path

import pages
import pytest
from pages import EXCUSED, LIMIT, PAGES, RESULTS, cited_pages, due_pages, history_is_whole, later_commits, state_of

CITED = [path.relative_to(RESULTS).with_suffix("").as_posix() for path in cited_pages()]
with_history = pytest.mark.skipif(not history_is_whole(), reason="needs: a checkout with its whole history")


def test_pages_are_cited() -> None:
    assert CITED


@with_history
@pytest.mark.parametrize("name", CITED)
def test_a_page_that_is_cited_is_not_due(name: str) -> None:
    state = state_of(RESULTS / f"{name}.md")
    age = "an unknown commit" if state.later is None else f"{state.later} commits of the compiler ago"
    assert not state.due or name in EXCUSED, (
        f"{name}.md was measured {age}; renew it (make pages says how), cite another one, or excuse it in"
        " benchmarks/pages.py"
    )


@with_history
def test_every_page_names_a_commit_that_is_here() -> None:
    unknown = [state.name for state in due_pages() if state.later is None]
    assert unknown == [], "what was measured there cannot be looked up: renew these pages, or drop them"


@with_history
@pytest.mark.parametrize("name", EXCUSED)
def test_an_excuse_is_needed_and_has_not_grown_old_itself(name: str) -> None:
    excuse = EXCUSED[name]
    assert (RESULTS / f"{name}.md").is_file(), f"{name}.md is gone: drop its excuse"
    assert name in CITED or excuse.rows, f"{name}.md is not cited: drop its excuse"
    assert state_of(RESULTS / f"{name}.md").due or excuse.rows, f"{name}.md is not due: drop its excuse"
    later = later_commits(excuse.granted)
    assert later is not None and later <= 2 * LIMIT, f"{name}.md: this excuse is too old: renew the page"
    assert excuse.reason


def test_every_page_has_a_script_and_a_duration() -> None:
    stems = {path.stem for path in RESULTS.rglob("*.md") if path.name != "README.md"}
    assert stems <= PAGES.keys()
    scripts = {name: Path(RESULTS.parent / page.command.split()[0]) for name, page in PAGES.items()}
    assert [name for name, script in scripts.items() if not script.is_file()] == []
    assert all(page.minutes > 0 for page in PAGES.values())
    timed = {path.stem for path in RESULTS.rglob("*.md") if path.parent != RESULTS}
    assert {name for name in stems if PAGES[name].timed} == timed


def test_unknown_commits_have_no_age() -> None:
    assert later_commits("0" * 12) is None


@with_history
def test_a_commit_is_as_old_as_the_compiler_has_changed_since() -> None:
    assert later_commits("HEAD") == 0
    before = later_commits("HEAD~50")
    assert before is not None and before > 0


def test_ages_are_not_asked_for_where_there_is_no_history(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    assert not history_is_whole()
