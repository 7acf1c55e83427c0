"""Estimates the size of a computation as a single expression, each producer inlined at every use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import tvm
from tvm import s_tir, tirx
from tvm.ir.expr import Call, TensorLoad

from nnefc.passes.compute.vector_math import VECTOR_FUNCTIONS
from nnefc.passes.graph.fusion.fusion_patterns import FUSION, OpPattern
from nnefc.passes.tir.common.expressions import parts_of

__all__ = ["READ", "ExpressionSize", "kernel_size", "size_of_call"]

_NESTING = {**dict.fromkeys(VECTOR_FUNCTIONS, 1), "tirx.log": 2, "tirx.log1p": 3, "tirx.tan": 1, "tirx.atanh": 2}
"""Functions that TVM takes far longer for when they are nested, and how many levels each counts for: TVM's expansions
of the logarithm, `tan` and `atanh` repeat the argument.
"""


@dataclass(frozen=True)
class ExpressionSize:
    """The size of an expression.

    Attributes:
        nodes: of arithmetic, and of reads of tensors; those of indices are not included.
        depth: the longest way from the whole expression to a read.
        functions: how many elementary functions are inside one another at most, each as `_NESTING` counts it.
    """

    nodes: int
    depth: int
    functions: int


READ = ExpressionSize(nodes=1, depth=1, functions=0)
"""The size of a load of one element."""


@dataclass(frozen=True)
class KernelSize:
    """An element of a kernel's result as an expression of elements of its parameters.

    Attributes:
        own: without what the parameters stand for.
        reads: how often it reads each parameter.
        stored: whether the result is written to memory whatever reads it, as sums are.
    """

    own: ExpressionSize
    reads: tuple[int, ...]
    stored: bool


def size_of_call(kernel: KernelSize, operands: list[ExpressionSize]) -> ExpressionSize:
    """Returns the size of a kernel's result as one expression whose operands are expressions of these sizes."""
    if kernel.stored:
        return READ
    read = [size for size, times in zip(operands, kernel.reads, strict=True) if times]
    repeated = sum(times * (size.nodes - 1) for size, times in zip(operands, kernel.reads, strict=True))
    return ExpressionSize(
        kernel.own.nodes + repeated,
        kernel.own.depth + max((size.depth for size in read), default=0),
        kernel.own.functions + max((size.functions for size in read), default=0),
    )


@lru_cache(maxsize=1024)
def kernel_size(func: tirx.PrimFunc) -> KernelSize:
    """Returns the size of a kernel whose last parameter is its result; its steps are in the order of evaluation.

    What convolutions and matrix products make is stored, in tiles, before steps after them read it.
    """
    *operands, result = func.params
    steps: dict[tirx.Var, _Step] = {}
    for block in _blocks(func.body):
        step = _step(block, steps)
        for region in block.writes:
            steps[region.source] = step
    last = steps.get(result, _Step(READ))
    # What a stored step reads counts: it is computed in front of each of them.
    read: Counter[tirx.Var] = sum((step.reads for step in steps.values() if step.stored), Counter(last.reads))
    stored = last.stored or int(func.attrs.get(FUSION, OpPattern.OPAQUE)) > OpPattern.INJECTIVE
    return KernelSize(last.size, tuple(read[operand] for operand in operands), stored)


@dataclass(frozen=True)
class _Step:
    """A block's result as an expression of a kernel's parameters."""

    size: ExpressionSize
    reads: Counter[tirx.Var] = field(default_factory=Counter)
    stored: bool = False


def _step(block: s_tir.SBlock, steps: Mapping[tirx.Var, _Step]) -> _Step:
    if not isinstance(block.body, tirx.BufferStore):  # statements: they are left as they are
        return _Step(READ, Counter(region.source for region in block.reads), stored=True)
    nodes, depth, functions = 0, 0, 0
    reads: Counter[tirx.Var] = Counter()
    for expr, position, within in _inside(block.body.value):
        nodes, depth, functions = nodes + 1, max(depth, position), max(functions, within)
        if isinstance(expr, TensorLoad):
            step = steps.get(expr.source)
            if step is None:
                reads[expr.source] += 1
            elif not step.stored:
                nodes += step.size.nodes - 1
                depth = max(depth, position + step.size.depth)
                functions = max(functions, within + step.size.functions)
                reads.update(step.reads)
    stored = any(axis.iter_type != tirx.IterVar.DataPar for axis in block.iter_vars)
    return _Step(ExpressionSize(nodes, depth, functions), reads, stored)


def _blocks(stmt: tirx.Stmt) -> Iterator[s_tir.SBlock]:
    """The computations in a function's body, in order."""
    match stmt:
        case s_tir.SBlockRealize() if stmt.block.name_hint == "root" and not stmt.block.iter_vars:
            yield from _blocks(stmt.block.body)
        case s_tir.SBlockRealize():
            yield stmt.block
        case tirx.For():
            yield from _blocks(stmt.body)
        case tirx.SeqStmt():
            for part in stmt.seq:
                yield from _blocks(part)


def _inside(expr: tirx.Expr) -> Iterator[tuple[tirx.Expr, int, int]]:
    """The nodes of an expression, each with how deep it is and how many elementary functions it is in or is.

    Of indices, only the reads of tensors are nodes.
    """
    pending = [(expr, 0, 0, True)]
    while pending:
        node, depth, functions, counts = pending.pop()
        if isinstance(node, Call) and isinstance(node.op, tvm.ir.Op):
            functions += _NESTING.get(node.op.name, 0)
        counts = counts or isinstance(node, TensorLoad)
        if counts:
            yield node, depth, functions
        below = counts and not isinstance(node, TensorLoad)
        pending += [(part, depth + 1, functions, below) for part in parts_of(node)]
