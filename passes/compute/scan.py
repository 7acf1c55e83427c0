"""Computes cumulative sums and products along the middle axis of `[outer, length, inner]`, in linear time.

Written as statements, because each element depends on the one before it. Results are at least as accurate as those of
a sequential loop: a sum of partial sums has a shorter chain of roundings.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import te, tirx
from tvm.tirx.stmt import AllocBuffer

from nnefc.passes.tir.common.expressions import int64
from nnefc.symbolic.dims import (
    Dimension,
    bounds,
    ceil_div,
    dimension,
    dimensions,
    element_count,
    expression,
    is_known,
    size_hint,
)
from nnefc.targets.machine.cpu.target import Target

__all__ = ["Scan", "scan_in_chunks", "scan_in_vectors"]

_VECTORS = 4
"""The number of vectors in the narrowest strip, whose sums are independent: an addition has a latency of three or four
cycles, and one begins in each cycle.
"""

_MIN_STRIPS = 16
"""The number of strips below which they are not made wider: eight threads then get two each."""

_MIN_CHUNK = 32  # elements that one thread of a device goes through


@dataclass(frozen=True)
class Scan:
    """A scan: the operation that combines the elements up to each one.

    Attributes:
        product: their product; else their sum.
        exclusive: without the element itself.
        reverse: of the elements from each one to the end.
    """

    product: bool
    exclusive: bool
    reverse: bool

    def joined(self, left: tirx.Expr, right: tirx.Expr) -> tirx.Expr:
        """Returns the sum or product of two values."""
        return (operator.mul if self.product else operator.add)(left, right)

    def neutral(self, dtype: str, lanes: int = 1) -> tirx.Expr:
        """Returns the identity of the operation."""
        value = tirx.const(int(self.product), dtype)
        return tirx.Broadcast(value, lanes) if lanes > 1 else value

    def position(self, step: tirx.Expr, length: int, lanes: int = 1) -> tirx.Expr:
        """Return the lowest index of the `lanes` elements that the scan visits from `step` on."""
        return int64(length - lanes) - step if self.reverse else step


def scan_in_vectors(x: te.Tensor, scan: Scan, machine: Target) -> te.Tensor:
    """Scans on a CPU: several lines as the lanes of a vector; contiguous lines in log2(lanes) steps for each vector.

    Args:
        x: `[outer, length, inner]`, or `[outer, length]`.
        scan: what to compute.
        machine: whose vectors.
    """
    shape = list(dimensions(x.shape))

    def body(source: tirx.Var, target: tirx.Var) -> tirx.Stmt:
        return (_along_lines if len(shape) == 2 else _across_lines)(source, target, scan, machine)

    (result,) = _statements(x, [tuple(shape)], lambda source, targets: body(source, targets[0]))
    return result


def scan_in_chunks(x: te.Tensor, scan: Scan, busy_threads: int) -> te.Tensor | list[te.Tensor]:
    """Scans on a device with many threads, each of which scans one part of a line from the sum of the parts before.

    Args:
        x: `[outer, length, inner]`.
        scan: what to compute.
        busy_threads: how many threads keep the device busy.

    Returns:
        The result, and, if lines have several parts, the sums before each, `[outer, parts, inner]`, for internal use.
    """
    outer, length, inner = dimensions(x.shape)
    chunk = max(_MIN_CHUNK, math.isqrt(size_hint(length)))
    if size_hint(outer * inner) >= busy_threads or (is_known(length) and length <= chunk):
        return _statements(x, [(outer, length, inner)], lambda source, targets: _whole_lines(source, targets[0], scan))[
            0
        ]
    parts = ceil_div(length, chunk)

    def body(source: tirx.Var, targets: Sequence[tirx.Var]) -> tirx.Stmt:
        return _by_chunks(source, targets[0], targets[1], scan, chunk)

    return _statements(x, [(outer, length, inner), (outer, parts, inner)], body)


def _statements(
    x: te.Tensor,
    shapes: Sequence[tuple[int, ...]],
    body: Callable[[tirx.Var, Sequence[tirx.Var]], tirx.Stmt],
) -> list[te.Tensor]:
    """Returns tensors of the type of `x` that are computed from it by statements."""
    shapes = [tuple(map(expression, shape)) for shape in shapes]
    source = tirx.decl_buffer(x.shape, x.dtype, "x", elem_offset=0)
    targets = [tirx.decl_buffer(shape, x.dtype, f"y{n}", elem_offset=0) for n, shape in enumerate(shapes)]
    made = te.extern(
        list(shapes),
        [x],
        lambda ins, outs: body(ins[0], outs),
        dtype=[x.dtype] * len(shapes),
        in_buffers=[source],
        out_buffers=targets,
        name="scan",
    )
    return [made] if isinstance(made, te.Tensor) else list(made)


def _loop(size: int, body: Callable[[tirx.Expr], tirx.Stmt], name: str, kind: int = tirx.ForKind.SERIAL) -> tirx.Stmt:
    var = tirx.Var(name, "int64")
    return tirx.For(var, int64(0), int64(size), kind, body(var))


def _vector(begin: tirx.Expr, lanes: int) -> tirx.Expr:
    return tirx.Ramp(begin, int64(1), lanes) if lanes > 1 else begin


def _local(name: str, size: int, dtype: str) -> tirx.Var:
    return tirx.decl_buffer((int64(size),), dtype, name, scope="local", elem_offset=0)


def _with_locals(buffers: Sequence[tirx.Var], *stmts: tirx.Stmt) -> tirx.Stmt:
    return tirx.SeqStmt([*map(AllocBuffer, buffers), *stmts])


def _across_lines(source: tirx.Var, target: tirx.Var, scan: Scan, machine: Target) -> tirx.Stmt:
    """Scans strips of neighbouring lines, one strip after the other; the last one may overlap the one before."""
    outer, length, inner = dimensions(source.shape)
    dtype = str(source.dtype)
    width = _strip_width(outer, inner, dtype, machine)
    size, strips = min(width, machine.lanes(dtype)), ceil_div(inner, width)

    def strip(number: tirx.Expr) -> tirx.Stmt:
        sums = _local("sums", width, dtype)
        row, begin = number // int64(strips), tirx.min(number % int64(strips) * int64(width), int64(inner - width))

        def step(k: tirx.Expr, vector: tirx.Expr) -> tirx.Stmt:
            own = _vector(vector * int64(size), size)
            position = [row, scan.position(k, length), _vector(begin + vector * int64(size), size)]
            add = tirx.BufferStore(sums, scan.joined(sums[own], tirx.BufferLoad(source, position)), [own])
            write = tirx.BufferStore(target, sums[own], position)
            return tirx.SeqStmt([write, add] if scan.exclusive else [add, write])

        def start(vector: tirx.Expr) -> tirx.Stmt:
            return tirx.BufferStore(sums, scan.neutral(dtype, size), [_vector(vector * int64(size), size)])

        count = width // size
        lines = _loop(length, lambda k: _loop(count, lambda vector: step(k, vector), "vector"), "k")
        return _with_locals([sums], _loop(count, start, "vector"), lines)

    return _loop(outer * strips, strip, "strip", _shared(source, machine))


def _strip_width(outer: int, inner: int, dtype: str, machine: Target) -> int:
    """Returns the lines of a strip: long reads, sums that stay in the L1 cache, and enough strips for all threads."""
    width = 1 << min(max(bounds(inner)[0], 1), machine.resident).bit_length() - 1
    while width > _VECTORS * machine.lanes(dtype) and size_hint(outer * ceil_div(inner, width)) < _MIN_STRIPS:
        width //= 2
    return width


def _shared(source: tirx.Var, machine: Target) -> int:
    """Returns the kind of a loop over lines: parallel if the work outweighs waking the threads."""
    work = size_hint(element_count(dimensions(source.shape)))
    kind: int = tirx.ForKind.PARALLEL if work >= machine.parallel_grain else tirx.ForKind.SERIAL
    return kind


def _along_lines(source: tirx.Var, target: tirx.Var, scan: Scan, machine: Target) -> tirx.Stmt:
    """Scans line after line, in full vectors, then the tail element by element."""
    outer, length = dimensions(source.shape)
    dtype = str(source.dtype)
    lanes = machine.lanes(dtype)
    whole = length // lanes if lanes > 1 else 0

    def line(row: tirx.Expr) -> tirx.Stmt:
        total, sums = _local("total", 1, dtype), _local("sums", lanes, dtype)
        begin, every = int64(0), _vector(int64(0), lanes)

        def vector(number: tirx.Expr) -> tirx.Stmt:
            position = [row, _vector(scan.position(number * int64(lanes), length, lanes), lanes)]
            steps = [tirx.BufferStore(sums, tirx.BufferLoad(source, position), [every])]
            for power in range(lanes.bit_length() - 1):
                moved = _moved(sums[every], 1 << power, scan, dtype, lanes)
                steps.append(tirx.BufferStore(sums, scan.joined(moved, sums[every]), [every]))
            own = _moved(sums[every], 1, scan, dtype, lanes) if scan.exclusive else sums[every]
            result = scan.joined(tirx.Broadcast(total[begin], lanes), own)
            last = int64(0 if scan.reverse else lanes - 1)
            carry = tirx.BufferStore(total, scan.joined(total[begin], sums[last]), [begin])
            return tirx.SeqStmt([*steps, tirx.BufferStore(target, result, position), carry])

        start = tirx.BufferStore(total, scan.neutral(dtype), [begin])
        parts = [_loop(whole, vector, "vector")] if whole else []
        tail = length - whole * lanes
        if tail:
            parts.append(
                _loop(tail, lambda k: _element(source, target, total, scan, row, k + int64(whole * lanes)), "k")
            )
        return _with_locals([total, *([sums] if whole else [])], start, *parts)

    return _loop(outer, line, "row", _shared(source, machine))


def _moved(vector: tirx.Expr, distance: int, scan: Scan, dtype: str, lanes: int) -> tirx.Expr:
    """Returns the lanes moved by `distance`, so that each meets the lane that it is added to; the first ones become
    neutral.
    """
    neutral = scan.neutral(dtype, lanes)
    if scan.reverse:
        return tirx.Shuffle([vector, neutral], list(range(distance, distance + lanes)))
    return tirx.Shuffle([neutral, vector], list(range(lanes - distance, 2 * lanes - distance)))


def _element(
    source: tirx.Var,
    target: tirx.Var,
    total: tirx.Var,
    scan: Scan,
    row: tirx.Expr,
    k: tirx.Expr,
    *column: tirx.Expr,
) -> tirx.Stmt:
    """Return one step of the scan: writes the total so far and adds one element (in this order if exclusive)."""
    position, zero = [row, scan.position(k, dimensions(source.shape)[1]), *column], int64(0)
    add = tirx.BufferStore(total, scan.joined(total[zero], tirx.BufferLoad(source, position)), [zero])
    write = tirx.BufferStore(target, total[zero], position)
    return tirx.SeqStmt([write, add] if scan.exclusive else [add, write])


def _whole_lines(source: tirx.Var, target: tirx.Var, scan: Scan) -> tirx.Stmt:
    """Returns a line for each iteration."""
    outer, length, inner = dimensions(source.shape)
    dtype = str(source.dtype)

    def line(number: tirx.Expr) -> tirx.Stmt:
        total = _local("total", 1, dtype)
        row, _, column = _digits(number, 1, inner)
        start = tirx.BufferStore(total, scan.neutral(dtype), [int64(0)])
        steps = _loop(length, lambda k: _element(source, target, total, scan, row, k, column), "k")
        return _with_locals([total], start, steps)

    return _loop(outer * inner, line, "line", tirx.ForKind.PARALLEL)


def _by_chunks(source: tirx.Var, target: tirx.Var, before: tirx.Var, scan: Scan, chunk: int) -> tirx.Stmt:
    """Computes the sums of all chunks, then the sums before each chunk, then the elements of each chunk."""
    outer, length, inner = dimensions(source.shape)
    parts, dtype, zero = dimension(before.shape[1]), str(source.dtype), int64(0)
    is_even = is_known(length) and length % chunk == 0

    def each_chunk(step: Callable[..., tirx.Stmt], start: tirx.Expr | None, last: bool) -> tirx.Stmt:
        def one(number: tirx.Expr) -> tirx.Stmt:
            total = _local("total", 1, dtype)
            row, part, column = _digits(number, parts, inner)
            position = [row, part, column]
            value = tirx.BufferLoad(before, position) if start is None else start
            first = part * int64(chunk)

            def guarded(k: tirx.Expr) -> tirx.Stmt:
                done = step(total, row, column, first + k)
                return done if is_even else tirx.IfThenElse(first + k < int64(length), done, None)

            ends = [tirx.BufferStore(before, total[zero], position)] if last else []
            return _with_locals([total], tirx.BufferStore(total, value, [zero]), _loop(chunk, guarded, "k"), *ends)

        return _loop(outer * parts * inner, one, "part", tirx.ForKind.PARALLEL)

    def add(total: tirx.Var, row: tirx.Expr, column: tirx.Expr, k: tirx.Expr) -> tirx.Stmt:
        element = tirx.BufferLoad(source, [row, scan.position(k, length), column])
        return tirx.BufferStore(total, scan.joined(total[zero], element), [zero])

    def write(total: tirx.Var, row: tirx.Expr, column: tirx.Expr, k: tirx.Expr) -> tirx.Stmt:
        return _element(source, target, total, scan, row, k, column)

    def line(number: tirx.Expr) -> tirx.Stmt:
        total, own = _local("total", 1, dtype), _local("own", 1, dtype)
        row, _, column = _digits(number, 1, inner)

        def step(part: tirx.Expr) -> tirx.Stmt:
            position = [row, part, column]
            return tirx.SeqStmt(
                [
                    tirx.BufferStore(own, tirx.BufferLoad(before, position), [zero]),
                    tirx.BufferStore(before, total[zero], position),
                    tirx.BufferStore(total, scan.joined(total[zero], own[zero]), [zero]),
                ]
            )

        start = tirx.BufferStore(total, scan.neutral(dtype), [zero])
        return _with_locals([total, own], start, _loop(parts, step, "part"))

    lines = _loop(outer * inner, line, "line", tirx.ForKind.PARALLEL)
    sums = each_chunk(add, scan.neutral(dtype), last=True)
    return tirx.SeqStmt([sums, lines, each_chunk(write, None, last=False)])


def _digits(number: tirx.Expr, parts: Dimension, inner: Dimension) -> tuple[tirx.Expr, tirx.Expr, tirx.Expr]:
    """Splits a running number into row, part and column."""
    return number // int64(parts * inner), number // int64(inner) % int64(parts), number % int64(inner)
