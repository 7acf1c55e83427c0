"""Finds the contents of hash tables, which are constants of a subgraph that runs once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nnefc.frontends.tflite.model import Model
from nnefc.frontends.tflite.variables import subgraphs_that_run
from nnefc.operators.base import Array
from nnefc.support.diagnostics import CompileError

__all__ = ["HashTable", "constant_tables"]


@dataclass(frozen=True, eq=False)
class HashTable:
    """Keys and values, `[N]` each; one of them are strings, the other int64. Of equal keys the first counts."""

    keys: Array
    values: Array

    @property
    def size(self) -> int:
        """The number of different keys."""
        return len(set(self.keys.tolist()))


def constant_tables(model: Model, entry: int) -> dict[int, HashTable]:
    """The tables that a subgraph, and those that it runs, fill with constants, by their numbers.

    The first contents of a table are kept, as in LiteRT.

    Raises:
        CompileError: keys and values differ in number, or are of types that LiteRT's tables do not have.
    """
    found: dict[int, HashTable] = {}
    for subgraph in subgraphs_that_run(model, entry):
        numbers: dict[int, int] = {}
        for operator in subgraph.operators:
            if operator.name == "HASHTABLE" and operator.outputs:
                numbers[operator.outputs[0]] = int(getattr(operator.options, "table_id", 0))
            if operator.name != "HASHTABLE_IMPORT" or len(operator.inputs) != 3 or min(operator.inputs) < 0:
                continue
            number = numbers.get(operator.inputs[0])
            keys, values = (model.array(subgraph.tensors[i]) for i in operator.inputs[1:])
            if number is None or number in found or keys is None or values is None:
                continue
            if keys.size != values.size or {keys.dtype, values.dtype} != {np.dtype(object), np.dtype(np.int64)}:
                raise CompileError(
                    f"{model.file}: subgraph {subgraph.index}, operator {operator.index} (HASHTABLE_IMPORT): "
                    f"{keys.size} keys and {values.size} values are not strings and as many int64"
                )
            found[number] = HashTable(keys.reshape(-1), values.reshape(-1))
    return found
