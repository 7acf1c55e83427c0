"""What kernels allow the memory plan: found by their structure, before they are scheduled."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from tvm import relax, s_tir, tirx
from tvm.ir.expr import TensorRegion

from nnefc.passes.schedule.structure import root_blocks, schedule_of

__all__ = ["CONCATENATION", "PARTS", "SAME_BYTES", "InPlace", "in_place_of"]

# Attribute of a kernel whose result is its operands' bytes, one after the other.
CONCATENATION = "nnefc.concatenation"

# Attribute of a kernel whose results are its operand's bytes, one after the other.
PARTS = "nnefc.parts"

# Attribute of a kernel whose result is its operand's bytes, read as another type.
SAME_BYTES = "nnefc.same_bytes"


@dataclass(frozen=True)
class InPlace:
    """What a kernel allows.

    Attributes:
        reshape: its result has the bytes of its one operand.
        concatenation: its result is its operands' bytes, one after the other.
        parts: its results are its operand's bytes, one after the other.
        overwritable: positions among its operands that its one result may overwrite.
    """

    reshape: bool = False
    concatenation: bool = False
    parts: bool = False
    overwritable: tuple[int, ...] = ()

    @property
    def is_view(self) -> bool:
        """Whether the plan may do without the kernel: all of its results' bytes are its operands'."""
        return self.reshape or self.concatenation or self.parts


def in_place_of(func: tirx.PrimFunc) -> InPlace:
    """What the kernel `func`, whose last parameter is its result (or parameters, its results), allows."""
    if func.attrs and CONCATENATION in func.attrs:
        return InPlace(concatenation=True)
    if func.attrs and PARTS in func.attrs:
        return InPlace(parts=True)
    if func.attrs and SAME_BYTES in func.attrs:
        return InPlace(reshape=True)
    if len(func.params) == 2 and _same_size(*func.params) and relax.analysis.has_reshape_pattern(func):
        return InPlace(reshape=True)
    return InPlace(overwritable=_overwritable(func))


def _same_type(left: tirx.Var, right: tirx.Var) -> bool:
    return str(left.dtype) == str(right.dtype)


def _same_size(left: tirx.Var, right: tirx.Var) -> bool:
    """Whether two tensors have as many elements, of the same type; what TVM calls a reshape may also write a part."""
    return _same_type(left, right) and math.prod(_shape(left)) == math.prod(_shape(right))


def _overwritable(func: tirx.PrimFunc) -> tuple[int, ...]:
    """Operands that are read, element by element, only where the result's same element is computed."""
    *operands, result = func.params
    sch = schedule_of(func)
    blocks = [sch.get(block) for block in root_blocks(sch)]
    readers: dict[tirx.Var, list[s_tir.SBlock]] = {}
    for block in blocks:
        for tensor in {read.source: None for read in block.reads}:
            readers.setdefault(tensor, []).append(block)
    direct = _element_wise_tail(blocks, readers, result)
    return tuple(
        position
        for position, operand in enumerate(operands)
        if _same_type(operand, result)
        and _shape(operand) == _shape(result)
        and _read_by_own_elements(readers.get(operand, ()), operand, direct)
    )


_Readers: TypeAlias = "Mapping[tirx.Var, Sequence[s_tir.SBlock]]"


def _element_wise_tail(blocks: Sequence[s_tir.SBlock], readers: _Readers, result: tirx.Var) -> set[str]:
    """Names of the blocks whose elements matter to the same elements of `result` only, through such blocks only.

    Whoever else reads such a block's tensor forbids it: a schedule may compute the block anew where that reader is.
    """
    names: set[str] = set()
    for block in reversed(blocks):
        if len(block.writes) != 1 or _is_reduction(block) or not _is_identity(block, block.writes[0]):
            continue
        written = block.writes[0].source
        if _shape(written) != _shape(result):
            continue
        if written.same_as(result) or _read_by_own_elements(readers.get(written, ()), written, names):
            names.add(block.name_hint)
    return names


def _is_reduction(block: s_tir.SBlock) -> bool:
    return any(axis.iter_type == tirx.IterVar.CommReduce for axis in block.iter_vars)


def _read_by_own_elements(readers: Sequence[s_tir.SBlock], tensor: tirx.Var, direct: set[str]) -> bool:
    """Whether blocks of `direct` alone read `tensor`, each of their elements the same element of it."""
    return bool(readers) and all(b.name_hint in direct and _reads_own_element(b, tensor) for b in readers)


def _reads_own_element(block: s_tir.SBlock, operand: tirx.Var) -> bool:
    return all(_is_identity(block, read) for read in block.reads if read.source.same_as(operand))


def _is_identity(node: s_tir.SBlock, region: TensorRegion) -> bool:
    """Whether a block touches exactly the element that its axes name."""
    axes = list(node.iter_vars)
    if len(axes) != len(region.region):
        return False
    pairs = zip(axes, region.region, strict=True)
    return all(
        _is_number(r.extent, 1) and (r.min.same_as(a.var) or (int(a.dom.extent) == 1 and _is_number(r.min, 0)))
        for a, r in pairs
    )


def _is_number(expr: tirx.Expr, number: int) -> bool:
    # A region that depends on data has an extent that is no number.
    return isinstance(expr, tirx.IntImm) and int(expr) == number


def _shape(buffer: tirx.Var) -> tuple[int, ...]:
    return tuple(int(extent) for extent in buffer.shape)
