"""How far results of code for GPUs are from those of code for this CPU: digits and the small networks of the tests.

Their libraries run on a driver that stands for NVIDIA's, with kernels that an emulator executes.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import nnefc

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "cuda" / part) for part in ("../helpers", "", "driver", "emulator")]

from emulated_networks import on_cuda  # noqa: E402
from small_networks import NETWORKS, Net  # noqa: E402

__all__ = ["agreement"]

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")


def agreement() -> list[str]:
    """Returns a table of the largest differences, as parts of the largest value, in all precisions."""
    lines = [
        "## Agreement",
        "",
        "Libraries on a driver that stands for NVIDIA's, their kernels executed by an emulator: the largest difference",
        "from the results of code for a CPU, as a part of the largest value.",
        "",
        "| network | " + " | ".join(PRECISIONS) + " |",
        "|---" + "|---:" * len(PRECISIONS) + "|",
    ]
    with tempfile.TemporaryDirectory() as folder:
        networks = {"digits": (ROOT / "examples" / "digits" / "model.nnef", {"image": _image()})}
        for name, build in NETWORKS.items():
            net = Net(seed=len(name))
            path = Path(folder) / f"{len(networks)}.onnx"
            path.write_bytes(net.model(build(net)).SerializeToString())
            networks[name] = (path, net.inputs)
        for name, (path, inputs) in networks.items():
            wanted = _results(path, inputs)
            cells = [f"{_difference(path, inputs, precision, wanted):.1e}" for precision in PRECISIONS]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _image() -> np.ndarray:
    return np.random.default_rng(0).random((1, 1, 8, 8), dtype=np.float32)


def _difference(
    path: Path, inputs: Mapping[str, np.ndarray], precision: str, wanted: Mapping[str, np.ndarray]
) -> float:
    with on_cuda(precision=precision):
        found = _results(path, inputs)
    return max(_relative(found[name], wanted[name]) for name in wanted)


def _results(path: Path, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    with nnefc.compile(path).load(threads=1) as network:
        return dict(network.run(inputs))


def _relative(found: np.ndarray, wanted: np.ndarray) -> float:
    a, b = found.astype(np.float64), wanted.astype(np.float64)
    return float(np.abs(a - b).max(initial=0.0) / max(np.abs(b).max(initial=0.0), 1e-30))
