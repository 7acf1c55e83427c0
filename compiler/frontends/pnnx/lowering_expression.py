"""Expressions as kernels: each becomes one, however deep it is.

Ordinary expressions become Relax operators, which the compiler fuses, also with what is around them. Deep ones become
one TIR function at once: a list of statements that keep intermediate values in a few slots, and so are nested nowhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import tvm
from tvm import relax, te, tirx
from tvm import s_tir as structured
from tvm.tirx.stmt import BufferRegion

from nnefc.diagnostics import CompileError
from nnefc.frontends.pnnx.expression import Kind, Step, Tree, to_rpn
from nnefc.frontends.pnnx.functions import FUNCTIONS, Function, Rule, truth
from nnefc.frontends.pnnx.lowering import Lowering, Shape, broadcast_shapes, check_list, dtype_of, shape_of
from nnefc.frontends.pnnx.promotion import DEFAULT_FLOAT, Typed, category, result_type

__all__ = ["lower"]

Number: TypeAlias = "int | float | bool"

_MOST_OPERATORS = 48  # of an expression that becomes Relax operators
_LARGEST_ELEMENT = 120  # nodes of one statement
_MOST_NODES = 100_000  # of one expression
_INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


@dataclass(frozen=True)
class _Value:
    """A tensor while an expression is typed: operand number `index`, or the result of instruction `index`."""

    index: int
    is_operand: bool
    dtype: str
    shape: Shape


@dataclass(frozen=True)
class _Instruction:
    """One function applied: its arguments are converted to `computes` before, the result has the type `dtype`."""

    function: Function
    arguments: tuple[_Value | Number, ...]
    computes: str
    dtype: str
    shape: Shape


_Item: TypeAlias = "_Value | Number | tuple[Any, ...] | None"


def lower(tree: Tree, operands: Sequence[Any], at: Lowering) -> Any:
    """The value of an expression: a tensor, or a number or tuple of numbers where that is known now.

    Args:
        tree: the expression.
        operands: what `@0`, `@1`, … stand for: Relax expressions, arrays, numbers or tuples of numbers.
        at: where to build.

    Raises:
        CompileError: operands do not fit: shapes that do not broadcast, types that a function does not take; the
            expression, or a list in it, is too large.
    """
    if len(tree.nodes) > _MOST_NODES:
        raise CompileError(
            f"the expression has {len(tree.nodes):,} numbers, operands and functions, more than {_MOST_NODES:,}",
            location=tree.place.at(0),
        )
    typing = _Typing(tree, operands)
    result = typing.result()
    tensors = {i: at.expr(o) for i, o in enumerate(operands) if isinstance(o, np.ndarray | relax.Expr)}
    check_list(result)
    return _lowered(result, typing.instructions, tensors, at)


def _lowered(item: _Item, instructions: list[_Instruction], tensors: dict[int, relax.Expr], at: Lowering) -> Any:
    """What an item of the result stands for; each tensor in a list is a kernel of its own."""
    if isinstance(item, tuple):
        return tuple(_lowered(inner, instructions, tensors, at) for inner in item)
    if not isinstance(item, _Value):
        return item
    if item.is_operand:
        return tensors[item.index]
    own = _reached(instructions, item.index)
    if len(own) <= _MOST_OPERATORS and _inlined_sizes(own)[-1] <= _LARGEST_ELEMENT:
        return _as_operators(own, tensors, at)
    return _as_function(own, tensors, at)


def _reached(instructions: list[_Instruction], root: int) -> list[_Instruction]:
    """The instructions that `root` depends on, in order, itself last, and numbered anew."""
    numbers = [root]
    for number in numbers:
        numbers += _below(instructions[number])
    numbers.sort()
    new = {number: position for position, number in enumerate(numbers)}

    def renumbered(value: _Value | Number) -> _Value | Number:
        return replace(value, index=new[value.index]) if isinstance(value, _Value) and not value.is_operand else value

    return [
        replace(instructions[number], arguments=tuple(map(renumbered, instructions[number].arguments)))
        for number in numbers
    ]


class _Typing:
    """Runs the steps of an expression with types and shapes for values; computes what depends on numbers alone."""

    def __init__(self, tree: Tree, operands: Sequence[Any]) -> None:
        self.instructions: list[_Instruction] = []
        self._tree = tree
        self._operands = operands

    def result(self) -> _Item:
        stack: list[_Item] = []
        for step in to_rpn(self._tree):
            arguments = tuple(stack[len(stack) - step.count :])
            del stack[len(stack) - step.count :]
            match step.kind:
                case Kind.NUMBER:
                    assert not isinstance(step.value, str)
                    stack.append(step.value)
                case Kind.OPERAND:
                    stack.append(self._operand(step))
                case Kind.LIST | Kind.TUPLE:
                    stack.append(arguments)
                case Kind.CALL:
                    stack.append(self._call(step, arguments))
        return stack[0]

    def _error(self, step: Step, message: str) -> CompileError:
        return CompileError(message, location=self._tree.place.at(step.position))

    def _operand(self, step: Step) -> _Item:
        number = step.value
        assert isinstance(number, int)
        if number >= len(self._operands):
            raise self._error(step, f"there is no operand '@{number}': the operator has {len(self._operands)}")
        operand = self._operands[number]
        if operand is None or isinstance(operand, bool | int | float | tuple):
            return operand
        if isinstance(operand, str | complex):
            raise self._error(step, f"the operand '@{number}' is no tensor and no number")
        return _Value(number, True, dtype_of(operand), shape_of(operand))

    def _call(self, step: Step, arguments: tuple[_Item, ...]) -> _Item:
        function = FUNCTIONS[str(step.value)]
        if function.rule is Rule.SIZE:
            return self._size(step, arguments)
        values: list[_Value | Number] = []
        for argument in arguments:
            if argument is None or isinstance(argument, tuple):
                raise self._error(step, f"'{step.value}' takes no lists and no None")
            values.append(argument)
        if not any(isinstance(value, _Value) for value in values):
            return self._of_numbers(step, function, values)
        return self._of_tensors(step, function, tuple(values))

    def _size(self, step: Step, arguments: tuple[_Item, ...]) -> _Item:
        tensor = arguments[0]
        if not isinstance(tensor, _Value):
            raise self._error(step, "'size' is for tensors")
        if len(arguments) == 1:
            return tuple(tensor.shape)
        axis = arguments[1]
        if isinstance(axis, bool) or not isinstance(axis, int):
            raise self._error(step, "the dimension that 'size' is asked for must be an integer known at compile time")
        if not -len(tensor.shape) <= axis < len(tensor.shape):
            raise self._error(step, f"there is no dimension {axis} in a tensor of rank {len(tensor.shape)}")
        return tensor.shape[axis]

    def _of_numbers(self, step: Step, function: Function, values: list[Any]) -> Number:
        if function.rule is Rule.INTEGER and not all(isinstance(value, int) for value in values):
            raise self._error(step, f"'{step.value}' is for integers and truth values")
        try:
            result: Number = function.number(*values)
        except ZeroDivisionError:
            raise self._error(step, f"'{step.value}' divides by zero") from None
        except (OverflowError, ValueError):
            raise self._error(step, f"'{step.value}' of these numbers has no value") from None
        if isinstance(result, int) and not -(1 << 63) <= result < 1 << 63:
            raise self._error(step, f"the result of '{step.value}' does not fit into 64 bits")
        return result

    def _of_tensors(self, step: Step, function: Function, values: tuple[_Value | Number, ...]) -> _Value:
        typed = [_typed(value) for value in values]
        computes, dtype = self._types(step, function, typed)
        shape: Shape = ()
        for value in values:
            if isinstance(value, _Value):
                broadcast = broadcast_shapes(shape, value.shape)
                if broadcast is None:
                    raise self._error(step, f"the shapes {list(shape)} and {list(value.shape)} do not broadcast")
                shape = broadcast
            elif isinstance(value, int) and not _fits(value, computes):
                raise self._error(step, f"the number {value} does not fit into the type {computes}")
        self.instructions.append(_Instruction(function, values, computes, dtype, shape))
        return _Value(len(self.instructions) - 1, False, dtype, shape)

    def _types(self, step: Step, function: Function, typed: list[Typed]) -> tuple[str, str]:
        """The type in which a function computes, and that of its result."""
        common = result_type(typed)
        match function.rule:
            case Rule.CONVERSION:
                return function.to, function.to
            case Rule.LOGICAL:
                return "bool", "bool"
            case Rule.COMPARISON:
                return common, "bool"
            case Rule.REAL if category(common) != 2:
                return DEFAULT_FLOAT, DEFAULT_FLOAT
            case Rule.INTEGER if category(common) == 2:
                raise self._error(step, f"'{step.value}' is for integers and truth values, not for {common}")
        if common == "bool" and not function.truth:
            raise self._error(step, f"'{step.value}' is not for truth values")
        return common, common


def _typed(value: _Value | Number) -> Typed:
    match value:
        case _Value():
            return Typed(value.dtype, len(value.shape))
        case bool():
            return Typed("bool", 0, number=True)
        case int():
            return Typed("int64", 0, number=True)
    return Typed("float64", 0, number=True)


def _fits(value: int, dtype: str) -> bool:
    if dtype in _INTEGERS:
        return -(1 << _INTEGERS[dtype] - 1) <= value < 1 << _INTEGERS[dtype] - 1
    return dtype != "uint8" or 0 <= value < 256


def _inlined_sizes(instructions: Sequence[_Instruction]) -> list[int]:
    """How large the result of each instruction is as one expression; what an element repeats is counted each time."""
    sizes: list[int] = []
    for one in instructions:
        inner = sum(sizes[a.index] if isinstance(a, _Value) and not a.is_operand else 1 for a in one.arguments)
        sizes.append(1 + one.function.uses * inner)
    return sizes


# As Relax operators.


def _as_operators(instructions: Sequence[_Instruction], tensors: dict[int, relax.Expr], at: Lowering) -> relax.Expr:
    results: list[relax.Expr] = []
    for one in instructions:
        arguments = [_argument(value, one.computes, results, tensors, at) for value in one.arguments]
        results.append(at.emit(_operator(one, arguments, at)))
    return results[-1]


def _argument(
    value: _Value | Number, dtype: str, results: list[relax.Expr], tensors: dict[int, relax.Expr], at: Lowering
) -> relax.Expr:
    if not isinstance(value, _Value):
        return at.expr(np.array(value).astype(dtype))
    expr = tensors[value.index] if value.is_operand else results[value.index]
    return at.emit(at.convert(expr, dtype)) if value.dtype != dtype else expr


def _operator(one: _Instruction, arguments: list[relax.Expr], at: Lowering) -> relax.Expr:
    function = one.function
    if function.rule is Rule.CONVERSION:
        return arguments[0]
    if function.relax is not None and one.computes in ("float32", "float64"):
        return function.relax(*arguments)
    # Numbers stay numbers, so that the element can be simpler for some of them.
    numbers = {i: value for i, value in enumerate(one.arguments) if not isinstance(value, _Value)}
    variable = [argument for i, argument in enumerate(arguments) if i not in numbers]

    def compute(*inputs: te.Tensor) -> te.Tensor:
        def element(*index: tirx.Var) -> tirx.Expr:
            rest = iter(inputs)
            items = [
                _constant(numbers[i], one.computes) if i in numbers else _read(next(rest), index)
                for i in range(len(arguments))
            ]
            return _apply(one, items)

        return te.compute(one.shape, element, name="expression")

    return at.compute(compute, *variable, name="expression")


def _constant(value: Number, dtype: str) -> tirx.Expr:
    return tirx.const(bool(value) if dtype == "bool" else value, dtype)


def _read(tensor: Any, index: Sequence[tirx.Expr]) -> tirx.Expr:
    """The element of `tensor` that broadcasting puts at `index` of the result."""
    shape = [int(extent) for extent in tensor.shape]
    own = list(index)[len(index) - len(shape) :] if shape else []
    places = [tirx.const(0, "int64") if extent == 1 else i for extent, i in zip(shape, own, strict=True)]
    return tensor(*places) if isinstance(tensor, te.Tensor) else tensor[tuple(places)]


def _apply(one: _Instruction, items: list[tirx.Expr]) -> tirx.Expr:
    """One element; reals of 16 bits are computed with in 32 and rounded after each function, as PyTorch does."""
    if one.computes not in ("float16", "bfloat16"):
        return _solid(one.function.element(*items))
    return _cast(_solid(one.function.element(*(_cast(item, "float32") for item in items))), one.dtype)


def _solid(element: Any) -> tirx.Expr:
    """An element as an expression: Python's `==` of two gives something that becomes one only when it is used."""
    return element if isinstance(element, tvm.ir.Expr) else element.asobject()


