"""One model for many targets, each compilation in a process or on a machine of its own."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar, Unpack

from nnefc.artifact import Artifact
from nnefc.diagnostics import CompileError
from nnefc.driver import compile_model
from nnefc.loader.pool import usable_processors
from nnefc.option_keywords import CompileKeywords, compile_options
from nnefc.options import CompileOptions
from nnefc.progress import Progress
from nnefc.targets.description.library import LibraryDescription
from nnefc.targets.machine.any_target import parse_any_target
from nnefc.targets.machine.system import format_of, is_hosted

__all__ = ["Compiled", "Processes", "compile_many"]

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Compiled:
    """What became of a model for one target.

    Attributes:
        target: as it was given.
        seconds: what compiling took.
        artifact: the compiled network, where no folder was given.
        path: the library, where a folder was.
        description: what the library says of itself; None if there is none.
        error: why there is none; nearly always a `CompileError`.
    """

    target: str
    seconds: float = 0.0
    artifact: Artifact | None = None
    path: Path | None = None
    description: LibraryDescription | None = None
    error: Exception | None = None


def compile_many(
    model: str | os.PathLike[str],
    targets: Sequence[str],
    folder: str | os.PathLike[str] | None = None,
    *,
    executor: Executor | None = None,
    jobs: int | None = None,
    told: Callable[[Compiled], None] | None = None,
    export: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    **options: Unpack[CompileKeywords],
) -> dict[str, Compiled]:
    """Compile a model for several targets side by side. One that fails does not lose the others.

    As wherever Python starts processes, a program that calls this without an executor does so under
    `if __name__ == "__main__":`.

    Args:
        model: its file, as in :func:`nnefc.compile`.
        targets: each as in :func:`nnefc.compile`.
        folder: where the libraries are written, each in a folder of its target; None: they come back as artifacts.
        executor: anything with the methods of `concurrent.futures.Executor`, such as those of Dask or Ray. Where it
            works on other machines, these have the model, and the folder, under the same names. None: processes here.
        jobs: how many processes, without an executor; None: as many as this process may use processors.
        told: called with each result as soon as it is there.
        export: options of `Artifact.export`, such as `weights`.
        progress: as of :func:`nnefc.compile`; an executor with other processes must be able to send it to them.
        options: all further ones are those of :func:`nnefc.compile`.

    Returns:
        the results by target, in the order of `targets`.

    Raises:
        CompileError: two targets are the same or have one folder, there are none, or an option is invalid.
    """
    _check(targets, jobs)
    chosen = compile_options("nnefc.compile_many", options)
    place = None if folder is None else Path(folder)
    found: dict[str, Compiled] = {}
    with ExitStack() as stack:
        if executor is None:
            executor = stack.enter_context(Processes(min(jobs or len(usable_processors()), len(targets))))
        work = partial(
            _compile_one, os.fspath(model), folder=place, export=dict(export or {}), options=chosen, progress=progress
        )
        begun = {executor.submit(work, target): target for target in targets}
        try:
            for future in as_completed(begun):
                result = _result(future, begun[future])
                found[result.target] = result
                if told is not None:
                    told(result)
        finally:
            for future in begun:
                future.cancel()
    return {target: found[target] for target in targets}


def _check(targets: Sequence[str], jobs: int | None) -> None:
    if isinstance(targets, str) or not targets:
        raise CompileError("there are no targets to compile for", hint='give a list: ["raspberrypi4", "wasm32-wasi"]')
    if jobs is not None and jobs < 1:
        raise CompileError(f"{jobs} jobs compile nothing", hint="give at least one")
    taken: dict[str, str] = {}
    for target in targets:
        other = taken.setdefault(_folder_name(target), target)
        if other != target or targets.count(target) > 1:
            raise CompileError(f"the targets {other!r} and {target!r} would have one folder", hint="leave one out")


def _folder_name(target: str) -> str:
    """A target as the name of a folder."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", "_", target).lstrip(".-") or "_"


def _compile_one(
    model: str,
    target: str,
    folder: Path | None,
    export: Mapping[str, Any],
    options: CompileOptions,
    progress: Progress | None,
) -> Compiled:
    """Compiles for one target; called where the executor runs it."""
    begin = time.perf_counter()
    try:
        artifact = compile_model(model, replace(options, target=target), progress)
        path = None
        if folder is not None:
            path = folder / _folder_name(target) / _file_name(Path(model), target)
            path.parent.mkdir(parents=True, exist_ok=True)
            artifact.export(path, **export)
    except (CompileError, OSError) as error:
        return Compiled(target, time.perf_counter() - begin, error=error)
    seconds = time.perf_counter() - begin
    return Compiled(target, seconds, artifact if folder is None else None, path, artifact.description)


def _file_name(model: Path, target: str) -> str:
    """The model's name up to its first point, with the end that the target's shared libraries have, or static ones."""
    zig_target = parse_any_target(target).zig_target
    stem = model.resolve().name.partition(".")[0] or "model"
    return stem + (format_of(zig_target).suffix if is_hosted(zig_target) else ".a")


def _result(future: Future[Compiled], target: str) -> Compiled:
    """What came back, or why nothing did."""
    try:
        return future.result()
    except BrokenProcessPool as error:
        reason = CompileError(
            "the process that compiled it was ended by the system, most likely for want of memory",
            hint="compile fewer targets at a time: --jobs 1",
        )
        reason.__cause__ = error
        return Compiled(target, error=reason)
    except Exception as error:
        return Compiled(target, error=error)


def _begin_process(begin: Callable[[], None] | None) -> None:
    """Leave interruptions by the keyboard to the parent, which terminates the process; end what it runs then."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)
    if begin is not None:
        begin()


def _end(number: int, _frame: object) -> None:
    """Raise, so that no temporary files and no compilers are left behind."""
    sys.exit(128 + number)


class Processes(Executor):
    """Processes that do not know each other: if the system ends one, its own work alone is lost.

    `begin` is called in each of them first.
    """

    def __init__(self, count: int, begin: Callable[[], None] | None = None) -> None:
        self._begin = begin
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="nnefc-compile")
        self._idle: list[ProcessPoolExecutor] = []
        self._made: list[ProcessPoolExecutor] = []

    def submit(self, call: Callable[P, T], /, *args: P.args, **named: P.kwargs) -> Future[T]:
        return self._threads.submit(partial(self._run, partial(call, *args, **named)))

    def _run(self, call: Callable[[], T]) -> T:
        try:
            process = self._idle.pop()
        except IndexError:
            process = self._new()
        try:
            result = process.submit(call).result()
        except BrokenProcessPool:
            process.shutdown()
            raise
        except BaseException:
            self._idle.append(process)
            raise
        self._idle.append(process)
        return result

    def _new(self) -> ProcessPoolExecutor:
        context = multiprocessing.get_context("spawn")
        self._made.append(ProcessPoolExecutor(1, context, _begin_process, (self._begin,)))
        return self._made[-1]

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:  # what was asked for is not wanted any more
            for executor in self._made:
                for process in list((executor._processes or {}).values()):  # Python 3.14 has terminate_workers
                    process.terminate()
        self.shutdown(cancel_futures=kind is not None)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        for process in self._idle:
            process.shutdown(wait, cancel_futures=cancel_futures)
