"""Compiles one model for many targets, each in a separate process or on another machine."""

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

from nnefc.driver.artifact import Artifact
from nnefc.driver.compile import compile_model
from nnefc.driver.option_keywords import CompileKeywords, compile_options
from nnefc.driver.options import CompileOptions
from nnefc.driver.progress import Progress
from nnefc.loader.pool import usable_processors
from nnefc.support.diagnostics import CompileError, warn_of_deprecation
from nnefc.support.output_files import output_folder
from nnefc.targets.description.library import LibraryDescription
from nnefc.targets.machine.any_target import parse_any_target
from nnefc.targets.machine.system import format_of, is_hosted

__all__ = ["Compiled", "Processes", "compile_many"]

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Compiled:
    """The result of compiling a model for one target.

    Attributes:
        target: as the caller wrote it.
        seconds: that compiling took.
        artifact: the compiled network, if there is no folder.
        path: the library, if there is a folder.
        description: of the library; None if compiling failed.
        error: why compiling failed, usually a `CompileError`; None if it succeeded.
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
    on_result: Callable[[Compiled], None] | None = None,
    export: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    told: Callable[[Compiled], None] | None = None,
    **options: Unpack[CompileKeywords],
) -> dict[str, Compiled]:
    """Compiles a model for several targets in parallel. A failure for one target does not affect the others.

    A program that calls this function without an executor needs `if __name__ == "__main__":`, as always where Python
    starts processes.

    Args:
        model: its file, as in :func:`nnefc.compile`.
        targets: each as in :func:`nnefc.compile`.
        folder: where the libraries are written, each in a subfolder of its target; None: artifacts are returned.
        executor: an object with the methods of `concurrent.futures.Executor`, such as those of Dask or Ray. Other
            machines need the model and the folder under the same names. None: processes on this machine.
        jobs: the number of processes, without an executor; None: the number of processors that this process may use.
        on_result: called with each result when it is complete.
        export: options of `Artifact.export`, such as `weights`.
        progress: as of :func:`nnefc.compile`; an executor with other processes must be able to send it to them.
        told: the old name of `on_result`.
        options: options of :func:`nnefc.compile`.

    Returns:
        the results by target, in the order of `targets`.

    Raises:
        CompileError: two targets are the same or have one folder, there are none, or an option is invalid.
    """
    _check(targets, jobs)
    chosen = compile_options("nnefc.compile_many", options)
    if told is not None:
        warn_of_deprecation("nnefc.compile_many: the option 'told' is now 'on_result'; the old name will be removed")
        on_result = on_result or told
    target_folder = None if folder is None else Path(folder)
    found: dict[str, Compiled] = {}
    with ExitStack() as stack:
        if executor is None:
            executor = stack.enter_context(Processes(min(jobs or len(usable_processors()), len(targets))))
        work = partial(
            _compile_one,
            os.fspath(model),
            folder=target_folder,
            export=dict(export or {}),
            options=chosen,
            progress=progress,
        )
        begun = {executor.submit(work, target): target for target in targets}
        try:
            for future in as_completed(begun):
                result = _result(future, begun[future])
                found[result.target] = result
                if on_result is not None:
                    on_result(result)
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
    """Returns the name of the folder of a target."""
    return re.sub(r"[^A-Za-z0-9_.+-]+", "_", target).lstrip(".-") or "_"


def _compile_one(
    model: str,
    target: str,
    folder: Path | None,
    export: Mapping[str, Any],
    options: CompileOptions,
    progress: Progress | None,
) -> Compiled:
    """Compile for one target, in the process where the executor runs it."""
    begin = time.perf_counter()
    try:
        artifact = compile_model(model, replace(options, target=target), progress)
        path = None
        if folder is not None:
            path = folder / _folder_name(target) / _file_name(Path(model), target)
            with output_folder(path.parent):
                artifact.export(path, **export)
    except (CompileError, OSError) as error:
        return Compiled(target, time.perf_counter() - begin, error=error)
    seconds = time.perf_counter() - begin
    return Compiled(target, seconds, artifact if folder is None else None, path, artifact.description)


def _file_name(model: Path, target: str) -> str:
    """Return the model's name up to its first point, with the suffix of the target's shared or static libraries."""
    machine = parse_any_target(target)
    zig_target = machine.zig_target
    stem = model.resolve().name.partition(".")[0] or "model"
    if machine.host.c_source:
        return f"{stem}.c"
    return stem + (format_of(zig_target).suffix if is_hosted(zig_target) else ".a")


def _result(future: Future[Compiled], target: str) -> Compiled:
    """Returns the result of a future, or its error as a result."""
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
    """Ignore Ctrl-C, after which the parent terminates this process, and make termination end child processes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)
    if begin is not None:
        begin()


def _end(number: int, _frame: object) -> None:
    """Raise SystemExit, so that temporary files are removed and child processes end. A handler of signals."""
    sys.exit(128 + number)


class Processes(Executor):
    """An executor that runs calls in independent processes: if the system kills one, only its own call fails.

    Args:
        begin: called first in each process.
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
        if kind is not None:  # results are not needed any more
            for executor in self._made:
                for process in list((executor._processes or {}).values()):  # Python 3.14 has terminate_workers
                    process.terminate()
        self.shutdown(cancel_futures=kind is not None)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        for process in self._idle:
            process.shutdown(wait, cancel_futures=cancel_futures)
