"""Estimates the cycles of a loop iteration from its instructions and from the bytes that it reads and writes.

    for i in parallel(n):
        for k in 256:                                      # the longer one of 256 × 4 × 0.5 cycles of products, and
            for c in unrolled(4), l in vectorized(16):     # 256 × 4 × 64 bytes of B from the second cache
                sum[c, l] += A[k] * B[i, k, c, l]

What a kernel has for itself, such as the sums of a tile, is taken to stay in registers. Loops of dynamic size multiply
when the kernel runs: the estimate is an expression of sizes then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import PointerType
from tvm.ir.expr import Call, TensorLoad
from tvm.sym import Analyzer

from nnefc.passes.tir.common.expressions import IF_THEN_ELSE, inside, int64, loads_of, parts_of, variables_of
from nnefc.passes.tir.common.shapes import size_of
from nnefc.passes.tir.tvm_workarounds.opaque import bound_value
from nnefc.support.element_types import element_bytes
from nnefc.symbolic.dims import is_size, size_hint, structural_key
from nnefc.targets.machine.cpu.target import Target

__all__ = ["UNKNOWN", "cycles_of_iteration"]

UNKNOWN = 0
"""The cost of calls of functions, and of loops with data-dependent trip counts."""

_ONE = (*IF_THEN_ELSE, "tirx.reinterpret", "tirx.likely", "tirx.isnan", "tirx.address_of")
_INTRINSICS = ("tirx.call_llvm_intrin", "tirx.call_llvm_pure_intrin", "tirx.call_pure_extern")
_EXTERN = "tirx.call_extern"
_FREE = (tirx.IntImm, tirx.FloatImm, tirx.Var)
"""Classes of expressions that take no instruction."""


def cycles_of_iteration(loop: tirx.For, target: Target) -> tirx.Expr:
    """Estimates the cycles of one iteration as an int64 expression of what is known before the loop; :data:`UNKNOWN` if
    it depends on more.
    """
    round_ = _Iteration(target)
    try:
        round_.add_loop(loop)
        found = max((round_.instructions, round_.memory), key=lambda terms: terms.size_hint)
        return found.expression
    except _NotKnownError:
        return int64(UNKNOWN)


class _NotKnownError(Exception):
    """Raised if the trip count or the cost of a statement is unknown before the kernel runs."""


class _Terms:
    """A sum of products of numbers and sizes."""

    def __init__(self) -> None:
        self._numbers: dict[object, float] = {}
        self._factors: dict[object, tuple[tirx.Expr, ...]] = {}

    def add(self, number: float, factors: Sequence[tirx.Expr]) -> None:
        open_ = [factor for factor in factors if not isinstance(factor, tirx.IntImm)]
        number *= math.prod(int(factor) for factor in factors if isinstance(factor, tirx.IntImm))
        key = tuple(map(structural_key, open_))
        self._factors[key] = tuple(open_)
        self._numbers[key] = self._numbers.get(key, 0.0) + number

    @property
    def size_hint(self) -> float:
        """The cost if dynamic dimensions have their size hints."""
        return sum(
            number * math.prod(size_hint(size_of(f)) if is_size(f) else 1 for f in self._factors[key])
            for key, number in self._numbers.items()
        )

    @cached_property
    def expression(self) -> tirx.Expr:
        """Returns the sum as an int64 expression; at least 1."""
        terms = [
            math.prod(self._factors[key], start=int64(max(1, math.ceil(number))))
            for key, number in self._numbers.items()
            if number
        ]
        return sum(terms[1:], start=terms[0]) if terms else int64(1)


@dataclass
class _Iteration:
    """Accumulates the costs of an iteration.

    Attributes:
        instructions, memory: cycles of the ones and of the other, which go on at the same time.
        values: what variables are in the first iteration of all loops around.
        loops: the loops around, by their variables, and how many iterations they have.
        lanes: those of them that are vectors, and how many lanes these have.
        moves: the loops that a variable that is no loop's changes with.
        own: tensors that the iteration allocates, or has in the workspace.
        pointers: to the latter.
    """

    target: Target
    instructions: _Terms = field(default_factory=_Terms)
    memory: _Terms = field(default_factory=_Terms)
    values: dict[tirx.Var, tirx.Expr] = field(default_factory=dict)
    loops: dict[tirx.Var, tirx.Expr] = field(default_factory=dict)
    lanes: dict[tirx.Var, int] = field(default_factory=dict)
    moves: dict[tirx.Var, frozenset[tirx.Var]] = field(default_factory=dict)
    own: set[tirx.Var] = field(default_factory=set)
    pointers: set[tirx.Var] = field(default_factory=set)

    def add_loop(self, loop: tirx.For) -> None:
        """Adds one iteration of the distributed loop."""
        self._define(loop.loop_var, loop.min, frozenset())
        self._add(loop.body)

    def _add(self, stmt: tirx.Stmt) -> None:
        match stmt:
            case tirx.SeqStmt():
                for part in stmt.seq:
                    self._add(part)
            case tirx.AttrStmt():
                self._add(stmt.body)
            case tirx.IfThenElse():
                self._add(stmt.then_case)
                if stmt.else_case is not None and not _has_loop(stmt.then_case):
                    self._add(stmt.else_case)  # else it is the tail of an axis, less than the full tile before it
            case tirx.For():
                self._add_iterations(stmt)
            case tirx.AllocBuffer():
                self.own.add(stmt.buffer)
            case tirx.DeclBuffer() if stmt.data in self.pointers:
                self.own.add(stmt.buffer)
            case tirx.Bind() if isinstance(stmt.var.ty, PointerType):  # to a part of the workspace
                self.pointers.add(stmt.var)
            case tirx.Bind():
                self._define(stmt.var, stmt.value, self._moving([stmt.value]))
                if loads_of(stmt.value):  # else it is part of an index
                    self._compute(stmt.value)
            case tirx.BufferStore():
                self._compute(stmt.value)
                self._touch(stmt.buffer, stmt.indices, _lanes(stmt.value))
            case tirx.Evaluate():
                self._compute(stmt.value)
            case tirx.DeclBuffer():
                pass
            case _:
                raise _NotKnownError

    def _add_iterations(self, loop: tirx.For) -> None:
        """Adds all iterations of an inner loop."""
        extent = self._known(loop.extent)
        self._define(loop.loop_var, loop.min, frozenset([loop.loop_var]))
        self.loops[loop.loop_var] = extent
        if loop.kind == tirx.ForKind.VECTORIZED and isinstance(extent, tirx.IntImm):
            self.lanes[loop.loop_var] = int(extent)
        self._add(loop.body)
        self.lanes.pop(loop.loop_var, None)
        del self.loops[loop.loop_var]

    def _define(self, var: tirx.Var, value: tirx.Expr, moves: frozenset[tirx.Var]) -> None:
        self.values[var] = value
        self.moves[var] = moves

    def _known(self, expr: tirx.Expr) -> tirx.Expr:
        """Returns an extent in the first iteration of all outer loops, as an int64 expression known before them."""
        known = self._in_first_iteration(expr)
        if any(isinstance(part, Call | TensorLoad) for part in inside(known)):
            raise _NotKnownError
        simple = _ANALYZER.simplify(known)
        return simple if str(simple.expr_ty().dtype) == "int64" else _ANALYZER.simplify(tirx.Cast("int64", simple))

    def _in_first_iteration(self, expr: tirx.Expr) -> tirx.Expr:
        def value(var: tirx.Var) -> tirx.Expr:
            return self._in_first_iteration(bound_value(self.values[var])) if var in self.values else var

        return tvm_ffi.structural_map(expr, (tirx.Var, value))

    def _moving(self, exprs: Sequence[tirx.Expr]) -> frozenset[tirx.Var]:
        """Returns the loops that expressions vary with."""
        return frozenset(loop for var in variables_of(exprs) for loop in self.moves.get(var, ()))

    def _compute(self, value: tirx.Expr) -> None:
        """Counts the instructions of a statement, and the memory that it reads."""
        number = self._instructions(value) * self._vectors(value)
        if number:
            extents = [extent for var, extent in self.loops.items() if var not in self.lanes]
            self.instructions.add(number * self.target.costs.loops.instruction_cycles, extents)

    def _instructions(self, expr: tirx.Expr) -> int:
        """Estimates the instructions of an expression, roughly; indices and loads are free, but memory is touched."""
        if type(expr) in _FREE:
            return 0
        own = 1
        match expr:
            case TensorLoad():
                self._touch(expr.source, expr.indices, _lanes(expr))
                for index in expr.indices[:]:
                    self._instructions(index)
                return 0
            case tirx.Add() if isinstance(expr.a, tirx.Mul) or isinstance(expr.b, tirx.Mul):
                own = 0  # one with the multiplication
            case tirx.Broadcast() | tirx.Ramp() | tirx.Let():
                own = 0
            case Call():
                own = _instructions_of_call(expr, self.target)
        return own + sum(map(self._instructions, parts_of(expr)))

    def _vectors(self, value: tirx.Expr) -> int:
        """Returns the number of registers that hold an expression for all lanes of the outer loops."""
        lanes = _lanes(value) * math.prod(self.lanes.values())
        if lanes <= 1:  # a call may have no value
            return 1
        dtype = str(value.expr_ty().dtype).partition("x")[0]
        return -(-lanes * element_bytes(dtype) // self.target.vectors.bytes)

    def _touch(self, tensor: tirx.Var, indices: Sequence[tirx.Expr], lanes: int) -> None:
        """Counts the memory of a tensor that loops read or write, each element once."""
        if tensor in self.own:
            return
        used = self._moving(indices)
        cycles = lanes * element_bytes(str(tensor.dtype)) / self.target.costs.l2_bytes_per_cycle
        self.memory.add(cycles, [extent for var, extent in self.loops.items() if var in used])


def _lanes(value: tirx.Expr) -> int:
    return _lanes_of(str(value.expr_ty().dtype))


@cache
def _lanes_of(dtype: str) -> int:
    return int(tvm.DataType(dtype).lanes)


_ANALYZER = Analyzer()


def _has_loop(stmt: tirx.Stmt) -> bool:
    match stmt:
        case tirx.For() | tirx.While():
            return True
        case tirx.SeqStmt():
            return any(map(_has_loop, stmt.seq))
        case tirx.AttrStmt():
            return _has_loop(stmt.body)
        case tirx.IfThenElse():
            return _has_loop(stmt.then_case) or (stmt.else_case is not None and _has_loop(stmt.else_case))
    return False


def _instructions_of_call(call: Call, target: Target) -> int:
    name = getattr(call.op, "name", "")
    if name == _EXTERN:
        raise _NotKnownError
    if name in (*_ONE, *_INTRINSICS) or name.startswith("nnefc."):
        return 1
    return target.costs.loops.call_instructions
