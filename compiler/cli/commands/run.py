"""`nnefc run`: runs a compiled library on arrays from files. Needs NumPy and the loader, not TVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnefc.cli.arrays import read_inputs, write_outputs
from nnefc.cli.grouped import Command, option
from nnefc.cli.models import opened_libraries
from nnefc.cli.options import given, session_options
from nnefc.cli.tables import columns
from nnefc.ir.sample_inputs import Arrays, Port, chosen_ports, random_inputs
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.named_formulas import Formula

if TYPE_CHECKING:
    import numpy as np

    from nnefc.loader import Model

__all__ = ["inputs_of", "random_description", "run_library"]

_LONGEST_TEXT = 24


@click.command("run", cls=Command)
@click.argument("library", type=click.Path(path_type=Path))
@session_options
@option(
    "--random",
    group="Inputs",
    type=click.IntRange(min=0),
    metavar="SEED",
    help="Use random values for inputs that have no file.",
)
@option(
    "--output",
    group="Output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write each output to this folder as NAME.npy.  [default: print a summary]",
)
@option(
    "--select",
    group="Output",
    multiple=True,
    metavar="NAME",
    help="Compute this output only, and leave out the kernels that the others alone need (repeatable).  [default: all]",
)
@option(
    "--check-nan",
    group="Output",
    is_flag=True,
    default=None,
    help="Fail if an input or output contains NaN, and say where.",
)
@option(
    "--threads",
    group="Loading",
    type=click.IntRange(min=1),
    help="The number of threads.  [default: one for each core]",
)
def run_library(
    library: Path,
    inputs: tuple[str, ...],
    shape: dict[str, tuple[int | str, ...]] | None,
    weights: Path | None,
    weights_key: Path | None,
    key: Path | None,
    device: int,
    flush_subnormals: bool | None,
    random: int | None,
    output: Path | None,
    select: tuple[str, ...],
    check_nan: bool | None,
    threads: int | None,
) -> None:
    """Run LIBRARY, compiled by nnefc, on arrays from files.

    A model in place of the library is compiled for this machine, and its library cached.
    """
    from nnefc.loader import load

    if shape is not None and random is None:
        raise click.UsageError("--shape is of random values: arrays from files have shapes of their own")
    chosen = given({"weights": weights, "weights_key": weights_key, "key": key, "flush_subnormals": flush_subnormals})
    with opened_libraries(key) as found, load(found(library), threads=threads, device=device, **chosen) as model:
        arrays, left = inputs_of(model, inputs, shape or {}, random)
        with random_description(left):
            results = model.run(arrays, **given({"check_nan": check_nan, "outputs": select}))
        if output is not None:
            write_outputs(output, results)
        else:
            click.echo("\n".join(describe(results, {tensor.name: tensor.dtype for tensor in model.outputs})))


def inputs_of(
    model: Model,
    inputs: tuple[str, ...],
    shape: Mapping[str, tuple[int | str, ...]],
    random: int | None,
) -> tuple[Arrays, list[Port]]:
    """Return the arrays of `--input` and, with a seed, random arrays for the other inputs, in the order of the inputs.

    Returns:
        the arrays by name, and the inputs that are random.
    """
    arrays = read_inputs(inputs, model.inputs)
    left: list[Port] = [port for port in model.inputs if port.name not in arrays]
    if random is not None:
        limits, formulas = input_description(model.file)
        ports = chosen_ports(model.inputs, model.dimensions, shape, arrays, formulas)
        drawn = [port for port in ports if port.name not in arrays]
        arrays = random_inputs(random, drawn, limits) | arrays
    missing = [port.name for port in model.inputs if port.name not in arrays]
    if missing:
        raise CompileError(
            f"no value for input {', '.join(map(repr, missing))}",
            hint=f"give a file, --input {missing[0]}=FILE.npy, or random values, --random 0",
        )
    return {port.name: arrays[port.name] for port in model.inputs}, left


@contextmanager
def random_description(drawn: Sequence[Port]) -> Iterator[None]:
    """Add a note about random integer inputs to the error of a failed run in the body: few networks accept any
    integers.
    """
    from nnefc.loader import RunError

    whole = [port.name for port in drawn if "int" in str(port.dtype)]
    try:
        yield
    except RunError as error:
        if not whole:
            raise
        raise CompileError(
            str(error),
            hint=f"the network may not take the random values of {', '.join(map(repr, whole))}: give ones that it "
            f"takes, --input {whole[0]}=FILE.npy",
        ) from error


def input_description(library: Path) -> tuple[dict[str, int], dict[str, Formula]]:
    """Returns the exclusive upper bounds of inputs that are used as indices, and the formulas of derived dimensions."""
    from nnefc.targets.description.library_file import read_metadata

    metadata = read_metadata(library) if library.is_file() else None
    if metadata is None:
        return {}, {}
    found = metadata.description
    return dict(found.index_limits), {each.name: each.formula for each in found.formulas}


def describe(results: Mapping[str, np.ndarray[Any, Any]], types: Mapping[str, str]) -> list[str]:
    """Return a line for each output with its type, shape, minimum, mean and maximum; for strings, the first and the
    last.

    Args:
        results: arrays by output.
        types: the element types by output; bfloat16 has arrays of uint16.
    """
    from nnefc.loader.arrays import float32_of_bfloat16

    rows = [("output", "type", "shape", "min", "mean", "max")]
    for name, array in results.items():
        values = float32_of_bfloat16(array) if types[name] == "bfloat16" else array
        rows.append((name, types[name], f"[{', '.join(map(str, array.shape))}]", *summary(values)))
    return columns(rows, right=(3, 4, 5))


def summary(array: np.ndarray[Any, Any]) -> tuple[str, str, str]:
    """Returns the min, mean and max of an array's elements, where they exist."""
    if array.size == 0:
        return "-", "-", "-"
    if array.dtype.hasobject:
        texts = sorted(array.reshape(-1).tolist())
        return shortened(texts[0]), "-", shortened(texts[-1])
    values = array.astype("float64")
    return f"{values.min():.6g}", f"{values.mean():.6g}", f"{values.max():.6g}"


def shortened(text: str) -> str:
    """Return a string in quotes, truncated and with control characters escaped."""
    shown = repr(text)
    return shown if len(shown) <= _LONGEST_TEXT else f"{shown[:_LONGEST_TEXT]}…"
