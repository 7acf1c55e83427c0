"""A server of one network for `serving.py`: of a compiled library, or of onnxruntime behind the same server.

python benchmarks/serving_worker.py {nnefc,onnxruntime} MODEL ROWS

writes the ports of HTTP and gRPC to stdout, and serves until SIGTERM. One session with one thread computes, so that
on two processors the other one is left to the protocol and to the client.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from nnefc.cli.commands.serve import samples
from nnefc.loader import Dimension, Tensor
from nnefc.serving import served
from nnefc.serving.event_loop import runner
from nnefc.serving.server import Server
from nnefc.serving.settings import Listening, Policy

TYPES = {"tensor(float)": "float32", "tensor(int64)": "int64"}
MAX_ROWS = 1 << 20


class OnnxRuntime:
    """A session of onnxruntime with the interface of `nnefc.Model`, as far as the server asks for it."""

    def __init__(self, path: Path, **_: Any) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.name, self.target, self.states = path.stem, "onnxruntime", ()
        self.inputs = tuple(map(_tensor, self._session.get_inputs()))
        self.outputs = tuple(map(_tensor, self._session.get_outputs()))
        names = {size for tensor in self.inputs for size in tensor.shape if isinstance(size, str)}
        self.dimensions = tuple(Dimension(name, 1, MAX_ROWS, 1, 1) for name in sorted(names))

    def run(self, inputs: Mapping[str, np.ndarray], outputs: Sequence[str] | None = None) -> dict[str, np.ndarray]:
        """The outputs by name, all or these."""
        names = [tensor.name for tensor in self.outputs] if outputs is None else list(outputs)
        return dict(zip(names, self._session.run(names, dict(inputs)), strict=True))

    def cancel(self) -> None:
        """Runs are not ended; so that quick ones are made without another thread, as those of nnefc."""

    def session(self, **_: Any) -> OnnxRuntime:
        """Itself: its runs take turns by themselves."""
        return self

    def close(self) -> None:
        """There is nothing to free."""


def ones(model: Any, rows: int) -> dict[str, np.ndarray]:
    """Inputs for a first run."""
    return {t.name: np.ones([rows if isinstance(s, str) else s for s in t.shape], t.dtype) for t in model.inputs}


def _tensor(port: Any) -> Tensor:
    return Tensor(port.name, TYPES[port.type], tuple(port.shape))


async def serve(backend: str, model: Path, rows: int) -> None:
    """Serve until SIGTERM."""
    if backend == "onnxruntime":
        served.load = OnnxRuntime  # type: ignore[assignment]
    where = Listening(port=0, grpc_port=0)
    first = samples if backend == "nnefc" else ones
    server = Server({("net", "1"): model}, Policy(threads=1, rows=rows), where, first)

    def on_log(line: str) -> None:
        if line.startswith("listening"):
            print(server.port, server.grpc_port, flush=True)
        if line.startswith("note"):
            print(line, file=sys.stderr, flush=True)

    await server.run(on_log)


if __name__ == "__main__":
    with runner() as loop:
        loop.run(serve(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
