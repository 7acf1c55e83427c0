"""Element types in the form of `onnxruntime.transformers.io_binding_helper`, which programs that bind memory import."""

from __future__ import annotations

from typing import Any

from ..session import Session
from .element_types import ELEMENTS, Element

__all__ = ["TypeHelper"]

_STRING, _LAST = 8, 16

_NUMBERS = [element for element in ELEMENTS if element.number not in (_STRING, *range(_LAST + 1, 32))]
"""Element types of numbers that PyTorch or NumPy have."""

_TENSORS: dict[str, Element] = {f"tensor({element.name})": element for element in _NUMBERS}
"""The same by ONNX's names of the tensors' types."""


class TypeHelper:
    """Converts names of types to element types of NumPy, ONNX and PyTorch, and describes a session with them."""

    @staticmethod
    def get_input_type(ort_session: Session, name: str) -> str:
        """Returns ONNX's name of the type of an input.

        Raises:
            ValueError: there is no such input.
        """
        return str(_named({each.name: each.type for each in ort_session.get_inputs()}, name))

    @staticmethod
    def get_output_type(ort_session: Session, name: str) -> str:
        """Returns ONNX's name of the type of an output.

        Raises:
            ValueError: there is no such output.
        """
        return str(_named({each.name: each.type for each in ort_session.get_outputs()}, name))

    @staticmethod
    def ort_type_to_numpy_type(ort_type: str) -> Any:
        """Returns NumPy's element type.

        Raises:
            ValueError: NumPy has none.
        """
        element = _named(_TENSORS, ort_type)
        if not element.is_numpy:
            raise ValueError(f"NumPy has no elements of the type {ort_type}")
        return bool if element.name == "bool" else element.dtype.type

    @staticmethod
    def ort_type_to_onnx_type(ort_type: str) -> int:
        """Returns ONNX's number of the element type.

        Raises:
            ValueError: it is the type of no tensor.
        """
        return _STRING if ort_type == "tensor(string)" else int(_named(_TENSORS, ort_type).number)

    @staticmethod
    def ort_type_to_torch_type(ort_type: str) -> Any:
        """Returns PyTorch's element type.

        Raises:
            ValueError: PyTorch has none.
        """
        import torch

        return getattr(torch, _named(_TENSORS, ort_type).loader_name or "none", None) or _named({}, ort_type)

    @staticmethod
    def numpy_type_to_torch_type(numpy_type: Any) -> Any:
        """Returns PyTorch's element type for one of NumPy's.

        Raises:
            ValueError: it has none.
        """
        import torch

        known = {bool if e.name == "bool" else e.dtype.type: e.loader_name for e in _NUMBERS if e.is_numpy}
        return getattr(torch, _named(known, numpy_type), None) or _named({}, numpy_type)

    @staticmethod
    def torch_type_to_numpy_type(torch_type: Any) -> Any:
        """Returns NumPy's element type for one of PyTorch's.

        Raises:
            ValueError: it has none.
        """
        names = {f"torch.{element.loader_name}": f"tensor({element.name})" for element in _NUMBERS}
        return TypeHelper.ort_type_to_numpy_type(_named(names, str(torch_type)))

    @staticmethod
    def get_io_numpy_type_map(ort_session: Session) -> dict[str, Any]:
        """Returns NumPy's element types by the names of inputs and outputs."""
        return {name: TypeHelper.ort_type_to_numpy_type(kind) for name, kind in _types(ort_session)}

    @staticmethod
    def get_io_onnx_type_map(ort_session: Session) -> dict[str, int]:
        """Returns ONNX's numbers of element types by the names of inputs and outputs."""
        return {name: TypeHelper.ort_type_to_onnx_type(kind) for name, kind in _types(ort_session)}

    @staticmethod
    def get_io_torch_type_map(ort_session: Session) -> dict[str, Any]:
        """Returns PyTorch's element types by the names of inputs and outputs."""
        return {name: TypeHelper.ort_type_to_torch_type(kind) for name, kind in _types(ort_session)}


def _types(session: Session) -> list[tuple[str, str]]:
    return [(each.name, each.type) for each in (*session.get_inputs(), *session.get_outputs())]


def _named(known: dict[Any, Any], name: Any) -> Any:
    """Returns what a name stands for.

    Raises:
        ValueError: it stands for nothing.
    """
    if name not in known:
        raise ValueError(f"{name} is none of {', '.join(map(str, known)) or 'the types that there are'}")
    return known[name]
