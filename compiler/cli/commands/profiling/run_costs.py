"""Evaluates the formulas of a library's description at the sizes of a run: operations, bytes, shapes of operands."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from nnefc.support.element_types import element_bytes
from nnefc.symbolic.named_formulas import Formula, evaluated, read_formula
from nnefc.targets.description.library import KernelDescription, LibraryDescription, OperandDescription

__all__ = ["at_sizes", "sizes_of_run"]

_TYPE = re.compile(r"(\w+)\[(.*)\]")


def sizes_of_run(found: LibraryDescription, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Return the sizes of the dynamic dimensions in a run, by name, as far as the inputs determine them.

    Args:
        found: the library's description.
        shapes: of the inputs, by name.
    """
    sizes: dict[str, int] = {}
    for tensor in found.inputs:
        for wanted, given in zip(tensor.shape, shapes.get(tensor.name, ()), strict=False):
            if isinstance(wanted, str):
                sizes.setdefault(wanted, given)
    for each in found.formulas:
        value = _number(each.formula, sizes)
        if value is not None:
            sizes.setdefault(each.name, value)
    return sizes


def at_sizes(found: LibraryDescription, sizes: Mapping[str, int]) -> LibraryDescription:
    """Return a library's description with operations, bytes and types of its kernels evaluated at the given sizes."""
    if not sizes:
        return found
    return replace(found, kernels=tuple(_kernel(kernel, sizes) for kernel in found.kernels))


def _kernel(kernel: KernelDescription, sizes: Mapping[str, int]) -> KernelDescription:
    reads, writes = (tuple(_operand(each, sizes) for each in part) for part in (kernel.reads, kernel.writes))
    operands = [each.bytes for each in (*reads, *writes)]
    operations = kernel.operations or _number(_formula(kernel.operation_formula), sizes) or 0
    return replace(
        kernel,
        reads=reads,
        writes=writes,
        operations=operations,
        bytes=kernel.bytes or (sum(operands) if all(operands) else 0),
    )


def _operand(operand: OperandDescription, sizes: Mapping[str, int]) -> OperandDescription:
    match = _TYPE.fullmatch(operand.type)
    if operand.bytes or match is None:
        return operand
    shape = [_number(_formula(text), sizes) for text in _split(match[2])]
    if any(size is None for size in shape):
        return operand
    known = [size or 0 for size in shape]
    type_ = f"{match[1]}[{', '.join(map(str, known))}]"
    return replace(operand, bytes=math.prod(known) * element_bytes(match[1]), type=type_)


def _split(text: str) -> list[str]:
    """Split a shape at the commas outside of parentheses."""
    parts, depth, begin = [], 0, 0
    for position, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and not depth:
            parts.append(text[begin:position])
            begin = position + 1
    return [part.strip() for part in [*parts, text[begin:]] if part.strip()]


def _formula(text: str) -> Formula | None:
    return int(text) if text.isdigit() else text if text.isidentifier() else read_formula(text)


def _number(formula: Formula | None, sizes: Mapping[str, int]) -> int | None:
    """Return the value of a formula; None if a dimension in it is unknown."""
    if formula is None:
        return None
    try:
        return evaluated(formula, sizes.__getitem__)
    except (KeyError, ZeroDivisionError):
        return None
