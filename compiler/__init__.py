"""nnefc compiles trained neural networks ahead of time to self-contained shared libraries.

    >>> import nnefc
    >>> artifact = nnefc.compile("resnet50.nnef", target="llvm")
    >>> artifact.export("resnet50.so")
    >>> model = nnefc.load("resnet50.so")
    >>> probabilities = model(image)

Loading needs NumPy only; the compiler, and TVM with it, is imported when it is first used, as the loader is. Where
the compiler is not installed (nnefc-runtime is the loader alone), what needs it says so when it is called.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from nnefc.support.deferred_methods import defer_methods

defer_methods(__name__)  # before the first data class of the package

from nnefc.support.diagnostics import CompileError, InternalWarning, ModelWarning, compiler_missing  # noqa: E402

if TYPE_CHECKING:
    from types import ModuleType

    from nnefc.comparison.compare import compare
    from nnefc.driver.artifact import Artifact
    from nnefc.driver.compile import compile
    from nnefc.driver.compile_many import Compiled, compile_many
    from nnefc.driver.conversion import convert
    from nnefc.driver.packages.write_package import package
    from nnefc.driver.quantize_model import quantize
    from nnefc.integrations.onnxruntime import InferenceSession, SessionOptions
    from nnefc.loader import LoadError, Model, RunCancelled, RunError, RunTimedOut, SessionPool, load

    from . import passes

    __version__: str

__all__ = [
    "Artifact",
    "CompileError",
    "Compiled",
    "InferenceSession",
    "InternalWarning",
    "LoadError",
    "Model",
    "ModelWarning",
    "RunCancelled",
    "RunError",
    "RunTimedOut",
    "SessionOptions",
    "SessionPool",
    "compare",
    "compile",
    "compile_many",
    "convert",
    "load",
    "package",
    "passes",
    "quantize",
]

_LOADER = "nnefc.loader"
_SESSION = "nnefc.integrations.onnxruntime"
_LAZY = {
    "Artifact": "nnefc.driver.artifact",
    "Compiled": "nnefc.driver.compile_many",
    "InferenceSession": _SESSION,
    "LoadError": _LOADER,
    "Model": _LOADER,
    "RunCancelled": _LOADER,
    "RunError": _LOADER,
    "RunTimedOut": _LOADER,
    "SessionOptions": _SESSION,
    "SessionPool": _LOADER,
    "compare": "nnefc.comparison.compare",
    "compile": "nnefc.driver.compile",
    "compile_many": "nnefc.driver.compile_many",
    "convert": "nnefc.driver.conversion",
    "load": _LOADER,
    "package": "nnefc.driver.packages.write_package",
    "passes": "nnefc.passes",
    "quantize": "nnefc.driver.quantize_model",
}


def __dir__() -> list[str]:
    """What is here already, and what is imported at its first use."""
    return sorted({*globals(), *__all__, "__version__"})


def __getattr__(name: str) -> Any:
    """Import the loader, or the compiler, at its first use."""
    if name == "__version__":
        from nnefc.support.distribution import installed_version

        return installed_version()
    if name not in _LAZY:
        raise AttributeError(f"module 'nnefc' has no attribute {name!r}")
    from importlib import import_module

    try:
        module = import_module(_LAZY[name]) if _LAZY[name] in (_LOADER, _SESSION) else _module_of_compiler(_LAZY[name])
        return module if name == "passes" else getattr(module, name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if _LAZY[name] in (_LOADER, _SESSION):
            raise

    def not_installed(*_: Any, **__: Any) -> NoReturn:
        raise compiler_missing(f"nnefc.{name}", missing)

    return not_installed


def _module_of_compiler(name: str) -> ModuleType:
    """Imports a module that needs TVM."""
    from importlib import import_module

    from nnefc.support.garbage_collection import age_modules, without_collections
    from nnefc.support.minimal_tvm import import_tvm

    with without_collections():
        import_tvm()
        module = import_module(name)
        age_modules()
    return module
