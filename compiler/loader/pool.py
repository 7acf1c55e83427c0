"""Runs one network in parallel, with one session per run."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from itertools import islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from .forks import renew_in_children
from .model import Model
from .tensors import RunError

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

__all__ = ["SessionPool", "usable_processors"]


class SessionPool:
    """Sessions of one network that threads share: a run takes a free session, and waits if all are busy.

        with SessionPool(model, sessions=4) as pool:
            future = pool.submit(image)              # a concurrent.futures.Future of what model(image) returns
            for scores in pool.map(images): ...      # results in the order of the inputs
            scores = pool.split(batch)               # one large batch, a part of it in each session

    Sessions share the constants; each has its own workspace and threads. They are made on demand.
    """

    def __init__(
        self, model: Model, sessions: int | None = None, *, threads: int | None = 1, takes_model: bool = False
    ) -> None:
        """Make a pool; sessions are made on demand.

        Args:
            model: any session of the network.
            sessions: maximum number of sessions; None: the number of processors that this process may use.
            threads: of each session; None: the default of `nnefc.load`.
            takes_model: whether `model` becomes one of the sessions and is closed with the pool; else the caller keeps
                it.

        Raises:
            RunError: the network has states, which sessions do not share, or `sessions` is less than 1.
        """
        if model.states:
            raise RunError(
                f"runs of {model.name} depend on its states, which each session has of its own: a pool cannot share "
                "them out; make sessions by model.session()"
            )
        maximum = len(usable_processors()) if sessions is None else sessions
        if maximum < 1:
            raise RunError(f"a pool needs at least one session, not {maximum}")
        self._make = partial(model.session, threads=threads)
        self._inputs, self._outputs = model.inputs, model.outputs
        self._maximum = maximum
        self._made = [model] if takes_model else []
        self._free = deque(self._made)
        self._ended = self._closed = False  # whether no run may begin any more; whether all runs have ended
        self._begin()
        renew_in_children(self, SessionPool._begin_in_child)

    def _begin(self) -> None:
        """Make the locks; the threads are made on demand."""
        self._lock = threading.Lock()
        self._freed, self._waiting = threading.Condition(self._lock), 0
        self._executor: ThreadPoolExecutor | None = None

    def _begin_in_child(self) -> None:
        """Make new locks in a forked process, and drop sessions that ran at the fork: their threads do not exist."""
        self._made = list(self._free)
        self._begin()

    @contextmanager
    def session(self) -> Iterator[Model]:
        """Take a free session while the block runs; wait for one if all are busy.

        Raises:
            RunError: the pool is closed.
        """
        taken = self.take()
        try:
            yield taken
        finally:
            self.give_back(taken)

    def take(self) -> Model:
        """Returns a free session, for :meth:`give_back`, as :meth:`session` does for a block in more time.

        Raises:
            RunError: the pool is closed.
        """
        with self._lock:
            while not self._closed:
                if self._free:
                    return self._free.pop()
                if len(self._made) < self._maximum:
                    made = self._make()
                    self._made.append(made)
                    return made
                self._wait()
        raise RunError("the pool of sessions is closed")

    def give_back(self, session: Model) -> None:
        """Makes a session free that was taken."""
        with self._lock:
            self._free.append(session)
            if self._waiting:
                self._freed.notify_all()

    def _wait(self) -> None:
        """Wait until a session is given back, or the pool is closed; under the lock."""
        self._waiting += 1
        try:
            self._freed.wait()
        finally:
            self._waiting -= 1

    def __call__(self, /, *arrays: Any, **named: Any) -> Any:
        """Run in a free session, as `model(...)`, and return the result."""
        session = self.take()
        try:
            return session(*arrays, **named)
        finally:
            self.give_back(session)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run in a free session on inputs by name; return the outputs by name."""
        session = self.take()
        try:
            return session.run(inputs)
        finally:
            self.give_back(session)

    def submit(self, /, *arrays: Any, **named: Any) -> Future[Any]:
        """Begin a run, as `model(...)`; return the future of its result. Inputs must not change until it is done."""
        return self.begin(partial(self, *arrays, **named))

    def begin(self, call: Callable[[], Any]) -> Future[Any]:
        """Begin any call, such as one of :meth:`run`, in a thread of the pool; it has as many threads as sessions.

        Raises:
            RunError: the pool is closed.
        """
        try:
            return self._threads().submit(call)
        except RuntimeError as error:
            raise RunError("the pool of sessions is closed") from error

    def _threads(self) -> ThreadPoolExecutor:
        """Return the threads, which the first call starts.

        Raises:
            RuntimeError: the pool is closed.
        """
        with self._lock:
            if self._executor is None:
                if self._ended:
                    raise RuntimeError("closed")
                from concurrent.futures import ThreadPoolExecutor  # a tenth of the loader's import time

                self._executor = ThreadPoolExecutor(self._maximum, thread_name_prefix="nnefc-pool")
            return self._executor

    def map(self, inputs: Iterable[Any]) -> Iterator[Any]:
        """Yield the result of a run for each element of `inputs`, in their order.

        An element is an array, or a tuple of arrays for a network with several inputs. At most two elements for each
        session are taken from `inputs` ahead of the results.
        """
        iterator = iter(inputs)
        ahead: deque[Future[Any]] = deque()
        try:
            for element in islice(iterator, 2 * self._maximum):
                ahead.append(self._submit_item(element))
            while ahead:
                yield ahead.popleft().result()
                for element in islice(iterator, 1):
                    ahead.append(self._submit_item(element))
        finally:
            for future in ahead:
                future.cancel()

    def split(self, /, *arrays: Any, **named: Any) -> Any:
        """Run on a batch, a part of it in each session, and return the concatenated outputs.

        All inputs and outputs must have the batch along their first axis.

        Raises:
            RunError: the inputs' first axes differ, or an output does not have the batch along its first axis.
        """
        given = [np.asarray(array) for array in (*arrays, *named.values())]
        sizes = {array.shape[:1] for array in given}
        if len(sizes) != 1 or sizes == {()}:
            raise RunError("split takes inputs with the batch along their first axis, which must be equal for all")
        ((size,),) = sizes
        parts = max(1, min(size, self._maximum))
        bounds = [size * number // parts for number in range(parts + 1)]
        names = list(named)

        def part(begin: int, end: int) -> Future[Any]:
            cut = [array[begin:end] for array in given]
            return self.submit(*cut[: len(arrays)], **dict(zip(names, cut[len(arrays) :], strict=True)))

        futures = [part(*pair) for pair in pairwise(bounds)]
        results = [_as_tuple(future.result()) for future in futures]
        for (begin, end), result in zip(pairwise(bounds), results, strict=True):
            for tensor, array in zip(self._outputs, result, strict=True):
                if array.shape[:1] != (end - begin,):
                    raise RunError(
                        f'output "{tensor.name}" has the shape {list(array.shape)} for a batch of {end - begin}: '
                        "a batch can be split only if all outputs have it along their first axis"
                    )
        joined = tuple(np.concatenate(column) for column in zip(*results, strict=True))
        return joined[0] if len(joined) == 1 else joined

    def close(self) -> None:
        """Wait for the runs that have begun, and free the sessions. Closing twice does nothing."""
        with self._lock:
            self._ended, executor = True, self._executor
        if executor is not None:
            executor.shutdown(wait=True)
        with self._lock:
            self._closed = True
            self._freed.notify_all()
            while len(self._free) < len(self._made):  # wait for runs that other threads have begun
                self._wait()
            made, self._made = self._made, []
            self._free.clear()
        for session in made:
            session.close()

    def __enter__(self) -> SessionPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _submit_item(self, element: Any) -> Future[Any]:
        return self.submit(*element) if isinstance(element, tuple) else self.submit(element)


def _as_tuple(result: Any) -> tuple[Any, ...]:
    return result if isinstance(result, tuple) else (result,)


def usable_processors() -> set[int]:
    """Returns the numbers of the processors that this process may use."""
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
