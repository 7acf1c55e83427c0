"""What `first_run.c` measures, from Python: from the import of the engine on, NumPy being there already.

    python first_run.py nnefc LIBRARY.so THREADS
    python first_run.py onnxruntime MODEL.onnx|MODEL.ort THREADS

prints the same JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np


def status_bytes(name: str) -> int:
    """A line of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def values(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Small values; zeros are right for indices."""
    count = int(np.prod(shape))
    array = np.arange(count) % 97 / 97 if dtype == "float32" else np.zeros(count)
    return array.astype(dtype).reshape(shape)


def of_nnefc(library: str, threads: int) -> Callable[[], object]:
    import nnefc

    model = nnefc.load(library, threads=threads)
    return lambda: model.run({tensor.name: values(tensor.shape, str(tensor.dtype)) for tensor in model.inputs})


def of_onnxruntime(model: str, threads: int) -> Callable[[], object]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    dtypes = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(int32)": "int32"}
    return lambda: session.run(None, {p.name: values(p.shape, dtypes[p.type]) for p in session.get_inputs()})


def main(engine: str, model: str, threads: int) -> None:
    resident, anonymous = status_bytes("VmRSS"), status_bytes("RssAnon")
    wall, processor = time.perf_counter(), time.process_time()
    run = {"nnefc": of_nnefc, "onnxruntime": of_onnxruntime}[engine](model, threads)
    made = time.perf_counter() - wall
    run()
    found = {
        "create_ms": 1e3 * made,
        "wall_ms": 1e3 * (time.perf_counter() - wall),
        "processor_ms": 1e3 * (time.process_time() - processor),
        "resident_bytes": status_bytes("VmRSS") - resident,
        "anonymous_bytes": status_bytes("RssAnon") - anonymous,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
