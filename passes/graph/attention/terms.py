"""Expresses the queries, keys, values, scores and results of an attention as functions of an index into the operands.

    q = permute_dims(reshape(x, [n, l, 12, 64]), [0, 2, 1, 3])     element e of query i, head h: x[n, i, 64 h + e]
    t = where(mask, multiply(matmul(q, kᵀ), 0.125), -inf)          score j: select(mask[n, 0, i, j], p * 0.125, -inf)

The kernel then reads the operands from memory directly, without the reshapes and transpositions in between.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, tirx
from tvm.ir.expr import Call, TensorLoad

from nnefc.ir.attributes import UPDATES
from nnefc.passes.graph.attention.match_attention import ELEMENT_WISE, AttentionProgram, Found, number_of
from nnefc.passes.graph.attention.softmax_weights import POWER, NoWeight, Weight, weight_of
from nnefc.passes.graph.fusion.elementwise_kernels import element_of_kernel
from nnefc.passes.graph.index_maps import Index, Moves
from nnefc.passes.graph.rewriter import is_call, operands, shape_of
from nnefc.passes.tir.common.expressions import linear_strides, parts_of, substituted, variables_of
from nnefc.symbolic.dims import Dimension, expression, is_known

__all__ = ["DEPTH", "KEY", "PRODUCT", "QUERY", "AttentionOperand", "Terms", "heads_sharing", "stored_loads", "terms_of"]

QUERY, KEY, DEPTH = (tirx.Var(name, "int64") for name in ("query", "key", "depth"))
PRODUCT = tirx.Var("product", "float32")
"""The variables of an expression that computes a score: the product of its query and its key; their indices, and a
channel, are further ones.
"""

_ZERO = tirx.IntImm("int64", 0)


@dataclass(frozen=True)
class AttentionOperand:
    """A tensor that an attention reads, as it is or with its last two axes exchanged, so that queries come last."""

    expr: relax.Expr
    exchanged: bool


@dataclass(frozen=True, eq=False)
class Terms:
    """An attention as expressions.

    Attributes:
        last: what is bound to the result.
        operands: what is read, and the buffers that stand for these in the expressions.
        batch: the variables and the sizes of the axes before queries.
        queries, keys, size, width: see `Attended`.
        query, key, value, score: see `Attended`.
        shape, result: of the result, and the index in it of a value of a query.
        empty, defined: see `Attended`.
        weight, chosen: see `Attended`.
        ends, firsts: see `Attended`.
    """

    last: relax.Var
    operands: Sequence[tuple[AttentionOperand, tirx.Var]]
    batch: Sequence[tuple[tirx.Var, Dimension]]
    queries: Dimension
    keys: Dimension
    size: Dimension
    width: Dimension
    query: tirx.Expr
    key: tirx.Expr
    value: tirx.Expr
    score: tirx.Expr
    shape: Sequence[Dimension]
    result: Index
    empty: bool
    defined: bool = False
    weight: tirx.Expr = POWER
    chosen: tirx.Expr | None = None
    ends: Sequence[tirx.Expr] = ()
    firsts: Sequence[tirx.Expr] = ()


def heads_sharing(terms: Terms) -> int:
    """Returns the number of adjacent heads that share keys and values, if these lie along memory; otherwise 0."""
    for load in (*stored_loads(terms.key), *stored_loads(terms.value)):
        if not load.indices[-1].same_as(DEPTH) and not _goes_along(load.indices[-1]):
            return 0
    if not terms.batch:
        return 1
    head, heads = terms.batch[-1]
    divisors: set[int] = set()

    def note(expr: tirx.Expr) -> bool:
        """Whether the head is used in quotients alone."""
        if isinstance(expr, tirx.FloorDiv) and expr.a.same_as(head) and isinstance(expr.b, tirx.IntImm):
            divisors.add(int(expr.b))
            return True
        return not expr.same_as(head) and all(map(note, parts_of(expr)))

    if not is_known(heads) or heads == 1 or not note(terms.key) or not note(terms.value):
        return 1
    return math.gcd(*divisors) if divisors else int(heads)


def stored_loads(element: tirx.Expr) -> list[tirx.BufferLoad]:
    """Returns the loads of the stored elements that a key or a value is converted from, or selected from."""
    match element:
        case TensorLoad():
            return [element]
        case tirx.Cast():
            return stored_loads(element.value)
        case Call():
            return [*stored_loads(element.args[1]), *stored_loads(element.args[2])]
    return stored_loads(element.a)


def _goes_along(position: tirx.Expr) -> bool:
    """Whether a position in memory moves by one with `DEPTH`."""
    return linear_strides(position, [DEPTH]) == [1]


class _NoTerms(Exception):
    """Raised if a matched attention cannot be expressed by terms."""


def terms_of(found: Found, program: AttentionProgram, kernels: Mapping[object, tirx.PrimFunc]) -> Terms | None:
    """Returns an attention as expressions, or None where its axes are not those of one."""
    try:
        return _Reader(program, kernels).terms(found)
    except (_NoTerms, NoWeight):
        return None


class _Reader:
    def __init__(self, program: AttentionProgram, kernels: Mapping[object, tirx.PrimFunc]) -> None:
        self._program, self._kernels = program, kernels
        self._moves = Moves(program.definitions)
        self._operands: list[tuple[AttentionOperand, tirx.Var]] = []
        self._product: tuple[relax.Call, Index] | None = None

    def terms(self, found: Found) -> Terms:
        """Returns the expressions of an attention."""
        sizes = shape_of(found.scores)
        rows = self._query_axis(found)
        axes = [tirx.Var(f"b{n}", "int64") for n in range(len(sizes))]
        axes[rows], axes[found.axis] = QUERY, KEY
        whole = tuple(_ZERO if size == 1 and var is not KEY else var for var, size in zip(axes, sizes, strict=True))
        score = self._changed(found.scores, whole)
        product, outer, ends = self._roles()
        if any(_uses(i, KEY) or _uses(i, QUERY) for i in outer):
            raise _NoTerms
        factors = [
            self._datum(arg, _aligned((*outer, *own), arg))
            for arg, own in zip(product.args, ((ends[0], DEPTH), (DEPTH, ends[1])), strict=True)
        ]
        (query, times), (key, again) = factors if ends[1].same_as(KEY) else reversed(factors)
        value, position, weight = self._weighted(found, whole)
        if times * again != 1:
            query = query * tirx.const(times * again, "float32")
        last, shape, result = self._moved_result(found.last, position)
        batch = [each for n, each in enumerate(zip(axes, sizes, strict=True)) if n not in (found.axis, rows)]
        return Terms(
            last, self._operands, batch, sizes[rows], sizes[found.axis], shape_of(product.args[0])[-1],
            shape_of(found.last)[-1 - found.factor], query, key, value, score, shape, result,
            found.empty, weight.defined, weight.value, weight.chosen,
        )  # fmt: skip

    def _roles(self) -> tuple[relax.Call, Index, Index]:
        """Returns the first product and the axes of its scores: the outer ones, then queries and keys."""
        if self._product is None:
            raise _NoTerms
        product, (*outer, row, column) = self._product
        if (column.same_as(KEY) and not _uses(row, KEY)) or (row.same_as(KEY) and not _uses(column, KEY)):
            return product, tuple(outer), (row, column)
        raise _NoTerms

    def _query_axis(self, found: Found) -> int:
        """Returns the axis of scores that queries are along: the last besides keys, if the first product has it in its
        rows.
        """
        sizes = shape_of(found.scores)
        axes = [tirx.Var(f"b{n}", "int64") for n in range(len(sizes))]
        axes[found.axis] = KEY
        probe = _Reader(self._program, self._kernels)
        probe._changed(
            found.scores, tuple(_ZERO if s == 1 and v is not KEY else v for v, s in zip(axes, sizes, strict=True))
        )
        _, outer, ends = probe._roles()
        others = [n for n in range(len(sizes)) if n != found.axis]
        used, taken = variables_of(ends), variables_of(outer)
        in_rows = [n for n in others if axes[n] in used] or [n for n in others if axes[n] not in taken]
        if not in_rows:
            raise _NoTerms
        return in_rows[-1]

    def _weighted(self, found: Found, whole: Index) -> tuple[tirx.Expr, Index, Weight]:
        """Returns the value that a weight is multiplied by, the index of the product, and the changes of weights before
        it.
        """
        known: dict[relax.Var, tuple[Index, tirx.Expr]] = {found.weights: (whole, POWER)}
        uses: Counter[relax.Var] = Counter()

        def part(expr: relax.Expr, index: Index) -> tirx.Expr:
            if not isinstance(expr, relax.Var) or expr not in known:
                return self._other(expr, index)
            uses[expr] += 1
            own, made = known[expr]
            if len(own) != len(index) or not all(a.same_as(b) for a, b in zip(own, index, strict=True)):
                raise _NoTerms
            return made

        for var in found.steps:
            value = self._program.definitions[var]
            arg = next(arg for arg in operands(value) if isinstance(arg, relax.Var) and arg in known)
            index, made = known[arg]
            moved = self._moves.after(value, index)
            if moved is not None:
                uses[arg] += 1
                known[var] = moved, made
            else:
                known[var] = index, self._element(value, index, part)
        weights, values = found.product.args if found.factor == 0 else reversed(found.product.args)
        uses[weights] += 1
        if any(self._program.uses[var] != uses[var] for var in known) or len(shape_of(values)) < 2:
            raise _NoTerms
        position, made = known[weights]
        outer, (row, key) = position[:-2], position[-2:] if found.factor == 0 else position[:-3:-1]
        free = [size for axis, size in enumerate(shape_of(weights)) if axis != len(position) - 1 - found.factor]
        same = free == [
            size for axis, size in enumerate(shape_of(found.last)) if axis != len(position) - 1 - found.factor
        ]
        if not key.same_as(KEY) or any(_uses(i, QUERY) or _uses(i, KEY) for i in outer) or _uses(row, KEY) or not same:
            raise _NoTerms
        ordered = ((KEY, DEPTH), (row, DEPTH)) if found.factor == 0 else ((DEPTH, KEY), (DEPTH, row))
        value, times = self._datum(values, _aligned((*outer, *ordered[0]), values))
        if times != 1:
            raise _NoTerms
        return value, (*outer, *ordered[1]), weight_of(made)

    def _changed(self, expr: relax.Expr, index: Index) -> tirx.Expr:
        """Returns the score at an index as an expression of the product."""
        value = self._program.definitions[expr]
        if is_call(value, "matmul"):
            if self._product is not None:
                raise _NoTerms
            self._product = value, index
            return PRODUCT
        moved = self._moves.before(value, index)
        if moved is not None:
            return self._part(*moved)
        return self._element(value, index, self._part)

    def _element(self, value: relax.Call, index: Index, part: Callable[[relax.Expr, Index], tirx.Expr]) -> tirx.Expr:
        """Returns the element of an element-wise step; `part(operand, index)` is what it reads."""
        if is_call(value, "call_tir"):
            return self._of_kernel(value, index, part)
        name = value.op.name.removeprefix("relax.")
        if name not in ELEMENT_WISE:
            raise _NoTerms
        return ELEMENT_WISE[name](*(part(arg, _aligned(index, arg)) for arg in value.args))

    def _part(self, expr: relax.Expr, index: Index) -> tirx.Expr:
        """Returns the term that a step reads: of the product, or of another tensor."""
        if not isinstance(expr, relax.Var) or expr not in self._program.scores:
            return self._other(expr, index)
        if self._program.uses[expr] != 1:
            raise _NoTerms
        return self._changed(expr, index)

    def _other(self, expr: relax.Expr, index: Index) -> tirx.Expr:
        number = number_of(expr)
        if number is not None:
            return tirx.const(number, str(expr.ty.dtype))
        expr, index = self._unmoved(expr, index)
        exchanged = len(index) >= 2 and _uses(index[-1], KEY) and _uses(index[-2], QUERY)
        if exchanged:
            index = (*index[:-2], index[-1], index[-2])
        return tirx.BufferLoad(self._buffer(AttentionOperand(expr, exchanged)), list(index))

    def _datum(self, expr: relax.Expr, index: Index) -> tuple[tirx.Expr, float]:
        """Returns an element of a factor as stored, and the scale that it is multiplied by."""
        factor = 1.0
        while isinstance(expr, relax.Var):
            expr, index = self._unmoved(expr, index)
            value = self._program.definitions.get(expr) if isinstance(expr, relax.Var) else None
            if not is_call(value, "multiply", "divide"):
                break
            numbers = [number_of(arg) for arg in value.args]
            if numbers[1] is not None and numbers[0] is None:
                factor = factor * numbers[1] if is_call(value, "multiply") else factor / numbers[1]
                expr = value.args[0]
            elif is_call(value, "multiply") and numbers[0] is not None and numbers[1] is None:
                factor, expr = factor * numbers[0], value.args[1]
            else:
                break
            index = _aligned(index, expr)
        converted = self._converted(expr, index)
        return self._stored(expr, index) if converted is None else converted, factor

    def _stored(self, expr: relax.Expr, index: Index) -> tirx.Expr:
        """Returns an element of a tensor, or what a kernel chooses it from."""
        chosen = self._chosen(expr, index)
        return tirx.BufferLoad(self._buffer(AttentionOperand(expr, False)), list(index)) if chosen is None else chosen

    def _chosen(self, expr: relax.Expr, index: Index) -> tirx.Expr | None:
        """Returns an element of keys or values that a kernel selects from two tensors, such as a ring buffer and new
        rows.

        None for others.
        """
        value = self._program.definitions.get(expr) if isinstance(expr, relax.Var) else None
        if not is_call(value, "call_tir") or not _uses_any(index, KEY):
            return None
        element = element_of_kernel(self._kernels[value.args[0]])
        choice = None if element is None else element[1]
        if not isinstance(choice, tirx.Select):
            return None
        if not all(isinstance(part, TensorLoad) for part in (choice.true_value, choice.false_value)):
            return None
        made = self._of_kernel(value, index, self._other)
        assert isinstance(made, tirx.Select)
        return tirx.if_then_else(made.condition, made.true_value, made.false_value)  # loads only one of them

    def _converted(self, expr: relax.Expr, index: Index) -> tirx.Expr | None:
        """Returns an element of a cache that is kept in fewer bits, converted to float32; None for anything else.

        Such an element is a float16, or an int8 times the scale of its row.
        """
        value = self._program.definitions.get(expr) if isinstance(expr, relax.Var) else None
        if is_call(value, "multiply"):
            narrow = self._program.definitions.get(value.args[0])
            if shape_of(value.args[1])[-1:] != (1,) or str(value.args[1].ty.dtype) != "float32":
                return None
            codes = self._of_cache(narrow, "int8", _aligned(index, value.args[0]))
            if codes is None:
                return None
            return codes * self._stored(*self._unmoved(value.args[1], _aligned(index, value.args[1])))
        return self._of_cache(value, "float16", index)

    def _of_cache(self, value: relax.Expr | None, dtype: str, index: Index) -> tirx.Expr | None:
        """Returns an element of a cache of an element type, converted to float32."""
        if not is_call(value, "astype") or str(value.ty.dtype) != "float32":
            return None
        source = value.args[0]
        if str(source.ty.dtype) != dtype:
            return None
        source, index = self._unmoved(source, index)
        chosen = self._chosen(source, index)
        if chosen is not None:
            return chosen.astype("float32")
        written = self._program.definitions.get(source)
        kernel = self._kernels.get(written.args[0]) if is_call(written, "call_tir") else None
        if kernel is None or not kernel.attrs or UPDATES not in kernel.attrs:
            return None
        return tirx.BufferLoad(self._buffer(AttentionOperand(source, False)), list(index)).astype("float32")

    def _unmoved(self, expr: relax.Expr, index: Index) -> tuple[relax.Expr, Index]:
        """Returns the index in memory of an element that operations have only moved."""
        while isinstance(expr, relax.Var):
            value = self._program.definitions.get(expr)
            moved = self._taken(value, index) if is_call(value, "take") else self._moves.before(value, index)
            if moved is None:
                break
            expr, index = moved
        return expr, index

    def _taken(self, call: Any, index: Index) -> tuple[relax.Expr, Index] | None:
        """Returns the element at an index that another tensor holds; an index out of range is clamped."""
        data, positions = call.args
        if call.attrs.axis is None or str(call.attrs.mode) != "clip" or not isinstance(positions.ty, relax.TensorType):
            return None
        axis, rank = int(call.attrs.axis) % len(shape_of(data)), len(shape_of(positions))
        inner = index[axis : axis + rank]
        if _uses_any(inner, KEY, QUERY, DEPTH):
            return None
        position = self._other(positions, inner).astype("int64")
        last = expression(shape_of(data)[axis] - 1)
        position = tirx.max(tirx.min(position, last), _ZERO)
        return data, (*index[:axis], position, *index[axis + rank :])

    def _of_kernel(self, call: Any, index: Index, part: Callable[[relax.Expr, Index], tirx.Expr]) -> tirx.Expr:
        """Returns the element that a kernel computes, with the given terms substituted for its parameters."""
        kernel = self._kernels[call.args[0]]
        element = element_of_kernel(kernel)
        if element is None:
            raise _NoTerms
        own, value = element
        given = dict(zip(kernel.params, call.args[1].fields, strict=False))
        scalars = {var: arg for var, arg in given.items() if not isinstance(arg.ty, relax.TensorType)}
        for var, arg in given.items():
            if isinstance(arg.ty, relax.TensorType):
                sizes = zip(var.shape, arg.ty.shape, strict=True)
                scalars |= {size: wide for size, wide in sizes if isinstance(size, tirx.Var)}

        def load(tensor: tirx.Var, positions: Sequence[tirx.Expr]) -> tirx.Expr:
            return part(given[tensor], tuple(positions))

        return substituted(value, {**dict(zip(own, index, strict=True)), **scalars}, load)

    def _buffer(self, operand: AttentionOperand) -> tirx.Var:
        """Returns the buffer that stands for a tensor in the expressions."""
        for known, buffer in self._operands:
            if known.exchanged == operand.exchanged and known.expr.same_as(operand.expr):
                return buffer
        shape = list(operand.expr.ty.shape)
        shape = [*shape[:-2], shape[-1], shape[-2]] if operand.exchanged else shape
        buffer = tirx.decl_buffer(shape, str(operand.expr.ty.dtype), f"x{len(self._operands)}")
        self._operands.append((operand, buffer))
        return buffer

    def _moved_result(self, var: relax.Var, index: Index) -> tuple[relax.Var, Sequence[Dimension], Index]:
        """Returns the last permutation of the result, if nothing else is done before it, and the index of an element
        after it.
        """
        found = var, shape_of(var), index
        while (user := self._program.only_user(var)) is not None:
            value = self._program.definitions[user]
            moved = self._moves.after(value, index)
            if moved is None:
                break
            index = moved
            if is_call(value, "permute_dims"):
                found = user, shape_of(user), index
            var = user
        return found


def _aligned(index: Sequence[tirx.Expr], operand: relax.Expr) -> Index:
    """Returns the index of the element of an operand that broadcasting puts at `index` of the result."""
    shape = shape_of(operand)
    own = index[len(index) - len(shape) :]
    return tuple(_ZERO if size == 1 else position for position, size in zip(own, shape, strict=True))


def _uses(expr: tirx.Expr, var: tirx.Var) -> bool:
    return var in variables_of([expr])


def _uses_any(index: Index, *variables: tirx.Var) -> bool:
    return any(_uses(position, var) for position in index for var in variables)
