"""Reads samples of scikit-learn: arrays of one type, and tables whose columns become separate inputs.

a data frame, or an array of objects       size  kind    size: float64[n, 1]
with numbers and texts                      1.5  "ant"   kind: string[n, 1]
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from nnefc.loader import Tensor
from nnefc.loader.tensors import DTYPES
from nnefc.support.diagnostics import CompileError

__all__ = ["Array", "columns_of", "converted_to", "table_of"]

Array: TypeAlias = "np.ndarray[Any, Any]"

_NUMBERS = (bool, np.bool_, int, np.integer, float, np.floating)


def table_of(samples: Any) -> Any:
    """Return samples as an array or a data frame.

    Raises:
        CompileError: they are something else, such as a list of dictionaries.
    """
    if hasattr(samples, "columns"):
        return samples
    if isinstance(samples, np.ndarray):
        has_numbers = samples.dtype.kind == "O" and samples.ndim == 2 and samples.size
        return np.array(samples.tolist()) if has_numbers and _are_numbers(map(type, samples.flat)) else samples
    if hasattr(samples, "toarray"):
        return np.asarray(samples.toarray())
    if hasattr(samples, "to_numpy"):
        return samples.to_numpy()
    if isinstance(samples, Sequence) and not isinstance(samples, str) and samples:
        kinds = {type(element) for element in samples}
        if kinds == {str}:
            return np.array(samples, object)
        if kinds <= {list, tuple, np.ndarray, *_NUMBERS}:
            try:
                made = np.array(samples)
                return np.array(samples, object) if made.dtype.kind == "U" else made
            except ValueError:  # rows of several lengths
                pass
    raise CompileError(
        f"the samples are {_described(samples)}: they must be an array or a data frame",
        hint="an ONNX model has no inputs of other kinds: give what the step after this one reads",
    )


def columns_of(samples: Any, names: Collection[str] | None = None) -> dict[str, Array] | None:
    """Return the columns of a table, `[n, 1]` each, by name; None for an array of one type, which is a single input.

    Args:
        samples: an array or a data frame.
        names: of a data frame's columns; None: all.

    Raises:
        CompileError: a column has values of several types, or of a type that ONNX does not have.
    """
    if hasattr(samples, "columns"):
        chosen = [name for name in samples.columns if names is None or str(name) in names]
        return {str(name): _column(str(name), samples[name].to_numpy()) for name in chosen}
    if samples.dtype.kind != "O" or samples.ndim != 2 or all(isinstance(value, str) for value in samples.flat):
        return None
    return {f"x{number}": _column(f"x{number}", samples[:, number]) for number in range(samples.shape[1])}


def _column(name: str, values: Any) -> Array:
    array = np.asarray(values).reshape(-1, 1)
    if array.dtype.kind in "UT":
        return array.astype(object)
    if array.dtype.kind in "biuf":
        return array
    kinds = {type(value) for value in array.flat} if array.dtype.kind == "O" else set()
    if kinds <= {str, np.str_} and array.dtype.kind == "O":
        return array
    if kinds and _are_numbers(kinds):
        return np.array(array.tolist())
    named = ", ".join(sorted(kind.__name__ for kind in kinds)) or str(array.dtype)
    raise CompileError(
        f"the column {name} has values of {named}, where it must have texts or numbers alone",
        hint="fill in values that are missing, make numbers of dates, and leave out columns that are not read",
    )


def converted_to(tensor: Tensor, array: Array) -> Array:
    """Convert an array to the type of an input.

    Raises:
        CompileError: the values are of another kind, such as numbers for an input of texts.
    """
    if tensor.dtype == "string":
        if array.dtype.kind not in "OUT" or not all(isinstance(value, str) for value in array.flat):
            raise CompileError(f"{tensor.name} has values that are no texts, as it had when the estimator was compiled")
        return array
    try:
        with np.errstate(invalid="ignore"):
            made = array.astype(DTYPES[tensor.dtype])
    except (TypeError, ValueError):
        made = None
    if made is None or (made.dtype.kind in "iub" and not np.array_equal(made, array)):
        raise CompileError(
            f"{tensor.name} has values that are not {tensor.dtype}, which it had when the estimator was compiled",
            hint="compile it with samples of this type",
        )
    return made


def _are_numbers(kinds: Iterable[type]) -> bool:
    return all(issubclass(kind, _NUMBERS) for kind in kinds)


def _described(samples: Any) -> str:
    if isinstance(samples, Mapping) or not isinstance(samples, Sequence) or not samples:
        return f"of the type {type(samples).__name__}"
    return f"a {type(samples).__name__} of elements of the type {type(samples[0]).__name__}"
