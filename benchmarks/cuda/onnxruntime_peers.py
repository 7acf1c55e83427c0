"""onnxruntime's times on a GPU for `on_device.py`, by its providers CUDA and TensorRT.

    pip install 'onnxruntime-gpu[cuda,cudnn]'                # the provider TensorRT also needs TensorRT's libraries

These are 12 wheels of 1.6 GB, in November 2026: onnxruntime_gpu-1.31.1 has 256 MB, nvidia_cudnn_cu13-9.28.1.4 517,
nvidia_cublas-13.10.0.20 444, nvidia_cufft-12.5.0.14 165, nvidia_curand-10.4.5.25 77, nvidia_cuda_nvrtc-13.5.37 58 and
nvidia_nvjitlink-13.5.37 47. Where PyTorch for CUDA 13 is installed, all but the first are, in other versions. No time
was taken on a GPU yet; tests run this script with the provider for CPUs.

The model is the file that `libraries.py` compiled, for `fp16` by the provider CUDA with its tensors converted to
float16. Inputs and outputs are on the GPU, a run is a CUDA graph, and times are those of the host around a group of
runs, which end with a synchronization.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from driver_clock import GROUP_SECONDS, GROUPS

__all__ = ["milliseconds"]


def milliseconds(peer: str, model: Path, precision: str, inputs: Mapping[str, np.ndarray]) -> float:
    """The time of a run of a model: the median of groups of runs.

    Args:
        peer: `cuda` or `tensorrt`; `cpu` for tests.

    Raises:
        RuntimeError: onnxruntime has no such provider, or cannot load its libraries.
    """
    name, options = _provider(peer, precision)
    if hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()  # of the packages of CUDA and cuDNN, which are not where libraries are searched for
    session = onnxruntime.InferenceSession(model, providers=[(name, options)])
    if name not in session.get_providers():
        raise RuntimeError(f"onnxruntime has no {name}, only {', '.join(session.get_providers())}")
    device = "cpu" if peer == "cpu" else "cuda"
    binding = session.io_binding()
    for given in session.get_inputs():
        binding.bind_ortvalue_input(given.name, onnxruntime.OrtValue.ortvalue_from_numpy(inputs[given.name], device, 0))
    for made in session.get_outputs():
        memory = onnxruntime.OrtValue.ortvalue_from_shape_and_type(made.shape, _dtype(made.type), device, 0)
        binding.bind_ortvalue_output(made.name, memory)
    unsynchronized = onnxruntime.RunOptions()
    unsynchronized.add_run_config_entry("disable_synchronize_execution_providers", "1")

    def group(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            session.run_with_iobinding(binding, unsynchronized)
        binding.synchronize_outputs()
        return 1e3 * (time.perf_counter() - began) / count

    for _ in range(3):  # the first run chooses convolutions, the second one is captured
        last = group(1)
    count = max(1, min(200, int(1e3 * GROUP_SECONDS / max(last, 1e-3))))
    return statistics.median(group(count) for _ in range(GROUPS))


def _provider(peer: str, precision: str) -> tuple[str, dict[str, Any]]:
    """A provider and its options."""
    match peer:
        case "cuda":
            tf32 = int(precision != "fp32")
            return "CUDAExecutionProvider", {"use_tf32": tf32, "enable_cuda_graph": 1, "prefer_nhwc": 1}
        case "tensorrt":
            fp16 = precision in ("fp16", "int8")
            return "TensorrtExecutionProvider", {"trt_fp16_enable": fp16, "trt_cuda_graph_enable": True}
    return "CPUExecutionProvider", {}


def _dtype(element: str) -> type[np.generic]:
    """NumPy's type of an element type such as `tensor(float)`."""
    return {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64}[element]
