"""Imports TVM without torch, its distributed runtime and unused code generators, which halves its start-up time.

`import tvm` imports torch where that is installed, although only the exchange of tensors between the two needs it; its
runtime for networks on several machines, which fails for want of a library that is loaded later; and the parts of its
code generators that are in Python, for every kind of accelerator. The compiler needs none of the three; the CUDA
part is loaded with the first CUDA target. They are left out only in processes of nnefc's own, those of the command line
and of the tests: where nnefc is a library, other code of the process may use all of TVM.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["import_tvm"]

_NOT_NEEDED = ("torch", "tvm.runtime.disco")
"""Modules that TVM imports where they are there, and goes on without where they are not."""

_NO_ACCELERATORS = ("TVM_DEVICE_BACKEND_AUTOLOAD", "0")
"""An environment variable of TVM's."""

_NAMES = "ffi.FunctionListGlobalNamesFunctor"
"""A function of TVM's: it returns one that says how many functions there are, and the name of each."""


def import_tvm() -> None:
    """Imports TVM without the rest, if it is not imported yet.

    Raises:
        ModuleNotFoundError: the compiler is not installed.
    """
    if "tvm" in sys.modules:
        return
    name, value = _NO_ACCELERATORS
    before = os.environ.get(name)
    hidden = [module for module in _NOT_NEEDED if module not in sys.modules]
    os.environ.setdefault(name, value)
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: to Python, a module that is not there
    try:
        with _names_listed_once():
            import tvm  # noqa: F401
    finally:
        for module in hidden:
            del sys.modules[module]
        if before is None:
            del os.environ[name]


@contextmanager
def _names_listed_once() -> Iterator[None]:
    """Keep the names of TVM's functions, thousands, which each of fifty modules asks for one by one.

    They are asked for again when there are more of them.
    """
    try:
        from tvm_ffi import registry
    except ModuleNotFoundError:  # then TVM is missing too, and importing it says so
        yield
        return
    listed, counter = registry.list_global_func_names, registry.get_global_func(_NAMES, allow_missing=True)
    names: list[str] = []

    def kept() -> list[str]:
        if counter is None or len(names) != counter()(-1):
            names[:] = listed()
        return names

    registry.list_global_func_names = kept
    try:
        yield
    finally:
        registry.list_global_func_names = listed
