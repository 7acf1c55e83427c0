"""Einstein summation: sums of products given by an equation of letters."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from nnefc.operators.base import Emitter, Operand, Operator, Shape, shape_of
from nnefc.operators.dtypes import FLOAT16_TYPES
from nnefc.operators.math.elementwise import fitted
from nnefc.operators.math.matrix import MatMul
from nnefc.operators.tensor.shape import Transpose
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.broadcasting import joint
from nnefc.symbolic.dims import size_hint

__all__ = ["Einsum"]

_FEW, _MAX_IN_PAIRS = 4, 16
"""Operands of which all orders of pairs are looked at, and at most for any order: what that takes grows fast."""


@dataclass(frozen=True)
class Einsum(Operator):
    """Sums of products by an equation of letters for dimensions, as `ij,jk->ik`. `numpy.einsum`.

    Letters that are not in the result are summed over; `...` stands for any dimensions, which broadcast, as a dimension
    of size 1 does. Without `->` the result has the letters that occur once, in alphabetic order.
    """

    equation: str

    def shape(self, *shapes: Shape) -> Shape:
        """The sizes of the result's letters."""
        _, result, sizes = self._read(shapes)
        return tuple(sizes[letter] for letter in result)

    def lower(self, ctx: Emitter, *operands: Operand) -> Operand:
        """Two tensors whose letters sum up like a matrix product become one; all else is a direct sum of products.

        Several are multiplied in pairs where that takes fewer products, and no result is larger than what there is.
        """
        terms, result, sizes = self._read(list(map(shape_of, operands)))
        operands = tuple(
            fitted(ctx, x, tuple(sizes[letter] for letter in term)) for x, term in zip(operands, terms, strict=True)
        )
        if len(operands) == 2:
            product = _as_matmul(ctx, operands, terms, result, sizes)
            if product is not None:
                return product
        if 2 < len(operands) <= _MAX_IN_PAIRS and len(sizes) > len(result):
            paired, letters = _in_pairs(ctx, operands, terms, result, sizes)
            if len(paired) <= 2:
                return ctx.apply(Einsum(f"{','.join(letters)}->{result}"), *paired)
        return ctx.compute(self._sum_of_products(list(map(shape_of, operands))), *operands, name="einsum")

    def _sum_of_products(self, shapes: list[Shape]) -> Callable[..., te.Tensor]:
        """The computation by definition; 16-bit floats are added up in float32."""
        terms, result, sizes = self._read(shapes)
        summed = [letter for letter in dict.fromkeys("".join(terms)) if letter not in result]

        def function(*tensors: te.Tensor) -> te.Tensor:
            dtype = str(tensors[0].dtype)
            work = "float32" if dtype in FLOAT16_TYPES else dtype
            axes = {letter: te.reduce_axis((0, sizes[letter]), f"sum_{i}") for i, letter in enumerate(summed)}

            def element(*index: tirx.Var) -> Any:
                position = dict(zip(result, index, strict=True)) | axes
                product: Any = tirx.const(1, work)
                for tensor, term, shape in zip(tensors, terms, shapes, strict=True):
                    at = [0 if size == 1 else position[letter] for letter, size in zip(term, shape, strict=True)]
                    product = product * tensor(*at).astype(work)
                return te.sum(product, axis=list(axes.values())) if axes else product

            sums = te.compute(tuple(sizes[letter] for letter in result), element, name="einsum")
            return sums if work == dtype else te.compute(sums.shape, lambda *i: sums(*i).astype(dtype), name="rounded")

        return function

    def _read(self, shapes: Sequence[Shape]) -> tuple[list[str], str, dict[str, int]]:
        """The letters of every term and of the result, those of the ellipsis Greek ones, and their sizes."""
        equation = "".join(self.equation.split())
        left, arrow, right = equation.partition("->")
        terms = left.split(",")
        if len(terms) != len(shapes):
            raise CompileError(f"the equation '{equation[:80]}' has {len(terms)} terms for {len(shapes)} operands")
        counts = [
            len(shape) - len(term.replace("...", "")) if "..." in term else 0
            for term, shape in zip(terms, shapes, strict=True)
        ]
        dots = "".join(chr(0x3B1 + i) for i in range(max(counts)))
        whole = [
            term.replace("...", dots[len(dots) - count :]) if count >= 0 else term
            for term, count in zip(terms, counts, strict=True)
        ]
        sizes: dict[str, int] = {}
        for term, letters, shape in zip(terms, whole, shapes, strict=True):
            if len(letters) != len(shape) or not (letters.isalpha() or not letters):
                raise CompileError(f"the term '{term[:80]}' does not fit an operand of the shape {list(shape)}")
            for letter, size in zip(letters, shape, strict=True):
                known = sizes.setdefault(letter, size)
                found = joint(known, size)
                if found is None:
                    raise CompileError(f"'{letter}' stands for {known} and for {size} in '{equation[:80]}'")
                sizes[letter] = found
        occurring = "".join(whole)
        if arrow:
            result = right.replace("...", dots)
        else:
            result = dots + "".join(sorted(c for c in set(occurring) if occurring.count(c) == 1 and c not in dots))
        if len(set(result)) != len(result) or not set(result) <= set(sizes):
            raise CompileError(f"the result of '{equation[:80]}' must have letters of the operands, each once")
        return whole, result, sizes


