"""The pool's protocol tried in every order of steps (pool_model.py), with mistakes that have to be found."""

from __future__ import annotations

import itertools
import re

import pytest
from pool_model import EPOCHS, MISTAKES, STEPS, Launch, Setting, Violation, explore

from nnefc.targets.link.toolchain import RUNTIME

WARM_UP = Launch(2, workers_own_only=True, caller_own_only=True)
AGAIN = [WARM_UP, *(EPOCHS - 1) * [Launch(1, workers_own_only=True)], Launch(2)]

SETTINGS = {
    "one worker": Setting(1, [WARM_UP, Launch(3), Launch(2, workers_own_only=True)], forks=True),
    "one worker, which is stopped": Setting(1, [Launch(2), Launch(3)], stops=True),
    "one worker, epochs that come again": Setting(1, AGAIN),
    "two workers": Setting(2, [Launch(2, workers_own_only=True)], forks=True),
    "two workers, more pieces": Setting(2, [Launch(3), Launch(2, workers_own_only=True)]),
    "two workers, which are stopped": Setting(2, [Launch(3)], stops=True),
    "one worker, more launches": Setting(1, [WARM_UP, *[Launch(n) for n in (4, 2, 5, 1)]], forks=True, stops=True),
}
QUICK = list(SETTINGS)[1:4]  # the first is what two workers do as well

ACCESSES = {
    r"pool->job = ": "write job",
    r"= &pool->job": "read job",
    r"atomic_store\w*\(&\w+->(\w+), true": r"set \1",
    r"atomic_store\w*\(&\w+->(\w+), false": r"clear \1",
    r"atomic_store\w*\(&\w+->(\w+), ": r"store \1",
    r"atomic_load\w*\((?:&pool->slots\[i\]\.|&\w+->)?(\w+)": r"load \1",
    r"atomic_fetch_add\(&\w+->(\w+)": r"add \1",
    r"atomic_fetch_sub\(&\w+->(\w+)": r"subtract \1",
    r"atomic_compare_exchange_\w+\((?:&\w+->)?(\w+)": r"exchange \1",
    r"pthread_mutex_(lock|unlock)\(": r"\1",
    r"pthread_cond_(wait|signal|broadcast)\(&pool->(\w+)": r"\1 \2",
    r"pthread_join\(": "join",
    r"\bfree_memory\(": "free",
    r"sched_getaffinity\(": "get set",
    r"sched_setaffinity\(": "set set",
}
"""What accesses look like in C, and how the model calls them."""

ALONE = {
    "nnefc_pool_create",  # no threads yet, or none any more
    "nnefc_may_be_brought",  # written once, by the thread itself
    "nnefc_look_at",
    "free_memory",
    "nnefc_worker_fail",  # flags that are looked at between launches
    "nnefc_pool_failed",
    "nnefc_pool_clear",
    "nnefc_pool_launch",  # after the end of the launch, or the number of the last one
    "work_as",  # of the caller's threads, which take pieces alone
}
"""Functions whose accesses no other thread minds."""
MINDLESS = ("refused", "failed", "number")


def functions(source: str) -> dict[str, str]:
    """The functions of C source as nnefc writes it, on one line or up to a brace at the beginning of one.

    Of those with one name, the first: Linux's.
    """
    bare = re.sub(r"/\*.*?\*/", "", source, flags=re.DOTALL)
    found = re.findall(r"^\w[\w \*]*?(\w+)\([^;{]*\) \{(?:([^\n]+)\}$|\n(.*?)^\}$)", bare, re.MULTILINE | re.DOTALL)
    return {name: line or lines for name, line, lines in reversed(found)}


def accesses(body: str) -> list[str]:
    """What a function does that other threads see, in the order of its text; a thing done again and again once."""
    found: dict[int, str] = {}
    for pattern, name in ACCESSES.items():
        for match in re.finditer(pattern, body):
            found.setdefault(match.start(), match.expand(name))
    named = [found[position] for position in sorted(found) if not found[position].endswith(MINDLESS)]
    return [name for name, _ in itertools.groupby(named)]


def test_the_model_has_the_steps_of_the_source() -> None:
    source = "".join(
        (RUNTIME / "threads" / name).read_text()
        for name in ("pool.c", "pool_workers.c", "launches.c", "waiting.c", "preempted_workers.c")
    )
    shared = {name: accesses(body) for name, body in functions(source).items()}
    assert {name: steps for name, steps in shared.items() if steps and name not in ALONE} == STEPS


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in SETTINGS]
)
@pytest.mark.sample(2)
def test_every_order_of_steps_does_each_piece_once_and_ends(name: str) -> None:
    explored = explore(SETTINGS[name])
    assert explored.states > 3000
    print(f"{name}: {explored.states} states, {explored.steps} steps")


LONG = ("wakes one", "has not all take part now and then")  # of which the first wrong order of steps comes late


@pytest.mark.parametrize(
    "mistake", [pytest.param(each, marks=[pytest.mark.slow] if each in LONG else []) for each in MISTAKES]
)
def test_mistakes_are_found(mistake: str) -> None:
    workers, launches = 1, [Launch(3), Launch(2, True)]
    if mistake == "wakes one":
        workers, launches = 2, [Launch(1)]
    if mistake == "has not all take part now and then":
        launches = AGAIN
    with pytest.raises(Violation):
        explore(Setting(workers, launches, forks="child" in mistake, stops="brought" in mistake, mistake=mistake))
