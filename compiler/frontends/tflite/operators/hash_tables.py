"""Hash tables whose contents are constants: strings by numbers, or numbers by strings."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnefc.frontends.tflite.hash_tables import HashTable
from nnefc.frontends.tflite.lowering import Lowering, Node, Result, Value, operator
from nnefc.operators.dtypes import dtype_name
from nnefc.operators.ml.lookup import Positions
from nnefc.operators.tensor.concatenation import Concat
from nnefc.operators.tensor.indexing import Gather
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []


@dataclass(frozen=True)
class _Handle:
    """The table that a tensor made by HASHTABLE refers to."""

    number: int


@operator("HASHTABLE")
def _hashtable(ctx: Lowering, node: Node) -> Result:
    return Value(None, "resource", handle=_Handle(int(node.options.table_id)))


def _table_of(ctx: Lowering, node: Node) -> HashTable:
    handle = node.value(0).handle
    if not isinstance(handle, _Handle):
        raise CompileError("its first input is no hash table that is known at compile time")
    if handle.number not in ctx.tables:
        raise CompileError("the contents of the hash table are no constants, which is not supported")
    return ctx.tables[handle.number]


@operator("HASHTABLE_IMPORT", types=("resource",), limits="contents that are constants")
def _import(ctx: Lowering, node: Node) -> Result:
    """Lower the import of a table to nothing: its contents have been read before."""
    _table_of(ctx, node)
    return []


@operator("HASHTABLE_SIZE", types=("resource",))
def _size(ctx: Lowering, node: Node) -> Result:
    return np.array([_table_of(ctx, node).size], np.int64)


@operator("HASHTABLE_FIND", types=("resource",))
def _find(ctx: Lowering, node: Node) -> Result:
    """The values of keys, and the default where a key is not in the table."""
    table = _table_of(ctx, node)
    types = [dtype_name(part.dtype) for part in (table.keys, table.values, table.values)]
    found = [node.dtype(1), node.dtype(2), node.outputs[0].dtype]
    if found != types:
        raise CompileError(f"{found[0]} with a default of {found[1]} are looked up in a table of {types[0]}")
    default = ctx.reshaped(node.operand(2), (1,))
    if not table.keys.size:
        return Gather(outside="clip").lower(ctx, default, ctx.apply(Positions(table.keys), node.operand(1)))
    entries = ctx.apply(Concat(0), ctx.tensor(Value(table.values, types[1])), default)
    return Gather(outside="clip").lower(ctx, entries, ctx.apply(Positions(table.keys), node.operand(1)))
