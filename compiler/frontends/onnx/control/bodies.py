"""Lowers subgraphs of If and Loop to network bodies.

What goes from one iteration to the next, or comes out of either branch, are tensors of one type each; sequences and
optionals are as many tensors, and their lengths stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from tvm import relax

from nnefc.frontends.onnx.operator import Context
from nnefc.frontends.onnx.values import AnyValue, Map, Optional, Stacked, TensorSequence, Value
from nnefc.ir.dataflow import bindings_of
from nnefc.ir.network import Body
from nnefc.operators.tensor.data_dependent_selection import first_of
from nnefc.operators.tensor.shape import Reshape
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, Size, dimensions, element_count, expression, variables

__all__ = ["data_dependent_inside", "first_elements", "leaves", "rebuilt", "sizes_inside", "structure"]


def data_dependent_inside(body: Body, results: Iterable[Value]) -> bool:
    """Returns whether some of these results of a body have sizes that only its own data tell."""
    own = {count.var for count in body.counts}
    return any(own.intersection(variables(expression(size))) for value in results for size in value.shape)


def sizes_inside(body: Body) -> Iterator[Dimension]:
    """The dynamic sizes of what a body computes, but for those that only its own data tell, and those of bodies in
    it."""
    own = {count.var for count in body.counts}
    for binding in bindings_of(body.module["main"]):
        types = [binding.var.ty]
        while types:
            match types.pop():
                case relax.TensorType() as tensor:
                    for size in dimensions(tensor.shape):
                        if isinstance(size, Size) and own.isdisjoint(variables(size.expr)):
                            yield size
                case relax.TupleType() as several:
                    types.extend(several.fields)


def leaves(values: Iterable[AnyValue]) -> Iterator[Value]:
    """The tensors that values are made of.

    Raises:
        CompileError: a map is among them.
    """
    for value in values:
        match value:
            case Value():
                yield value
            case TensorSequence(elements):
                yield from leaves(elements)
            case Stacked(tensor):
                yield tensor
            case Optional(element):
                yield from leaves([] if element is None else [element])
            case Map():
                raise CompileError("a map cannot depend on what is known only at run time")


def first_elements(ctx: Context, room: Value, shape: tuple[Dimension, ...]) -> Value:
    """Return a tensor of a shape that only the run tells, whose elements are the first ones of a flat tensor."""
    count = element_count(shape)
    elements = first_of(ctx.emitter, ctx.expr(room), count)
    made: Value = ctx.apply(Reshape(shape), replace(room, shape=(count,), expr=elements))
    return replace(made, dtype=room.dtype)


def rebuilt(values: Sequence[AnyValue], leaves: Iterator[Value]) -> list[AnyValue]:
    """Values like these, made of other tensors."""
    made: list[AnyValue] = []
    for value in values:
        match value:
            case TensorSequence(elements, dtype):
                made.append(TensorSequence(tuple(rebuilt(elements, leaves)), dtype))
            case Stacked():
                made.append(Stacked(next(leaves)))
            case Optional(element, dtype):
                made.append(Optional(None if element is None else rebuilt([element], leaves)[0], dtype))
            case _:
                made.append(next(leaves))
    return made


def structure(value: AnyValue) -> object:
    """Return a description of a value; values with equal ones differ in their tensors only."""
    match value:
        case TensorSequence(elements):
            return "sequence", *map(structure, elements)
        case Stacked():
            return "stacked"
        case Optional(element):
            return "optional", None if element is None else structure(element)
    return type(value).__name__
