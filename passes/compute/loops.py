"""Builds loops, vectors and buffers of computations that are written as TIR statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tvm import tirx

from nnefc.passes.tir.common.expressions import int64

__all__ = [
    "lane_loop",
    "lanes_at",
    "local",
    "loop",
    "over_lanes",
    "sequence",
    "spread",
    "summed_rows",
    "transposed",
    "unrolled",
]


def lanes_at(begin: tirx.Expr | int, lanes: int) -> tirx.Expr:
    """Returns the indices of a vector from `begin` on."""
    begin = int64(begin) if isinstance(begin, int) else begin
    return tirx.Ramp(begin, int64(1), lanes) if lanes > 1 else begin


def spread(value: tirx.Expr, lanes: int) -> tirx.Expr:
    """Returns a vector that has the value in all lanes."""
    return tirx.Broadcast(value, lanes) if lanes > 1 else value


def loop(size: tirx.Expr | int, body: Callable[[tirx.Var], Iterable[tirx.Stmt]], name: str) -> tirx.Stmt:
    """Loops over each number below `size`."""
    var = tirx.Var(name, "int64")
    extent = int64(size) if isinstance(size, int) else size
    return tirx.For(var, int64(0), extent, tirx.ForKind.SERIAL, sequence(body(var)))


def sequence(statements: Iterable[tirx.Stmt]) -> tirx.Stmt:
    """Joins statements into one."""
    made = list(statements)
    return tirx.SeqStmt(made) if len(made) > 1 else made[0]


def lane_loop(lanes: int, body: Callable[[tirx.Var], tirx.Stmt]) -> tirx.Stmt:
    """Applies a statement to each lane of a vector."""
    var = tirx.Var("lane", "int64")
    return tirx.For(var, int64(0), int64(lanes), tirx.ForKind.VECTORIZED, body(var))


def unrolled(count: int, body: Callable[[tirx.Expr], tirx.Stmt]) -> tirx.Stmt:
    """Returns a statement for each number, written out."""
    if count == 1:
        return body(int64(0))
    var = tirx.Var("u", "int64")
    return tirx.For(var, int64(0), int64(count), tirx.ForKind.UNROLLED, body(var))


def local(name: str, size: int) -> tirx.Var:
    """Returns a float32 buffer that belongs to one thread."""
    return tirx.decl_buffer((int64(size),), "float32", name, scope="local", elem_offset=0)


def _steps(lanes: int) -> Iterator[tuple[int, int, tuple[list[int], list[int]]]]:
    """Yields the stages of a transposition: the first and the distance of each pair of rows, and which lanes of both
    each of the two becomes.
    """
    distance = lanes // 2
    while distance:
        kept = [lane & distance == 0 for lane in range(lanes)]
        upper = [lane if own else lanes + lane - distance for lane, own in enumerate(kept)]
        lower = [lane + distance if own else lanes + lane for lane, own in enumerate(kept)]
        for row in range(lanes):
            if row & distance == 0:
                yield distance, row, (upper, lower)
        distance //= 2


def transposed(square: tirx.Var, lanes: int) -> Iterator[tirx.Stmt]:
    """Transposes `[lanes, lanes]`: swaps blocks of half the size, then the blocks within these, and so on."""
    for distance, row, order in _steps(lanes):
        positions = [lanes_at(r * lanes, lanes) for r in (row, row + distance)]
        names = [tirx.Var(name, square[positions[0]].expr_ty()) for name in "ab"]
        yield from (tirx.Bind(var, square[position]) for var, position in zip(names, positions, strict=True))
        for position, lanes_of_both in zip(positions, order, strict=True):
            yield tirx.BufferStore(square, tirx.Shuffle(names, lanes_of_both), [position])


def summed_rows(square: tirx.Var, lanes: int) -> Iterator[tirx.Stmt]:
    """Sums all rows of `[lanes, lanes]` into the first one, by the stages of :func:`transposed`."""
    for distance, row, order in _steps(lanes):
        if row < distance:
            upper, lower = (lanes_at(r * lanes, lanes) for r in (row, row + distance))
            parts = [tirx.Shuffle([square[upper], square[lower]], positions) for positions in order]
            yield tirx.BufferStore(square, parts[0] + parts[1], [upper])


def over_lanes(
    value: tirx.Expr, join: Callable[[tirx.Expr, tirx.Expr], tirx.Expr], buffer: tirx.Var
) -> Iterator[tirx.Stmt]:
    """Reduces a vector by `join` and writes the result to each lane of a buffer."""
    lanes = int(buffer.shape[0])
    position = lanes_at(0, lanes)
    yield tirx.BufferStore(buffer, value, [position])
    distance = lanes // 2
    while distance:
        shuffled = tirx.Shuffle([buffer[position]], [lane ^ distance for lane in range(lanes)])
        yield tirx.BufferStore(buffer, join(buffer[position], shuffled), [position])
        distance //= 2
