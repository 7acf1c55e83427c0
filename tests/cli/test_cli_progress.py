"""Phases are shown in the order in which they began, inner ones indented."""

from __future__ import annotations

import io
import logging
import re

import pytest
from rich.console import Console

from nnefc.cli.tables import amount, columns, memory, trial_lines
from nnefc.driver.artifact import Trial
from nnefc.driver.terminal_progress import BriefProgress, ProgressPhases, session_progress


def phases_shown(terminal: bool) -> str:
    text = io.StringIO()
    phases = ProgressPhases(Console(file=text, force_terminal=terminal, width=100))
    with phases.phase("read the model"):
        pass
    with phases.phase("optimize"):
        with phases.phase("fold constants"):
            pass
        with phases.phase("fuse"):
            pass
    return text.getvalue()


def test_a_line_a_phase_with_its_seconds() -> None:
    lines = phases_shown(terminal=False).splitlines()
    assert [re.sub(r" +\d+\.\d\d s$", "", line) for line in lines] == [
        "read the model",
        "optimize",
        "  fold constants",
        "  fuse",
    ]


def test_the_lines_stay_on_a_terminal() -> None:
    shown = phases_shown(terminal=True)
    assert shown.index("read the model") < shown.index("optimize") < shown.index("  fold constants")


@pytest.mark.parametrize("width", [40, 100])
def test_lines_fit_the_terminal(width: int) -> None:
    text = io.StringIO()
    phases = ProgressPhases(Console(file=text, width=width))
    with phases.phase("lower"):
        phases.kernels(2, 3)
        running = phases._text(12)
    assert ("━" in running) == (width == 100) and len(f"⠸ {running}") <= width
    (line,) = text.getvalue().splitlines()
    assert len(line) <= width and re.match(r"lower +\d+\.\d\d s$", line)


@pytest.mark.parametrize("terminal", [False, True])
def test_why_a_step_takes_long_is_reported_when_it_begins(terminal: bool) -> None:
    text = io.StringIO()
    phases = ProgressPhases(Console(file=text, force_terminal=terminal, width=40))
    log = logging.getLogger("nnefc.targets.link")
    with phases.phase("link"):
        log.info("compiling a library of C: once for each kind of machine")
        log.debug("nobody asked")
        assert "compiling a library of C: once for each kind of machine\n" in text.getvalue()
    log.info("between phases")
    assert text.getvalue().count("link ") and "between" not in text.getvalue() and "nobody" not in text.getvalue()


def test_a_session_shows_its_phase_and_leaves_no_line(monkeypatch: pytest.MonkeyPatch) -> None:
    text = io.StringIO()
    progress = BriefProgress(Console(file=text, force_terminal=True, width=100), "digits.onnx")
    with progress.phase("lower"):
        progress.kernels(10, 10)
        progress._console.print("program")
    assert "nnefc compiles digits.onnx: lower ━━━━━━━━━━━━━━━━━━━━ 10 of 10 kernels, 0 s …" in text.getvalue()
    assert not re.search(r"\d\.\d\d s", text.getvalue())
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert session_progress("digits.onnx") is None


def test_a_failing_phase_is_shown_and_its_error_goes_on() -> None:
    text = io.StringIO()
    with pytest.raises(KeyError), ProgressPhases(Console(file=text)).phase("fuse"):
        raise KeyError
    assert text.getvalue().startswith("fuse ")


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (999_999, "999,999"),
        (61_100_840, "61.1 million"),
        (4_089_184_256, "4.09 billion"),
        (10**12, "1 trillion"),
    ],
)
def test_amounts(number: int, text: str) -> None:
    assert amount(number) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (1023, "1,023 bytes"), (1024, "1.0 KiB"), (98 << 20, "98.0 MiB"), (3 << 40, "3.0 TiB")],
)
def test_memory(count: int, text: str) -> None:
    assert memory(count) == text


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert columns([("a", "1"), ("bcd", "22")], right=(1,)) == ["a     1", "bcd  22"]
    assert columns([]) == []


def test_trials_say_what_was_taken_and_why() -> None:
    trials = [Trial("fp32", 0.0, 2.6e-3, False), Trial("bf16", 0.2, None, False), Trial("int8", 8e-3, 9.8e-4, True)]
    assert trial_lines(trials) == [
        "precision    error    ms",
        "fp32       0.0e+00   2.6",
        "bf16       2.0e-01",
        "int8       8.0e-03  0.98  taken",
    ]
    assert trial_lines([]) == []