def _in_pairs(
    ctx: Emitter, operands: Sequence[Operand], terms: list[str], result: str, sizes: dict[str, int]
) -> tuple[list[Operand], list[str]]:
    """Operands and their letters after products of pairs, as NumPy orders these: two, or all if that does not save."""
    letters = {letter: position for position, letter in enumerate(sizes)}
    known = [
        np.broadcast_to(np.float32(0), [size_hint(size) for size in shape_of(operand)])  # takes no memory
        for operand in operands
    ]
    given: list[Any] = [part for x, term in zip(known, terms, strict=True) for part in (x, [letters[c] for c in term])]
    largest = max(*(x.size for x in known), math.prod(size_hint(sizes[c]) for c in result))
    kind = "optimal" if len(operands) <= _FEW else "greedy"
    (_, *path), _ = np.einsum_path(*given, [letters[c] for c in result], optimize=(kind, largest))
    left = list(zip(operands, terms, strict=True))
    if any(len(pair) != 2 for pair in path):
        return list(operands), terms
    for pair in path[:-1]:
        (b, right), (a, first) = (left.pop(position) for position in sorted(pair, reverse=True))
        others = set(result).union(*(term for _, term in left))
        kept = "".join(c for c in dict.fromkeys(first + right) if c in others)
        left.append((ctx.apply(Einsum(f"{first},{right}->{kept}"), a, b), kept))
    return [x for x, _ in left], [term for _, term in left]


def _as_matmul(
    ctx: Emitter, operands: Sequence[Operand], terms: list[str], result: str, sizes: dict[str, int]
) -> Operand | None:
    """`batch` letters are in all three, `rows` in the first and the result, `columns` in the second and the result."""
    left, right = terms
    if any(len(set(term)) != len(term) for term in (left, right)):
        return None
    if any(shape_of(v) != tuple(sizes[c] for c in t) for v, t in zip(operands, terms, strict=True)):
        return None
    batch = [c for c in result if c in left and c in right]
    rows = [c for c in result if c in left and c not in right]
    columns = [c for c in result if c in right and c not in left]
    summed = [c for c in left if c not in result]
    if not summed or set(summed) != {c for c in right if c not in result}:
        return None

    def size(letters: list[str]) -> int:
        return math.prod(sizes[c] for c in letters)

    def arranged(x: Operand, term: str, order: list[str], shape: Shape) -> Operand:
        return ctx.reshaped(ctx.apply(Transpose(tuple(term.index(c) for c in order)), x), shape)

    outer = tuple(sizes[c] for c in batch)
    a = arranged(operands[0], left, [*batch, *rows, *summed], (*outer, size(rows), size(summed)))
    b = arranged(operands[1], right, [*batch, *summed, *columns], (*outer, size(summed), size(columns)))
    order = [*batch, *rows, *columns]
    product = ctx.reshaped(ctx.apply(MatMul(), a, b), tuple(sizes[c] for c in order))
    return Transpose(tuple(order.index(c) for c in result)).lower(ctx, product)
