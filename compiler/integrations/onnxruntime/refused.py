"""Classes of onnxruntime that have no meaning for compiled networks: each is there, and says why when it is used."""

from __future__ import annotations

from typing import Any, ClassVar, NoReturn

from .errors import NotImplemented, refusal

__all__ = [
    "AdapterFormat",
    "LoraAdapter",
    "ModelCompiler",
    "ModelPackage",
    "ModelPackageComponentContext",
    "ModelPackageContext",
    "ModelPackageOptions",
    "OrtEpAssignedNode",
    "OrtEpAssignedSubgraph",
    "OrtEpContextData",
    "OrtEpContextDataBuffer",
    "register_execution_provider_library",
    "unregister_execution_provider_library",
]


class _Refused:
    """A class that refuses to be made.

    Attributes:
        _reason: why, and what to do.
    """

    _reason: ClassVar[str] = ""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise self._refusal()

    @classmethod
    def _refusal(cls) -> Exception:
        """Returns the error that says why."""
        return refusal(NotImplemented, f"{cls.__name__}: {cls._reason}")


_LORA = (
    "the weights of a compiled network are fixed: merge the adapter into the model before it is compiled, or compile "
    "one library for each adapter"
)


class LoraAdapter(_Refused):
    """Adapters of weights, which are refused."""

    _reason = _LORA

    def Load(self, path: str, /) -> NoReturn:
        """Refuses to load an adapter."""
        raise self._refusal()


class AdapterFormat(_Refused):
    """Files of adapters of weights, which are refused."""

    _reason = _LORA

    @staticmethod
    def read_adapter(file_path: Any) -> NoReturn:
        """Refuses to read an adapter."""
        raise AdapterFormat._refusal()


class ModelCompiler(_Refused):
    """Models with contexts of execution providers, which are refused."""

    _reason = "nnefc.compile(model).export('model.so') compiles a model to a library, which InferenceSession loads"


class _Package(_Refused):
    _reason = "packages of several models are not supported: give InferenceSession the model of one variant"


class ModelPackage(_Package):
    """Packages of models, which are refused."""

    @staticmethod
    def open(*_: Any, **__: Any) -> NoReturn:
        """Refuses to open a package."""
        raise ModelPackage._refusal()

    @staticmethod
    def compute_directory_hash(*_: Any, **__: Any) -> NoReturn:
        """Refuses to read a package."""
        raise ModelPackage._refusal()


class ModelPackageOptions(_Package):
    """Packages of models, which are refused."""


class ModelPackageContext(_Package):
    """Packages of models, which are refused."""


class ModelPackageComponentContext(_Package):
    """Packages of models, which are refused."""


class OrtEpContextData(_Refused):
    """Contexts of execution providers, which are refused."""

    _reason = "a compiled network has no contexts of execution providers"


class OrtEpContextDataBuffer(OrtEpContextData):
    """Contexts of execution providers, which are refused."""


class OrtEpAssignedNode(_Refused):
    """Which nodes an execution provider has, which is not known: kernels are made of several nodes."""

    _reason = "the kernels of a compiled network are made of several nodes: nnefc view shows which"


class OrtEpAssignedSubgraph(OrtEpAssignedNode):
    """Which nodes an execution provider has, which is not known: kernels are made of several nodes."""


def register_execution_provider_library(name: str, path: str, /) -> NoReturn:
    """Refuses a library of an execution provider.

    Raises:
        NotImplemented: always.
    """
    raise refusal(
        NotImplemented, f"the execution provider {name} is code for onnxruntime: nnefc runs on CPUs and NVIDIA's GPUs"
    )


def unregister_execution_provider_library(name: str, /) -> NoReturn:
    """Refuses, as there is no such library.

    Raises:
        NotImplemented: always.
    """
    raise refusal(NotImplemented, f"there is no library of the execution provider {name}")
