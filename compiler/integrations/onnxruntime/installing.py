"""Puts the modules of this package in place of `onnxruntime`, for programs that cannot be edited."""

from __future__ import annotations

import atexit
import os
import runpy
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

__all__ = ["install", "main", "uninstall"]

_NAME = "onnxruntime"

_USAGE = """usage: python -m nnefc.onnxruntime PROGRAM [ARGUMENTS]
       python -m nnefc.onnxruntime -m MODULE [ARGUMENTS]
       python -m nnefc.onnxruntime -c CODE [ARGUMENTS]

Runs a Python program with nnefc in place of onnxruntime: `import onnxruntime` gives nnefc.onnxruntime.
"""


def install() -> None:
    """Has `import onnxruntime` give this package, in all of the process. Installing twice does nothing.

    Modules that have imported onnxruntime before keep it: call this first.
    """
    from .finder import Finder  # with the metadata of distributions, which takes as long to import as all else here

    if any(isinstance(finder, Finder) for finder in sys.meta_path):
        return
    loaded = [name for name in sys.modules if name == _NAME or name.startswith(f"{_NAME}.")]
    if loaded:
        warnings.warn("onnxruntime is imported already: modules that have it keep it", RuntimeWarning, stacklevel=2)
    for name in loaded:
        del sys.modules[name]
    sys.meta_path.insert(0, Finder())


def uninstall() -> None:
    """Has `import onnxruntime` give onnxruntime again, if it is installed."""
    from .finder import Finder

    if not any(isinstance(finder, Finder) for finder in sys.meta_path):
        return
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, Finder)]
    for name in [name for name in sys.modules if name == _NAME or name.startswith(f"{_NAME}.")]:
        del sys.modules[name]


def main(arguments: Sequence[str]) -> None:
    """Runs a program with these modules in place of onnxruntime's.

    Args:
        arguments: the program or `-m` and a module, and its own arguments.
    """
    if not arguments or arguments[0] in ("-h", "--help") or (arguments[0] in ("-m", "-c") and len(arguments) < 2):
        print(_USAGE, end="", file=sys.stdout if arguments[:1] in (["-h"], ["--help"]) else sys.stderr)
        raise SystemExit(0 if arguments[:1] in (["-h"], ["--help"]) else 2)
    if arguments[0] not in ("-m", "-c") and not Path(arguments[0]).exists():
        print(f"error: there is no program {arguments[0]}", file=sys.stderr)
        raise SystemExit(2)
    install()
    _shadow_in_children()
    match arguments:
        case ["-m", module, *others]:
            sys.argv = [module, *others]
            sys.path[0] = os.getcwd()
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case ["-c", code, *others]:
            sys.argv = ["-c", *others]
            sys.path[0] = ""
            exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
        case [program, *others]:
            sys.argv = [program, *others]
            sys.path[0] = str(Path(program).resolve().parent)
            runpy.run_path(program, run_name="__main__")


_SHADOW = """
import sys
sys.path[:] = [folder for folder in sys.path if folder != {folder!r}]
del sys.modules["onnxruntime"]
try:
    from nnefc.onnxruntime import install
except ImportError:  # another Python
    pass
else:
    install()
import onnxruntime
"""
"""The module that child processes find first: it installs the modules, and leaves the import to them."""


def _shadow_in_children() -> None:
    """Has child processes that are Python programs, but not forked, import this package, too."""
    from tempfile import TemporaryDirectory

    folder = TemporaryDirectory(prefix="nnefc-onnxruntime-", ignore_cleanup_errors=True)
    atexit.register(folder.cleanup)
    Path(folder.name, f"{_NAME}.py").write_text(_SHADOW.format(folder=folder.name), encoding="utf-8")
    others = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = folder.name if not others else f"{folder.name}{os.pathsep}{others}"
