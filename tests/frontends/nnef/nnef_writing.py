"""Networks written as models of NNEF and read again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import nnef
import numpy as np
import tvm
from nnef_cases import run_network

from nnefc.driver.compile import compile_network
from nnefc.frontends.nnef import load
from nnefc.frontends.nnef.writing import write_model, written
from nnefc.ir.network import Network
from nnefc.operators.recording import recording
from nnefc.targets.machine.cpu.parsing import parse_target

__all__ = ["RoundTrip", "converted", "results_of", "round_trip", "values_for"]


@dataclass(frozen=True)
class RoundTrip:
    """A network, the text of its model of NNEF, and the network that is read of that."""

    network: Network
    text: str
    again: Network

    @property
    def same_relax(self) -> bool:
        """Whether both are the same program, but for names."""
        try:
            tvm.ir.assert_structural_equal(self.network.module, self.again.module)
        except ValueError:
            return False
        return True

    def check(self, tolerance: float = 1e-5) -> None:
        """Both compute the same: the same program, or one with the same results."""
        assert len(self.network.inputs) == len(self.again.inputs)
        assert len(self.network.outputs) == len(self.again.outputs)
        if self.same_relax:
            return
        values = values_for(self.network)
        found = run_network(self.again, [v.astype(np.int32) if v.dtype == np.int64 else v for v in values])
        for expected, result in zip(results_of(self.network, values), found, strict=True):
            assert result.shape == expected.shape
            np.testing.assert_allclose(result, expected, rtol=tolerance, atol=tolerance, err_msg=self.text)


def round_trip(read: Callable[[], Network], folder: Path) -> RoundTrip:
    """Read a network, write it to a folder, and read that; the package nnef reads it too."""
    model = folder / "again.nnef"
    network = converted(read, model)
    nnef.load_graph(str(model))
    return RoundTrip(network, (model / "graph.nnef").read_text(), load(model))


def converted(read: Callable[[], Network], model: Path, registry: str | None = None) -> Network:
    """Read a network, and write it; returns it."""
    with recording() as found:
        network = read()
    write_model(written(network, found, registry), model)
    return network


def results_of(network: Network, values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Its outputs; TVM's own machine has no loops and branches of ours."""
    if not network.controls:
        return run_network(network, values)
    made = compile_network(network, parse_target("llvm")).run(dict(zip(network.inputs, values, strict=True)))
    return [made[name] for name in network.outputs]


def values_for(network: Network) -> list[np.ndarray]:
    """Values for the inputs of a network of known sizes; small integers."""
    rng = np.random.default_rng(7)
    made = []
    for param in network.module["main"].params:
        shape, dtype = tuple(map(int, param.ty.shape)), str(param.ty.dtype)
        real = dtype.startswith("float")
        made.append((rng.standard_normal(shape) if real else rng.integers(0, 2, shape)).astype(dtype))
    return made