def _cast(element: tirx.Expr, dtype: str) -> tirx.Expr:
    return truth(element) if dtype == "bool" else element.astype(dtype)


# As one function.


@dataclass(frozen=True)
class _Slot:
    """A place for an intermediate value of the type `dtype`."""

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


def _order(instructions: Sequence[_Instruction]) -> list[int]:
    """An order of evaluation that needs few slots: of two arguments the one that needs more comes first.

    A tree of n nodes then needs no more than log2(n) + 1 (Sethi and Ullman, "The Generation of Optimal Code for
    Arithmetic Expressions", 1970).
    """
    needs: list[int] = []
    for one in instructions:
        below = sorted((needs[a] for a in _below(one)), reverse=True)
        needs.append(max([1, *(need + position for position, need in enumerate(below))]))
    order: list[int] = []
    pending = [len(instructions) - 1]
    while pending:  # from the result, what comes first last: the reverse of the order
        number = pending.pop()
        order.append(number)
        pending += sorted(_below(instructions[number]), key=lambda a: needs[a], reverse=True)
    return order[::-1]


def _below(one: _Instruction) -> list[int]:
    return [a.index for a in one.arguments if isinstance(a, _Value) and not a.is_operand]


def _as_function(instructions: Sequence[_Instruction], tensors: dict[int, relax.Expr], at: Lowering) -> relax.Expr:
    root = instructions[-1]
    shape = root.shape or (1,)
    used = sorted({a.index for one in instructions for a in one.arguments if isinstance(a, _Value) and a.is_operand})
    inputs = {i: _buffer(f"x{i}", shape_of(tensors[i]) or (1,), dtype_of(tensors[i])) for i in used}
    output = _buffer("y", shape, root.dtype)
    axes = [tirx.Var(f"v{i}", "int64") for i in range(len(shape))]
    # Once to learn how many slots it takes, once with as many.
    _, _, counts = _statements(instructions, inputs, output, axes, {})
    statements, local, _ = _statements(instructions, inputs, output, axes, counts)
    func = _loops(statements, local, list(inputs.values()), output, axes)
    arguments = [tensors[i] if shape_of(tensors[i]) else at.emit(relax.op.reshape(tensors[i], (1,))) for i in used]
    made = at.emit(at.call(func, arguments, shape, root.dtype, name="expression"))
    return made if root.shape else at.emit(relax.op.reshape(made, ()))


