"""Converts a network of any format to a model of NNEF: `nnefc convert`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Unpack

from nnefc.driver.formats import load_network, load_operator_files, write_document
from nnefc.driver.model_format import format_of
from nnefc.driver.option_keywords import ReadKeywords, read_options, with_documented_options
from nnefc.frontends.nnef.writing import Written, check_output, write_model, written
from nnefc.loader import LoadError, RunError
from nnefc.operators.recording import recording
from nnefc.support.diagnostics import CompileError, warn
from nnefc.support.internal_errors import reports_internal_errors

__all__ = ["convert"]


@with_documented_options(ReadKeywords)
@reports_internal_errors(LoadError, RunError)
def convert(
    model: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    registry: str | None = None,
    **options: Unpack[ReadKeywords],
) -> Path:
    """Write a model as a model of NNEF 1.0: a flat graph of the standard's operations, with the tensors in files.

    Args:
        model: NNEF, ONNX, TFLite, PNNX, GGUF, or a folder with `config.json` and `.safetensors` files.
        output: a folder, or an archive if the name ends with `.tgz`, `.tar.gz` or `.tar`. An existing one is replaced
            when the new one is complete. Dynamic sizes are written as unknown.
        registry: `tract_core`: write tract's dialect of NNEF, which has tensors of all element types, symbols for
            dynamic sizes, and more operators; None: write the standard.
        {options}

    Returns:
        the path of the written model.

    Raises:
        CompileError: the model is invalid, or has something that NNEF cannot express; with its name, its location, and
            a hint.
    """
    reading = read_options("nnefc.convert", options)
    path = Path(output)
    if registry not in (None, "tract_core"):
        raise CompileError(f"there is no registry '{registry}' to write with", hint="give tract_core, or none")
    check_output(path)
    load_operator_files(reading.operators)
    if format_of(Path(model)).has_documents:
        write_document(Path(model), path, reading)
        return path
    with recording() as found:
        network = load_network(Path(model), reading)
    made = written(network, found, registry)
    _warn_of_widths(Path(model), made)
    write_model(made, path)
    return path


def _warn_of_widths(model: Path, made: Written) -> None:
    if made.widths:
        listed = ", ".join(f"'{name}' ({dtype})" for name, dtype in list(made.widths.items())[:10])
        more = f" and {len(made.widths) - 10} more" if len(made.widths) > 10 else ""
        warn(f"{model.name}: integers of NNEF have no width, and are read as 32 bits: {listed}{more}")
