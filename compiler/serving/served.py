"""One served network: loads its library, checks requests against its inputs and outputs, and runs them in sessions.

Whether requests can share a batch is tried at the start: the rows of a batch must not depend on each other.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TypeAlias

import numpy as np

from nnefc.loader import Dimension, Model, RunError, SessionPool, Tensor, load
from nnefc.serving.failures import FailureKind, Refused
from nnefc.serving.metrics import NetworkMetrics
from nnefc.serving.quick_runs import Outputs, QuickRuns
from nnefc.serving.runs import Runs
from nnefc.serving.settings import Policy
from nnefc.serving.values import DATATYPES, Array

__all__ = ["Samples", "Served"]

Samples: TypeAlias = Callable[[Model, int], "dict[str, Array]"]
"""Makes inputs of a network for its first run, with the given number of rows; 1: with the sizes of the size hints."""

_PAUSE = 0.01
"""Seconds between two checks whether requests are left."""

_TRIED = 3
"""How many inputs of the smallest size are batched to try whether rows depend on each other."""

_INTEGERS = {int}
_LARGEST = 1 << 63

_MAX_KNOWN = 1024
"""Checked shapes of inputs that are cached: requests tend to have one of few shapes."""

_NEAR = 1e-2
"""Tolerance between a result computed in a batch and alone, relative to the largest value: sums may be reordered."""


class Served:
    """A loaded network with its sessions, its batches and its metrics.

    Attributes:
        notes: what the operator should know about the network, a sentence each.
        inputs, outputs, target: of the library.
        rows: the maximum rows of a batch; 1: requests run alone.
        metrics: of the network.
    """

    def __init__(self, path: Path, policy: Policy, metrics: NetworkMetrics, samples: Samples) -> None:
        """Load a library and run each session once.

        Args:
            path: of the library.
            policy: how networks are loaded, batched and limited.
            metrics: of this network.
            samples: makes the inputs of the first runs.

        Raises:
            LoadError: the library cannot be loaded on this machine.
            RunError: the network has states, which requests cannot use since they share sessions, or the limits leave
                no size for a dynamic dimension.
        """
        key = policy.weights_key
        model = load(
            path,
            threads=policy.threads,
            device=policy.device,
            flush_subnormals=policy.flush_subnormals,
            key=policy.signing_key,
            weights_key=None if key is None else lambda _path: key,
        )
        try:
            if model.states:
                raise RunError(
                    f"{path} has states, which each session has of its own: requests share sessions and cannot use them"
                )
            self.notes: list[str] = []
            self.inputs, self.outputs = model.inputs, model.outputs
            self.target = model.target
            self._by_name = {tensor.name: tensor for tensor in self.inputs}
            self._shared_sizes = _shared_sizes(self.inputs)
            self._known_inputs: dict[object, tuple[Tensor, tuple[int, ...]]] = {}
            self._ranges = {each.name: _limited(each, policy.limits) for each in model.dimensions}
            self._pool = SessionPool(model, policy.sessions, threads=policy.threads, takes_model=True)
        except BaseException:
            model.close()
            raise
        self._quick = QuickRuns(partial(model.session, threads=1) if _can_end_runs(model) else None)
        try:
            self.rows = self._tried(model, policy, samples)
        except BaseException:
            self.close()
            raise
        self._admitted = 0
        self._max_admitted = policy.waiting + policy.sessions * self.rows
        self.metrics = metrics
        self._runs = Runs(self._pool, policy.sessions, self.rows, policy.delay, metrics, self._quick)

    def _tried(self, model: Model, policy: Policy, samples: Samples) -> int:
        """Run each session once, try whether batches are possible, and return the maximum rows of a batch."""
        rows, fewest, tried, reason, wanted = 1, 1, 1, "", policy.max_rows
        if wanted > 1 and not (reason := _why_no_batches(model)):
            first = self._ranges[str(self.inputs[0].shape[0])]
            rows, fewest = min(wanted, first.maximum), _fewest(first)
            tried = fewest * min(_TRIED, first.maximum // fewest)
            if rows < 2 * fewest:
                reason = f"{rows} rows have no room for two requests, which have {fewest} at least"
        batches = wanted > 1 and not reason
        with ExitStack() as stack:
            sessions = [stack.enter_context(self._pool.session()) for _ in range(policy.sessions)]  # makes them all
            try:
                inputs = samples(model, tried if batches else 1)
                outputs = [session.run(inputs) for session in sessions][-1]
                begin = time.thread_time()
                sessions[-1].run(inputs)
                self._quick.took(inputs, time.thread_time() - begin)
            except Exception as error:  # a network may refuse random values
                untried = ""
                if batches and policy.rows is None:
                    reason = "it does not take random values, with which it is tried whether rows depend on each other"
                elif batches:
                    untried = "; whether rows of a batch depend on each other was not tried"
                self.notes.append(f"no first run was made, for it does not take random values ({error}){untried}")
            else:
                reason = reason or (_differs(model, inputs, outputs, fewest) if batches else "")
        if reason and policy.rows is not None:
            self.notes.append(f"requests are not put into batches: {reason}")
        return 1 if reason else rows

    @property
    def running(self) -> int:
        """The number of runs that have begun and not ended."""
        return self._runs.running

    @property
    def dynamic_sizes(self) -> Sequence[str]:
        """The names of the dynamic dimensions."""
        return tuple(self._ranges)

    def cancel(self) -> None:
        """Cancel all runs; each ends before its next kernel, where the library can."""
        self._runs.cancel()

    def check_room(self) -> None:
        """Check that a further request may wait or run.

        Raises:
            Refused: the maximum number of requests waits and runs already.
        """
        if self._admitted >= self._max_admitted:
            raise Refused(FailureKind.BUSY, f"{self._admitted} requests are run and wait already: try again later")

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Count a request among those that wait and run, while the block runs.

        Raises:
            Refused: as :meth:`check_room`.
        """
        self.check_room()
        self._admitted += 1
        self.metrics.admitted(1)
        try:
            yield
        finally:
            self._admitted -= 1
            self.metrics.admitted(-1)

    def input_for(self, name: str, datatype: str, shape: Sequence[object]) -> tuple[Tensor, tuple[int, ...]]:
        """Return the input that a request's tensor is for, and the tensor's shape.

        Each size is checked by itself, against the bounds of its dimension. :meth:`run` checks whether sizes that
        several inputs share are equal.

        Args:
            name: of the input.
            datatype: the protocol's name of the element type.
            shape: as the request has it; its elements may be anything.

        Raises:
            Refused: the network has no such input, or the input has another type or shape.
        """
        if set(map(type, shape)) != _INTEGERS:  # the cache would take True and 1.0 for 1
            return self._checked_input(name, datatype, shape)
        key = name, datatype, *shape
        if (found := self._known_inputs.get(key)) is None:
            found = self._checked_input(name, datatype, shape)
            if len(self._known_inputs) >= _MAX_KNOWN:
                self._known_inputs.clear()
            self._known_inputs[key] = found
        return found

    def _checked_input(self, name: str, datatype: str, shape: Sequence[object]) -> tuple[Tensor, tuple[int, ...]]:
        tensor = self._by_name.get(name)
        if tensor is None:
            raise Refused(
                FailureKind.INVALID, f'there is no input "{name[:100]}"; {_interfaces("inputs", self.inputs)}'
            )
        if datatype != DATATYPES[tensor.dtype]:
            raise Refused(FailureKind.INVALID, f'input "{name}" is of {DATATYPES[tensor.dtype]}, not {datatype[:20]}')
        if len(shape) != len(tensor.shape):
            raise Refused(
                FailureKind.INVALID, f'input "{name}" has {len(tensor.shape)} dimensions: {_interface(tensor)}'
            )
        if not all(type(size) is int and -_LARGEST <= size < _LARGEST for size in shape):
            raise Refused(
                FailureKind.INVALID,
                f'input "{name}" has a shape whose sizes are not all integers of 64 bits: {_interface(tensor)}',
            )
        sizes = tuple(size for size in shape if isinstance(size, int))
        for size, own in zip(sizes, tensor.shape, strict=True):
            if isinstance(own, int) and size != own:
                raise Refused(
                    FailureKind.INVALID, f'input "{name}" has the shape {list(sizes)}, but must be {_interface(tensor)}'
                )
            if (known := self._ranges.get(str(own))) is not None and not _is_in(size, known):
                raise Refused(FailureKind.INVALID, f'input "{name}" has the shape {list(sizes)}, but takes {known}')
            if size < 0:
                raise Refused(FailureKind.INVALID, f'input "{name}" has the shape {list(sizes)}, with a size below 0')
        return tensor, sizes

    def outputs_for(self, names: Sequence[str]) -> tuple[Tensor, ...]:
        """Return the outputs that a request names; all if it names none.

        Raises:
            Refused: the network has no such output, or the request names one twice.
        """
        if not names:
            return tuple(self.outputs)
        known = {tensor.name: tensor for tensor in self.outputs}
        for name in names:
            if name not in known:
                raise Refused(
                    FailureKind.INVALID, f'there is no output "{name[:100]}"; {_interfaces("outputs", self.outputs)}'
                )
        if len(set(names)) != len(names):
            raise Refused(FailureKind.INVALID, "an output is asked for twice")
        return tuple(known[name] for name in names)

    def selection(self, wanted: Sequence[Tensor]) -> Outputs:
        """Return the names of the outputs to compute for a request that wants these; None for all."""
        return None if len(wanted) == len(self.outputs) else tuple(tensor.name for tensor in wanted)

    @property
    def may_run_at_once(self) -> bool:
        """Whether :meth:`run_at_once` may run a request now."""
        return self._runs.may_run_at_once

    def run_at_once(self, inputs: Mapping[str, Array], outputs: Outputs = None) -> Mapping[str, Array] | None:
        """Run in this thread, and return the outputs by name; None as :meth:`Runs.run_at_once`.

        Raises:
            Refused: as :meth:`run`.
        """
        try:
            return self._runs.run_at_once(self._checked(inputs), outputs)
        except (MemoryError, RunError) as error:
            raise _refusal(error) from error

    async def run(
        self, inputs: Mapping[str, Array], timeout: float | None = None, outputs: Outputs = None
    ) -> Mapping[str, Array]:
        """Run, and return the outputs by name.

        Args:
            inputs: arrays by name, whose types and shapes :meth:`input_for` has checked.
            timeout: seconds for waiting and running; None: no limit.
            outputs: the names of those to compute; None: all.

        Raises:
            Refused: inputs are missing, sizes that inputs share differ, the run fails, or it takes too long.
        """
        ordered = self._checked(inputs)
        try:
            if (results := self._runs.run_at_once(ordered, outputs)) is not None:
                return results
            async with asyncio.timeout(timeout):
                return await self._runs.run(ordered, outputs)
        except TimeoutError:
            raise Refused(FailureKind.LATE, "the run takes longer than the request allows") from None
        except (MemoryError, RunError) as error:
            raise _refusal(error) from error

    def _checked(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the inputs in the network's order.

        Raises:
            Refused: inputs are missing, or sizes that inputs share differ.
        """
        if len(inputs) < len(self.inputs):
            missing = next(tensor.name for tensor in self.inputs if tensor.name not in inputs)
            raise Refused(FailureKind.INVALID, f'input "{missing}" is missing; {_interfaces("inputs", self.inputs)}')
        sizes: dict[str, int] = {}
        for own, name, axis in self._shared_sizes:
            size = inputs[name].shape[axis]
            if sizes.setdefault(own, size) != size:
                raise Refused(
                    FailureKind.INVALID, f'"{own}" is {sizes[own]} in one input, but {size} in input "{name}"'
                )
        return {tensor.name: inputs[tensor.name] for tensor in self.inputs}

    async def retire(self) -> None:
        """Free the sessions once all admitted requests have been answered."""
        while self._admitted:
            await asyncio.sleep(_PAUSE)
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Wait for all runs to end, and free the sessions."""
        self._quick.close()
        self._pool.close()


def _refusal(error: MemoryError | RunError) -> Refused:
    """Return the refusal of a request whose run failed."""
    reason = str(error).partition(": ")[2] or str(error)  # without the library's path, which clients must not learn
    if isinstance(error, MemoryError) or reason.startswith("out of memory"):
        return Refused(FailureKind.BUSY, "there is no memory for a run of this size")
    if reason.startswith("device error"):
        return Refused(FailureKind.FAILED, "the GPU failed")
    return Refused(FailureKind.INVALID, f"the network does not run on these values: {reason}")


def _shared_sizes(inputs: Sequence[Tensor]) -> list[tuple[str, str, int]]:
    """Return the axes of inputs whose dynamic dimension occurs more than once: dimension, input and axis of each."""
    axes = [
        (size, tensor.name, axis)
        for tensor in inputs
        for axis, size in enumerate(tensor.shape)
        if isinstance(size, str) and size != "?"
    ]
    counts = Counter(size for size, *_ in axes)
    return [each for each in axes if counts[each[0]] > 1]


def _can_end_runs(model: Model) -> bool:
    try:
        model.cancel()
    except RunError:
        return False
    return True


def _why_no_batches(model: Model) -> str:
    """Return why requests cannot be concatenated along the first axis, by the shapes alone; empty if they can."""
    firsts = list(
        dict.fromkeys(tensor.shape[0] if tensor.shape else None for tensor in (*model.inputs, *model.outputs))
    )
    if len(firsts) == 1 and isinstance(first := firsts[0], str) and first != "?":
        twice = [tensor for tensor in (*model.inputs, *model.outputs) if first in tensor.shape[1:]]
        return f"{first} is more than the first axis of {_interface(twice[0])}" if twice else ""
    for role, tensors in (("input", model.inputs), ("output", model.outputs)):
        for tensor in tensors:
            if not tensor.shape or not isinstance(tensor.shape[0], str):
                return f"the first axis of {role} {_interface(tensor)} is not open"
    return "the first axes of inputs and outputs are different sizes"


def _fewest(dimension: Dimension) -> int:
    """Return the smallest size above 0 that a dimension may have."""
    return max(1, -(-dimension.minimum // dimension.multiple)) * dimension.multiple


def _differs(model: Model, inputs: Mapping[str, Array], outputs: Mapping[str, Array], fewest: int) -> str:
    """Compare a batch with runs of its parts, and return how a row depends on other rows; empty if none does.

    Args:
        model: the session that runs the parts.
        inputs, outputs: of the batch.
        fewest: rows of a part.
    """
    for begin in range(0, len(next(iter(inputs.values()))), fewest):
        part = slice(begin, begin + fewest)
        try:
            alone = model.run({name: array[part] for name, array in inputs.items()})
        except RunError as error:
            return f"a part of a batch does not run alone ({error})"
        for name, array in alone.items():
            together = outputs[name][part]
            if array.dtype.kind not in "fiub" or array.shape != together.shape:
                equal = np.array_equal(array, together)
            else:
                a, b = array.astype(np.float64), together.astype(np.float64)
                with np.errstate(invalid="ignore", over="ignore"):
                    near = np.abs(a - b) <= _NEAR * max(1e-30, float(np.abs(b).max(initial=0.0)))
                equal = bool(np.all(near | (a == b) | (np.isnan(a) & np.isnan(b))))
            if not equal:
                return f'a row of output "{name}" depends on other rows of the batch'
    return ""


def _limited(dimension: Dimension, limits: Mapping[str, int]) -> Dimension:
    """Return a dimension with the server's limit as its maximum.

    Raises:
        RunError: no size remains.
    """
    maximum = min(dimension.maximum, limits.get(dimension.name, dimension.maximum))
    if maximum < dimension.minimum:
        raise RunError(f"the limit {dimension.name}={maximum} leaves nothing of {dimension}")
    return Dimension(dimension.name, dimension.minimum, maximum, dimension.multiple, min(dimension.size_hint, maximum))


def _is_in(size: int, known: Dimension) -> bool:
    return known.minimum <= size <= known.maximum and size % known.multiple == 0


def _interface(tensor: Tensor) -> str:
    return f"{tensor.name}: {DATATYPES[tensor.dtype]}[{', '.join(map(str, tensor.shape))}]"


_MAX_NAMED = 8


def _interfaces(what: str, tensors: Sequence[Tensor]) -> str:
    more = f" and {len(tensors) - _MAX_NAMED} more" if len(tensors) > _MAX_NAMED else ""
    return f"the {what} are {', '.join(map(_interface, tensors[:_MAX_NAMED])) or 'none'}{more}"
