"""Neighbouring vectors that the innermost loop of a sum reads, loaded several at a time: `ld1` of 64-bit Arm.

    for k in 8:                                        for k in 8:
        sum[0] += A[k] * B[16 k : 16 k + 4]                b = load4(&B[16 k])
        sum[1] += A[k] * B[16 k + 4 : 16 k + 8]    →       sum[0] += A[k] * b[0 : 4]
        …                                                  sum[1] += A[k] * b[4 : 8]
                                                           …

A load moves its pointer on to the next group by itself, if LLVM does not know that address as a number added to the
first one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.expr import Call, TensorLoad

from nnefc.element_types import bits_of
from nnefc.passes.tir.expressions import conditions_of

__all__ = ["TOGETHER", "group_texts", "with_loaded_groups"]

TOGETHER = "nnefc.together"
"""Annotation of the innermost loop of a sum: how many neighbouring vectors one instruction loads."""

_BITS = 128  # of a vector
_SHORT = 2  # rounds of a loop that are written out
_PAIR = 2  # vectors that LLVM loads together, where it finds both loads beside each other
_FAR = 1024  # bytes: what instructions that load pairs add to an address is less
_REGISTERS = 31  # for sums, for vectors of which lanes are factors, and for a group
_LOAD, _NEXT = "nnefc_load", "nnefc_after"

_STRAIGHT = tvm.ir.transform.Sequential(
    [
        tirx.transform.VectorizeLoop(),
        tirx.transform.UnrollLoop(),
        tirx.transform.ConvertSSA(),
        tirx.transform.StmtSimplify(),
    ]
)


def with_loaded_groups(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A flat kernel with groups of vectors in loops that are annotated so."""
    body = tvm_ffi.structural_map(
        func.body, (tirx.For, lambda loop: _grouped(loop) if TOGETHER in loop.annotations else loop)
    )
    return func if body.same_as(func.body) else tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _grouped(loop: tirx.For) -> tirx.Stmt:
    annotations = dict(loop.annotations)
    most = int(annotations.pop(TOGETHER))
    short = isinstance(loop.extent, tirx.IntImm) and int(loop.extent) <= _SHORT
    kind = tirx.ForKind.UNROLLED if short else loop.kind
    plain = tirx.For(loop.loop_var, loop.min, loop.extent, kind, loop.body, loop.thread_binding, annotations, loop.step)
    body = _straight(plain if short else loop.body)
    if body is None or any(True for part in body for _ in conditions_of(part.value)):
        return plain  # what is not read on a condition may not be there
    made = tirx.SeqStmt(list(_with_groups(body, most)))
    if short:
        return made
    return tirx.For(loop.loop_var, loop.min, loop.extent, kind, made, loop.thread_binding, annotations, loop.step)


def _straight(stmt: tirx.Stmt) -> list[tirx.Stmt] | None:
    """Statements on vectors, one after the other; None where there are loops or conditions left."""
    func = _STRAIGHT(tvm.IRModule({"main": tirx.PrimFunc([], stmt)}))["main"]
    parts = list(_parts(func.body))
    return parts if all(isinstance(part, tirx.Bind | tirx.BufferStore) for part in parts) else None


def _parts(stmt: tirx.Stmt) -> Iterator[tirx.Stmt]:
    if isinstance(stmt, tirx.SeqStmt):
        for part in stmt.seq:
            yield from _parts(part)
    else:
        yield stmt


def _place_of_store(part: tirx.Stmt) -> tuple[tirx.Expr, int] | None:
    """Where a sum is."""
    return _place(tirx.BufferLoad(part.buffer, part.indices)) if isinstance(part, tirx.BufferStore) else None


@dataclass
class _Line:
    """Vectors of a tensor whose places differ by numbers from each other."""

    source: tirx.Var
    first: tirx.Expr
    places: dict[int, TensorLoad] = field(default_factory=dict)


