"""The networks of MLPerf Tiny as C source on a Cortex-M4, next to libraries and to emx-onnx-cgen: memory, instructions.

    python benchmarks/c_source.py [NETWORK ...]

Without names it takes all of `tiny_networks.py` and writes benchmarks/results/c_source.md. Needs QEMU's
`qemu-system-arm`, and for the peer emx-onnx-cgen from PyPI. Three minutes.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from conditions import Conditions, page, write_page
from peers import emx_network
from tiny_networks import NETWORKS, input_shape, write_float, write_int8

import nnefc

_ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT / "tests" / "targets"))

BOARD = "cortex-m4"
TITLE = "Networks of MLPerf Tiny as C source"
_DSP = "C source, `-t cortex-m4`"
FORMS = {"library, `-t cortex-m4`": "cortex-m4", _DSP: "generic-c -mcpu=cortex-m4", "C source": "generic-c"}

_HEAD = [
    "The four networks have the published layer sizes and random weights, in float32 and in int8 (`--io int8`). All",
    "are compiled by the same compiler, Clang, with `-O2` (emx-onnx-cgen's C with `-O3`), and run on the same board",
    "under QEMU. *Flash* is what code and constants of the network add to a program, *RAM* the arena, of emx-onnx-cgen",
    "what is allocated at a time. Instructions are those of one run, by the processor's timer, whose clock advances",
    "with them. emx-onnx-cgen computes quantized networks in float32, and is compared in float32 alone.",
    "",
    "| network | type | code | flash | RAM | stack | million instructions | outputs |",
    "|---|---|---|---:|---:|---:|---:|---|",
]


@dataclass(frozen=True)
class Line:
    """A row of the table."""

    name: str
    dtype: str
    form: str
    flash: int
    memory: int
    stack: int
    instructions: int
    apart: float

    @property
    def text(self) -> str:
        sizes = " | ".join(f"{size:,}" for size in (self.flash, self.memory, self.stack))
        outputs = f"differ by {self.apart:.1g}" if self.apart else "equal"
        start = f"| {self.name} | {self.dtype} | {self.form}"
        return f"{start} | {sizes} | {self.instructions / 1e6:.3f} | {outputs} |"


def line(name: str, model: Path, dtype: str, form: str) -> Line:
    """One network as one form of code."""
    from boards import run_on_board

    io = "int8" if dtype == "int8" else "float"
    artifact = nnefc.compile(model, FORMS[form], io=io)
    (given,) = artifact.inputs
    data = {given.name: _data(name)}
    if given.scale is not None:
        steps = np.rint(_data(name) / np.float32(given.scale)) + given.zero_point
        data = {given.name: np.clip(steps, -128, 127).astype(np.int8)}
    measured = run_on_board(artifact, data, target=BOARD, flash=True)
    wanted = nnefc.compile(model, io=io).run(data)
    apart = max(float(np.abs(measured.outputs[k].astype(float) - v.astype(float)).max()) for k, v in wanted.items())
    sizes = measured.flash_bytes, artifact.description.workspace_bytes, measured.stack_bytes
    return Line(name, dtype, form, *sizes, measured.instructions, apart)


def peer(name: str, model: Path) -> Line | None:
    """The same of emx-onnx-cgen; None where it is not installed, or the board's memory is too small."""
    if emx_network.missing():
        return None
    wanted = nnefc.compile(model).run({"input": _data(name)})
    (output,) = wanted.values()
    with tempfile.TemporaryDirectory() as folder:
        found = emx_network.run(model, BOARD, _data(name), output.nbytes, Path(folder))
    if found is None:
        return None
    apart = float(np.abs(found.output.reshape(output.shape) - output).max())
    sizes = found.flash_bytes, found.heap_bytes, found.stack_bytes
    return Line(name, "float32", emx_network.version(), *sizes, found.instructions, apart)


def _data(name: str) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(input_shape(name)).astype(np.float32)


@click.command()
@click.argument("networks", nargs=-1, type=click.Choice(list(NETWORKS)))
def main(networks: tuple[str, ...]) -> None:
    """Measure NETWORKS, or all."""
    lines = list(_HEAD)
    with tempfile.TemporaryDirectory() as folder:
        for name in networks or NETWORKS:
            for dtype, write in (("float32", write_float), ("int8", write_int8)):
                model = Path(folder) / "network.onnx"
                write(name, model)
                made = [line(name, model, dtype, form) for form in FORMS if dtype == "int8" or form != _DSP]
                found = peer(name, model) if dtype == "float32" else None
                for each in (*made, *([found] if found is not None else [])):
                    lines.append(each.text)
                    click.echo(each.text, err=True)
    conditions = Conditions.now()
    click.echo(page(TITLE, conditions, lines))
    if not networks:
        write_page("c_source", TITLE, conditions, lines)


if __name__ == "__main__":
    main()
