"""Lowers an expression of element-wise functions to one kernel, at any nesting depth.

Ordinary expressions become Relax operators, which the compiler fuses, also with what is around them. Deep ones become
one function of TIR at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from tvm import relax

from nnefc.ir.kernel_calls import kept_apart
from nnefc.operators.base import Emitter, Operand, Operator, Shape, dtype_of, shape_of
from nnefc.operators.dtypes import numpy_dtype
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import Elementwise, broadcast_shapes, fitted
from nnefc.operators.math.expression_kernel import LARGEST_ELEMENT, kernel
from nnefc.operators.math.expression_nodes import ExpressionNode, Given, Made, Number

__all__ = ["Expression"]

_MAX_OPERATORS = 48
"""Steps of an expression that becomes Relax operators."""


@dataclass(frozen=True)
class Expression(Operator):
    """The last of the steps; each takes results of those before it."""

    steps: tuple[ExpressionNode, ...]

    @classmethod
    def ending_at(cls, steps: Sequence[ExpressionNode], last: int) -> Expression:
        """The expression of one step of many, with those alone that it depends on."""
        reached = {last}
        for number in range(last, -1, -1):
            if number in reached:
                reached.update(steps[number].below)
        new = {number: position for position, number in enumerate(sorted(reached))}

        def renumbered(argument: Given | Made | Number) -> Given | Made | Number:
            return Made(new[argument.index]) if isinstance(argument, Made) else argument

        return cls(tuple(replace(steps[i], arguments=tuple(map(renumbered, steps[i].arguments))) for i in new))

    @property
    def operands(self) -> list[int]:
        """The numbers of the operands that occur."""
        return sorted({a.index for step in self.steps for a in step.arguments if isinstance(a, Given)})

    def shape(self, *shapes: Shape) -> Shape:
        """The common shape of the operands that occur."""
        return broadcast_shapes(*(shapes[number] for number in self.operands))

    def lower(self, ctx: Emitter, *operands: Operand) -> Operand:
        """`operands` may have what is no tensor where no step takes it."""
        if len(self.steps) <= _MAX_OPERATORS and self._size() <= LARGEST_ELEMENT:
            return self._as_operators(ctx, operands)
        return self._as_kernel(ctx, operands)

    def _size(self) -> int:
        """How large the result is as one expression; what an element repeats counts each time."""
        sizes: list[int] = []
        for step in self.steps:
            inner = sum(sizes[a.index] if isinstance(a, Made) else 1 for a in step.arguments)
            sizes.append(1 + step.uses * inner)
        return sizes[-1]

    def _as_operators(self, ctx: Emitter, operands: Sequence[Operand]) -> Operand:
        results: list[Operand] = []

        def argument(value: Given | Made | Number, dtype: str) -> Operand:
            match value:
                case Given(index=index):
                    return ctx.bound(Cast(dtype).lower(ctx, operands[index]))
                case Made(index=index):
                    return ctx.bound(Cast(dtype).lower(ctx, results[index]))
            return np.array(value).astype(numpy_dtype(dtype))

        for step in self.steps:
            arguments = [argument(value, step.computes) for value in step.arguments]
            made = Elementwise(step.function).lower(ctx, *arguments) if step.function else arguments[0]
            results.append(ctx.bound(made))
        return results[-1]

    def _as_kernel(self, ctx: Emitter, operands: Sequence[Operand]) -> Operand:
        """Tensors without dimensions have one for the kernel."""
        whole = self.shape(*map(shape_of, operands))
        used = {number: fitted(ctx, operands[number], whole) for number in self.operands}
        types = {number: (shape_of(operand) or (1,), dtype_of(operand)) for number, operand in used.items()}
        shape = broadcast_shapes(*map(shape_of, used.values()))
        function = ctx.builder.add_func(kept_apart(kernel(self.steps, types, shape or (1,))), "expression")
        arguments = [ctx.expr(ctx.reshaped(operand, types[number][0])) for number, operand in used.items()]
        made = relax.call_tir(function, arguments, out_ty=relax.TensorType(shape or (1,), self.steps[-1].dtype))
        return ctx.reshaped(ctx.emit(made), shape)