def _buffer(name: str, shape: Shape, dtype: str, scope: str = "") -> tirx.Var:
    extents = [tirx.IntImm("int64", extent) for extent in shape]
    return tirx.decl_buffer(extents, dtype, layout=None, name=name, scope=scope)


def _statements(
    instructions: Sequence[_Instruction],
    inputs: dict[int, tirx.Var],
    output: tirx.Var,
    axes: list[tirx.Var],
    counts: dict[str, int],
) -> tuple[list[tirx.Stmt], list[tirx.Var], dict[str, int]]:
    """Stores into slots and, last, into the output; the buffers of the slots, one a type; how many slots it took."""
    slots = _Slots()
    local: dict[str, tirx.Var] = {}
    stored: list[tuple[_Slot, tirx.Expr]] = []
    pieces: dict[int, tuple[tirx.Expr, int, list[_Slot]]] = {}  # expression, its size, the slots that it reads

    def load(slot: _Slot) -> tirx.Expr:
        if slot.dtype not in local:
            local[slot.dtype] = _buffer(f"slots_{slot.dtype}", (counts.get(slot.dtype, 1),), slot.dtype, "local")
        return local[slot.dtype][(tirx.IntImm("int64", slot.number),)]

    def store(piece: tuple[tirx.Expr, int, list[_Slot]], dtype: str) -> tuple[tirx.Expr, int, list[_Slot]]:
        expr, _, reads = piece
        slots.give_back(reads)
        slot = slots.take(dtype)
        stored.append((slot, expr))
        return load(slot), 1, [slot]

    for number in _order(instructions):
        one = instructions[number]
        uses = one.function.uses
        size, reads, items = 1, list[_Slot](), list[tirx.Expr]()
        for value in one.arguments:
            if not isinstance(value, _Value):
                items.append(_constant(value, one.computes))
                size += uses
                continue
            piece = (
                (_read(inputs[value.index], axes), 1, list[_Slot]()) if value.is_operand else pieces.pop(value.index)
            )
            if piece[1] > 1 and (uses > 1 or piece[1] > _LARGEST_ELEMENT):
                piece = store(piece, value.dtype)
            expr = piece[0]
            items.append(_cast(expr, one.computes) if value.dtype != one.computes else expr)
            size += uses * piece[1]
            reads += piece[2]
        element = items[0] if one.function.rule is Rule.CONVERSION else _apply(one, items)
        pieces[number] = (element, size, reads)
        # A value that waits for another one must not be many slots: it becomes one.
        if size > _LARGEST_ELEMENT or len(reads) > 1:
            pieces[number] = store(pieces[number], one.dtype)

    statements = [tirx.BufferStore(local[s.dtype], expr, [tirx.IntImm("int64", s.number)]) for s, expr in stored]
    statements.append(tirx.BufferStore(output, pieces[len(instructions) - 1][0], list(axes)))
    return statements, list(local.values()), slots.counts


