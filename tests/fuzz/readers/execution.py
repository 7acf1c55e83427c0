"""What is done with an input of a reader, and what may come of it."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

__all__ = ["READERS", "execute", "inputs_of"]

READERS = ("nnef", "onnx", "pnnx", "tflite", "library", "language_model", "tokenizer")
"""Each is a module `…_inputs` with `INSTRUMENTED`, the modules whose code is looked at, `TARGETS`, what is done with an
input by its first byte, `seeds`, valid inputs, and `mutate`, which changes one."""

_LONGEST_MESSAGE = 20_000


def inputs_of(reader: str) -> Any:
    """A reader's module."""
    return importlib.import_module(f"{reader}_inputs")


def execute(reader: Any, data: bytes, folder: Path) -> Exception | None:
    """Run one input, with `folder` for its files; the error that refuses it, or None.

    Raises:
        Exception: anything but a `CompileError` or a `LoadError`: a finding.
    """
    from nnefc.loader import LoadError
    from nnefc.support.diagnostics import CompileError

    target = reader.TARGETS.get(data[:1])
    if target is None:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target(data[1:], folder)
    except (CompileError, LoadError) as error:
        assert 0 < len(str(error)) < _LONGEST_MESSAGE, "an endless message, or none"
        return error
    return None
