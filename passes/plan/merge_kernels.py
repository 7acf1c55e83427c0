"""Merges kernels that differ in integer constants only into one function with parameters, for small libraries.

    kernel1(x, w, y):                 kernel2(x, w, y):                      kernel1(x, w, y, n0, n1):
        for c in 64:                      for c in 96:             →             for c in n0 * 32:
            y[…] += x[c * 784] …              y[…] += x[c * 196] …                   y[…] += x[c * (n1 * 196)] …

                                                             called with (…, 2, 4) and with (…, 3, 1)

Convolutions of one network often differ in how many channels they sum up, and in the size of the image. Numbers that
have the same proportion in all of these functions are one argument. Their common divisor stays in the code, so that
LLVM sees where vectors are aligned. What code is made of stays a number: loops that are unrolled or become vectors,
divisors of what is computed for each element, buffers on the stack, the operands of instructions, and lanes of vectors.
Numbers that an argument does not hold stay as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import GlobalVar
from tvm.ir.expr import Call, TensorLoad

from nnefc.ir.rebuild import with_fields
from nnefc.passes.tir.common.expressions import IF_THEN_ELSE

__all__ = ["MergedKernel", "merged_kernels"]

_MAX_ARGUMENTS = 12
"""The maximum parameters of a merged kernel: with more, calls take as much code as merging saves."""

_ELEMENTS = 1 << 40  # more than any tensor has
_WRITTEN_OUT = (tirx.ForKind.UNROLLED, tirx.ForKind.VECTORIZED)
_OF_VALUES = (*IF_THEN_ELSE, "tirx.address_of", "tirx.likely")
"""Operators whose operands may be arguments."""

_OF_COUNTS = {tirx.FloorDiv: tirx.Div, tirx.FloorMod: tirx.Mod, tirx.Div: tirx.Div, tirx.Mod: tirx.Mod}
"""Truncating divisions, which take fewer instructions, for divisions of numbers that are not negative."""

_Number = Callable[[tirx.IntImm], tirx.Expr]


@dataclass(frozen=True)
class MergedKernel:
    """The merged function and the arguments by which a kernel is called.

    Attributes:
        function: of several kernels; it has the symbol of the first of them.
        numbers: its last arguments for this kernel.
    """

    function: tirx.PrimFunc
    numbers: tuple[tirx.IntImm, ...]


def merged_kernels(functions: Mapping[GlobalVar, tirx.PrimFunc], dtype: str) -> dict[GlobalVar, MergedKernel]:
    """Merges flat functions of static shapes that differ from others in integer constants only.

    Args:
        dtype: of numbers that are arguments, as wide as pointers are.
    """
    alike: dict[int, list[dict[GlobalVar, _Shape]]] = {}
    for gv, func in functions.items():
        own = _Shape.of(_without_sizes_of_views(func))
        groups = alike.setdefault(tvm_ffi.structural_hash(own.bare), [])
        same = (group for group in groups if tvm_ffi.structural_equal(next(iter(group.values())).bare, own.bare))
        group = next(same, None)
        if group is None:
            groups.append({gv: own})
        else:
            group[gv] = own
    made: dict[GlobalVar, MergedKernel] = {}
    for groups in alike.values():
        for group in groups:
            if len(group) > 1:
                made |= _merged(group, dtype)
    return made


@dataclass(frozen=True)
class _Shape:
    """A function, its integer constants in the order of its text, and the text with ones in their place."""

    function: tirx.PrimFunc
    numbers: Sequence[int]
    bare: tirx.PrimFunc

    @classmethod
    def of(cls, func: tirx.PrimFunc) -> _Shape:
        found: list[int] = []

        def note(node: tirx.IntImm) -> tirx.Expr:
            found.append(int(node.value))
            return tirx.IntImm(str(node.ty.dtype), 1)

        body = _changed(func.body, note)
        bare = with_fields(func, body=body).without_attr("global_symbol")
        return cls(func, found, bare)


def _merged(kernels: Mapping[GlobalVar, _Shape], dtype: str) -> dict[GlobalVar, MergedKernel]:
    """Returns kernels of one shape as calls of the first one; none if merging does not pay."""
    each = list(zip(*(kernel.numbers for kernel in kernels.values()), strict=True))
    arguments = list(dict.fromkeys(_reduced(values)[1] for values in each if len(set(values)) > 1))
    maximum = int(tirx.max_value(dtype).value)
    if len(arguments) > _MAX_ARGUMENTS or any(
        not -maximum <= value <= maximum for values in arguments for value in values
    ):
        return {}
    params = [tirx.Var(f"n{index}", dtype) for index in range(len(arguments))]
    left = iter(each)

    def number(node: tirx.IntImm) -> tirx.Expr:
        values = next(left)
        if len(set(values)) == 1:
            return node
        factor, tail = _reduced(values)
        own = str(node.ty.dtype)
        argument = params[arguments.index(tail)]
        return (argument if own == dtype else tirx.Cast(own, argument)) * tirx.IntImm(own, factor)

    first = next(iter(kernels.values())).function
    func = with_fields(first, params=[*first.params, *params], body=_changed(first.body, number))
    return {
        gv: MergedKernel(func, tuple(tirx.IntImm(dtype, values[index]) for values in arguments))
        for index, gv in enumerate(kernels)
    }


def _reduced(values: Sequence[int]) -> tuple[int, tuple[int, ...]]:
    """Divides all values by their common divisor; returns it and the quotients."""
    factor = math.gcd(*values)
    return factor, tuple(value // factor for value in values)


def _changed(body: tirx.Stmt, number: _Number) -> tirx.Stmt:
    """Replaces all numbers in statements that may be arguments."""

    def integer(node: tirx.IntImm, _mutator: Any) -> Any:
        return number(node) if str(node.ty.dtype) in ("int32", "int64") else node

    def loop(node: tirx.For, mutator: Any) -> Any:
        begin, extent = node.min, node.extent
        if node.kind not in _WRITTEN_OUT:
            begin, extent = mutator.mutate(begin), mutator.mutate(extent)
        inner = mutator.mutate(node.body)
        return with_fields(node, min=begin, extent=extent, body=inner)

    def call(node: Call, mutator: Any) -> Any:
        if getattr(node.op, "name", "") in _OF_VALUES:
            return mutator.default_mutate(node)
        args = [arg if isinstance(arg, tirx.IntImm) else mutator.mutate(arg) for arg in node.args]
        return Call(node.op, args, node.attrs, ret_ty=node.ty)

    def quotient(node: tirx.FloorDiv | tirx.FloorMod, mutator: Any) -> Any:
        if not isinstance(node.b, tirx.IntImm):
            return mutator.default_mutate(node)
        if not isinstance(node.a, tirx.Var):
            return type(node)(mutator.mutate(node.a), node.b)
        divisor = mutator.mutate(node.b)
        return (type(node) if isinstance(divisor, tirx.IntImm) else _OF_COUNTS[type(node)])(node.a, divisor)

    def attribute(node: tirx.AttrStmt, mutator: Any) -> Any:
        return tirx.AttrStmt(node.node, node.attr_key, node.value, mutator.mutate(node.body))

    def as_it_is(node: object, _mutator: Any) -> object:
        return node

    return tvm_ffi.structural_mutate(
        body,
        [
            (tirx.IntImm, integer),
            (tirx.For, loop),
            (Call, call),
            (tuple(_OF_COUNTS), quotient),
            (tirx.AttrStmt, attribute),
            ((tirx.AllocBuffer, tirx.DeclBuffer, tirx.Ramp, tirx.Broadcast, tirx.Shuffle), as_it_is),
        ],
    )


def _without_sizes_of_views(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Removes from a flat function the numbers of elements of its operands, which later passes do not use."""
    found: list[tirx.Stmt | TensorLoad] = []
    tvm_ffi.structural_walk(func.body, ((tirx.DeclBuffer, tirx.BufferStore, TensorLoad), found.append))
    shaped = {
        position.buffer if isinstance(position, tirx.BufferStore) else position.source
        for position in found
        if hasattr(position, "indices") and len(position.indices) != 1
    }
    views = {
        view.buffer: tirx.decl_buffer((_ELEMENTS,), str(view.buffer.dtype), name=view.buffer.name)
        for view in found
        if isinstance(view, tirx.DeclBuffer) and view.buffer not in shaped
    }
    body = tvm_ffi.structural_map(func.body, (tirx.Var, lambda var: views.get(var, var)))
    return with_fields(func, body=body)
