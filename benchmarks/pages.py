"""Which pages of results are due, how long each takes, and the command that renews it: `make pages`.

    python benchmarks/pages.py [--all]

A page describes the compiler at the commit that it names. It is due when that commit is unknown here, or when more than
LIMIT later commits touch the compiler. Pages that the README or `docs/what-works.md` cites must not be due, unless
EXCUSED says why: `tests/benchmarks/test_pages.py` holds them to it.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import click

__all__ = [
    "CITING",
    "COMPILER",
    "EXCUSED",
    "LIMIT",
    "PAGES",
    "Excuse",
    "PageScript",
    "State",
    "cited_pages",
    "commit_of",
    "due_pages",
    "history_is_whole",
    "later_commits",
    "state_of",
]

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
CITING = (ROOT / "README.md", ROOT / "docs" / "what-works.md")
COMPILER = ("compiler", "passes", "targets")
LIMIT = 150
"""Later commits of the compiler after which a page is due. An excuse holds for twice as many."""


@dataclass(frozen=True)
class PageScript:
    """How a page is written.

    Attributes:
        command: what follows `python benchmarks/`; FOLDER is one that holds, or gets, what the script's docstring says.
        minutes: how long it takes, where the page itself does not say.
        rows: the file below `benchmarks`, and the table in it, that lists the page's rows; empty if nothing does.
        timed: whether it needs an idle machine of its processor.
    """

    command: str
    minutes: int
    rows: tuple[str, str] = ("", "")
    timed: bool = True


@dataclass(frozen=True)
class Excuse:
    """Why a page is cited though it is due.

    Attributes:
        granted: the commit at which the excuse was given.
        rows: those that its script lists and the page does not have yet.
    """

    granted: str
    reason: str
    rows: frozenset[str] = field(default_factory=frozenset)


_NETWORKS = ("models/networks.py", "NAMES")
_GPU_REPORT = PageScript("cuda/gpu_report.py --pretrained FOLDER", 60, ("cuda/gpu_report.py", "WHOLE"), timed=False)
PAGES: Mapping[str, PageScript] = {
    "ablation": PageScript("ablation.py", 40, ("ablation.py", "NETWORKS")),
    "accuracy": PageScript("accuracy.py", 10, ("accuracy.py", "FUNCTIONS"), timed=False),
    "attention_spellings": PageScript("attention_spellings.py", 8, ("models/attention_spellings.py", "SPELLINGS")),
    "checked": PageScript("checked.py", 15, _NETWORKS),
    "cpu": PageScript("run.py", 20, _NETWORKS),
    "cuda_main_loops": _GPU_REPORT,
    "cuda_published": PageScript("cuda/published.py", 1, timed=False),
    "cuda_roofline": _GPU_REPORT,
    "cuda": _GPU_REPORT,
    "cuda_on_device": PageScript(
        "cuda/device_page.py RESULTS.json", 10, ("cuda/device_page.py", "NETWORKS"), timed=False
    ),
    "deployment": PageScript("deployment.py", 10, ("deployment.py", "NETWORKS")),
    "elementary": PageScript("elementary.py", 15, ("elementary.py", "FUNCTIONS"), timed=False),
    "emulated": PageScript("emulated.py", 45, ("emulated.py", "NETWORKS"), timed=False),
    "first_steps": PageScript("first_steps.py", 10),
    "language_engines": PageScript("language_engines.py", 14),
    "language_model": PageScript("language_model.py", 60, ("language_model.py", "QUESTIONS")),
    "llm_users": PageScript("llm_users.py", 5),
    "levels": PageScript("levels.py", 15, ("levels.py", "NETWORKS")),
    "main_loops": PageScript("main_loops.py", 10, ("main_loops.py", "NETWORKS"), timed=False),
    "memory_budget": PageScript("memory_budget.py", 20, ("memory_budget.py", "NAMES")),
    "microcontrollers": PageScript("microcontrollers.py", 15, ("tiny_networks.py", "NETWORKS"), timed=False),
    "c_source": PageScript("c_source.py", 3, ("tiny_networks.py", "NETWORKS"), timed=False),
    "narrow": PageScript("narrow.py", 30, _NETWORKS),
    "network_accuracy": PageScript("network_accuracy.py --pretrained FOLDER", 30, _NETWORKS, timed=False),
    "nnef_exchange": PageScript("nnef_exchange.py FOLDER", 30, _NETWORKS, timed=False),
    "open": PageScript("open_networks.py FOLDER", 25, ("open_networks.py", "SIZES")),
    "open_against_static": PageScript("open_against_static.py", 25, ("open_against_static.py", "NETWORKS")),
    "pnnx": PageScript("ncnn_networks.py", 8, ("ncnn_networks.py", "CASES")),
    "quantized": PageScript("quantized.py", 30),
    "quantized_levels": PageScript("quantized_levels.py", 12, ("quantized_levels.py", "NETWORKS")),
    "real": PageScript("real_networks.py FOLDER", 15, ("real_networks.py", "NETWORKS")),
    "reproducible": PageScript("reproducible.py", 20, _NETWORKS),
    "serving": PageScript("serving.py", 3, ("serving.py", "NETWORKS")),
    "sizes": PageScript("sizes.py", 7),
    "sklearn_models": PageScript("sklearn_models.py", 15, ("sklearn_pipelines.py", "PIPELINES")),
    "subnormals": PageScript("subnormals.py FOLDER", 12, ("real_networks.py", "NETWORKS")),
    "tflite": PageScript("tflite_speed.py FOLDER", 10, ("tflite_speed.py", "CASES")),
    "torch_modules": PageScript("torch_modules.py", 20, ("torch_networks.py", "NETWORKS")),
    "torch_to_nnef": PageScript("torch_to_nnef.py FOLDER", 12, ("exports/networks.py", "NETWORKS")),
    "uneven_cores": PageScript("uneven_cores.py", 10, ("uneven_cores.py", "NETWORKS")),
    "web": PageScript("web.py", 30, ("web.py", "NETWORKS")),
    "weights_only": PageScript("weights_only.py", 5),
}

EXCUSED: Mapping[str, Excuse] = {
    "cuda_on_device": Excuse("34c49e8e935f", "no NVIDIA GPU has been available since it was measured"),
    "znver3/subnormals": Excuse(
        "1e8131309a16", "zeros were also its speed, by which its text's length is divided", frozenset({"kokoro_int8"})
    ),
}


@dataclass(frozen=True)
class State:
    """A page, and how old it is.

    Attributes:
        name: its path below `benchmarks/results`, without the ending.
        commit: what it names.
        later: commits of the compiler since; None where the commit is unknown, or no ancestor of what is here.
    """

    name: str
    commit: str
    later: int | None

    @property
    def due(self) -> bool:
        return self.later is None or self.later > LIMIT


def _git(*words: str) -> str:
    """What git prints; empty where there is no git, no checkout, or no such commit."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def history_is_whole() -> bool:
    """Whether this is a checkout with all commits; ages are not known in archives and shallow clones."""
    return (ROOT / ".git").exists() and _git("rev-parse", "--is-shallow-repository") == "false"


