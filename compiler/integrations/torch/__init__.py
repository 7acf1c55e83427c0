"""Compiles PyTorch networks in memory through torch.export and torch's ONNX exporter.

    import nnefc.torch
    compiled = nnefc.torch.compile(module, image)      # a module of PyTorch that runs the library
    compiled.export("net.so")                          # for elsewhere

    fast = torch.compile(module, backend="nnefc")      # compiles what it is called with
    with torch.no_grad():
        scores = fast(image)

It needs the packages torch (2.6 or later) and onnxscript.
"""

from .backend import backend
from .module import CompiledModule, compile

__all__ = ["CompiledModule", "backend", "compile"]