def _with_groups(parts: Sequence[tirx.Stmt], most: int) -> Iterator[tirx.Stmt]:
    written = {part.buffer for part in parts if isinstance(part, tirx.BufferStore)}
    sums = {int(place[1]) for part in parts if (place := _place_of_store(part)) is not None}
    lines: list[_Line] = []
    of_lanes: set[int] = set()
    for part in parts:
        before = len(lines)
        tvm_ffi.structural_walk(
            part.value, (TensorLoad, lambda load: None if load.source in written else _note(load, lines))
        )
        if isinstance(part, tirx.Bind):
            of_lanes.update(range(before, len(lines)))
    held = sum(len(lines[number].places) for number in of_lanes)
    lanes_at_once = most if len(sums) + held + most <= _REGISTERS else 1
    groups = {
        (number, place): group
        for number, line in enumerate(lines)
        for group in _groups_of(line, lanes_at_once if number in of_lanes else _PAIR)
        for place in group.places
    }
    for part in parts:
        loaded: list[tirx.Stmt] = []

        def read(load: TensorLoad, loaded: list[tirx.Stmt] = loaded) -> tirx.Expr:
            place = _place(load)
            if place is None:
                return load
            first, number = place
            at = _line_of(load.source, first, lines)
            group = None if at is None else groups.get((at, number))
            if group is None:
                return load
            loaded += group.load()
            return group.vector(number)

        value = tvm_ffi.structural_map(part.value, (TensorLoad, read))
        yield from loaded
        yield (
            tirx.Bind(part.var, value)
            if isinstance(part, tirx.Bind)
            else tirx.BufferStore(part.buffer, value, part.indices)
        )


def _note(load: TensorLoad, lines: list[_Line]) -> None:
    place = _place(load)
    if place is None:
        return
    number = _line_of(load.source, place[0], lines)
    if number is None:
        lines.append(_Line(load.source, place[0]))
        number = -1
    lines[number].places[place[1]] = load


def _place(load: TensorLoad) -> tuple[tirx.Expr, int] | None:
    """Where a vector begins, apart from a number, and that number."""
    if len(load.indices) != 1 or not isinstance(load.indices[0], tirx.Ramp):
        return None
    ramp = load.indices[0]
    if int(ramp.lanes) * bits_of(str(load.source.dtype)) != _BITS or not _is_one(ramp.stride):
        return None
    match ramp.base:
        case tirx.Add(a=first, b=tirx.IntImm(value=number)):
            return first, int(number)
        case tirx.IntImm(value=number):
            return tirx.const(0, str(ramp.base.expr_ty().dtype)), int(number)
    return ramp.base, 0


def _is_one(expr: tirx.Expr) -> bool:
    return isinstance(expr, tirx.IntImm) and int(expr) == 1


def _line_of(source: tirx.Var, first: tirx.Expr, lines: Sequence[_Line]) -> int | None:
    return next(
        (
            number
            for number, line in enumerate(lines)
            if line.source.same_as(source) and tvm_ffi.structural_equal(line.first, first)
        ),
        None,
    )


@dataclass
class _Run:
    """Vectors of a line that follow each other without a gap.

    Attributes:
        pointer: to the next group, once there is one.
        place: where that is.
    """

    line: _Line
    first: int
    pointer: tirx.Var | None = None
    place: int = 0

    def pointed(self, place: int) -> Iterator[tirx.Stmt]:
        """Make the pointer one to a place, by what LLVM does not see through."""
        bits = bits_of(str(self.line.source.dtype))
        if self.pointer is None:
            load = self.line.places[min(self.line.places)]
            begin = tirx.address_of(tirx.BufferLoad(load.source, [load.indices[0].base]))
            start = tirx.Var("start", begin.ty)
            yield tirx.Bind(start, begin)
            self.pointer, self.place = start, min(self.line.places)
        far = (place - self.place) * bits // 8
        if far:
            address = tirx.call_pure_extern("handle", f"{_NEXT}_{far}", self.pointer)
            self.pointer, self.place = tirx.Var("next", address.ty), place
            yield tirx.Bind(self.pointer, address)


@dataclass
class _Group:
    """Some vectors of a run, and what they were loaded as."""

    run: _Run
    places: tuple[int, ...]
    value: tirx.Var | None = None

    def load(self) -> Iterator[tirx.Stmt]:
        """What is to be done before its first vector is read."""
        if self.value is not None:
            return
        line, first = self.run.line, self.places[0]
        item = str(line.source.dtype)
        dtype = f"{item}x{_BITS // bits_of(item) * len(self.places)}"
        pair = len(self.places) == _PAIR
        if pair and (self.run.first - min(line.places)) * bits_of(item) // 8 < _FAR:
            start = line.places[first].indices[0]
            ramp = tirx.Ramp(start.base, start.stride, int(tvm.DataType(dtype).lanes))
            value: tirx.Expr = tirx.BufferLoad(line.source, [ramp])
        else:
            begin = self.run.first if pair else first
            yield from self.run.pointed(begin)
            beyond = (first - begin) * bits_of(item) // 8
            value = tirx.call_pure_extern(dtype, f"{_LOAD}_{len(self.places)}_{item}_{beyond}", self.run.pointer)
        self.value = tirx.Var("group", dtype)
        yield tirx.Bind(self.value, value)

    def vector(self, place: int) -> tirx.Expr:
        """One of its vectors."""
        assert self.value is not None
        lanes = _BITS // bits_of(str(self.run.line.source.dtype))
        first = self.places.index(place) * lanes
        return tirx.Shuffle([self.value], list(range(first, first + lanes)))


