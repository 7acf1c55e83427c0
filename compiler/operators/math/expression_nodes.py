"""Defines the steps of an expression of element-wise functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tvm import tirx

from nnefc.operators.math.functions import FUNCTIONS

__all__ = ["ExpressionNode", "Given", "Made", "Number"]

Number: TypeAlias = int | float | bool


@dataclass(frozen=True)
class Given:
    """An argument: operand number `index`."""

    index: int


@dataclass(frozen=True)
class Made:
    """An argument: the result of step number `index`."""

    index: int


@dataclass(frozen=True)
class ExpressionNode:
    """A call of a function of the library with operands, results of other steps, and numbers.

    Attributes:
        function: its name in `FUNCTIONS`; None for a conversion alone.
        arguments: the arguments, which are converted to the type `computes` first.
    """

    function: str | None
    arguments: tuple[Given | Made | Number, ...]
    computes: str

    @property
    def dtype(self) -> str:
        """The element type of the result."""
        return (self.function and FUNCTIONS[self.function].dtype) or self.computes

    @property
    def uses(self) -> int:
        """How often the function repeats an argument at most."""
        return FUNCTIONS[self.function].uses if self.function else 1

    @property
    def below(self) -> list[int]:
        """The steps whose results it takes."""
        return [argument.index for argument in self.arguments if isinstance(argument, Made)]

    def item(self, *elements: tirx.Expr) -> tirx.Expr:
        """Return an element of the result, from those of the arguments."""
        return FUNCTIONS[self.function](*elements) if self.function else elements[0]
