"""Runs a network by a peer on one thread, under Python for 64-bit Arm: `arm64_runs.py ENGINE MODEL RUNS`.

ENGINE is onnxruntime, litert, ncnn, or ncnn-fp16; MODEL is an ONNX model, one of TensorFlow Lite, or `.ncnn.param` as
PNNX writes it. Inputs are zeros. Nothing but the peer's package and NumPy is imported, for all is emulated.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_IMAGE = (3, 224, 224)  # ncnn does not say what a network wants


def _onnxruntime(model: str) -> Callable[[], Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    inputs = {each.name: np.zeros(each.shape, np.float32) for each in session.get_inputs()}
    return lambda: session.run(None, inputs)


def _litert(model: str) -> Callable[[], Any]:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_path=model, num_threads=1)
    interpreter.allocate_tensors()
    for each in interpreter.get_input_details():
        interpreter.set_tensor(each["index"], np.zeros(each["shape"], each["dtype"]))
    return interpreter.invoke


def _ncnn(model: str, half: bool = False) -> Callable[[], Any]:
    import ncnn

    net = ncnn.Net()
    net.opt.num_threads = 1
    net.opt.use_fp16_packed = net.opt.use_fp16_storage = net.opt.use_fp16_arithmetic = half
    net.opt.use_bf16_storage = False
    if net.load_param(model) or net.load_model(str(Path(model).with_suffix(".bin"))):
        raise ValueError(f"ncnn does not load {model}")
    image = ncnn.Mat(np.zeros(_IMAGE, np.float32))

    def run() -> None:
        extractor = net.create_extractor()
        extractor.input("in0", image)
        status, _ = extractor.extract("out0")
        if status:
            raise ValueError(f"ncnn fails with status {status}")

    return run


def main(engine: str, model: str, runs: int) -> None:
    """Load the network and run it so many times."""
    match engine:
        case "onnxruntime":
            run = _onnxruntime(model)
        case "litert":
            run = _litert(model)
        case "ncnn" | "ncnn-fp16":
            run = _ncnn(model, engine == "ncnn-fp16")
        case _:
            raise SystemExit(f"no engine {engine}")
    for _ in range(runs):
        run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
