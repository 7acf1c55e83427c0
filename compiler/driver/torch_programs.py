"""Exports programs of PyTorch as ONNX models: exported programs, their files, and programs of the ONNX exporter."""

from __future__ import annotations

import logging
import os
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nnefc.support.diagnostics import CompileError

if TYPE_CHECKING:
    import torch

__all__ = ["PROGRAM_SUFFIX", "check_functional", "is_program", "load_program", "not_exported", "write_onnx"]

PROGRAM_SUFFIX = ".pt2"

_PICKLED = "Weights only load failed"
"""The part of PyTorch's message by which files with pickled objects are recognized."""

_COLORS = re.compile(r"\x1b?\[[0-9;]*m")
"""Escape sequences for colors in messages of PyTorch."""

_NO_TRANSLATION = re.compile(
    r"(?:No ONNX function found for|No decompositions registered for|^<bound method OpOverload\.name of )"
    r".*?op='([\w.]+)'"
)

_CAUSE = re.compile(r"(?ms)^<class '[\w.]*?(\w+)'>: (.*?)(?:\n\s*\n|\Z)")
"""The part of the ONNX exporter's messages with the cause: `<class 'ValueError'>: the message`."""


_FORCED = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
"""The environment variable that PyTorch reads whenever it loads a file."""


def is_program(model: Any) -> bool:
    """Returns whether an object is a `torch.export.ExportedProgram` or a `torch.onnx.ONNXProgram`."""
    names = {f"{kind.__module__.partition('.')[0]}.{kind.__qualname__}" for kind in type(model).__mro__}
    return not names.isdisjoint({"torch.ExportedProgram", "torch.ONNXProgram"})


def load_program(path: Path) -> torch.export.ExportedProgram:
    """Read a file of `torch.export.save`, without running code from it.

    Raises:
        CompileError: PyTorch is not installed, or cannot read the file.
    """
    try:
        import torch
    except ImportError as error:
        raise CompileError(
            f"'{path}' is a program of torch.export's, which PyTorch alone reads", hint="pip install 'nnefc[torch]'"
        ) from error
    try:
        with _weights_only():
            return torch.export.load(path)
    except Exception as error:  # of any kind, for the file may hold anything
        why = "it holds Python objects, which could run code" if _PICKLED in str(error) else _first_line(error)
        raise CompileError(f"PyTorch cannot read '{path}': {why}") from error


@contextmanager
def _weights_only() -> Iterator[None]:
    """Make PyTorch refuse pickled objects other than tensors while the body runs: loading them may run code from the
    file.
    """
    before = os.environ.get(_FORCED)
    os.environ[_FORCED] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[_FORCED]
        else:
            os.environ[_FORCED] = before


def check_functional(program: Any) -> None:
    """Check that an exported program does not write values in place, which ONNX cannot express.

    Raises:
        CompileError: it does; the message names the values.
    """
    if hasattr(program, "model_proto"):
        return
    signature = program.run_decompositions({}).graph_signature  # the program itself may hide what it writes
    changed = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    if changed:
        raise CompileError(
            f"the program changes {', '.join(changed)} in place",
            hint="nnefc.torch.compile(program) makes buffers that a program writes states of the library",
        )


def write_onnx(program: Any, path: Path, name: str | None = None) -> None:
    """Write a program as an ONNX model, with large weights in a file next to it.

    Args:
        program: an `ExportedProgram`, or an `ONNXProgram`.
        path: of the model.
        name: of the program in errors; None: its type.

    Raises:
        CompileError: PyTorch cannot export the program, for example because of an unsupported operator.
    """
    import torch

    from .torch_decompositions import decomposed

    try:
        with torch.no_grad(), _quiet():
            if hasattr(program, "model_proto"):
                program.save(str(path), external_data=True)
            else:
                torch.onnx.export(decomposed(program), (), path, dynamo=True, verbose=False, external_data=True)
    except Exception as error:  # the exporter's own errors, and those of the translations that it calls
        raise not_exported(name or f"the {type(program).__name__}", error) from error


def not_exported(name: str, error: BaseException) -> CompileError:
    """Return the error for a module that PyTorch cannot export, with the operator that is the cause or PyTorch's own
    message.
    """
    causes = list(_causes(error))
    for cause in causes:
        found = _NO_TRANSLATION.search(_COLORS.sub("", str(cause)))
        if found is not None:
            return CompileError(
                f"PyTorch's ONNX exporter has no translation of the operator {found[1]}, of {name}",
                hint="write it with other operators; torch.compile runs such parts in PyTorch",
            )
    return CompileError(f"PyTorch cannot export {name}: {_first_line(causes[-1])}", hint=_HINT)


_HINT = "torch.export.export(module, inputs) says more"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, the first cause last."""
    seen: set[int] = set()
    found: BaseException | None = error
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__


def _first_line(error: BaseException) -> str:
    text = _COLORS.sub("", str(error)).strip()
    cause = _CAUSE.search(text)
    text = cause[2].strip() if cause is not None else text
    return next(iter(text.splitlines()), type(error).__name__)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the exporter's messages about itself and about packages that are not installed."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
