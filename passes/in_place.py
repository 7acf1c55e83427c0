"""What kernels allow the memory plan: found by their structure, before they are scheduled."""

from __future__ import annotations

import math

from tvm import relax, s_tir, tirx
from tvm.ir.expr import TensorRegion

from nnefc.passes.memory import InPlace
from nnefc.passes.schedule.structure import SBlockRV, is_reduction, root_blocks, schedule_of

__all__ = ["CONCATENATION", "PARTS", "SAME_BYTES", "in_place_of"]

# Attribute of a kernel whose result is its operands' bytes, one after the other.
CONCATENATION = "nnefc.concatenation"

# Attribute of a kernel whose results are its operand's bytes, one after the other.
PARTS = "nnefc.parts"

# Attribute of a kernel whose result is its operand's bytes, read as another type.
SAME_BYTES = "nnefc.same_bytes"


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
    blocks = root_blocks(sch)
    direct = _element_wise_tail(sch, blocks, result)
    return tuple(
        position
        for position, operand in enumerate(operands)
        if _same_type(operand, result)
        and _shape(operand) == _shape(result)
        and _read_by_own_elements(sch, blocks, operand, direct)
    )


def _element_wise_tail(sch: s_tir.Schedule, blocks: list[SBlockRV], result: tirx.Var) -> set[str]:
    """Names of the blocks whose elements matter to the same elements of `result` only, through such blocks only.

    Whoever else reads such a block's tensor forbids it: a schedule may compute the block anew where that reader is.
    """
    names: set[str] = set()
    for block in reversed(blocks):
        node = sch.get(block)
        if len(node.writes) != 1 or is_reduction(sch, block) or not _is_identity(node, node.writes[0]):
            continue
        written = node.writes[0].source
        if _shape(written) != _shape(result):
            continue
        if written.same_as(result) or _read_by_own_elements(sch, blocks, written, names):
            names.add(node.name_hint)
    return names


def _read_by_own_elements(sch: s_tir.Schedule, blocks: list[SBlockRV], tensor: tirx.Var, direct: set[str]) -> bool:
    """Whether blocks of `direct` alone read `tensor`, each of their elements the same element of it."""
    readers = [b for b in blocks if any(r.source.same_as(tensor) for r in sch.get(b).reads)]
    return bool(readers) and all(sch.get(b).name_hint in direct and _reads_own_element(sch, b, tensor) for b in readers)


def _reads_own_element(sch: s_tir.Schedule, block: SBlockRV, operand: tirx.Var) -> bool:
    node = sch.get(block)
    return all(_is_identity(node, read) for read in node.reads if read.source.same_as(operand))


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
