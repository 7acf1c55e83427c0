"""Engines to measure, one a file: each a class made from a model and a number of threads, which runs on arrays."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np

__all__ = [
    "INT7",
    "INT8",
    "INT8_PEERS",
    "LIMITED",
    "NARROW",
    "NARROW_PEERS",
    "PEERS",
    "STATIC",
    "STRICT",
    "SUBNORMALS",
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


def _litert() -> Callable[[Path, int], Peer]:
    from peers.litert_network import LitertNetwork

    return LitertNetwork


STRICT = "nnefc --strict"
"""nnefc without the algorithms that round otherwise than the direct sum does."""
STATIC = "nnefc of known sizes"
"""nnefc with a library for the sizes of the run alone, compared with one for all sizes."""
LIMITED = "nnefc of sizes in ranges"
"""nnefc with a library for sizes in ranges that users give, compared with one without."""
SUBNORMALS = "nnefc with subnormal numbers"
"""nnefc with runs that keep subnormal numbers, compared with those that treat them as zero."""
NARROW = {"nnefc bf16": "bf16", "nnefc fp16": "fp16"}
"""nnefc in narrow precisions."""
INT8 = "nnefc int8"
"""nnefc with a network in integers of 8 bits."""
INT7 = "nnefc int8, weights of 7 bits"
"""The same with weights between -64 and 64."""
INT8_PEERS = ("onnxruntime int8", "openvino int8")
"""Others with such a network in files of several quantizers, whose names are a list in a .json file next to them. They
run the faster one; OpenVINO computes what is left of floats in float32 or bfloat16, whichever is faster."""
PEERS = {"nnefc": _nnefc, "onnxruntime": _onnxruntime, "openvino": _openvino, "tract": _tract}
TRACT_NNEF = "tract, of NNEF"
"""tract with a model of its own dialect."""
OTHER_FORMATS = {
    "litert": _litert,
    "ncnn": _ncnn,
    TRACT_NNEF: _tract_nnef,
    **dict.fromkeys((STRICT, STATIC, LIMITED, *NARROW, INT8, INT7), _nnefc),
}
"""Engines that read no ONNX files: only who names them measures them."""
NARROW_PEERS = {"openvino bf16": "bf16", "openvino f16": "f16"}
"""OpenVINO with its hint of a precision; only who names them measures them."""


def make_peer(name: str, model: Path, threads: int) -> Peer:
    """The engine `name` with `model` loaded: a compiled library for nnefc, ncnn's param file, ONNX for the others."""
    if name in NARROW_PEERS:
        return partial(_openvino(), hint=NARROW_PEERS[name])(model, threads)
    if name == SUBNORMALS:
        return partial(_nnefc(), flush_subnormals=False)(model, threads)
    if name in INT8_PEERS:
        from peers.fastest_form import FastestForm

        files = [model.with_name(file) for file in json.loads(model.read_text())]
        if name == INT8_PEERS[0]:
            return FastestForm([partial(_onnxruntime(), file, threads) for file in files])
        hints = ("f32", "bf16")
        return FastestForm([partial(_openvino(), file, threads, hint) for file in files for hint in hints])
    return {**PEERS, **OTHER_FORMATS}[name]()(model, threads)


def installed() -> list[str]:
    """The engines for ONNX that are there; they have the names of their packages."""
    return [name for name in PEERS if find_spec(name) is not None]
