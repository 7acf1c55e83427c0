"""Builds the TIR kernel of a deep expression: a flat list of statements that keep intermediate values in a few slots.

Nothing in it is nested deeply, however deep the expression is.

    y[i] = sin(sin(… x[i] …))      →      slots[0] = sin(x[i]) * …
                                          slots[0] = sin(slots[0]) * …
                                          y[i] = slots[0]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import tvm
from tvm import s_tir as structured
from tvm import tirx
from tvm.tirx.stmt import BufferRegion

from nnefc.ir.rebuild import loop_nest, root_block
from nnefc.operators.base import Shape
from nnefc.operators.math.elementwise import element_at
from nnefc.operators.math.expression_nodes import ExpressionNode, Given, Made, Number
from nnefc.operators.math.functions import converted

__all__ = ["LARGEST_ELEMENT", "kernel"]

LARGEST_ELEMENT = 120
"""Nodes of one statement."""

_OPAQUE = 8
"""The pattern kind that `relax.transform.FuseOps` does not fuse: fused with others, the kernel might be vectorized."""


def kernel(steps: Sequence[ExpressionNode], operands: dict[int, tuple[Shape, str]], shape: Shape) -> tirx.PrimFunc:
    """The kernel of the last step.

    Args:
        operands: shape and element type of each that is used, by its number; the kernel's parameters in this order.
        shape: of the result, the kernel's last parameter. No shape is empty.
    """
    inputs = {number: _buffer(f"x{number}", shape, dtype) for number, (shape, dtype) in operands.items()}
    output = _buffer("y", shape, steps[-1].dtype)
    axes = [tirx.Var(f"v{i}", "int64") for i in range(len(shape))]
    # Once to learn how many slots it takes, once with as many.
    counts = _Writer(steps, inputs, axes, shape, {}).slots.counts
    writer = _Writer(steps, inputs, axes, shape, counts)
    statements = [*writer.statements, tirx.BufferStore(output, writer.result, list(axes))]
    return _loops(statements, list(writer.local.values()), list(inputs.values()), output, axes)


def _buffer(name: str, shape: Shape, dtype: str, scope: str = "") -> tirx.Var:
    sizes = [tirx.IntImm("int64", size) for size in shape]
    return tirx.decl_buffer(sizes, dtype, layout=None, name=name, scope=scope)


@dataclass(frozen=True)
class _Slot:
    """Allocates a slot for an intermediate value of the type `dtype`."""

    dtype: str
    number: int


class _Slots:
    """Gives out slots, the lowest free number first."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._free: dict[str, list[int]] = {}

    def take(self, dtype: str) -> _Slot:
        free = self._free.setdefault(dtype, [])
        if free:
            return _Slot(dtype, free.pop())
        self.counts[dtype] = self.counts.get(dtype, 0) + 1
        return _Slot(dtype, self.counts[dtype] - 1)

    def give_back(self, slots: Sequence[_Slot]) -> None:
        for slot in slots:
            self._free[slot.dtype].append(slot.number)


def _order(steps: Sequence[ExpressionNode]) -> list[int]:
    """An order of evaluation that needs few slots: of two arguments the one that needs more comes first.

    A tree of n nodes then needs no more than log2(n) + 1 (Sethi and Ullman, "The Generation of Optimal Code for
    Arithmetic Expressions", 1970).
    """
    needs: list[int] = []
    for one in steps:
        below = sorted((needs[a] for a in one.below), reverse=True)
        needs.append(max([1, *(need + position for position, need in enumerate(below))]))
    order: list[int] = []
    pending = [len(steps) - 1]
    while pending:  # from the result, what comes first last: the reverse of the order
        number = pending.pop()
        order.append(number)
        pending += sorted(steps[number].below, key=lambda a: needs[a], reverse=True)
    return order[::-1]


@dataclass
class _Piece:
    """An expression: its size in nodes, and the slots that it reads."""

    expr: tirx.Expr
    size: int = 1
    reads: list[_Slot] = field(default_factory=list)