def _loops(
    statements: list[tirx.Stmt], local: list[tirx.Var], inputs: list[tirx.Var], output: tirx.Var, axes: list[tirx.Var]
) -> tirx.PrimFunc:
    """The statements in a loop over each axis.

    Elements that a schedule computes as one vector would share the slots. A further axis of extent 1 that has no loop
    keeps schedules away; LLVM turns slots into registers, and makes vectors of what allows it.
    """
    extents = [int(extent) for extent in output.shape]
    loops = [tirx.Var(f"i{i}", "int64") for i in range(len(axes))]
    iters = [
        tirx.IterVar(tvm.ir.Range(tirx.const(0, "int64"), tirx.const(extent, "int64")), axis, tirx.IterVar.DataPar)
        for axis, extent in zip(axes, extents, strict=True)
    ]
    zero = tirx.const(0, "int64")
    unit = tirx.IterVar(tvm.ir.Range(zero, tirx.const(1, "int64")), tirx.Var("unit", "int64"), tirx.IterVar.DataPar)
    reads = []
    for buffer in inputs:
        shape = [int(extent) for extent in buffer.shape]
        own = axes[len(axes) - len(shape) :]
        places = [zero if extent == 1 else axis for extent, axis in zip(shape, own, strict=True)]
        reads.append(BufferRegion(buffer, [tvm.ir.Range.from_min_extent(p, tirx.const(1, "int64")) for p in places]))
    writes = [BufferRegion(output, [tvm.ir.Range.from_min_extent(axis, tirx.const(1, "int64")) for axis in axes])]
    body = statements[0] if len(statements) == 1 else tirx.SeqStmt(statements)
    block = structured.SBlock([*iters, unit], reads, writes, "expression", body, None, local)
    stmt: tirx.Stmt = structured.SBlockRealize([*loops, zero], True, block)
    for loop, extent in reversed(list(zip(loops, extents, strict=True))):
        stmt = tirx.For(loop, tirx.const(0, "int64"), tirx.const(extent, "int64"), tirx.ForKind.SERIAL, stmt)
    root = structured.SBlockRealize([], True, structured.SBlock([], [], [], "root", stmt))
    func = tirx.PrimFunc([*inputs, output], root)
    return func.with_attr("tirx.noalias", True).with_attr("op_pattern", _OPAQUE)


_OPAQUE = 8
"""What `relax.transform.FuseOps` may do: nothing. What the function is joined with might be computed in vectors."""
