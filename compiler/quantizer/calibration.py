"""Reads calibration data, an `.npz` file or arrays by input name, and splits it into runs of a network.

images: float32[200, 3, 224, 224]      200 runs of an input of the shape [3, 224, 224] or [1, 3, 224, 224]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nnefc.driver.options import Calibration
from nnefc.operators.dtypes import numpy_dtype
from nnefc.support.diagnostics import CompileError
from nnefc.targets.description.library import TensorDescription

__all__ = ["Samples", "samples_of"]

Array = np.ndarray[Any, Any]

_BATCH = 8
"""Elements that are run together where the first dimension of all inputs is the same open one: a batch, then."""


@dataclass(frozen=True)
class Samples:
    """Values of all inputs for a sequence of runs; can be iterated repeatedly.

    Attributes:
        arrays: by the names of the inputs.
        steps: how many indices of the first dimension each run takes; None: each takes one, without the dimension.
        runs: how many there are.
    """

    arrays: Mapping[str, Array]
    steps: Mapping[str, int] | None
    runs: int

    def __iter__(self) -> Iterator[dict[str, Array]]:
        for number in range(self.runs):
            if self.steps is None:
                yield {name: np.ascontiguousarray(array[number]) for name, array in self.arrays.items()}
            else:
                yield {
                    name: np.ascontiguousarray(array[number * self.steps[name] : (number + 1) * self.steps[name]])
                    if self.steps[name]
                    else array
                    for name, array in self.arrays.items()
                }


def samples_of(calibration: Calibration, inputs: Sequence[TensorDescription]) -> Samples:
    """The runs of a calibration; floats are converted to the type of their input.

    Raises:
        CompileError: a file that cannot be read; values that are missing, of another shape, none, or not finite.
    """
    given = calibration if isinstance(calibration, Mapping) else _read(Path(calibration))
    missing = [tensor.name for tensor in inputs if tensor.name not in given]
    if missing:
        raise CompileError(
            f"the calibration has no values of the input {missing[0]!r}",
            hint=f"it has {list(given)}; the inputs are {', '.join(repr(tensor.name) for tensor in inputs)}",
        )
    arrays = {tensor.name: _checked(tensor, np.asarray(given[tensor.name])) for tensor in inputs}
    more = {arrays[tensor.name].ndim - len(tensor.shape) for tensor in inputs}
    if more == {1}:
        counts = {len(array) for array in arrays.values()}
        if len(counts) == 1:
            return Samples(arrays, None, counts.pop())
    elif more == {0} and (steps := _steps(arrays, inputs)) is not None:
        return Samples(arrays, *steps)
    raise CompileError(
        "the shapes of the calibration's arrays are not those of the inputs, nor all with one dimension more",
        hint="; ".join(map(str, inputs)),
    )


def _checked(tensor: TensorDescription, array: Array) -> Array:
    """An array in the type of its input, with values that a network can be judged by."""
    if not array.size:
        raise CompileError(
            f"the calibration has no values of the input {tensor.name!r}: its shape is {list(array.shape)}",
            hint="give some that are typical of what the network will see",
        )
    bfloat16 = numpy_dtype("bfloat16")
    if tensor.dtype == "string" or not (array.dtype.kind == "f" or array.dtype == bfloat16):
        return array
    with np.errstate(over="ignore", invalid="ignore"):
        converted = array.astype(numpy_dtype(tensor.dtype), copy=False)
    wrong = np.argwhere(~(np.isfinite(array) & np.isfinite(converted)))
    if len(wrong):
        raise CompileError(
            f"the calibration's values of the input {tensor.name!r} are not all finite: {array[tuple(wrong[0])]} at "
            f"{[int(index) for index in wrong[0]]}, in {tensor.dtype}",
            hint="leave out what is broken, or repair it: one such value would decide the scales of all tensors",
        )
    return array if tensor.dtype == "bfloat16" else converted


def _steps(arrays: Mapping[str, Array], inputs: Sequence[TensorDescription]) -> tuple[Mapping[str, int], int] | None:
    """Returns how many indices of each array a run takes, for its input's rank, and the number of runs."""
    first_sizes = list(dict.fromkeys(tensor.shape[0] if tensor.shape else 1 for tensor in inputs))
    is_batch = len(first_sizes) == 1 and isinstance(first_sizes[0], str)
    if is_batch and any(len(tensor.shape) > 1 for tensor in inputs):  # vectors alone are one sample: sound, say
        counts = {len(array) for array in arrays.values()}
        size = min(counts) if len(counts) == 1 else 0
        step = next((step for step in range(min(_BATCH, size), 1, -1) if size % step == 0), 1)
        if size > _BATCH:
            return dict.fromkeys(arrays, step), size // step
    runs = set()
    for tensor in inputs:
        shape = arrays[tensor.name].shape
        if any(isinstance(size, int) and size != own for size, own in zip(tensor.shape[1:], shape[1:], strict=True)):
            return None
        first = tensor.shape[0] if tensor.shape else 1
        fits = not isinstance(first, int) or not shape or first == shape[0]
        if not fits and (first == 0 or shape[0] % int(first)):
            return None
        runs.add(1 if fits else shape[0] // int(first))
    if len(runs) != 1:
        return None
    count = runs.pop()
    return {name: len(array) // count if array.ndim else 0 for name, array in arrays.items()}, count


def _read(path: Path) -> dict[str, Array]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return dict(arrays)
    except (OSError, ValueError, TypeError) as error:
        why = getattr(error, "strerror", None) or error
        raise CompileError(f"cannot read the calibration {path}: {why}", hint="np.savez writes such files") from error
