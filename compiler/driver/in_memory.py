"""Writes models in memory to temporary files, which the front ends read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from nnefc.driver.file_magic import TFLITE_MAGIC
from nnefc.driver.torch_programs import PROGRAM_SUFFIX, check_functional, is_program, load_program, write_onnx
from nnefc.support.diagnostics import CompileError, ExternalDataError
from nnefc.support.output_files import temporary_errors

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

    import onnx

__all__ = ["AnyModel", "file_of"]


class ExportedProgram(Protocol):
    """The interface of `torch.export.ExportedProgram`, for type checkers without PyTorch."""

    @property
    def graph_signature(self) -> Any: ...

    @property
    def graph_module(self) -> Any: ...


class OnnxProgram(Protocol):
    """The interface of `torch.onnx.ONNXProgram`, for type checkers without PyTorch."""

    @property
    def model_proto(self) -> Any: ...


AnyModel: TypeAlias = "onnx.ModelProto | bytes | str | os.PathLike[str] | ExportedProgram | OnnxProgram"
"""An ONNX model in memory, the bytes of an ONNX or TFLite model, a program of PyTorch, or the path of a model of any
format.
"""

_MAX_BYTES = 1 << 31
"""Maximum bytes of a protobuf message."""

_WAYS = {
    "torch": "nnefc.torch.compile(module.eval(), example) compiles modules",
    "sklearn": "nnefc.sklearn.compile(estimator, samples) compiles estimators",
    "onnx": "onnx.helper.make_model makes a model of a graph",
    "onnx_ir": "onnx_ir.to_proto gives an onnx.ModelProto",
    "keras": "tf2onnx.convert.from_keras(model) gives an onnx.ModelProto",
    "tensorflow": "tf2onnx.convert.from_keras and from_function give an onnx.ModelProto",
}
"""How models of other packages are compiled."""


def file_of(model: AnyModel) -> tuple[Path, TemporaryDirectory[str] | None]:
    """Return the file of a model, and the temporary folder that has the file if it had to be written.

    The caller keeps the folder until the model has been read.

    Raises:
        CompileError: the object is not a model that nnefc compiles, or cannot be written.
    """
    if isinstance(model, str | os.PathLike):
        path = Path(model)
        if path.suffix != PROGRAM_SUFFIX or not path.is_file():
            return path, None
        model, stem = load_program(path), path.stem
    else:
        stem = "model"
    is_tflite = isinstance(model, bytes) and model[4:8] == TFLITE_MAGIC
    with temporary_errors():
        from tempfile import TemporaryDirectory

        folder = TemporaryDirectory(prefix="nnefc-model-", ignore_cleanup_errors=True)
        path = Path(folder.name) / (f"{stem}.tflite" if is_tflite else f"{stem}.onnx")
        try:
            _write(model, path)
        except BaseException:
            folder.cleanup()
            raise
    return path, folder


def _write(model: Any, path: Path) -> None:
    if path.suffix == ".tflite":
        path.write_bytes(model)
    elif isinstance(model, bytes):
        content = _decompressed(model)
        _check_complete_bytes(content)
        path.write_bytes(content)
    elif is_program(model):
        check_functional(model)
        write_onnx(model, path)
    else:
        _write_proto(model, path)


def _write_proto(model: onnx.ModelProto, path: Path) -> None:
    import onnx
    from google.protobuf.message import EncodeError

    if not isinstance(model, onnx.ModelProto):
        kind = type(model)
        raise CompileError(
            f"a model is a file, an onnx.ModelProto or its bytes, and no {kind.__module__}.{kind.__qualname__}",
            hint=next((_WAYS[name] for name in _packages(kind) if name in _WAYS), None),
        )
    _check_complete(model)
    try:
        content = _serialized(model)
    except (EncodeError, ValueError) as error:  # by the kind of protobuf: a message has less than 2 GB
        if model.ByteSize() < _MAX_BYTES:
            raise CompileError(f"the model cannot be written down: {error}") from error
        copied = onnx.ModelProto()
        copied.CopyFrom(model)
        onnx.save_model(copied, str(path), save_as_external_data=True, location="model.data")
    else:
        path.write_bytes(content)


def _decompressed(model: bytes) -> bytes:
    """Return the bytes of a model, decompressed if they are in gzip's format."""
    from nnefc.frontends.compressed import GZIP, largest_content, unpacked

    if not model.startswith(GZIP):
        return model
    hint = "pass what gzip.decompress gives for it"
    return unpacked(Path("model.onnx.gz"), model, largest_content(len(model)), hint).tobytes()


def _check_complete_bytes(model: bytes) -> None:
    """Check that a serialized model has no external data; it is parsed only if the key of external data occurs in it.

    Raises:
        ExternalDataError: as :func:`_check_complete`.
    """
    import onnx
    from google.protobuf.message import DecodeError

    if b"location" not in model:
        return
    try:
        _check_complete(onnx.ModelProto.FromString(model))
    except DecodeError:
        return  # the front end says what is wrong with it


def _check_complete(model: onnx.ModelProto) -> None:
    """Check that a model has no external data: a model in memory has no folder with further files.

    Raises:
        ExternalDataError: for the first tensor with external data.
    """
    for tensor in _tensors(model):
        if tensor.data_location == tensor.EXTERNAL:
            location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
            raise ExternalDataError(
                f"the data of the tensor {tensor.name!r} is in the file {location!r}, and a model in memory has no "
                "folder where that could be",
                hint="give the path of the model's file in place of the model, or load the data first: "
                "onnx.load_external_data_for_model(model, FOLDER)",
            )


def _tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield all tensors of a model: initializers and attributes, in inner graphs, functions and training graphs as
    well.
    """
    graphs = [model.graph, *(g for step in model.training_info for g in (step.initialization, step.algorithm))]
    nodes = [node for function in model.functions for node in function.node]
    while graphs or nodes:
        if graphs:
            graph = graphs.pop()
            yield from graph.initializer
            yield from (part for sparse in graph.sparse_initializer for part in (sparse.values, sparse.indices))
            nodes += graph.node
            continue
        for attribute in nodes.pop().attribute:
            sparse = [*attribute.sparse_tensors, attribute.sparse_tensor]
            yield from (attribute.t, *attribute.tensors, *(part for s in sparse for part in (s.values, s.indices)))
            graphs += [attribute.g, *attribute.graphs]


def _serialized(model: onnx.ModelProto) -> bytes:
    content: bytes = model.SerializeToString()
    return content


def _packages(kind: type) -> list[str]:
    """Return the packages that define a type and its base types, its own first."""
    return [one.__module__.partition(".")[0] for one in kind.__mro__]
