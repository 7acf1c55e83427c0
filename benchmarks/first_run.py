"""What `first_run.c` measures, for onnxruntime: from its import on, which loads it as `dlopen` does a library.

    python first_run.py MODEL.onnx THREADS

prints the same JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def main(model: str, threads: int) -> None:
    before = resident_bytes()
    wall, processor = time.perf_counter(), time.process_time()
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    made = time.perf_counter() - wall
    inputs = {}
    for port in session.get_inputs():
        count = int(np.prod(port.shape))
        values = np.arange(count) % 97 / 97 if port.type == "tensor(float)" else np.zeros(count)
        dtype = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(int32)": "int32"}[port.type]
        inputs[port.name] = values.astype(dtype).reshape(port.shape)
    session.run(None, inputs)
    found = {
        "create_ms": 1e3 * made,
        "wall_ms": 1e3 * (time.perf_counter() - wall),
        "processor_ms": 1e3 * (time.process_time() - processor),
        "before_bytes": before,
        "after_bytes": resident_bytes(),
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
