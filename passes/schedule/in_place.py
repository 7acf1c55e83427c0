"""Derives from a kernel's structure which in-place updates and views it allows the memory plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import tvm
from tvm import relax, tirx
from tvm.ir.expr import TensorRegion

from nnefc.ir.attributes import CONCATENATION, SAME_BYTES, SPLIT, STAGED, UPDATES
from nnefc.ir.rebuild import root_block, with_fields
from nnefc.passes.schedule.analysis import KernelAnalysis, ScheduleBlock
from nnefc.passes.tir.common.expressions import is_number
from nnefc.passes.tir.common.shapes import elements_of, sizes_of

__all__ = ["InPlace", "in_place_of"]


@dataclass(frozen=True)
class InPlace:
    """The in-place updates and views that a kernel allows.

    Attributes:
        reshape: its result has the bytes of its one operand.
        concatenation: its result is its operands' bytes, one after the other.
        parts: its results are its operand's bytes, one after the other.
        overwritable: positions among its operands that its one result may overwrite.
        updates: the position of the operand whose bytes its first result must have before; None for other kernels.
    """

    reshape: bool = False
    concatenation: bool = False
    parts: bool = False
    overwritable: tuple[int, ...] = ()
    updates: int | None = None

    @property
    def is_view(self) -> bool:
        """Whether the plan may do without the kernel: all of its results' bytes are its operands'."""
        return self.reshape or self.concatenation or self.parts


def in_place_of(kernel: KernelAnalysis) -> InPlace:
    """Returns the in-place updates that a kernel allows; its last parameters are its results."""
    func = kernel.func
    if func.attrs and CONCATENATION in func.attrs:
        return InPlace(concatenation=True)
    if func.attrs and SPLIT in func.attrs:
        return InPlace(parts=True)
    if func.attrs and SAME_BYTES in func.attrs:
        return InPlace(reshape=True)
    if func.attrs and UPDATES in func.attrs:
        return InPlace(updates=int(func.attrs[UPDATES]))
    if len(func.params) == 2 and _same_size(*func.params) and all(map(_is_reshape, _copies(kernel))):
        return InPlace(reshape=True)
    return InPlace(overwritable=_overwritable(kernel))


def _copies(kernel: KernelAnalysis) -> Sequence[tirx.PrimFunc]:
    """Returns the kernel as functions of one step each, where each reads the result of the one before it."""
    func, steps = kernel.func, kernel.steps
    body = func.body.block.body
    statements = body.seq[:] if isinstance(body, tirx.SeqStmt) else [body]
    is_copying = all(len(step.reads) == len(step.writes) == 1 for step in steps)
    if not is_copying or not 1 < len(steps) == len(statements):
        return [func]
    source, result = func.params
    pairs = list(pairwise([source, *(step.result for step in steps)]))
    is_chain = all(
        step.reads[0].source.same_as(one) and _same_size(one, other)
        for step, (one, other) in zip(steps, pairs, strict=True)
    )
    if not is_chain or not steps[-1].result.same_as(result):
        return [func]
    return [
        with_fields(func, params=list(pair), body=root_block(stmt))
        for pair, stmt in zip(pairs, statements, strict=True)
    ]


def _is_reshape(func: tirx.PrimFunc) -> bool:
    """Whether each element is copied to the same flat index; False where TVM cannot divide dynamic sizes."""
    try:
        return bool(relax.analysis.has_reshape_pattern(func))
    except tvm.error.InternalError:
        return False


def _same_type(left: tirx.Var, right: tirx.Var) -> bool:
    return str(left.dtype) == str(right.dtype)


def _same_size(left: tirx.Var, right: tirx.Var) -> bool:
    """Whether two tensors have the same number of elements and the same type: TVM also calls it a reshape if only a
    part is written.
    """
    return _same_type(left, right) and elements_of(left) == elements_of(right)


def _overwritable(kernel: KernelAnalysis) -> tuple[int, ...]:
    """Operands that are read, element by element, only where the result's same element is computed, and those that are
    copied, part by part, before the result's same part is computed from the copy.
    """
    *operands, result = kernel.func.params
    readers: dict[tirx.Var, list[ScheduleBlock]] = {}
    for step in kernel.steps:
        for tensor in {read.source: None for read in step.reads}:
            readers.setdefault(tensor, []).append(step)
    direct = _element_wise_tail(kernel.steps, readers, result)
    return tuple(
        position
        for position, operand in enumerate(operands)
        if _same_type(operand, result)
        and sizes_of(operand) == sizes_of(result)
        and (
            _read_by_own_elements(readers.get(operand, ()), operand, direct)
            or _is_staged(readers.get(operand, ()), operand, readers, result, direct)
        )
    )


def _is_staged(
    copies: Sequence[ScheduleBlock],
    operand: tirx.Var,
    readers: Mapping[tirx.Var, Sequence[ScheduleBlock]],
    result: tirx.Var,
    direct: set[str],
) -> bool:
    """Whether one step alone reads `operand` and copies it in parts, each of which only affects the same part of
    `result`: see `STAGED`.
    """
    if len(copies) != 1 or STAGED not in copies[0].node.annotations:
        return False
    (copy,) = copies
    parts = int(copy.node.annotations[STAGED])
    if not _is_identity(copy, copy.writes[0]) or not _reads_own_element(copy, operand, parts):
        return False
    return all(
        _is_identity(step, step.writes[0])
        and _reads_own_element(step, copy.result, parts)
        and (step.result.same_as(result) or _read_by_own_elements(readers.get(step.result, ()), step.result, direct))
        for step in readers[copy.result]
    )


def _element_wise_tail(
    steps: Sequence[ScheduleBlock], readers: Mapping[tirx.Var, Sequence[ScheduleBlock]], result: tirx.Var
) -> set[str]:
    """Returns the names of the steps whose elements only affect the same elements of `result`, through such
    steps only.

    Every other consumer that reads such a step's tensor forbids it: a schedule may compute the step again where that
    reader is.
    """
    names: set[str] = set()
    for step in reversed(steps):
        if len(step.writes) != 1 or step.is_reduction or not _is_identity(step, step.writes[0]):
            continue
        if sizes_of(step.result) != sizes_of(result):
            continue
        if step.result.same_as(result) or _read_by_own_elements(readers.get(step.result, ()), step.result, names):
            names.add(step.name)
    return names


def _read_by_own_elements(readers: Sequence[ScheduleBlock], tensor: tirx.Var, direct: set[str]) -> bool:
    """Whether only steps of `direct` read `tensor`, each for an element the same element of it."""
    return bool(readers) and all(step.name in direct and _reads_own_element(step, tensor) for step in readers)


def _reads_own_element(step: ScheduleBlock, operand: tirx.Var, leading: int | None = None) -> bool:
    return all(_is_identity(step, read, leading) for read in step.reads if read.source.same_as(operand))


def _is_identity(step: ScheduleBlock, region: TensorRegion, leading: int | None = None) -> bool:
    """Whether a step touches exactly the element that its spatial axes name, or the part that so many `leading` ones
    name.
    """
    if len(step.spatial) != len(region.region):
        return False
    return all(
        is_number(part.extent, 1) and (part.min.same_as(axis.var) or (axis.size == 1 and is_number(part.min, 0)))
        for axis, part in zip(step.spatial[:leading], region.region[:leading], strict=True)
    )
