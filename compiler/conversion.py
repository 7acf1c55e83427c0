"""`nnefc convert`: a network of any format as a model of NNEF."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nnefc.diagnostics import CompileError, warn
from nnefc.formats import ShapeLike, load_network, load_operator_files
from nnefc.frontends.nnef.writing import Written, check_output, write_model, written
from nnefc.internal_errors import reports_internal_errors
from nnefc.loader import LoadError, RunError
from nnefc.operators.recording import recording

__all__ = ["convert"]


@reports_internal_errors(LoadError, RunError)
def convert(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    shape: Mapping[str, ShapeLike] | None = None,
    values: Mapping[str, Any] | None = None,
    graph: str | None = None,
    dialect: str | None = None,
    pedantic: bool = False,
    entry: str | None = None,
    overridable: bool = False,
    output_tensors: Sequence[str] = (),
    random_weights: int | None = None,
    max_depth: int | None = None,
    max_operations: int | None = None,
    operators: Sequence[str | os.PathLike[str]] = (),
    registry: str | None = None,
) -> Path:
    """Write a model as one of NNEF 1.0: a flat graph of the standard's operations, and its tensors in files.

    Args:
        model: NNEF, ONNX or PNNX.
        output: a folder; or, by its name's ending, an archive of one: `.tgz`, `.tar.gz`, `.tar`. What is there is
            replaced when all is written.
        shape: sizes of what the model leaves open, as for `nnefc.compile`. What stays open is written as unknown.
        registry: `tract_core`: in tract's dialect of NNEF, which has tensors of all element types, symbols for open
            sizes, and more operators; None: in the standard's.

    The other arguments say how the model is read, as for `nnefc.compile`.

    Returns:
        What was written.

    Raises:
        CompileError: the model is invalid, or has something that NNEF cannot say; with its name, its place, and a way
            out.
    """
    path = Path(output)
    if registry not in (None, "tract_core"):
        raise CompileError(f"there is no registry '{registry}' to write with", hint="give tract_core, or none")
    check_output(path)
    load_operator_files(operators)
    with recording() as found:
        network = load_network(
            Path(model),
            shape=shape,
            values=values,
            graph=graph,
            dialect=dialect,
            pedantic=pedantic,
            entry=entry,
            overridable=overridable,
            output_tensors=tuple(output_tensors),
            random_weights=random_weights,
            max_depth=max_depth,
            max_operations=max_operations,
        )
    made = written(network, found, registry)
    _warn_of_widths(Path(model), made)
    write_model(made, path)
    return path


def _warn_of_widths(model: Path, made: Written) -> None:
    if made.widths:
        listed = ", ".join(f"'{name}' ({dtype})" for name, dtype in list(made.widths.items())[:10])
        more = f" and {len(made.widths) - 10} more" if len(made.widths) > 10 else ""
        warn(f"{model.name}: integers of NNEF have no width, and are read as 32 bits: {listed}{more}")
