"""The protocol of the runtime's pool (launches.c and waiting.c) as a machine of steps, every order of which is tried.

A state is what all threads share, and where each of them is. A step is one access that others can see, as in C: each
is named by its function there and by what it does, and a test compares these names with the source. From each state
every thread goes on by its next step, until no new state is found. On the way there is no

- launch that ends before each of its pieces was done, once;
- job that is read while it is written, or instead of another launch's;
- access to memory that is freed, nor a lock that is left by who does not hold it;
- thread that is bound to a processor for ever;
- state from which no thread goes on though not all have ended: a wake-up was lost.

Steps are taken one after the other (sequential consistency), for the source orders all but counters and hints so. A
thread that watches may see what it waits for, or give up, after any number of looks. A child that is forked has the
thread alone that forks, and all memory as it is at that moment. Epochs come again after a few launches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

__all__ = ["MISTAKES", "STEPS", "Launch", "Setting", "Violation", "explore"]


class Launch(NamedTuple):
    """What the calling thread launches: how many pieces, whether workers do theirs alone, and whether it does."""

    pieces: int
    workers_own_only: bool = False
    caller_own_only: bool = False


@dataclass(frozen=True)
class Setting:
    """What is tried: `workers` besides the calling thread, its launches, and a mistake that is made, if any.

    With `forks`, a child is forked at any moment at which the calling thread is in no launch. With `stops`, the system
    may stop a worker within a piece, and the calling thread may bring it to its own processor.
    """

    workers: int
    launches: Sequence[Launch]
    forks: bool = False
    stops: bool = False
    mistake: str = ""


class Violation(Exception):
    """What went wrong, and the steps that lead there."""


class Word(NamedTuple):
    """`nnefc_pool.annotated`."""

    epoch: int = 0
    stop: bool = False
    own_only: bool = False
    pieces: int = 0


class Range(NamedTuple):
    """`thread_slot.range`."""

    epoch: int = 0
    begin: int = 0
    end: int = 0


class Thread(NamedTuple):
    """Where a thread is, and the variables of the functions that it is in."""

    at: str
    word: Word = Word()  # the launch that it works at
    victim: int = 0  # whose range is next: that many after its own
    known: Range = Range()
    piece: int = -1
    count: int = 0  # of pieces that it has done
    looked: int = 0  # how many threads' numbers it has added, or which of them it looks at
    done: int = 0  # their sum
    working: bool = False  # `thread_slot.working`
    position: str = "home"  # `nnefc_movable.position`
    may_run: str = "home"  # its set of processors
    home: str = ""  # `nnefc_movable.home`


class State(NamedTuple):
    threads: tuple[Thread, ...]
    ranges: tuple[Range, ...]
    done: tuple[tuple[int, int], ...]  # epoch and count of each thread
    launched: int = 0  # of the setting's launches
    annotated: Word = Word()
    job: int = 0  # its epoch; -1 while it is written
    sleepers: int = 0
    launcher_sleeps: bool = False
    holder: int = -1  # of the mutex
    freed: bool = False
    progress: tuple[int, ...] = ()  # of each piece of the launch: how often begun, plus how often ended
    is_child: bool = False


Step = Callable[["Setting", State, int], Iterator[State]]

EPOCHS = 8

STEPS: dict[str, list[str]] = {}
"""By functions in C, their accesses in the order of the source."""

_STEPS: dict[str, Step] = {}

MISTAKES = {
    "looks for sleepers first": "publish",
    "wakes one": "nnefc_wake_workers",
    "wakes no worker to stop": "nnefc_wake_workers",
    "announces before the job": "publish",
    "sleeps without another look": "nnefc_wait_for_launch",
    "looks before it says that it sleeps": "nnefc_wait_for_launch",
    "launcher sleeps without another look": "nnefc_wait_for_end",
    "launcher looks before it says that it sleeps": "nnefc_wait_for_end",
    "counts of any launch": "nnefc_is_finished",
    "takes of any launch": "take",
    "takes of old launches": "take",
    "takes in two steps": "take",
    "done before it is done": "do_pieces",
    "away before it is brought": "nnefc_bring_if_stopped",
    "asks for the launcher before it is done": "nnefc_take_part",
    "signals without the lock": "nnefc_wake_launcher",
    "frees before it joins": "nnefc_pool_destroy",
    "joins in a child": "nnefc_pool_destroy",
    "launches in a child": "nnefc_pool_launch",
    "has not all take part now and then": "nnefc_pool_launch",
}
"""Seeded mistakes, by what they are, and the function in C that would have them: each must be found."""


def step(function: str, access: str) -> Callable[[Step], Step]:
    """Declares what a thread does at "function: access"."""

    def declared(body: Step) -> Step:
        STEPS.setdefault(function, []).append(access)
        _STEPS[f"{function}: {access}"] = body
        return body

    return declared


def _at(state: State, thread: int, at: str, **changes: object) -> State:
    """The state with a thread elsewhere; `changes` are of its variables."""
    moved = state.threads[thread]._replace(at=at, **changes)
    return state._replace(threads=(*state.threads[:thread], moved, *state.threads[thread + 1 :]))


def _of(state: State, thread: int, **changes: object) -> State:
    """The state with other variables of a thread."""
    return _at(state, thread, state.threads[thread].at, **changes)


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise Violation(message)


def _put(values: tuple, index: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:index], value, *values[index + 1 :])


# What the calling thread does: the functions of pool.h, one after the other.

_LAUNCH = "nnefc_pool_launch: begin"
_DESTROY = "nnefc_pool_destroy: begin"


def _launch(setting: Setting, state: State, thread: int) -> Iterator[State]:
    if setting.forks and not state.is_child:
        gone = tuple(each if i == thread else each._replace(at="gone") for i, each in enumerate(state.threads))
        yield state._replace(threads=gone, is_child=True)
    if state.launched == len(setting.launches):
        yield _at(state, thread, _DESTROY)
        return
    launch = setting.launches[state.launched]
    if state.is_child and setting.mistake != "launches in a child":
        yield state._replace(launched=state.launched + 1)  # run_alone, which no other thread sees
        return
    word = Word(0, False, launch.workers_own_only, launch.pieces)
    yield _begin_publish(setting, state._replace(progress=(0,) * launch.pieces), thread, word)


def _destroy(setting: Setting, state: State, thread: int) -> Iterator[State]:
    if state.is_child and setting.mistake != "joins in a child":
        yield _at(state, thread, "nnefc_pool_destroy: free")
    else:
        yield _begin_publish(setting, state, thread, Word(0, True))


_STEPS[_LAUNCH] = _launch
_STEPS[_DESTROY] = _destroy


def _begin_publish(setting: Setting, state: State, thread: int, word: Word) -> State:
    return _at(state, thread, "publish: load announced", word=word)


@step("publish", "load announced")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    first = (
        "nnefc_wake_workers: load sleepers" if setting.mistake == "looks for sleepers first" else "publish: write job"
    )
    first = "publish: store announced" if setting.mistake == "announces before the job" else first
    word = state.threads[thread].word._replace(epoch=(state.annotated.epoch + 1) % EPOCHS)
    yield _at(state, thread, first, word=word)


@step("publish", "write job")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    if state.job != -1:
        yield state._replace(job=-1)
        return
    word = state.threads[thread].word
    after = (
        "nnefc_wake_workers: load sleepers"
        if setting.mistake == "announces before the job"
        else "publish: store announced"
    )
    yield _at(state, thread, after)._replace(job=word.epoch)


@step("publish", "store announced")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    state = state._replace(annotated=state.threads[thread].word)
    if setting.mistake == "announces before the job":
        yield _at(state, thread, "publish: write job")
    elif setting.mistake == "looks for sleepers first":
        yield _published(state, thread)
    else:
        yield _at(state, thread, "nnefc_wake_workers: load sleepers")


@step("nnefc_wake_workers", "load sleepers")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    wakes = state.sleepers > 0 and not (
        setting.mistake == "wakes no worker to stop" and state.threads[thread].word.stop
    )
    if wakes:
        yield _at(state, thread, "nnefc_wake_workers: lock")
    elif setting.mistake == "looks for sleepers first":
        yield _at(state, thread, "publish: write job")
    else:
        yield _published(state, thread)


@step("nnefc_wake_workers", "lock")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    if state.holder < 0:
        yield _at(state, thread, "nnefc_wake_workers: broadcast work")._replace(holder=thread)


@step("nnefc_wake_workers", "broadcast work")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    asleep = [i for i, each in enumerate(state.threads) if each.at == "nnefc_wait_for_launch: asleep"]
    if setting.mistake == "wakes one":
        asleep = asleep[:1]
    for i in asleep:
        state = _at(state, i, "nnefc_wait_for_launch: woken")
    yield _at(state, thread, "nnefc_wake_workers: unlock")


@step("nnefc_wake_workers", "unlock")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    state = _unlocked(state, thread)
    yield (
        _at(state, thread, "publish: write job")
        if setting.mistake == "looks for sleepers first"
        else _published(state, thread)
    )


def _unlocked(state: State, thread: int) -> State:
    _check(state.holder == thread, "a lock is left by who does not hold it")
    return state._replace(holder=-1)


def _published(state: State, thread: int) -> State:
    """After the end of publish()."""
    if state.threads[thread].word.stop:
        return _at(state, thread, "nnefc_pool_destroy: join")
    return _begin_pieces(state, thread)


# do_pieces() and take(), of the calling thread and of workers.


def _begin_pieces(state: State, thread: int) -> State:
    return _at(state, thread, "take: load range", victim=0, count=0)


def _victim(state: State, thread: int) -> int:
    return (thread + state.threads[thread].victim) % len(state.threads)


@step("take", "load range")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    own, known = state.threads[thread], state.ranges[_victim(state, thread)]
    fresh = known.epoch != own.word.epoch and setting.mistake not in ("takes of any launch", "takes of old launches")
    yield _at(state, thread, "take: load announced" if fresh else "take: exchange range", known=known)


@step("take", "load announced")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    if state.annotated != state.threads[thread].word:
        yield _none_taken(setting, state, thread)
    else:
        yield _at(state, thread, "take: exchange range")


@step("take", "exchange range")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    own, victim, threads = state.threads[thread], _victim(state, thread), len(state.threads)
    _, begin, end = own.known
    if own.known.epoch != own.word.epoch and setting.mistake != "takes of any launch":
        begin, end = own.word.pieces * victim // threads, own.word.pieces * (victim + 1) // threads
    if begin == end:
        yield _none_taken(setting, state, thread)
        return
    taken = begin if own.victim == 0 else end - 1
    begin, end = (begin + 1, end) if own.victim == 0 else (begin, end - 1)
    if state.ranges[victim] == own.known or setting.mistake == "takes in two steps":
        left = Range(own.word.epoch, begin, end)
        state = state._replace(ranges=_put(state.ranges, victim, left))
        after = "do_pieces: set working" if setting.stops else "do_pieces: read job"
        after = "do_pieces: store done" if setting.mistake == "done before it is done" else after
        yield _at(state, thread, after, piece=taken, known=Range())
    else:  # and where the exchange fails for no reason, the same is done again
        yield _at(state, thread, "take: load range", known=Range())


def _none_taken(setting: Setting, state: State, thread: int) -> State:
    """After take() has returned -1."""
    own = state.threads[thread]
    workers = len(state.threads)
    if (thread > 0 and own.word.own_only) or (
        thread == 0 and setting.launches[state.launched].caller_own_only and not state.is_child
    ):
        workers = 1
    if own.victim + 1 < workers:
        return _at(state, thread, "take: load range", victim=own.victim + 1, known=Range())
    if own.count > 0 and setting.mistake != "done before it is done":
        after = "do_pieces: clear working" if setting.stops else "do_pieces: store done"
        return _at(state, thread, after, known=Range(), victim=0)
    return _did_pieces(setting, state, thread)


@step("do_pieces", "set working")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    yield _at(state, thread, "do_pieces: read job", working=True)


@step("do_pieces", "read job")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    own = state.threads[thread]
    _check(state.job == own.word.epoch, "a job is read that is none of the launch, or not yet written")
    _check(0 <= own.piece < len(state.progress), "a piece is begun that the launch does not have")
    _check(state.progress[own.piece] == 0, "a piece is begun twice")
    yield _at(state, thread, "do_pieces: end of piece")._replace(progress=_put(state.progress, own.piece, 1))


def _end_of_piece(setting: Setting, state: State, thread: int) -> Iterator[State]:
    own = state.threads[thread]
    _check(state.job == own.word.epoch, "a job is overwritten that is still being done")
    state = state._replace(progress=_put(state.progress, own.piece, 2))
    yield _at(state, thread, "take: load range", piece=-1, count=own.count + 1)


_STEPS["do_pieces: end of piece"] = _end_of_piece


@step("do_pieces", "clear working")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    yield _at(state, thread, "do_pieces: store done", working=False)


@step("do_pieces", "store done")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    own = state.threads[thread]
    if setting.mistake == "done before it is done":
        state = state._replace(done=_put(state.done, thread, (own.word.epoch, own.count + 1)))
        yield _at(state, thread, "do_pieces: read job")
        return
    state = state._replace(done=_put(state.done, thread, (own.word.epoch, own.count)))
    yield _did_pieces(setting, state, thread)


def _did_pieces(setting: Setting, state: State, thread: int) -> State:
    """After the end of do_pieces()."""
    if thread == 0:
        return _at(state, thread, "nnefc_is_finished: load done", victim=0, count=0, known=Range(), looked=0, done=0)
    if setting.mistake == "asks for the launcher before it is done":
        return _begin_wait(setting, state, thread)
    return _at(state, thread, "nnefc_wake_launcher: load launcher_sleeps", victim=0, count=0, known=Range())


# The calling thread waits for the end of its launch.


@step("nnefc_is_finished", "load done")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    own = state.threads[thread]
    epoch, count = state.done[own.looked]
    if epoch != own.word.epoch and setting.mistake != "counts of any launch":
        count = 0
    looked, done, holds = own.looked + 1, own.done + count, state.holder == thread
    if looked < len(state.threads):
        yield _at(state, thread, "nnefc_is_finished: load done", looked=looked, done=done)
    elif done == own.word.pieces:
        yield (
            _at(state, thread, "nnefc_wait_for_end: clear launcher_sleeps", looked=0, done=0)
            if holds
            else _ended(setting, state, thread)
        )
    elif not holds:  # it looks again, or what the workers do, or gives up
        yield _at(state, thread, "nnefc_is_finished: load done", looked=0, done=0)
        yield _at(state, thread, "nnefc_wait_for_end: lock", looked=0, done=0)
        if setting.stops:
            yield _at(state, thread, "is_working: load working", looked=1, done=0)
    elif setting.mistake == "launcher looks before it says that it sleeps" and not state.launcher_sleeps:
        yield _at(state, thread, "nnefc_wait_for_end: set launcher_sleeps", looked=0, done=0)
    else:
        yield _at(state, thread, "nnefc_wait_for_end: wait finished", looked=0, done=0)


@step("nnefc_wait_for_end", "lock")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    if state.holder < 0:
        first = (
            "nnefc_is_finished: load done"
            if "looks before" in setting.mistake
            else "nnefc_wait_for_end: set launcher_sleeps"
        )
        yield _at(state, thread, first)._replace(holder=thread)


@step("nnefc_wait_for_end", "set launcher_sleeps")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    state = state._replace(launcher_sleeps=True)
    if setting.mistake in (
        "launcher sleeps without another look",
        "launcher looks before it says that it sleeps",
    ):
        yield _at(state, thread, "nnefc_wait_for_end: wait finished")
    else:
        yield _at(state, thread, "nnefc_is_finished: load done")


@step("nnefc_wait_for_end", "wait finished")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    yield _at(_unlocked(state, thread), thread, "nnefc_wait_for_end: asleep")


def _asleep(setting: Setting, state: State, thread: int) -> Iterator[State]:
    return iter(())  # until somebody signals


_STEPS["nnefc_wait_for_end: asleep"] = _STEPS["nnefc_wait_for_launch: asleep"] = _asleep


def _launcher_woken(setting: Setting, state: State, thread: int) -> Iterator[State]:
    if state.holder < 0:
        yield _at(state, thread, "nnefc_is_finished: load done")._replace(holder=thread)


_STEPS["nnefc_wait_for_end: woken"] = _launcher_woken


@step("nnefc_wait_for_end", "clear launcher_sleeps")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    yield _at(state, thread, "nnefc_wait_for_end: unlock")._replace(launcher_sleeps=False)


@step("nnefc_wait_for_end", "unlock")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    yield _ended(setting, _unlocked(state, thread), thread)


def _ended(setting: Setting, state: State, thread: int) -> State:
    """After the end of a launch."""
    _check(all(each == 2 for each in state.progress), "a launch ends before all its pieces are done")
    state = state._replace(launched=state.launched + 1, progress=())
    return _at(state, thread, _LAUNCH, word=Word(), looked=0, done=0)


# It looks whether a worker that it waits for was stopped, and brings that one to its own processor
# (preempted_workers.c).


@step("is_working", "load working")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    if state.threads[state.threads[thread].looked].working:  # who was stopped, or was not
        yield _at(state, thread, "nnefc_bring_if_stopped: exchange state")
    yield _next_worker(state, thread)


def _next_worker(state: State, thread: int) -> State:
    looked = state.threads[thread].looked + 1
    if looked < len(state.threads):
        return _at(state, thread, "is_working: load working", looked=looked)
    return _at(state, thread, "nnefc_is_finished: load done", looked=0)


@step("nnefc_bring_if_stopped", "exchange state")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    other = state.threads[thread].looked
    if state.threads[other].position == "home":
        position = "away" if setting.mistake == "away before it is brought" else "being brought"
        yield _at(_of(state, other, position=position), thread, "nnefc_bring_if_stopped: get set")
    else:
        yield _next_worker(state, thread)


@step("nnefc_bring_if_stopped", "get set")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    other = state.threads[thread].looked
    _check(state.threads[other].may_run == "home", "a thread will never return to its processors")
    yield _at(_of(state, other, home="home"), thread, "nnefc_bring_if_stopped: set set")


@step("nnefc_bring_if_stopped", "set set")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    other = state.threads[thread].looked
    yield _at(_of(state, other, may_run="here"), thread, "nnefc_bring_if_stopped: store state")


@step("nnefc_bring_if_stopped", "store state")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    other = state.threads[thread].looked
    if setting.mistake != "away before it is brought":
        state = _of(state, other, position="away")
    yield _next_worker(state, thread)


@step("nnefc_go_home", "load state")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    own = state.threads[thread]
    if own.position == "away":
        _check(own.home == "home", "a thread goes home before that is known")
        yield _at(state, thread, "nnefc_go_home: set set")
    else:
        yield _gone_home(setting, state, thread)


@step("nnefc_go_home", "set set")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    if state.threads[thread].may_run != "others":
        yield _of(state, thread, may_run="others")
    else:
        yield _at(_of(state, thread, may_run="home"), thread, "nnefc_go_home: store state")


@step("nnefc_go_home", "store state")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    yield _gone_home(setting, _of(state, thread, position="home", home=""), thread)


def _gone_home(setting: Setting, state: State, thread: int) -> State:
    """After the end of nnefc_go_home(), which a worker calls before its pieces and after them."""
    if state.threads[thread].count < 0:
        return _begin_pieces(state, thread)
    return _at(state, thread, "launched: load announced", count=0)


# Workers.


def _begin_wait(setting: Setting, state: State, thread: int) -> State:
    if setting.stops:
        return _at(state, thread, "nnefc_go_home: load state", victim=0, count=0, known=Range())
    return _at(state, thread, "launched: load announced", victim=0, count=0, known=Range())


@step("launched", "load announced")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    own, holds = state.threads[thread], state.holder == thread
    if state.annotated != own.word:
        yield _at(
            state,
            thread,
            "nnefc_wait_for_launch: subtract sleepers" if holds else "nnefc_wait_for_launch: load announced",
        )
    elif not holds:  # it looks again, which changes nothing, or gives up
        yield _at(state, thread, "nnefc_wait_for_launch: lock")
    elif setting.mistake == "looks before it says that it sleeps":
        yield _at(state, thread, "nnefc_wait_for_launch: add sleepers")
    else:
        yield _at(state, thread, "nnefc_wait_for_launch: wait work")


@step("nnefc_wait_for_launch", "lock")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    if state.holder < 0:
        early = setting.mistake == "looks before it says that it sleeps"
        yield _at(
            state, thread, "launched: load announced" if early else "nnefc_wait_for_launch: add sleepers"
        )._replace(holder=thread)


@step("nnefc_wait_for_launch", "add sleepers")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    state = state._replace(sleepers=state.sleepers + 1)
    if setting.mistake in ("sleeps without another look", "looks before it says that it sleeps"):
        yield _at(state, thread, "nnefc_wait_for_launch: wait work")
    else:
        yield _at(state, thread, "launched: load announced")


@step("nnefc_wait_for_launch", "wait work")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    yield _at(_unlocked(state, thread), thread, "nnefc_wait_for_launch: asleep")


def _worker_woken(setting: Setting, state: State, thread: int) -> Iterator[State]:
    if state.holder < 0:
        yield _at(state, thread, "launched: load announced")._replace(holder=thread)


_STEPS["nnefc_wait_for_launch: woken"] = _worker_woken


@step("nnefc_wait_for_launch", "subtract sleepers")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    yield _at(state, thread, "nnefc_wait_for_launch: unlock")._replace(sleepers=state.sleepers - 1)


@step("nnefc_wait_for_launch", "unlock")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    yield _at(_unlocked(state, thread), thread, "nnefc_wait_for_launch: load announced")


@step("nnefc_wait_for_launch", "load announced")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    word = state.annotated
    if word.stop:
        yield _at(state, thread, "ended", word=Word())
    elif setting.mistake == "asks for the launcher before it is done":
        yield _at(state, thread, "nnefc_wake_launcher: load launcher_sleeps", word=word)
    elif setting.stops:
        yield _at(state, thread, "nnefc_go_home: load state", word=word, count=-1)
    else:
        yield _begin_pieces(_at(state, thread, "", word=word), thread)


def _after_signal(setting: Setting, state: State, thread: int) -> State:
    early = setting.mistake == "asks for the launcher before it is done"
    return _begin_pieces(state, thread) if early else _begin_wait(setting, state, thread)


@step("nnefc_wake_launcher", "load launcher_sleeps")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    if not state.launcher_sleeps:
        yield _after_signal(setting, state, thread)
    else:
        unlocked = setting.mistake == "signals without the lock"
        yield _at(state, thread, "nnefc_wake_launcher: signal finished" if unlocked else "nnefc_wake_launcher: lock")


@step("nnefc_wake_launcher", "lock")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    if state.holder < 0:
        yield _at(state, thread, "nnefc_wake_launcher: signal finished")._replace(holder=thread)


@step("nnefc_wake_launcher", "signal finished")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    if state.threads[0].at == "nnefc_wait_for_end: asleep":
        state = _at(state, 0, "nnefc_wait_for_end: woken")
    if setting.mistake == "signals without the lock":
        yield _after_signal(setting, state, thread)
    else:
        yield _at(state, thread, "nnefc_wake_launcher: unlock")


@step("nnefc_wake_launcher", "unlock")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    yield _after_signal(setting, _unlocked(state, thread), thread)


# The end.


@step("nnefc_pool_destroy", "join")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    if all(each.at == "ended" for each in state.threads[1:]) or setting.mistake == "frees before it joins":
        yield _at(state, thread, "nnefc_pool_destroy: free", word=Word())


@step("nnefc_pool_destroy", "free")
def _(setting: Setting, state: State, thread: int) -> Iterator[State]:
    yield _at(state, thread, "ended")._replace(freed=True)


def _with_launches_for_all(setting: Setting) -> list[Launch]:
    """All launches: before some of the setting's, one in which each thread does its piece."""
    launches: list[Launch] = []
    for launch in setting.launches:
        epoch = len(launches) + 1
        if epoch % (EPOCHS // 2) == 0 and setting.mistake != "has not all take part now and then":
            launches.append(Launch(setting.workers + 1, workers_own_only=True, caller_own_only=True))
        launches.append(launch)
    return launches


@dataclass(frozen=True)
class Explored:
    """How many states there are, and how many steps from one to another."""

    states: int
    steps: int


def explore(setting: Setting, maximum: int = 10_000_000) -> Explored:
    """Try every order of steps.

    Raises:
        Violation: with the steps that lead to it.
    """
    count = setting.workers + 1
    setting = replace(setting, launches=_with_launches_for_all(setting))
    begin = Thread("launched: load announced")
    first = State((Thread(_LAUNCH), *(begin,) * setting.workers), (Range(),) * count, ((0, 0),) * count)
    came_from: dict[State, tuple[State, str] | None] = {first: None}
    waiting, steps = deque([first]), 0
    while waiting:
        state = waiting.popleft()
        moved = False
        for thread, each in enumerate(state.threads):
            if each.at in ("ended", "gone"):
                continue
            label = f"{'caller' if thread == 0 else f'worker {thread}'} {each.at}"
            try:
                _check(not state.freed, "memory is used that is freed")
                for after in _STEPS[each.at](setting, state, thread):
                    moved = True
                    steps += 1
                    if after not in came_from:
                        came_from[after] = (state, label)
                        waiting.append(after)
            except Violation as violation:
                raise Violation(_described(str(violation), came_from, state, label)) from None
        if not moved and any(each.at not in ("ended", "gone") for each in state.threads):
            raise Violation(_described("no thread goes on", came_from, state, "all wait"))
        assert len(came_from) <= maximum, "more states than this was meant for"
    return Explored(len(came_from), steps)


def _described(message: str, came_from: dict[State, tuple[State, str] | None], state: State, last: str) -> str:
    steps = [last]
    while (before := came_from[state]) is not None:
        state, label = before
        steps.append(label)
    return "\n  ".join([message, *reversed(steps)])
