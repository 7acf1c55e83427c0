"""Makes the PNNX files of the tests and what PyTorch computes with them: `python tests/data/pnnx/make.py [NAME …]`.

Needs PyTorch and `pnnx`. For each module in `networks.py` and `operators.py`: NAME.pnnx.param, NAME.pnnx.bin and
NAME.npz with `input_0`, … and `output_0`, ….
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pnnx
import torch
from networks import NETWORKS
from operators import OPERATORS
from torch import Tensor, nn

HERE = Path(__file__).parent
TYPES = {torch.float32: "f32", torch.int64: "i64", torch.int32: "i32", torch.bool: "bool"}


def flat(value: object) -> list[Tensor]:
    """The tensors in nested tuples and lists, in order."""
    return [value] if isinstance(value, Tensor) else [tensor for element in value for tensor in flat(element)]  # type: ignore


def settle(module: nn.Module) -> None:
    """Statistics and scales as after a training: not the initial zeros and ones."""
    for part in module.modules():
        mean, variance = getattr(part, "running_mean", None), getattr(part, "running_var", None)
        if mean is not None and variance is not None:
            mean.normal_(0, 0.1)
            variance.uniform_(0.5, 1.5)
            if part.weight is not None:
                nn.init.uniform_(part.weight, 0.5, 1.5)
                nn.init.normal_(part.bias, 0, 0.1)


def convert(module: nn.Module, inputs: Sequence[Tensor], target: Path) -> None:
    """Trace a module and convert the trace; `target` is the path without `.pnnx.param`."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / f"{target.name}.pt"
        torch.jit.trace(module, tuple(inputs), check_trace=False, strict=False).save(str(trace))
        shapes = ",".join(f"[{','.join(map(str, x.shape))}]{TYPES[x.dtype]}" for x in inputs)
        subprocess.run(
            [pnnx.EXEC_PATH, trace.name, f"inputshape={shapes}"],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for end in (".pnnx.param", ".pnnx.bin"):
            (target.parent / f"{target.name}{end}").write_bytes((Path(folder) / f"{target.name}{end}").read_bytes())


def make(name: str) -> None:
    """Make the files of one module."""
    torch.manual_seed(sum(map(ord, name)))
    build, sample = {**NETWORKS, **OPERATORS}[name]
    module = build().eval()
    settle(module)
    inputs = sample()
    with torch.no_grad():
        outputs = flat(module(*inputs))
    convert(module, inputs, HERE / name)
    arrays = {f"input_{i}": x.numpy() for i, x in enumerate(inputs)}
    arrays |= {f"output_{i}": x.numpy() for i, x in enumerate(outputs)}
    np.savez_compressed(HERE / f"{name}.npz", **arrays)


if __name__ == "__main__":
    for wanted in sys.argv[1:] or [*NETWORKS, *OPERATORS]:
        print(wanted)
        make(wanted)