def _groups_of(line: _Line, most: int) -> Iterator[_Group]:
    lanes = _BITS // bits_of(str(line.source.dtype))
    runs: list[list[int]] = []
    for place in sorted(line.places):
        if runs and place == runs[-1][-1] + lanes:
            runs[-1].append(place)
        else:
            runs.append([place])
    for places in runs:
        run = _Run(line, places[0])
        for number in range(0, len(places), most):
            some = tuple(places[number : number + most])
            if len(some) > 1:
                yield _Group(run, some)


_VECTORS = {"float32": ("v4f32", "float", 4), "float16": ("v8f16", "half", 8), "int32": ("v4i32", "i32", 4)}


def group_texts(stmt: tirx.Stmt) -> Iterator[str]:
    """LLVM's text of the functions that groups are loaded by."""
    found: dict[str, None] = {}

    def note(call: Call) -> None:
        if getattr(call.op, "name", "") == "tirx.call_pure_extern":
            name = str(call.args[0].value)
            if name.startswith((_LOAD, _NEXT)):
                found[name] = None

    tvm_ffi.structural_walk(stmt, (Call, note))
    for name in sorted(found):
        *_, count, dtype, last = name.split("_")
        if name.startswith(_NEXT):
            yield _next_text(name, int(last))
        elif int(count) == _PAIR:
            yield _pair_text(name, dtype, int(last))
        else:
            yield _load_text(name, int(count), dtype)


def _next_text(name: str, far: int) -> str:
    return f"""
define linkonce_odr hidden ptr @{name}(ptr %p) alwaysinline {{
  %q = getelementptr i8, ptr %p, i64 {far}
  %r = call ptr asm "", "=r,0"(ptr %q)
  ret ptr %r
}}
"""


def _pair_text(name: str, dtype: str, far: int) -> str:
    _, item, lanes = _VECTORS[dtype]
    pair = f"<{2 * lanes} x {item}>"
    return f"""
define linkonce_odr hidden {pair} @{name}(ptr %p) alwaysinline {{
  %q = getelementptr i8, ptr %p, i64 {far}
  %r = load {pair}, ptr %q, align {bits_of(dtype) // 8}
  ret {pair} %r
}}
"""


def _load_text(name: str, count: int, dtype: str) -> str:
    suffix, item, lanes = _VECTORS[dtype]
    vector = f"<{lanes} x {item}>"
    struct = "{ " + ", ".join([vector] * count) + " }"
    function = f"llvm.aarch64.neon.ld1x{count}.{suffix}.p0"
    whole = f"<{lanes * count} x {item}>"
    lines = [f"  %s = call {struct} @{function}(ptr %p)"]
    lines += [f"  %v{n} = extractvalue {struct} %s, {n}" for n in range(count)]
    made, size = "%v0", lanes
    for n in range(1, count):  # vectors of equal length are joined: the next one is made as long first
        own, mask = f"<{size} x {item}>", f"<{size + lanes} x i32> {_order(size + lanes, size + lanes)}"
        lines.append(f"  %w{n} = shufflevector {vector} %v{n}, {vector} poison, <{size} x i32> {_order(size, lanes)}")
        lines.append(f"  %j{n} = shufflevector {own} {made}, {own} %w{n}, {mask}")
        made, size = f"%j{n}", size + lanes
    body = "\n".join(lines)
    return f"""
declare {struct} @{function}(ptr)
define linkonce_odr hidden {whole} @{name}(ptr %p) alwaysinline {{
{body}
  ret {whole} {made}
}}
"""


def _order(count: int, known: int) -> str:
    """LLVM's mask of a shuffle: places from 0 on, but none from `known` on."""
    return "<" + ", ".join(f"i32 {place}" if place < known else "i32 poison" for place in range(count)) + ">"
