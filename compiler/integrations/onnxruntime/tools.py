"""Modules of onnxruntime's tools, which programs may import: what they hold is refused when it is used."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any, NoReturn

from .errors import NotImplemented, refusal

__all__ = ["TOOLS", "refused_name", "tool_module"]

TOOLS = {
    "onnxruntime.backend": "nnefc.onnx_backend is ONNX's interface for backends",
    "onnxruntime.datasets": "the example models are files of onnxruntime's own package",
    "onnxruntime.quantization": "nnefc.quantize(model) writes a quantized model, and precision='int8' compiles one",
    "onnxruntime.tools": "these tools prepare models for onnxruntime: nnefc compiles a model as it is",
    "onnxruntime.training": "nnefc runs networks, and does not train them; operators that train are compiled",
    "onnxruntime.transformers": "these tools fuse operators for onnxruntime's kernels: nnefc compiles a model as it is",
}
"""The modules, and what to do in place of using them."""


class _Refused(type):
    """The class of a name in a tool: it may be derived from and has all attributes, and every call is refused."""

    _path: str

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return refused_name(f"{cls._path}.{name}")

    def __call__(cls, *_: Any, **__: Any) -> NoReturn:
        tool = next(name for name in TOOLS if cls._path.startswith(name))
        raise refusal(NotImplemented, f"{cls._path} is not a part of nnefc: {TOOLS[tool]}; onnxruntime itself has it")

    def __getitem__(cls, name: Any) -> Any:
        return refused_name(f"{cls._path}.{name}")

    def __iter__(cls) -> Iterator[Any]:
        return iter(())


def refused_name(path: str) -> type:
    """Returns a class for a name in a tool, which is refused when it is called."""
    return _Refused(path.rpartition(".")[2], (), {"_path": path, "__module__": path.rpartition(".")[0]})


class _Tool(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        return refused_name(f"{self.__name__}.{name}")


def tool_module(name: str) -> ModuleType:
    """Returns a module that holds every name, each of which is refused when it is called."""
    made = _Tool(name, "Stands for a tool of onnxruntime.")
    made.__path__ = []
    return made
