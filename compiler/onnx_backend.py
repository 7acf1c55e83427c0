"""ONNX's backend interface: the public name of :mod:`nnefc.integrations.onnx_backend`."""

from nnefc.integrations.onnx_backend import (
    NnefcBackend,
    NnefcBackendRep,
    is_compatible,
    is_small,
    prepare,
    run_model,
    run_node,
    supports_device,
)

__all__ = [
    "NnefcBackend",
    "NnefcBackendRep",
    "is_compatible",
    "is_small",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
]