@cache
def later_commits(commit: str) -> int | None:
    """Commits of the compiler after `commit`; None if it is unknown or no ancestor of what is here."""
    if not _git("merge-base", commit, "HEAD").startswith(_git("rev-parse", "--verify", f"{commit}^{{commit}}") or "-"):
        return None
    return int(_git("rev-list", "--count", f"{commit}..HEAD", "--", *COMPILER))


def commit_of(page: Path) -> str | None:
    """The commit that a page names; None if it is no page of results."""
    found = re.search(r"^Measured on .*?commit ([0-9a-f]{12})\.", page.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else None


def state_of(page: Path) -> State:
    """How old a page of results is."""
    commit = commit_of(page)
    if commit is None:
        raise ValueError(f"{page} names no commit")
    return State(page.relative_to(RESULTS).with_suffix("").as_posix(), commit, later_commits(commit))


def cited_pages() -> list[Path]:
    """Pages that the README and the table of what works link to; an image stands for the page next to it."""
    found = set()
    for page in CITING:
        for link in re.findall(r"\]\(([^)#:]*results/[^)#:]+)\)", page.read_text(encoding="utf-8")):
            path = (page.parent / link).resolve().with_suffix(".md")
            if commit_of(path) is not None:
                found.add(path)
    return sorted(found)


def due_pages(everything: bool = False) -> list[State]:
    """Pages that are due, or all, the oldest first."""
    pages = [path for path in sorted(RESULTS.rglob("*.md")) if commit_of(path) is not None]
    states = [state for path in pages if (state := state_of(path)).due or everything]
    return sorted(states, key=lambda state: (state.later is not None, -(state.later or 0), state.name))


def _minutes(state: State) -> str:
    """How long a page took, as it says itself, else as the table says."""
    found = re.search(r"took (\d+) min", (RESULTS / f"{state.name}.md").read_text(encoding="utf-8"))
    return found[1] if found else f"~{PAGES[state.name.rpartition('/')[2]].minutes}"


@click.command()
@click.option("--all", "everything", is_flag=True, help="All pages, not only those that are due.")
def main(everything: bool) -> None:
    """List pages of results that are due, with the commands that renew them."""
    if not history_is_whole():
        raise click.ClickException("how old pages are is known in a checkout with its whole history alone")
    from conditions import processor
    from report import table

    here, cited = processor(), {state_of(path).name for path in cited_pages()}
    rows = []
    for state in due_pages(everything):
        script = PAGES[state.name.rpartition("/")[2]]
        folder = state.name.rpartition("/")[0]
        able = "yes" if folder in ("", here) else f"writes {here}/"
        later = "unknown commit" if state.later is None else str(state.later)
        notes = [note for note, holds in (("cited", state.name in cited), ("excused", state.name in EXCUSED)) if holds]
        command = f"python benchmarks/{script.command}"
        rows.append([state.name, later, ", ".join(notes), _minutes(state), able, f"`{command}`"])
    heads = ["page", "later commits of the compiler", "", "minutes", "can be renewed here", "command"]
    click.echo("\n".join(table(heads, rows)))
    click.echo(f"\n{len(rows)} pages; one is due after {LIMIT} later commits. Those in a folder need an idle machine.")


if __name__ == "__main__":
    main()
