"""How exact elementary functions are: every float32 through the compiler, compared with float64, in units of the last
place.

python benchmarks/elementary.py [--every 1]

writes results/elementary.md (a quarter of an hour of a processor; `--every 64` takes each 64th number and prints the
table alone). Needs SciPy.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import numpy.typing as npt
import onnx
from conditions import Conditions, write_page
from onnx import TensorProto, helper
from scipy import special

import nnefc

__all__ = ["FUNCTIONS", "Errors", "measured"]

Doubles = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

_NUMBERS = 1 << 16
"""Arguments of a run: arrays of as many doubles stay in a cache."""
_AT_A_TIME = 1 << 26
"""Bit patterns that a thread counts before it takes others."""
_LARGEST = np.float64(np.finfo(np.float32).max)
_SMALLEST = np.float64(np.finfo(np.float32).tiny)
_SMALLEST_COMPARED = 2 * _SMALLEST
"""Of results: powers of e that are less are zero."""
_EXPONENT = np.int64(0x7FF << 52)
"""Bits of a double."""


def _gelu(x: Doubles) -> Doubles:
    return 0.5 * x * special.erfc(-x / np.sqrt(2.0))


FUNCTIONS: Mapping[str, Callable[[Doubles], Doubles]] = {
    "Exp": np.exp,
    "Log": np.log,
    "Sqrt": np.sqrt,
    "Reciprocal": np.reciprocal,
    "Sigmoid": special.expit,
    "Tanh": np.tanh,
    "Erf": special.erf,
    "Gelu": _gelu,
    "Softplus": lambda x: np.logaddexp(0.0, x),
    "Sin": np.sin,
    "Cos": np.cos,
    "Tan": np.tan,
    "Asin": np.arcsin,
    "Acos": np.arccos,
    "Atan": np.arctan,
    "Sinh": np.sinh,
    "Cosh": np.cosh,
    "Asinh": np.arcsinh,
    "Acosh": np.arccosh,
    "Atanh": np.arctanh,
}
"""ONNX's operators, and what they are in float64."""


@dataclass
class Errors:
    """Of one function, in units of the last place of the exact result as a float32.

    Attributes:
        largest, at: the largest error, and the argument that has it.
        total, count: the sum of the errors, and of how many.
        rounded: how many are no further away than half a unit: correctly rounded.
        beyond: how many results are infinite, or not a number, where the exact one as a float32 is not, or reversely.
    """

    largest: float = 0.0
    at: float = 0.0
    total: float = 0.0
    count: int = 0
    rounded: int = 0
    beyond: int = 0

    def add(self, x: Singles, found: Singles, exact: Doubles) -> None:
        """Count results; those of which the exact one is below `_SMALLEST_COMPARED` are left out."""
        with np.errstate(all="ignore"):
            wanted = exact.astype(np.float32)
            both = np.isfinite(found) & np.isfinite(wanted)
            alike = both | (np.isnan(found) & np.isnan(wanted)) | (found == wanted)
            self.beyond += int(np.count_nonzero(~alike & ((np.abs(exact) < _LARGEST) | ~np.isfinite(exact))))
            usual = both & (np.abs(exact) >= _SMALLEST_COMPARED)
            x, found, exact, wanted = x[usual], found[usual], exact[usual], wanted[usual]
            unit = ((exact.view(np.int64) & _EXPONENT) - (23 << 52)).view(np.float64)
            error = np.abs(found.astype(np.float64) - exact) / unit
        if not error.size:
            return
        worst = int(error.argmax())
        if error[worst] > self.largest:
            self.largest, self.at = float(error[worst]), float(x[worst])
        self.total += float(error.sum())
        self.count += error.size
        self.rounded += int(np.count_nonzero(error <= 0.5))

    def merge(self, other: Errors) -> None:
        """Add the counts of another one, of arguments that follow this one's."""
        if other.largest > self.largest:
            self.largest, self.at = other.largest, other.at
        self.total += other.total
        self.count += other.count
        self.rounded += other.rounded
        self.beyond += other.beyond

    def row(self, name: str) -> str:
        """A line of the table."""
        mean, share = self.total / max(1, self.count), self.rounded / max(1, self.count)
        return f"| {name} | {self.largest:.2f} | {self.at:.9g} | {mean:.3f} | {share:.1%} | {self.beyond:,} |"


def _model(names: Sequence[str], path: Path) -> None:
    nodes = [helper.make_node(name, ["x"], [name]) for name in names]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [_NUMBERS])]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [_NUMBERS]) for name in names]
    graph = helper.make_graph(nodes, "functions", given, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)


def measured(names: Sequence[str], every: int) -> dict[str, Errors]:
    """The errors of functions, over each `every`-th of the normal numbers of float32, and zero."""
    found = {name: Errors() for name in names}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "functions.onnx"
        _model(names, path)
        with nnefc.compile(path).load() as library, ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:
            begins = range(0, 1 << 32, max(_AT_A_TIME, _NUMBERS * every))
            for part in threads.map(lambda begin: _errors(library, names, begin, begin + begins.step, every), begins):
                for name, errors in part.items():
                    found[name].merge(errors)
    return found


def _errors(library: nnefc.Model, names: Sequence[str], begin: int, end: int, every: int) -> dict[str, Errors]:
    """Of arguments whose bit patterns lie from `begin` to `end`."""
    found = {name: Errors() for name in names}
    with library.session(threads=1) as session, np.errstate(all="ignore"):
        for first in range(begin, end, _NUMBERS * every):
            x = (first + every * np.arange(_NUMBERS, dtype=np.int64)).astype(np.uint32).view(np.float32)
            x = np.where(np.abs(x) < np.float32(_SMALLEST), np.float32(0), x)
            results = session.run({"x": x})
            for name in names:
                found[name].add(x, results[name], FUNCTIONS[name](x.astype(np.float64)))
    return found


@click.command()
@click.option("--every", type=click.IntRange(1), default=1, show_default=True, help="Of so many numbers take one.")
def main(every: int) -> None:
    """Measure, and write the page if all numbers are taken."""
    found = measured(tuple(FUNCTIONS), every)
    body = [
        "Each function of a float32 number that has a kernel of its own, compiled for this processor, for every",
        "argument that is not subnormal, compared with float64: the error in units of the last place of the "
        "exact result, as",
        "a float32. Half a unit is correct rounding. Results below 2⁻¹²⁵ (2.4e-38) may be zero, and are not included.",
        "`other` is how many results are infinite or no number where the exact one is an ordinary float32, or",
        "reversely. Gelu is x (1 + erf(x / √2)) / 2, which cancels where x is far below zero: its errors are small",
        "next to x there.",
        "",
        "| function | largest error | of the argument | mean error | correctly rounded | other |",
        "|---|---:|---:|---:|---:|---:|",
        *(errors.row(name) for name, errors in found.items()),
    ]
    if every > 1:
        click.echo("\n".join(body))
        return
    click.echo(write_page("elementary", "Errors of elementary functions", Conditions.now(), body))


if __name__ == "__main__":
    main()
