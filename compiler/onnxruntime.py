"""Stands for onnxruntime: the public name of :mod:`nnefc.integrations.onnxruntime`.

    import nnefc.onnxruntime as ort

    session = ort.InferenceSession("net.onnx", providers=["CPUExecutionProvider"])

A program that cannot be edited gets it in place of onnxruntime by `nnefc.onnxruntime.install()`, or when it is run
as `python -m nnefc.onnxruntime program.py`.
"""

from __future__ import annotations

import sys
from typing import Any

from nnefc.integrations import onnxruntime as _package
from nnefc.integrations.onnxruntime import *  # noqa: F403
from nnefc.integrations.onnxruntime.installing import install, main, uninstall
from nnefc.integrations.onnxruntime.namespace import modules, public_names

__all__ = [*_package.__all__, "install", "uninstall"]

if __name__ == "__main__":
    main(sys.argv[1:])
else:
    globals().update(public_names())
    for _name, _module in modules().items():
        _own = _name.replace("onnxruntime", __name__, 1)
        if _own != __name__:
            _module.__name__ = _own
            sys.modules[_own] = _module
            if _own.count(".") == __name__.count(".") + 1:
                globals()[_own.rpartition(".")[2]] = _module


def __dir__() -> list[str]:
    """Returns the names of onnxruntime, and those that install it."""
    return sorted({*public_names(), *__all__, "capi"})


def __getattr__(name: str) -> Any:
    """Refuses names that onnxruntime has not, and those that this package does not have."""
    raise AttributeError(f"module 'nnefc.onnxruntime' has no attribute {name!r}")
