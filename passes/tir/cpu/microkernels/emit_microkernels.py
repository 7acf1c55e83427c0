"""Replaces innermost loops over accumulators by assembly: 64-bit Arm, WebAssembly, AVX2, and int8 on 32-bit Arm.

    for rc in 64:                                          nnefc_lanes_4f1c…(&S[0], &A[0], &B[0], 64, bytes, bytes)
        for ri in 8:
            for row, column in unrolled(7, 2):      →
                S[row, column, :] += A[rc, 8 row + ri] * B[rc, ri, column, :]

Each addend must be the product of a vector and of one element, which `passes/tir/cpu/load_lane_vectors.py` may have
taken from a vector already. Short inner loops are unrolled; the next outer one becomes the assembly loop, often with
two iterations in one; the loops around it stay. If a row of a filter is unrolled, neighbouring results share loads.
The instructions are emitted by `passes/tir/cpu/microkernels/aarch64_fma.py`, `aarch64_smull.py`, `arm32_smlad.py`,
`wasm_simd.py` and `x86_fma.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.expr import Call, TensorLoad
from tvm.sym import Analyzer, detect_linear_equation

from nnefc.ir.attributes import ASSEMBLY_MICROKERNEL
from nnefc.ir.rebuild import with_fields
from nnefc.passes.tir.common.expressions import conditions_of, int64, is_number, substituted, variables_of
from nnefc.passes.tir.cpu.microkernels import aarch64_fma as lane_code
from nnefc.passes.tir.cpu.microkernels import aarch64_smmla as row_pair_code
from nnefc.passes.tir.cpu.microkernels import aarch64_smull as pair_code
from nnefc.passes.tir.cpu.microkernels import arm32_smlad as arm32_code
from nnefc.passes.tir.cpu.microkernels import wasm_simd as wasm_code
from nnefc.passes.tir.cpu.microkernels import x86_fma as x86_code
from nnefc.passes.tir.cpu.microkernels.aarch64_instructions import OPERATORS, MultiplyAdd, product_of
from nnefc.passes.tir.cpu.microkernels.aarch64_loop import Accumulation, LoopCode
from nnefc.passes.tir.cpu.microkernels.wasm_simd import EngineProduct, engine_product_of
from nnefc.passes.tir.cpu.row_pairs import LOADS, PREFIX
from nnefc.passes.tir.tvm_workarounds.opaque import bound_value
from nnefc.support.element_types import bits_of
from nnefc.targets.machine.cpu.target import Target
from nnefc.targets.machine.system import FileFormat

__all__ = ["emit_microkernels"]


_FUNCTION = "tirx.call_pure_extern"
_AT_ONCE = 16  # terms of several iterations of a loop that is not written out
_SHORT = 128  # bits of a vector of all but SVE
_STEPS = 16  # products for each term that may be written out, at most

_STRAIGHT = tvm.ir.transform.Sequential(
    [
        tirx.transform.VectorizeLoop(),
        tirx.transform.UnrollLoop(),
        tirx.transform.ConvertSSA(),
        tirx.transform.StmtSimplify(),
    ]
)


def emit_microkernels(func: tirx.PrimFunc, target: Target) -> tirx.PrimFunc:
    """Replaces annotated loops of a flat kernel by calls of assembly; returns the kernel and the text of these
    functions.
    """
    texts: dict[str, None] = {}
    writer = _writer_for(target)

    def change(loop: tirx.For) -> tirx.Stmt:
        nest = list(_nest(loop))
        return loop if not nest or ASSEMBLY_MICROKERNEL not in nest[-1].annotations else _assembled(nest, writer, texts)

    body = tvm_ffi.structural_map(func.body, (tirx.For, change), order="pre")
    for text in texts:
        body = tirx.AttrStmt("default", "pragma_import_llvm", text, body)
    return func if body.same_as(func.body) else with_fields(func, body=body)


@dataclass(frozen=True)
class _Writer:
    """Emits loops for an instruction set.

    Attributes:
        product: of the kind of product, the operator that the vector is read with, whether the element is the first
            factor, and the bits of a sum: the instruction that computes it; None if there is none.
        code: of the steps of a round, the kind of their product, the bytes that the right elements move on in a round
            if that is known, whether there is one iteration, and how many vectors one instruction loads; None if the
            loop cannot be written.
        iterations_at_once: of a loop that is not written out as a whole: how many may be one iteration, the best first.
    """

    product: Callable[[str, str, bool, int], _Product | None]
    code: _Code
    iterations_at_once: tuple[int, ...]


_Product = MultiplyAdd | EngineProduct | x86_code.VectorProduct
_Code = Callable[[tuple[Accumulation, ...], _Product, int | None, bool, int], LoopCode | None]


def _writer_for(target: Target) -> _Writer:
    def lanes(kind: str, widening: str, _element_first: bool, bits: int) -> MultiplyAdd | None:
        if widening or bits not in (_SHORT, _SHORT * target.vectors.scale):
            return None  # a part of a register of SVE, whose loads are of whole ones
        return product_of(kind, target.vectors.scale if bits > _SHORT else 0)

    def by_lane(
        steps: tuple[Accumulation, ...], product: _Product, right_step: int | None, once: bool, together: int
    ) -> LoopCode | None:
        assert isinstance(product, MultiplyAdd)
        if product.pairs:
            return row_pair_code.code_of(product, steps, right_step, once)
        if product.short:
            return arm32_code.code_of(product, steps, right_step, once)
        if product.long:
            return pair_code.code_of(product, steps, right_step, once, target.costs.in_order)
        return lane_code.code_of(product, steps, right_step, once, together, target.costs.in_order)

    def in_engines(kind: str, widening: str, element_first: bool, bits: int) -> EngineProduct | None:
        known = engine_product_of(kind, widening, element_first, target.vectors.fused, target.reproducible)
        return known if bits == _SHORT else None

    def for_engines(
        steps: tuple[Accumulation, ...], product: _Product, _step: int | None, once: bool, _together: int
    ) -> LoopCode | None:
        assert isinstance(product, EngineProduct)
        return wasm_code.code_of(product, steps, once)

    def in_vectors(kind: str, widening: str, _element_first: bool, bits: int) -> x86_code.VectorProduct | None:
        found = x86_code.VectorProduct()
        return found if kind == "float32" and not widening and bits == found.lanes * found.element * 8 else None

    def for_x86(
        steps: tuple[Accumulation, ...], _product: _Product, _step: int | None, once: bool, _together: int
    ) -> LoopCode | None:
        return x86_code.code_of(steps, once)

    if target.format is FileFormat.WASM:
        return _Writer(in_engines, for_engines, (8, 4, 2))
    if target.triple.startswith("x86_64"):
        return _Writer(in_vectors, for_x86, (4, 2))
    return _Writer(lanes, by_lane, (2,))


def _nest(loop: tirx.Stmt) -> Iterator[tirx.For]:
    """Returns perfectly nested loops down to the annotated or the innermost one."""
    while isinstance(loop, tirx.For) and loop.kind == tirx.ForKind.SERIAL:
        yield loop
        if ASSEMBLY_MICROKERNEL in loop.annotations:
            return
        loop = loop.body


@dataclass(frozen=True)
class _Added:
    """A product that a statement adds to an accumulator: of an element, or a pair of rows of a form, and a vector."""

    product: _Product
    tensor: tirx.Var
    position: int
    left: tuple[tirx.Var, tirx.Expr]
    right: tuple[tirx.Var, tirx.Expr]
    form: tuple[str, int] | None = None


def _assembled(nest: Sequence[tirx.For], writer: _Writer, texts: dict[str, None]) -> tirx.Stmt:
    """Replaces the innermost loops by assembly, as many as its form allows."""
    *around, innermost = nest
    together, maximum = map(int, innermost.annotations[ASSEMBLY_MICROKERNEL])
    annotations = {key: value for key, value in innermost.annotations.items() if key != ASSEMBLY_MICROKERNEL}
    made: tirx.Stmt = with_fields(innermost, annotations=annotations)
    parts = _straight(innermost.body)
    found = None if parts is None else _added(parts, writer)
    text = ""
    if found and _is_of_one_kind(found) and all(is_number(loop.min, 0) for loop in nest):
        for depth in range(1, len(nest) + 1):
            whole = _in_one_loop(nest[-depth:], found, writer, together, maximum)
            if whole is None:
                break
            code, made = whole
            around = list(nest[:-depth])
            text = code.text
        if text:
            texts[text] = None
    for loop in reversed(around):
        made = with_fields(loop, body=made)
    return made


def _is_of_one_kind(found: Sequence[_Added]) -> bool:
    """Whether all products are of the same tensors, none of which holds the sums."""
    one = found[0]
    if any(tensor.same_as(one.tensor) for tensor in (one.left[0], one.right[0])):
        return False
    return len({(added.product, added.tensor, added.left[0], added.right[0]) for added in found}) == 1


def _in_one_loop(
    nest: Sequence[tirx.For], found: Sequence[_Added], writer: _Writer, together: int, maximum: int
) -> tuple[LoopCode, tirx.Stmt] | None:
    """Emits the loops: unrolls all but the outermost, and that one too if it is short; None if it cannot.

    Args:
        together: vectors that one instruction loads.
        maximum: terms of each sum that are unrolled.
    """
    one, variables = found[0], [loop.loop_var for loop in nest]
    analyzer = Analyzer()
    lefts, rights = (_apart([getattr(a, side)[1] for a in found], analyzer) for side in ("left", "right"))
    moves = [_moves(side[1], variables) for side in (one.left, one.right)]
    if lefts is None or rights is None or moves[0] is None or moves[1] is None:
        return None
    (left_steps, left), (right_steps, right) = moves[0], moves[1]
    terms = [Accumulation(a.position, x, y, a.form) for a, x, y in zip(found, lefts, rights, strict=True)]
    loops = list(zip(nest, left_steps, right_steps, strict=True))
    while loops and (written := _written_out(loops[-1], terms, maximum)) is not None:
        terms = written
        loops.pop()
    if len(loops) > 1:
        return None
    trip_count, by_left, by_right = int64(1), int64(0), int64(0)
    if loops:
        loop, by_left, by_right = loops[0]
        if is_number(loop.extent, 0):
            return None
        trip_count = loop.extent if str(loop.extent.expr_ty().dtype) == "int64" else loop.extent.astype("int64")
        for count in writer.iterations_at_once:
            several = _repeated(count, loop, by_left, by_right, terms, min(maximum, _AT_ONCE))
            if several is not None:
                terms, trip_count = several, int64(int(loop.extent) // count)
                by_left, by_right = by_left * count, by_right * count
                break
    first_left, first_right = min(term.left for term in terms), min(term.right for term in terms)
    step = int(by_right) * one.product.right_element if isinstance(by_right, tirx.IntImm) else None
    steps = tuple(_moved(term, -first_left, -first_right) for term in terms)
    code = writer.code(steps, one.product, step, not loops, together)
    if code is None:
        return None
    call = _call(code, one, (left, first_left), (right, first_right), trip_count, (by_left, by_right))
    if not isinstance(trip_count, tirx.IntImm):  # the loop counter must start at 1 or more
        call = tirx.IfThenElse(trip_count > 0, call, None)
    return code, call


def _written_out(
    loop: tuple[tirx.For, tirx.Expr, tirx.Expr], terms: list[Accumulation], maximum: int
) -> list[Accumulation] | None:
    """Returns the terms of all iterations of a loop, if they are few."""
    stmt, left, right = loop
    if not all(isinstance(value, tirx.IntImm) for value in (stmt.extent, left, right)):
        return None
    return _copies(int(stmt.extent), int(left), int(right), terms, maximum)


def _repeated(
    count: int, loop: tirx.For, left: tirx.Expr, right: tirx.Expr, terms: list[Accumulation], maximum: int
) -> list[Accumulation] | None:
    """Returns the terms of several iterations of a loop, if they are few and their number divides the trip count."""
    known = all(isinstance(value, tirx.IntImm) for value in (loop.extent, left, right))
    return _copies(count, int(left), int(right), terms, maximum) if known and int(loop.extent) % count == 0 else None


def _copies(count: int, left: int, right: int, terms: list[Accumulation], maximum: int) -> list[Accumulation] | None:
    each = len(terms) // len({term.sum for term in terms})
    if count * each > maximum or count * len(terms) > maximum * _STEPS:
        return None
    return [_moved(term, n * left, n * right) for n in range(count) for term in terms]


def _moved(term: Accumulation, left: int, right: int) -> Accumulation:
    """Returns the terms with operands shifted by some elements."""
    return replace(term, left=term.left + left, right=term.right + right)


def _straight(stmt: tirx.Stmt) -> list[tirx.Stmt] | None:
    """Returns consecutive statements on vectors; None if there are loops or conditions."""
    func = _STRAIGHT(tvm.IRModule({"main": tirx.PrimFunc([], stmt)}))["main"]
    parts = list(func.body.seq) if isinstance(func.body, tirx.SeqStmt) else [func.body]
    return parts if all(isinstance(part, tirx.Bind | tirx.BufferStore) for part in parts) else None


def _added(parts: Sequence[tirx.Stmt], writer: _Writer) -> list[_Added] | None:
    """Returns what each statement adds; None if one does something else, or not in full registers."""
    bound: dict[tirx.Var, tirx.Expr] = {}
    made: list[_Added] = []
    for part in parts:
        if any(True for _ in conditions_of(part.value)):
            return None  # an element that a condition hides may lie outside of the tensor
        if isinstance(part, tirx.Bind):
            bound[part.var] = part.value
            continue
        added = _of_store(part, bound, writer)
        if added is None:
            return None
        made.append(added)
    return made


def _of_store(store: tirx.BufferStore, bound: dict[tirx.Var, tirx.Expr], writer: _Writer) -> _Added | None:
    found = _product(store.value)
    if found is None:
        return None
    kind, total, factors = found
    lanes = tvm.DataType(str(store.value.expr_ty().dtype))
    bits = int(lanes.lanes) * int(lanes.bits)
    for one, factor in (factors, factors[::-1]):
        other, widening = _unwidened(factor)
        product = writer.product(kind, widening, one is factors[0], bits)
        if product is None:
            continue
        sums = [
            _vector(vector, product.lanes, product.element)
            for vector in (tirx.BufferLoad(store.buffer, store.indices), total)
        ]
        position, before = sums
        if position is None or before is None or not isinstance(position[1], tirx.IntImm):
            return None
        if not before[0].same_as(position[0]) or not tvm_ffi.structural_equal(before[1], position[1]):
            return None
        if isinstance(product, MultiplyAdd) and product.pairs:
            form, left = _pair(one, bound, product) or (None, None)
            other = bound.get(other, other) if isinstance(other, tirx.Var) else other
        else:
            form, left = None, _element(one, bound)
        right = _vector(other, product.lanes, product.right_element)
        if left is None or right is None:
            continue
        named = {var: bound_value(value) for var, value in bound.items() if bound_value(value) is not value}
        left, right = ((tensor, substituted(position, named)) for tensor, position in (left, right))
        if variables_of([left[1], right[1]]) & bound.keys():
            continue  # the loops must know all positions
        return _Added(product, position[0], int(position[1]), left, right, form)
    return None


def _product(value: tirx.Expr) -> tuple[str, tirx.Expr, tuple[tirx.Expr, tirx.Expr]] | None:
    """Returns the instruction that computes a value, the sum that it adds to, and its factors."""
    if isinstance(value, Call):
        name = str(getattr(value.op, "name", ""))
        if name == _FUNCTION and str(value.args[0].value).startswith(PREFIX):
            return str(value.args[0].value).removeprefix(PREFIX), value.args[1], (value.args[2], value.args[3])
        if name == "nnefc.half_multiply_add":
            return "float16", value.args[0], (value.args[1], value.args[2])
        known = name in OPERATORS or name in wasm_code.OPERATORS
        return (name, value.args[0], (value.args[1], value.args[2])) if known else None
    if not isinstance(value, tirx.Add) or not str(value.expr_ty().dtype).startswith("float32x"):
        return None
    for total, product in ((value.a, value.b), (value.b, value.a)):
        if isinstance(product, tirx.Mul) and isinstance(total, TensorLoad):
            return "float32", total, (product.a, product.b)
    return None


def _unwidened(value: tirx.Expr) -> tuple[tirx.Expr, str]:
    """Returns a vector as stored, and the operator that extends its elements; "" for none."""
    if isinstance(value, Call) and len(value.args) == 1:
        return value.args[0], str(getattr(value.op, "name", ""))
    return value, ""


def _vector(value: tirx.Expr, lanes: int, element: int) -> tuple[tirx.Var, tirx.Expr] | None:
    """Returns the tensor that a vector is loaded from, and the index of its first element, if it has this many elements
    of this size.
    """
    if not isinstance(value, TensorLoad) or len(value.indices) != 1 or not isinstance(value.indices[0], tirx.Ramp):
        return None
    ramp = value.indices[0]
    whole = int(ramp.lanes) == lanes and isinstance(ramp.stride, tirx.IntImm) and int(ramp.stride) == 1
    return (value.source, ramp.base) if whole and bits_of(str(value.source.dtype)) == 8 * element else None


def _element(value: tirx.Expr, bound: dict[tirx.Var, tirx.Expr]) -> tuple[tirx.Var, tirx.Expr] | None:
    """Returns the tensor and the index of the element that all lanes of a vector hold."""
    if not isinstance(value, tirx.Broadcast):
        return None
    element = value.value
    element = bound.get(element, element) if isinstance(element, tirx.Var) else element
    if isinstance(element, tirx.Shuffle) and len(element.vectors) == len(element.indices) == 1:
        (loaded,), (lane,) = element.vectors, element.indices
        if isinstance(loaded, TensorLoad) and isinstance(loaded.indices[0], tirx.Ramp):
            ramp = loaded.indices[0]
            return loaded.source, ramp.base + lane.astype(str(ramp.base.expr_ty().dtype)) * ramp.stride
    if isinstance(element, TensorLoad) and len(element.indices) == 1 and not isinstance(element.indices[0], tirx.Ramp):
        return element.source, element.indices[0]
    return None


def _pair(
    value: tirx.Expr, bound: dict[tirx.Var, tirx.Expr], product: MultiplyAdd
) -> tuple[tuple[str, int], tuple[tirx.Var, tirx.Expr]] | None:
    """Returns the form of a pair of rows, its tensor, and the index at which the load begins."""
    value = bound.get(value, value) if isinstance(value, tirx.Var) else value
    if isinstance(value, Call) and str(getattr(value.op, "name", "")) == _FUNCTION:
        load, _, register = str(value.args[0].value).removeprefix(PREFIX).partition("_")
        first = value.args[1].args[0]
        return ((load, int(register)), (first.source, first.indices[0])) if load in LOADS else None
    found = _vector(value, product.lanes, product.element)
    return None if found is None else (("ld1", 0), found)


def _apart(positions: Sequence[tirx.Expr], analyzer: Analyzer) -> list[int] | None:
    """Returns the distances of indices from the first one; None if they are not constant."""
    known: list[tuple[tirx.Expr, int]] = []
    made = []
    for position in positions:
        base, number = _split(position)
        apart = next((n for other, n in known if tvm_ffi.structural_equal(other, base)), None)
        if apart is None:
            difference = analyzer.simplify(base - _split(positions[0])[0])
            if not isinstance(difference, tirx.IntImm):
                return None
            apart = int(difference)
            known.append((base, apart))
        made.append(apart + number - _split(positions[0])[1])
    return made


def _split(position: tirx.Expr) -> tuple[tirx.Expr, int]:
    """Splits an index into a variable part and a constant offset."""
    match position:
        case tirx.Add(a=first, b=tirx.IntImm(value=number)):
            base, more = _split(first)
            return base, more + int(number)
        case tirx.IntImm(value=number):
            return tirx.const(0, str(position.expr_ty().dtype)), int(number)
    return position, 0


def _moves(position: tirx.Expr, variables: Sequence[tirx.Var]) -> tuple[list[tirx.Expr], tirx.Expr] | None:
    """Returns the stride of an index in each of the loops, and its value in the first iteration."""
    linear = detect_linear_equation(position, list(variables))
    if not linear or set(variables) & variables_of(list(linear)):
        return None
    return list(linear[:-1]), substituted(position, {var: tirx.const(0, str(var.ty.dtype)) for var in variables})


def _call(
    code: LoopCode,
    one: _Added,
    left: tuple[tirx.Expr, int],
    right: tuple[tirx.Expr, int],
    trip_count: tirx.Expr,
    steps: tuple[tirx.Expr, tirx.Expr],
) -> tirx.Stmt:
    def address(tensor: tirx.Var, position: tirx.Expr, beyond: int) -> tirx.Expr:
        index = position + tirx.const(beyond, str(position.expr_ty().dtype)) if beyond else position
        return tirx.address_of(tirx.BufferLoad(tensor, [index]))

    # the functions count elements of sums from the tensor's first one, and of others from the first that is read
    lefts = [address(one.left[0], left[0], left[1] + begin) for begin in code.left]
    rights = [address(one.right[0], right[0], right[1] + begin) for begin in code.right]
    sums = address(one.tensor, int64(0), 0)
    sizes = (one.product.element, one.product.right_element)
    moved = [step.astype("int64") * size for step, size in zip(steps, sizes, strict=True)]
    return tirx.Evaluate(tirx.call_extern("void", code.name, sums, *lefts, *rights, trip_count, *moved))
