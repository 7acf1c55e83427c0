"""Imports TVM without what the compiler does not use, which halves its start-up time.

`import tvm` imports torch where that is installed, although only the exchange of tensors between the two needs it; the
parts of its code generators that are in Python, for every kind of accelerator; its distributed runtime, which fails for
want of a library that is loaded later; its search for schedules, and front ends. The compiler needs none of these; the
CUDA part is loaded with the first CUDA target.

Modules of TVM that the compiler does not use are loaded at the first use of one of their attributes, so that other code
of the process can use them. TVM loads code generators for accelerators only while it is imported itself: a program that
uses them without nnefc imports TVM before nnefc compiles, or calls `tvm.backend.load`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from threading import get_ident
from types import ModuleType
from typing import Any

__all__ = ["import_tvm", "load_derivatives"]

_HIDDEN = frozenset({"torch", "tvm.runtime.disco"})
"""Modules that TVM imports where they are there, and goes on without where they are not."""

_DERIVATIVES = "tvm.relax.op._op_gradient"

_AT_FIRST_USE = frozenset(
    {
        "importlib.metadata._adapters",
        "tvm.relax.distributed",
        "tvm.relax.op.distributed",
        "tvm.relax.backend.adreno",
        "tvm.relax.backend.contrib",
        "tvm.relax.backend.cpu_generic",
        "tvm.relax.backend.cuda",
        "tvm.relax.backend.gpu_generic",
        "tvm.relax.backend.metal",
        "tvm.relax.backend.rocm",
        "tvm.relax.frontend",
        _DERIVATIVES,
        "tvm.relax.training",
        "tvm.s_tir.dlight",
        "tvm.s_tir.meta_schedule",
        "tvm.topi.cpp.vision",
        "tvm.topi.gpu",
        "tvm.topi.image",
        "tvm.topi.vision",
        "tvm_ffi.cpp",
    }
)
"""Modules of TVM that the compiler does not use, and that TVM itself imports as a whole."""

_NO_ACCELERATORS = ("TVM_DEVICE_BACKEND_AUTOLOAD", "0")
"""An environment variable of TVM's."""


def import_tvm() -> None:
    """Imports TVM without the rest, if it is not imported yet.

    Raises:
        ModuleNotFoundError: the compiler is not installed.
    """
    if "tvm" in sys.modules:
        return
    name, value = _NO_ACCELERATORS
    before = os.environ.get(name)
    os.environ.setdefault(name, value)
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        with _functions_at_first_use():
            import tvm  # noqa: F401
    finally:
        sys.meta_path.remove(finder)
        if before is None:
            os.environ.pop(name, None)


def load_derivatives() -> None:
    """Makes TVM declare the derivatives of its operators, which it does when their module is executed."""
    getattr(sys.modules[_DERIVATIVES], "__all__", None)  # any attribute: the module is executed at its first use


class _Finder:
    """Finds modules while TVM is imported: puts some off until their first use, and hides others from this thread."""

    def __init__(self) -> None:
        self._thread = get_ident()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns how a module is loaded; None where this is not for this finder to say.

        Raises:
            ModuleNotFoundError: TVM asks for a module that it goes on without.
        """
        if fullname in _HIDDEN and get_ident() == self._thread:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        spec = PathFinder.find_spec(fullname, path, target) if fullname in _AT_FIRST_USE else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


@contextmanager
def _functions_at_first_use() -> Iterator[None]:
    """Puts off what TVM does for each of its modules of functions: to look all of them up, two thousand, by name."""
    try:
        import tvm_ffi
    except ModuleNotFoundError:  # then TVM is missing too, and importing it says so
        yield
        return
    look_up_all = tvm_ffi.init_ffi_api

    def put_off(namespace: str, target_module_name: str | None = None) -> None:
        module = sys.modules[target_module_name or namespace]
        own = vars(module)
        if "__getattr__" in own or any(callable(value) for name, value in own.items() if not name.startswith("__")):
            look_up_all(namespace, target_module_name)  # some functions stand in for TVM's until then
        else:
            own["__getattr__"] = partial(_function_of, module, namespace.removeprefix("tvm."))

    tvm_ffi.init_ffi_api = put_off
    try:
        yield
    finally:
        tvm_ffi.init_ffi_api = look_up_all


def _function_of(module: ModuleType, namespace: str, name: str) -> Any:
    """Returns a function of TVM's, which becomes an attribute of the module that has the functions of a namespace.

    Raises:
        AttributeError: there is no such function.
    """
    from tvm_ffi import get_global_func

    function: Any = None if name.startswith("__") else get_global_func(f"{namespace}.{name}", allow_missing=True)
    if function is None:
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
    function.__name__ = name
    setattr(module, name, function)
    return function
