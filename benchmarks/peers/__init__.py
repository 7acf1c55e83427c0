"""Engines to measure, one a file: each a class made from a model and a number of threads, which runs on arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np

__all__ = [
    "NARROW",
    "NARROW_PEERS",
    "PEERS",
    "QUANTIZED",
    "STATIC",
    "STRICT",
    "TRACT_NNEF",
    "Peer",
    "installed",
    "make_peer",
]


class Peer(Protocol):
    """An engine with a loaded network.

    `values` are by the names of the model's inputs and in their order; what comes back is in the order of its outputs.
    """

    version: str

    def run(self, values: Mapping[str, np.ndarray]) -> Sequence[np.ndarray]: ...


def _nnefc() -> Callable[[Path, int], Peer]:
    from peers.nnefc_library import NnefcLibrary

    return NnefcLibrary


def _onnxruntime() -> Callable[[Path, int], Peer]:
    from peers.onnxruntime_session import OnnxruntimeSession

    return OnnxruntimeSession


def _openvino() -> Callable[[Path, int], Peer]:
    from peers.openvino_model import OpenvinoModel

    return OpenvinoModel


def _tract() -> Callable[[Path, int], Peer]:
    from peers.tract_model import TractModel

    return TractModel


def _tract_nnef() -> Callable[[Path, int], Peer]:
    from peers.tract_nnef import TractNnef

    return TractNnef


def _ncnn() -> Callable[[Path, int], Peer]:
    from peers.ncnn_network import NcnnNetwork

    return NcnnNetwork


STRICT = "nnefc --strict"
"""nnefc without the algorithms that round otherwise than the plain sum does."""
STATIC = "nnefc of known sizes"
"""nnefc with a library for the sizes of the run alone, beside one for all sizes."""
NARROW = {"nnefc bf16": "bf16", "nnefc fp16": "fp16"}
"""nnefc in narrow precisions."""
QUANTIZED = {"nnefc int8": _nnefc, "onnxruntime int8": _onnxruntime}
"""Engines with networks in integers of 8 bits; only who names them measures them."""
PEERS = {"nnefc": _nnefc, "onnxruntime": _onnxruntime, "openvino": _openvino, "tract": _tract}
TRACT_NNEF = "tract, of NNEF"
"""tract with a model of its own dialect."""
OTHER_FORMATS = {
    "ncnn": _ncnn,
    TRACT_NNEF: _tract_nnef,
    **dict.fromkeys((STRICT, STATIC, *NARROW), _nnefc),
    **QUANTIZED,
}
"""Engines that read no ONNX files: only who names them measures them."""
NARROW_PEERS = {"openvino bf16": "bf16", "openvino f16": "f16"}
"""OpenVINO with its hint of a precision; only who names them measures them."""


def make_peer(name: str, model: Path, threads: int) -> Peer:
    """The engine `name` with `model` loaded: a compiled library for nnefc, ncnn's param file, ONNX for the others."""
    if name in NARROW_PEERS:
        return partial(_openvino(), hint=NARROW_PEERS[name])(model, threads)
    return {**PEERS, **OTHER_FORMATS}[name]()(model, threads)


def installed() -> list[str]:
    """The engines for ONNX that are there; they have the names of their packages."""
    return [name for name in PEERS if find_spec(name) is not None]
