"""Lowers loops over the tiles of dot products to tile instructions of a matrix unit (Intel AMX).

    for r in 32, c in 32: S[r, c] = 0                 configure
    for k in 64:                                      zero 4 tiles of S
        for tile in 2, column in 2:                   for k in 64:
            for term in 16, row in 16, lane in 16: →      load 2 tiles of A, 2 of B
                S[…] = dot(S[…], A[…], B[…])              S tiles += A tiles * B tiles
                                                      store 4 tiles of S

A tile has up to 16 rows of 64 bytes: of A 16 dot operands of 16 rows, of B those of 16 columns, of S 16 sums. Tiles of
S, A and B have fixed numbers, so that none is ever moved. Rows that are beyond the end of an axis are left out of a
tile: a shorter tile is another configuration.

The functions that are called, `nnefc_tile_…`, are one instruction each: see `passes/schedule/cpu/tile_functions.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import Call

from nnefc.ir.rebuild import nested, with_fields
from nnefc.passes.tir.common.expressions import int64
from nnefc.passes.tir.common.statements import renewed
from nnefc.passes.tir.cpu.match_tile_products import ProductLoops, with_products
from nnefc.targets.machine.cpu.matrix_units import AMX, TILE_PRODUCTS

__all__ = ["lower_matrix_tiles", "tile_calls"]


def lower_matrix_tiles(stmt: tirx.Stmt) -> tirx.Stmt:
    """Returns the body of a flat kernel; the same object if nothing in it is computed in tiles."""
    changed = with_products(stmt, _tiles_of)
    return stmt if changed is stmt else _released(changed)


def _released(stmt: tirx.Stmt) -> tirx.Stmt:
    """Releases the unit at the end of the statements, or of each iteration of their parallel loops, so that the system
    need not save its registers. If all tiles of an iteration have the same shapes, the unit is configured once.
    """
    loops_around: list[tirx.For] = []

    def release(loop: tirx.For) -> tirx.For:
        if loop.kind != tirx.ForKind.PARALLEL or not any(tile_calls(loop.body)):
            return loop
        loops_around.append(loop)
        body = _configured_once(loop.body)
        return with_fields(loop, body=body)

    changed = tvm_ffi.structural_map(stmt, (tirx.For, release))
    return changed if loops_around else _configured_once(changed)


def _configured_once(stmt: tirx.Stmt) -> tirx.Stmt:
    shapes = dict.fromkeys(name for name in tile_calls(stmt) if name.startswith("shape"))
    if len(shapes) > 1:
        return tirx.SeqStmt([stmt, _call("release")])

    def without(node: tirx.Evaluate) -> tirx.Evaluate:
        return tirx.Evaluate(tirx.const(0, "int32")) if set(tile_calls(node)) & shapes.keys() else node

    inner = tvm_ffi.structural_map(stmt, (tirx.Evaluate, without))
    return tirx.SeqStmt([*map(_call, shapes), inner, _call("release")])


def _tiles_of(product: ProductLoops, rows: Sequence[int], around: Sequence[tirx.For]) -> tirx.Stmt | None:
    """Returns the statements that compute a sum in tiles with these numbers of rows."""
    found = TILE_PRODUCTS.get(product.name)
    if found is None or found.unit is not AMX:
        return None
    name = found.instructions[not product.of_rows]
    count = len(rows)
    sums = {(r, c): r * product.columns + c for r in range(count) for c in range(product.columns)}
    of_left = [len(sums) + r for r in range(count)]
    of_right = [*range(len(sums) + count, AMX.registers)]
    shapes = {number: (rows[r], AMX.lanes) for (r, _), number in sums.items()}
    shapes |= {number: (rows[r], product.terms) for r, number in enumerate(of_left)}
    shapes |= dict.fromkeys(of_right, (product.terms, AMX.lanes))
    step = [_call(f"load_{of_left[r]}", *product.left.address(r)) for r in range(count)]
    for c in range(product.columns):
        number = of_right[c % len(of_right)]
        step.append(_call(f"load_{number}", *product.right.address(c)))
        step += [_call(f"{name}_{sums[r, c]}_{of_left[r]}_{number}") for r in range(count)]
    body = nested(around, tirx.SeqStmt(step), kind=tirx.ForKind.SERIAL, annotations=None)
    stores = [
        _call(f"store_{number}", *product.sums.address(r, product.sums_apart * int64(c)))
        for (r, c), number in sums.items()
    ]
    begin = [_call(_configuration(shapes)), *(_call(f"zero_{number}") for number in sums.values())]
    return tirx.SeqStmt([*begin, renewed(body), *stores])


def _configuration(shapes: dict[int, tuple[int, int]]) -> str:
    """Returns the name of the function that sets the shapes of tiles: rows and words of each."""
    return "shape" + "".join(f"_{shapes.get(n, (0, 0))[0]}x{shapes.get(n, (0, 0))[1]}" for n in range(AMX.registers))


def _call(name: str, *args: tirx.Expr) -> tirx.Stmt:
    return tirx.Evaluate(tirx.call_extern("void", f"nnefc_tile_{name}", *args))


def tile_calls(stmt: tirx.Stmt) -> Iterator[str]:
    """Returns the names of the tile functions that statements call, without `nnefc_tile_`."""
    found: list[Call] = []
    tvm_ffi.structural_walk(stmt, (Call, found.append))
    for call in found:
        if getattr(call.op, "name", "") == "tirx.call_extern":
            name = str(call.args[0].value)
            if name.startswith("nnefc_tile_"):
                yield name.removeprefix("nnefc_tile_")
