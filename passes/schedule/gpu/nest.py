"""Builds loop nests for a GPU statement by statement.

Contractions need more than TVM's schedules can express: tiles that are prefetched into registers, predicates on full
vectors, sums that are split among several launches. Rules for them write their loops with a :class:`Nest`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import tvm
from tvm import s_tir, tirx
from tvm.ir import Range
from tvm.ir.expr import TensorLoad
from tvm.sym import Analyzer

from nnefc.ir.attributes import ARRIVALS, SYNCHRONIZED
from nnefc.ir.gpu_operators import exchanged
from nnefc.ir.rebuild import root_block, with_fields
from nnefc.passes.schedule.schedules import schedule_of
from nnefc.passes.tir.common.expressions import int64, number, variables_of
from nnefc.symbolic.dims import Dimension, Size, bounds, is_known, variables
from nnefc.targets.machine.gpu.description import LARGEST_GRID, WARP

__all__ = ["Nest", "buffer", "kernel_schedule", "load", "sequence", "store", "synchronize", "warp_sum"]

_MAX = (1 << 31) - 2  # that an index of 32 bits is, with one more behind it
_ROLLED = "disable_unroll"
_EXPLICIT = (
    "pragma_unroll_explicit"  # whether TVM writes out the iterations of unrolled loops, or leaves them to the compiler
)


class Nest:
    """One launch under construction: makes loops, and knows the bounds of their variables.

    Args:
        aligned: whether tensors begin at multiples of a vector's size.
    """

    def __init__(self, aligned: bool = True) -> None:
        self._aligned = aligned
        self._analyzer = Analyzer()
        self._sizes: set[tirx.Var] = set()
        self._buffers: list[tirx.Var] = []

    def simplify(self, expr: tirx.Expr) -> tirx.Expr:
        """Returns the expression by what is known of its variables."""
        return self._analyzer.simplify(expr)

    def holds(self, condition: tirx.Expr) -> bool:
        """Whether a condition is known to be true."""
        return bool(self._analyzer.can_prove(condition))

    def guarded(self, stmt: tirx.Stmt, conditions: Iterable[tirx.Expr]) -> tirx.Stmt:
        """Returns the statement under those of the conditions that are not known to be true."""
        unknown = [self.simplify(condition) for condition in conditions if not self.holds(condition)]
        return tirx.IfThenElse(tirx.all(*unknown), stmt, None) if unknown else stmt

    def variable(self, name: str, count: Dimension) -> tirx.Var:
        """Returns a new variable in [0, count)."""
        var = tirx.Var(name, "int32")
        self.bound(var, count)
        return var

    def bound(self, var: tirx.Var, count: Dimension) -> None:
        """States that a variable is in [0, count)."""
        if isinstance(count, Size):
            self._know_sizes(count)
        self._analyzer.bind(var, Range(number(0), number(count)))

    def _know_sizes(self, size: Size) -> None:
        """Know the ranges of what a size depends on."""
        for var in variables(size.expr):
            if var not in self._sizes:
                minimum, maximum = bounds(Size(var))
                self._analyzer.bind(var, Range(int64(minimum), int64(maximum + 1)))
                self._sizes.add(var)

    def end(self, expr: tirx.Expr) -> int:
        """Returns a number that an expression is always less than."""
        return min(int(self._analyzer.const_int_bound(expr).max_value), _MAX) + 1

    def buffer(self, name: str, size: Dimension, dtype: str, scope: str) -> tirx.Var:
        """Memory of each block (`shared`) or thread (`local`)."""
        made = buffer(name, size, dtype, scope)
        self._buffers.append(made)
        return made

    def loop(self, count: Dimension, body: Callable[[tirx.Expr], tirx.Stmt], name: str = "i") -> tirx.Stmt:
        """`body` for each value of a variable, one after the other."""
        return self._for(name, count, tirx.ForKind.SERIAL, body)

    def rolled(self, count: Dimension, body: Callable[[tirx.Expr], tirx.Stmt], name: str = "i") -> tirx.Stmt:
        """As `loop`, with unrolling disabled, because registers do not suffice for several iterations."""
        return self._for(name, count, tirx.ForKind.SERIAL, body, {_ROLLED: tirx.const(True, "bool")})

    def until(self, count: tirx.Expr, body: Callable[[tirx.Expr], tirx.Stmt], name: str = "i") -> tirx.Stmt:
        """`body` for each value below an expression, which all threads of a block agree on; not unrolled."""
        var = self.variable(name, self.end(count))
        rolled = {_ROLLED: tirx.const(True, "bool")}
        return tirx.For(var, number(0), count, tirx.ForKind.SERIAL, body(var), None, rolled)

    def unrolled(self, count: int, body: Callable[[tirx.Expr], tirx.Stmt], name: str = "u") -> tirx.Stmt:
        """`body` for each value of a variable; the variable is a constant for the compiler."""
        return self._for(name, count, tirx.ForKind.UNROLLED, body)

    def lanes(self, count: int, body: Callable[[tirx.Expr], tirx.Stmt]) -> tirx.Stmt:
        """`body` for each lane of a vector at once."""
        return self._for("lane", count, tirx.ForKind.VECTORIZED, body)

    def launch(self, blocks: Dimension, threads: int, body: Callable[[tirx.Expr, tirx.Expr], tirx.Stmt]) -> tirx.Stmt:
        """`body(block, thread)` on a grid."""
        if is_known(blocks) and blocks > LARGEST_GRID[0]:
            raise s_tir.ScheduleError(f"{blocks} blocks are more than a grid has")
        block, thread = self.variable("block", blocks), self.variable("thread", threads)
        inner: tirx.Stmt = tirx.AttrStmt(number(0), _EXPLICIT, tirx.const(False, "bool"), body(block, thread))
        own = s_tir.SBlock([], [], [], "tile", inner, None, self._buffers)
        inner = s_tir.SBlockRealize([], True, own)
        return _bound(block, blocks, "blockIdx.x", _bound(thread, threads, "threadIdx.x", inner))

    def vectorizes(self, expr: tirx.Expr, lane: tirx.Var, lanes: int) -> bool:
        """Whether `expr` for all values of `lane` can be one vector: what it loads lies side by side, and is aligned.

        Conditions must be the same in all lanes.
        """
        match expr:
            case TensorLoad():
                (offset,) = expr.indices
                return self._is_same(offset, lane) or self.is_aligned(offset, lane, lanes)
            case tvm.ir.Call(op=tvm.ir.Op(name="prim.if_then_else")):
                condition, *values = expr.args
                return self._is_same(condition, lane) and all(self.vectorizes(v, lane, lanes) for v in values)
            case tvm.ir.Call():  # of elementary functions
                return all(self.vectorizes(part, lane, lanes) for part in expr.args if isinstance(part, tirx.Expr))
            case tirx.IntImm() | tirx.FloatImm() | tirx.Var():
                return not expr.same_as(lane)
            case tirx.Cast():
                return self.vectorizes(expr.value, lane, lanes)
            case tirx.Add() | tirx.Sub() | tirx.Mul() | tirx.Div() | tirx.Max() | tirx.Min():
                return all(self.vectorizes(part, lane, lanes) for part in (expr.a, expr.b))
        return False

    def is_aligned(self, offset: tirx.Expr, lane: tirx.Var, lanes: int) -> bool:
        """Whether an offset steps by one from lane to lane, and begins at a multiple of their number."""
        first = self.simplify(self.simplify(offset) - lane)
        return not self._depends(first, lane) and self.begins_at_multiple(first, lanes)

    def begins_at_multiple(self, offset: tirx.Expr, lanes: int) -> bool:
        """Whether an offset is a multiple of a number of lanes, as is the beginning of each tensor."""
        modular = self._analyzer.modular_set(self.simplify(offset))
        return self._aligned and int(modular.coeff) % lanes == 0 and int(modular.base) % lanes == 0

    def _is_same(self, expr: tirx.Expr, lane: tirx.Var) -> bool:
        return not self._depends(self.simplify(expr), lane)

    @staticmethod
    def _depends(expr: tirx.Expr, var: tirx.Var) -> bool:
        return any(var.same_as(v) for v in variables_of([expr]))

    def _for(
        self,
        name: str,
        count: Dimension,
        kind: int,
        body: Callable[[tirx.Expr], tirx.Stmt],
        annotations: Mapping[str, tirx.Expr] | None = None,
    ) -> tirx.Stmt:
        if count == 1:
            return body(number(0))
        var = self.variable(name, count)
        return tirx.For(var, number(0), number(count), kind, body(var), None, annotations)


def _bound(var: tirx.Var, count: Dimension, tag: str, body: tirx.Stmt) -> tirx.Stmt:
    domain = Range(number(0), number(count))
    axis = tirx.IterVar(domain, tirx.Var(tag, "int32"), tirx.IterVar.ThreadIndex, tag)
    return tirx.For(var, number(0), number(count), tirx.ForKind.THREAD_BINDING, body, axis)


def buffer(name: str, size: Dimension, dtype: str, scope: str = "global") -> tirx.Var:
    """Returns a flat buffer."""
    return tirx.decl_buffer((number(size),), dtype, name, scope=scope, layout=None)


def load(source: tirx.Var, at: tirx.Expr, lanes: int = 1) -> tirx.Expr:
    """`lanes` elements of a flat buffer."""
    return tirx.BufferLoad(source, [_position(at, lanes)])


def store(target: tirx.Var, value: tirx.Expr, at: tirx.Expr, lanes: int = 1) -> tirx.Stmt:
    """Returns the statement that writes `lanes` elements of a flat buffer."""
    return tirx.BufferStore(target, value, [_position(at, lanes)])


def _position(at: tirx.Expr, lanes: int) -> tirx.Expr:
    return at if lanes == 1 else tirx.Ramp(at, number(1), lanes)


def sequence(*stmts: tirx.Stmt | None) -> tirx.Stmt:
    """Returns the statements one after the other; None is left out."""
    present = [stmt for stmt in stmts if stmt is not None]
    return present[0] if len(present) == 1 else tirx.SeqStmt(present)


def synchronize() -> tirx.Stmt:
    """Returns all threads of a block wait for each other, and see each other's writes to shared memory."""
    return tirx.Evaluate(tirx.call_intrin("void", "tirx.tvm_storage_sync", "shared"))


