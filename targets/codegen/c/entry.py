"""Translates the entry to the body of the C function that runs the network."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tvm import tirx
from tvm.ir.expr import Call

from nnefc.targets.codegen.c.c_types import pointee
from nnefc.targets.codegen.c.expressions import FAILED, TEXTS, pointer_cast
from nnefc.targets.codegen.c.functions import KERNEL_PREFIX, Function, FunctionWriter, function_name, is_failure
from nnefc.targets.codegen.c.helpers import PREFIX
from nnefc.targets.codegen.c.statement_analysis import (
    is_either,
)
from nnefc.targets.codegen.cpu.expressions import inside, name_of

__all__ = ["Area", "entry_body"]


@dataclass(frozen=True)
class Area:
    """A memory area of which the entry's operands are parts.

    Attributes:
        name: of a pointer; empty for the constants, which are arrays.
        dtype: of its elements; uint8 for areas of several tensors.
        constant: whether nothing writes it.
    """

    name: str
    dtype: str
    constant: bool


def entry_body(
    func: tirx.PrimFunc, areas: Mapping[str, Area], reporting: Collection[str], making: Collection[str] = ()
) -> Function:
    """Return the statements of the entry, which call the kernels.

    A constant is written as `@constant OFFSET TYPE@`, which the writer of the file replaces by a part of an array.

    Args:
        func: the entry.
        areas: the areas of its parameters, by name.
        reporting: the symbols of kernels that get the address of a variable for failures.
        making: the symbols of kernels that get the memory for strings.
    """
    writer = _EntryWriter(reporting, making)
    for param in func.params:
        writer.areas_of[param] = areas[str(param.name)]
        writer.variables[param] = areas[str(param.name)].name
    lines = writer.body(func.body)
    return Function(str(func.attrs["global_symbol"]), "", tuple(lines), frozenset(writer.externs))


class _EntryWriter(FunctionWriter):
    """Writes the entry: calls of kernels on parts of areas."""

    failure = FAILED

    def __init__(self, reporting: Collection[str], making: Collection[str]) -> None:
        super().__init__(prefix=PREFIX)
        self._making = making
        self.areas_of: dict[tirx.Var, Area] = {}
        self._reporting = reporting

    def pointer(self, expr: tirx.Expr) -> tuple[str, str, bool]:
        target, inner = None, expr
        if isinstance(expr, Call) and name_of(expr) == "tirx.reinterpret":
            target, inner = pointee(expr.ty), expr.args[0]
            while isinstance(inner, Call) and name_of(inner) == "tirx.reinterpret":
                inner = inner.args[0]
        if isinstance(inner, Call) and name_of(inner) == "tirx.address_of":
            load = inner.args[0]
            if load.source in self.areas_of:
                area = self.areas_of[load.source]
                dtype = target or "uint8"
                return self._address(area, load.indices[0], dtype), dtype, area.constant
        if is_either(inner):
            condition, *values = inner.args[1:]
            one, other = (self.pointer(tirx.reinterpret(expr.ty, value)) for value in values)
            return f"({self.text(condition)} ? {one[0]} : {other[0]})", one[1], one[2] or other[2]
        return super().pointer(expr)

    def _address(self, area: Area, offset: tirx.Expr, dtype: str) -> str:
        """Returns the address of an offset in bytes into an area, as a pointer to a type."""
        known, others = _split(offset)
        moved = " + ".join(self.atom(each) for each in others)
        if not area.name:
            if not moved:
                return f"@constant {known} {dtype}@"
            return pointer_cast(f"@constant {known} uint8@ + {moved}", "uint8", dtype, constant=True)
        if not moved and not known:
            return pointer_cast(area.name, area.dtype, dtype, area.constant)
        bytes_ = pointer_cast(area.name, area.dtype, "uint8", area.constant)
        bytes_ = bytes_ if bytes_.isidentifier() else f"({bytes_})"
        index = " + ".join([*([str(known)] if known else []), *([moved] if moved else [])])
        return pointer_cast(f"&{bytes_}[{index}]", "uint8", dtype, area.constant)

    def _declare(self, stmt: tirx.DeclBuffer) -> None:
        if stmt.data in self.areas_of:
            self.areas_of[stmt.buffer] = self.areas_of[stmt.data]
            return
        super()._declare(stmt)

    def _branch(self, stmt: tirx.IfThenElse) -> None:
        """Skip the code for failures if no kernel reports any."""
        if self._reporting or not any(map(is_failure, inside(stmt.condition))):
            super()._branch(stmt)

    def _store(self, stmt: tirx.BufferStore) -> None:
        """Store to the parameters for the sizes of outputs; the entry has no other stores."""
        if stmt.buffer not in self.areas_of:
            super()._store(stmt)
            return
        self.block.add(f"@size {int(stmt.indices[0])}@ = (int32_t){self.atom(stmt.value)};")

    def _call_statement(self, call: Call) -> None:
        symbol = str(call.args[0].value)
        if not symbol.startswith(KERNEL_PREFIX):
            super()._call_statement(call)
            return
        arguments = [self._argument(arg).text for arg in call.args[1:]]
        if symbol in self._making:
            arguments.append(f"&{TEXTS}")
        if symbol in self._reporting:
            arguments.append(f"&{FAILED}")
        self.block.add(f"{function_name(symbol)}({', '.join(arguments)});")

    def _return(self, _stmt: tirx.Return) -> None:
        if self.block.depth > 1:
            self.block.add(f"return (int){FAILED};")


def _split(offset: tirx.Expr) -> tuple[int, list[tirx.Expr]]:
    """Return the constant part of a sum, and its other terms."""
    if isinstance(offset, tirx.IntImm):
        return int(offset), []
    if isinstance(offset, tirx.Add):
        (left, terms), (right, others) = _split(offset.a), _split(offset.b)
        return left + right, [*terms, *others]
    return 0, [offset]
