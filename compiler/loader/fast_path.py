"""Fast path of a session: calls with arrays of exactly the types and shapes of its inputs.

A small network takes microseconds, no more than the checks and conversions of a call. What is the same in each call is
therefore done once. Small tensors are copied to and from arrays whose addresses the library has been given: a copy
takes less time than finding the address of an array. All other calls go the session's usual way, which converts, or
says what does not fit.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from ctypes import byref, c_void_p
from typing import Any

import numpy as np

from .arrays import DENSE, Empty, address_of
from .tensors import DTYPES, Tensor

__all__ = ["FastPath"]

_COPIED = 4096
"""Bytes of the largest tensors that are copied."""
_ALIGNMENT = 64
"""Bytes of a cache line, of which the addresses of copies are multiples."""
_OWNED, _WRITABLE = 0x004, DENSE | 0x400  # NumPy's flags OWNDATA and WRITEABLE

_Operand = tuple[np.dtype, tuple[int, ...], np.ndarray | None]
"""An input or an output: its type, its shape, and the array that it is copied to or from; None for a large one."""


class FastPath:
    """Runs of a session whose sizes are known. One call follows the other."""

    def __init__(
        self,
        function: Callable[..., int],
        handle: c_void_p,
        check: Callable[[int, c_void_p], None],
        inputs: Sequence[Tensor],
        outputs: Sequence[Tensor],
        empty: Empty,
    ) -> None:
        """Prepares the runs.

        Args:
            function: nnefc_run, without declared types of its arguments: ctypes takes time to convert to these.
            handle: of the session.
            check: raises an error for a status other than 0.
            inputs, outputs: with their sizes; none has texts.
            empty: makes large outputs.
        """
        self._function, self._handle, self._check, self._empty = function, handle, check, empty
        self._inputs, self._outputs = list(map(_operand, inputs)), list(map(_operand, outputs))
        self._sources, self._targets = _pointers(self._inputs), _pointers(self._outputs)
        self._at_sources, self._at_targets = byref(self._sources), byref(self._targets)
        copies = [copy for _, _, copy in (*self._inputs, *self._outputs) if copy is not None]
        self._single = copies if len(inputs) == len(outputs) == 1 and len(copies) == 2 else None

    def run(self, values: Sequence[Any], out: Sequence[Any] | None) -> Sequence[Any] | None:
        """Runs on values; returns the outputs, or None if arrays are not exactly as needed.

        `out` has an array for each output, to write into; none may share memory with another one.

        Raises:
            RunError: the run fails.
        """
        if len(values) != len(self._inputs) or not (out is None or len(out) == len(self._outputs)):
            return None
        if self._single is not None:  # the usual small network, without loops
            (value,), (source, target), ((dtype, shape, _),) = values, self._single, self._inputs
            if type(value) is not np.ndarray or value.dtype is not dtype or value.shape != shape:
                return None
            if out is not None and not self._writes(out, values):
                return None
            source[...] = value
            status = self._function(self._handle, self._at_sources, self._at_targets)
            if status:
                self._check(status, self._handle)
            if out is None:
                return (target.copy(),)
            out[0][...] = target
            return out
        if not self._takes(values):
            return None
        if out is None:
            results = [self._empty(shape, dtype) if copy is None else copy for dtype, shape, copy in self._outputs]
        elif self._writes(out, values):
            results = list(out)
        else:
            return None
        for number, (_, _, copy) in enumerate(self._outputs):
            if copy is None:
                self._targets[number] = address_of(results[number])
        status = self._function(self._handle, self._at_sources, self._at_targets)
        if status:
            self._check(status, self._handle)
        for number, (_, _, copy) in enumerate(self._outputs):
            if copy is None:
                continue
            if out is None:
                results[number] = copy.copy()
            else:
                results[number][...] = copy
        return results

    def _takes(self, values: Sequence[Any]) -> bool:
        """Whether values are arrays of the inputs' types and shapes; copies them, or notes where they are."""
        for number, (dtype, shape, copy) in enumerate(self._inputs):
            value = values[number]
            if type(value) is not np.ndarray or value.dtype is not dtype or value.shape != shape:
                return False
            if copy is not None:
                copy[...] = value
            elif value.flags.num & DENSE == DENSE:
                self._sources[number] = address_of(value)
            else:
                return False
        return True

    def _writes(self, out: Sequence[Any], values: Sequence[Any]) -> bool:
        """Whether outputs can be written into arrays, which share no memory with each other or with inputs."""
        for number, (dtype, shape, _) in enumerate(self._outputs):
            target = out[number]
            if type(target) is not np.ndarray or target.dtype is not dtype or target.shape != shape:
                return False
            if target.flags.num & _WRITABLE != _WRITABLE:
                return False
            for other in values:
                if _may_overlap(target, other):
                    return False
            for earlier in range(number):
                if _may_overlap(target, out[earlier]):
                    return False
        return True


def _may_overlap(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether arrays may share memory; not if each has memory of its own, which takes less time to find out."""
    if one is not other and one.flags.num & other.flags.num & _OWNED:
        return False
    return np.may_share_memory(one, other)


def _operand(tensor: Tensor) -> _Operand:
    dtype, shape = DTYPES[tensor.dtype], tensor.shape
    if tensor.nbytes > _COPIED:
        return dtype, shape, None
    block = np.zeros(tensor.nbytes + _ALIGNMENT, np.uint8)
    begin = -address_of(block) % _ALIGNMENT
    return dtype, shape, block[begin : begin + tensor.nbytes].view(dtype).reshape(shape)


def _pointers(operands: Sequence[_Operand]) -> ctypes.Array[c_void_p]:
    """Returns the addresses of copies, and null for large tensors."""
    pointers = (c_void_p * len(operands))()
    pointers[:] = [None if copy is None else address_of(copy) for _, _, copy in operands]
    return pointers
