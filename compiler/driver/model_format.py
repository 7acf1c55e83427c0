"""Recognizes the format of a model by its content, or by the file extension if the content is ambiguous.

This module imports neither a front end nor TVM.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from nnefc.driver.file_magic import check_known, is_gguf, is_hugging_face, is_onnx, is_pnnx, is_tflite
from nnefc.frontends.file_names import NNEF_DOCUMENT
from nnefc.support.diagnostics import CompileError

if TYPE_CHECKING:
    from nnefc.ir.network import Network
    from nnefc.ir.outline import Outline

__all__ = ["GGUF", "HUGGING_FACE", "NNEF", "ONNX", "PNNX", "TFLITE", "Format", "format_of", "is_model"]


@dataclass(frozen=True)
class Format:
    """An exchange format.

    Attributes:
        name: of the format.
        module: the front end, with `load(path, **options) -> Network` and `outline(path, **options) -> Outline`.
        has_sequences: whether inputs may be sequences, and absent.
        has_documents: whether the front end converts models to NNEF documents, with `write(path, output, **options)`.
    """

    name: str
    module: str
    has_sequences: bool = False
    has_documents: bool = False

    def loader(self) -> Callable[..., Network]:
        """The front end's `load(path, **options) -> Network`, imported on demand."""
        load: Callable[..., Network] = import_module(self.module).load
        return load

    def outliner(self) -> Callable[..., Outline]:
        """The front end's `outline(path, **options) -> Outline`, imported on demand."""
        outline: Callable[..., Outline] = import_module(self.module).outline
        return outline

    def writer(self) -> Callable[..., None]:
        """The front end's `write(path, output, **options)`, if it has documents."""
        write: Callable[..., None] = import_module(self.module).write
        return write


NNEF = Format("NNEF", "nnefc.frontends.nnef")
ONNX = Format("ONNX", "nnefc.frontends.onnx", has_sequences=True)
PNNX = Format("PNNX", "nnefc.frontends.pnnx")
GGUF = Format("GGUF", "nnefc.frontends.gguf", has_documents=True)
TFLITE = Format("TFLite", "nnefc.frontends.tflite")
HUGGING_FACE = Format("Hugging Face", "nnefc.frontends.huggingface", has_documents=True)
_BY_SUFFIX = {".onnx": ONNX, ".param": PNNX, ".tflite": TFLITE}
"""The format by file extension; all other names are NNEF's: a folder, an archive or a document."""


def format_of(path: Path) -> Format:
    """Return the format of a model.

    Raises:
        CompileError: there is no such file, or it is known not to be a model; the hint says how to make one of it.
    """
    if not path.exists():
        raise _missing(path)
    if not path.is_dir() and not path.is_file():
        raise CompileError(f"'{path}' is neither a file nor a folder")
    try:
        check_known(path)
    except OSError as error:
        raise CompileError(f"cannot read '{path}': {error.strerror or error}") from error
    if path.is_dir():
        return HUGGING_FACE if is_hugging_face(path) else NNEF
    if is_gguf(path):
        return GGUF
    if is_tflite(path):
        return TFLITE
    if is_onnx(path):
        return ONNX
    return PNNX if is_pnnx(path) else _BY_SUFFIX.get(path.suffix.lower(), NNEF)


_MODEL_SUFFIXES = (".onnx", ".nnef", ".param", ".tgz", ".tar", ".gz", ".pt2", ".gguf", ".tflite")

_LIBRARY_MAGIC = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\0asm", b"!<arch>", b"NNEFCWTS")
"""The first bytes of libraries and other files that are made from models."""


def is_model(path: Path) -> bool:
    """Return whether a file or folder may be a model, and is not a library; raises no errors."""
    if path.is_dir():
        return (path / NNEF_DOCUMENT).is_file() or is_hugging_face(path)
    try:
        with path.open("rb") as file:
            head = file.read(8)
        return not head.startswith(_LIBRARY_MAGIC) and (path.suffix.lower() in _MODEL_SUFFIXES or is_onnx(path))
    except OSError:
        return False


def _missing(path: Path) -> CompileError:
    """Return the error for a missing file, with a file of a similar name as a hint."""
    try:
        names = [element.name for element in islice(path.parent.iterdir(), 10_000)]
    except OSError:
        return CompileError(f"there is no file '{path}': its folder does not exist")
    from difflib import get_close_matches

    close = get_close_matches(path.name, names, 1)
    return CompileError(
        f"there is no file or folder '{path}'", hint=f"did you mean '{path.parent / close[0]}'?" if close else None
    )