class _Writer:
    """Writes the statements.

    Attributes:
        statements: stores into slots.
        result: the expression of the last step.
        local: the buffers of the slots, one a type.
        slots: those that it took.
    """

    def __init__(
        self,
        steps: Sequence[ExpressionNode],
        inputs: dict[int, tirx.Var],
        axes: list[tirx.Var],
        shape: Shape,
        counts: dict[str, int],
    ) -> None:
        self.statements: list[tirx.Stmt] = []
        self.local: dict[str, tirx.Var] = {}
        self.slots = _Slots()
        self._steps, self._inputs, self._axes, self._shape, self._counts = steps, inputs, axes, shape, counts
        self._pieces: dict[int, _Piece] = {}
        for number in _order(steps):
            self._pieces[number] = self._piece(steps[number])
        self.result = self._pieces[len(steps) - 1].expr

    def _piece(self, step: ExpressionNode) -> _Piece:
        arguments = [self._argument(step, argument) for argument in step.arguments]
        size = 1 + step.uses * sum(argument.size for argument in arguments)
        reads = [slot for argument in arguments for slot in argument.reads]
        piece = _Piece(step.item(*(argument.expr for argument in arguments)), size, reads)
        # A value that waits for another one must not be many slots: it becomes one.
        return self._stored(piece, step.dtype) if size > LARGEST_ELEMENT or len(reads) > 1 else piece

    def _argument(self, step: ExpressionNode, argument: Given | Made | Number) -> _Piece:
        match argument:
            case Given(index=index):
                return _Piece(converted(element_at(self._inputs[index], self._axes, self._shape), step.computes))
            case Made(index=index):
                piece = self._pieces.pop(index)
                if piece.size > 1 and (step.uses > 1 or piece.size > LARGEST_ELEMENT):
                    piece = self._stored(piece, self._steps[index].dtype)
                return _Piece(converted(piece.expr, step.computes), piece.size, piece.reads)
        return _Piece(tirx.const(bool(argument) if step.computes == "bool" else argument, step.computes))

    def _stored(self, piece: _Piece, dtype: str) -> _Piece:
        self.slots.give_back(piece.reads)
        slot = self.slots.take(dtype)
        position = [tirx.IntImm("int64", slot.number)]
        if dtype not in self.local:
            self.local[dtype] = _buffer(f"slots_{dtype}", (self._counts.get(dtype, 1),), dtype, "local")
        self.statements.append(tirx.BufferStore(self.local[dtype], piece.expr, position))
        return _Piece(self.local[dtype][tuple(position)], 1, [slot])


def _loops(
    statements: list[tirx.Stmt], local: list[tirx.Var], inputs: list[tirx.Var], output: tirx.Var, axes: list[tirx.Var]
) -> tirx.PrimFunc:
    """The statements in a loop over each axis.

    Elements that a schedule computes as one vector would share the slots. A further axis of size 1 that has no loop
    keeps schedules away; LLVM turns slots into registers, and makes vectors of what allows it.
    """
    sizes = [int(size) for size in output.shape]
    loops = [tirx.Var(f"i{i}", "int64") for i in range(len(axes))]
    iters = [
        tirx.IterVar(tvm.ir.Range(tirx.const(0, "int64"), tirx.const(size, "int64")), axis, tirx.IterVar.DataPar)
        for axis, size in zip(axes, sizes, strict=True)
    ]
    zero = tirx.const(0, "int64")
    unit = tirx.IterVar(tvm.ir.Range(zero, tirx.const(1, "int64")), tirx.Var("unit", "int64"), tirx.IterVar.DataPar)
    reads = []
    for buffer in inputs:
        shape = [int(size) for size in buffer.shape]
        own = axes[len(axes) - len(shape) :]
        positions = [zero if size == 1 else axis for size, axis in zip(shape, own, strict=True)]
        reads.append(BufferRegion(buffer, [tvm.ir.Range.from_min_extent(p, tirx.const(1, "int64")) for p in positions]))
    writes = [BufferRegion(output, [tvm.ir.Range.from_min_extent(axis, tirx.const(1, "int64")) for axis in axes])]
    body = statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)
    block = structured.SBlock([*iters, unit], reads, writes, "expression", body, None, local)
    stmt = loop_nest(loops, sizes, structured.SBlockRealize([*loops, zero], True, block))
    func = tirx.PrimFunc([*inputs, output], root_block(stmt))
    return func.with_attr("tirx.noalias", True).with_attr("op_pattern", _OPAQUE)
