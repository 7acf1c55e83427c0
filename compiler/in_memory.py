"""Models in memory, as files: that is what front ends read."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeAlias

from nnefc.diagnostics import CompileError

if TYPE_CHECKING:
    import onnx

__all__ = ["AnyModel", "file_of"]

AnyModel: TypeAlias = "onnx.ModelProto | bytes | str | os.PathLike[str]"
"""An ONNX model in memory, its bytes, or the file of a model of any format."""

_MOST_BYTES = 1 << 31
"""Of a message of protobuf."""

_WAYS = {
    "torch": "nnefc.torch.compile(module.eval(), example) compiles modules; programs of torch.onnx have a model_proto",
    "sklearn": "nnefc.sklearn.compile(estimator, samples) compiles estimators",
    "onnx": "onnx.helper.make_model makes a model of a graph",
    "onnx_ir": "onnx_ir.to_proto gives an onnx.ModelProto",
    "keras": "tf2onnx.convert.from_keras(model) gives an onnx.ModelProto",
    "tensorflow": "tf2onnx.convert.from_keras and from_function give an onnx.ModelProto",
}
"""How models of other packages are compiled."""


def file_of(model: AnyModel) -> tuple[Path, TemporaryDirectory[str] | None]:
    """The file of a model; and the folder that it is in if it had to be written, to be kept while it is read.

    Raises:
        CompileError: it is nothing that nnefc compiles, or cannot be written down.
    """
    if isinstance(model, str | os.PathLike):
        return Path(model), None
    folder = TemporaryDirectory(prefix="nnefc-model-", ignore_cleanup_errors=True)
    path = Path(folder.name) / "model.onnx"
    if isinstance(model, bytes):
        path.write_bytes(model)
    else:
        _write(model, path)
    return path, folder


def _write(model: onnx.ModelProto, path: Path) -> None:
    import onnx
    from google.protobuf.message import EncodeError

    if not isinstance(model, onnx.ModelProto):
        kind = type(model)
        raise CompileError(
            f"a model is a file, an onnx.ModelProto or its bytes, and no {kind.__module__}.{kind.__qualname__}",
            hint=next((_WAYS[name] for name in _packages(kind) if name in _WAYS), None),
        )
    try:
        content = _serialized(model)
    except (EncodeError, ValueError) as error:  # by the kind of protobuf: a message has less than 2 GB
        if model.ByteSize() < _MOST_BYTES:
            raise CompileError(f"the model cannot be written down: {error}") from error
        copied = onnx.ModelProto()
        copied.CopyFrom(model)
        onnx.save_model(copied, str(path), save_as_external_data=True, location="model.data")
    else:
        path.write_bytes(content)


def _serialized(model: onnx.ModelProto) -> bytes:
    content: bytes = model.SerializeToString()
    return content


def _packages(kind: type) -> list[str]:
    """Those that a type and those that it is derived from are defined in, its own first."""
    return [one.__module__.partition(".")[0] for one in kind.__mro__]
