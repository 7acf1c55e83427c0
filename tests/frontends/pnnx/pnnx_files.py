"""Param and bin files written by the tests, and networks run from them."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tvm import relax
from virtual_machine import run_in_virtual_machine

from nnefc.frontends.pnnx import load
from nnefc.ir.network import Network
from nnefc.passes.legalize.element_wise import ELEMENT_WISE
from nnefc.passes.legalize.reductions import REDUCTIONS

DATA = Path(__file__).parents[2] / "data" / "pnnx"

TYPES = {
    "float16": "f16", "float32": "f32", "float64": "f64", "int8": "i8", "uint8": "u8", "int16": "i16", "int32": "i32",
    "int64": "i64", "bool": "bool",
}  # fmt: skip


def annotation(array: np.ndarray) -> str:
    """The type of an array as the format spells it."""
    return f"({','.join(map(str, array.shape))}){TYPES[str(array.dtype)]}"


def write_bin(path: Path, tensors: Mapping[str, np.ndarray]) -> None:
    """A binary file with `tensors`, by `operator.attribute`."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, tensor in tensors.items():
            archive.writestr(name, tensor.tobytes())


def write_network(
    folder: Path, lines: Sequence[str], tensors: Mapping[str, np.ndarray] | None = None, operands: int | None = None
) -> Path:
    """A network of these operators; the number of operands follows unless given."""
    count = 0
    for line in lines:
        words = line.split()
        count += int(words[3])
    path = folder / "model.pnnx.param"
    path.write_text("\n".join(["7767517", f"{len(lines)} {count if operands is None else operands}", *lines, ""]))
    write_bin(folder / "model.pnnx.bin", tensors or {})
    return path


def operator_network(
    folder: Path, type: str, inputs: Sequence[np.ndarray], parameters: str = "", outputs: int = 1, **tensors: np.ndarray
) -> Path:
    """One operator between its inputs and its outputs; `tensors` are its own."""
    lines = [f"pnnx.Input in{i} 0 1 {i} #{i}={annotation(x)}" for i, x in enumerate(inputs)]
    names = [str(len(inputs) + i) for i in range(outputs)]
    own = " ".join(f"@{name}={annotation(tensor)}" for name, tensor in tensors.items())
    operands = " ".join([*map(str, range(len(inputs))), *names])
    lines.append(f"{type} op {len(inputs)} {outputs} {operands} {parameters} {own}".rstrip())
    lines += [f"pnnx.Output out{i} 1 0 {name}" for i, name in enumerate(names)]
    return write_network(folder, lines, {f"op.{name}": tensor for name, tensor in tensors.items()})


def run(network: Network, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Compile with TVM's own schedules and run once."""
    legalize = relax.transform.LegalizeOps({**ELEMENT_WISE, **REDUCTIONS})
    return run_in_virtual_machine(legalize(network.module), inputs)


def run_operator(folder: Path, type: str, inputs: Sequence[np.ndarray], parameters: str = "", **tail: Any) -> Any:
    """The result of one operator, or the list of its results."""
    results = run(load(operator_network(folder, type, inputs, parameters, **tail)), inputs)
    return results[0] if len(results) == 1 else results


def run_expression(folder: Path, text: str, *inputs: np.ndarray) -> np.ndarray:
    """The value of an expression of `inputs`."""
    result: np.ndarray = run_operator(folder, "pnnx.Expression", inputs, f"expr={text}")
    return result