def warp_sum(nest: Nest, values: tirx.Var, at: tirx.Expr) -> tirx.Stmt:
    """Returns the sum of an element of `values` over all threads of a warp, in each of them."""

    def step(index: tirx.Expr) -> tirx.Stmt:
        distance = tirx.shift_right(number(WARP // 2), index)
        return store(values, load(values, at) + exchanged(load(values, at), distance), at)

    return nest.unrolled(WARP.bit_length() - 1, step)


def kernel_schedule(
    func: tirx.PrimFunc,
    params: Sequence[tirx.Var],
    launches: Sequence[tirx.Stmt],
    workspace: Sequence[tirx.Var] = (),
    arrived: tirx.Var | None = None,
) -> s_tir.Schedule:
    """Returns the schedule of a function with these launches for its body.

    Args:
        func: whose attributes it keeps.
        params: its buffers, flat.
        workspace: buffers between launches, or between blocks of a launch.
        arrived: a buffer of words that are 0 before and after each launch.
    """
    own = [*workspace, *([] if arrived is None else [arrived])]
    made = with_fields(func, params=list(params), body=root_block(sequence(*launches), own))
    if arrived is not None:
        made = made.with_attr(ARRIVALS, str(arrived.name))
    return schedule_of(made.with_attr(SYNCHRONIZED, True))
