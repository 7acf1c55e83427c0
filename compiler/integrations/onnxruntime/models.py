"""The model of a session: the file or bytes that it is given, checked and changed as its options say."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nnefc.driver.in_memory import AnyModel
from nnefc.support.diagnostics import CompileError, ExternalDataError

from .declared import Interface, read_interface
from .errors import Fail, InvalidArgument, InvalidGraph, InvalidProtobuf, NoSuchFile, NotImplemented, as_kind
from .metadata import NO_VERSION, ModelMetadata
from .options import SessionOptions

if TYPE_CHECKING:
    from tempfile import TemporaryDirectory

    import onnx

__all__ = ["LIBRARIES", "GivenModel", "classified"]

LIBRARIES = (".so", ".dylib", ".dll")
"""The suffixes of compiled libraries."""

_ORT_FORMAT = b"ORTM"
"""What follows the first four bytes of a model in onnxruntime's own format."""


class GivenModel:
    """What a session is made of.

    Attributes:
        model: a file, an ONNX model in memory, or its bytes.
        path: the file; None for a model in memory.
        interface: of an ONNX model; None for other formats, and for libraries.
        is_library: whether it is compiled.
        dimension_names: of the inputs of an ONNX model, those among them whose sizes options fix.
    """

    def __init__(self, given: Any, options: SessionOptions) -> None:
        """Checks that there is a model, and applies the options that change it.

        Raises:
            TypeError: it is nothing that can be a model.
            NoSuchFile: there is no such file.
            NotImplemented: it is in onnxruntime's own format.
            InvalidArgument: there are no bytes, or no initializer of a name.
        """
        self._folder: TemporaryDirectory[str] | None = None
        self.model: AnyModel = given
        self.path = Path(given) if isinstance(given, str | os.PathLike) else None
        if self.path is not None and not self.path.exists():
            raise as_kind(NoSuchFile, CompileError(f"cannot read {self.path}: no such file"))
        if self.path is None and not isinstance(given, bytes) and not hasattr(given, "SerializeToString"):
            raise _no_model(given)
        self.is_library = self.path is not None and self.path.suffix in LIBRARIES
        self.interface: Interface | None = None
        self.dimension_names: frozenset[str] = frozenset()
        if self.is_library:
            return
        self._refuse_own_format(options)
        self._apply(options)
        interface = self._interface()
        if interface is not None:
            values = interface.inputs
            self.dimension_names = frozenset(s for each in values for s in each.shape or () if isinstance(s, str))
            self.interface = interface.with_sizes(options._dimensions)

    def proto(self) -> onnx.ModelProto:
        """Returns the model as a message, with its data."""
        return self._proto(None)

    def metadata(self) -> ModelMetadata:
        """Returns the metadata of an ONNX model that is not compiled yet."""
        import onnx

        if isinstance(self.model, str | os.PathLike):
            proto = onnx.load(os.fspath(self.model), load_external_data=False)
        else:
            proto = self._proto(None)
        return ModelMetadata(
            graph_name=proto.graph.name,
            producer_name=proto.producer_name,
            description=proto.doc_string,
            domain=proto.domain,
            version=proto.model_version if proto.HasField("model_version") else NO_VERSION,
            custom_metadata_map={entry.key: entry.value for entry in proto.metadata_props},
            graph_description=proto.graph.doc_string,
        )

    def _interface(self) -> Interface | None:
        if isinstance(self.model, bytes):
            return read_interface(self.model)
        if isinstance(self.model, str | os.PathLike):
            path = Path(self.model)
            return read_interface(path) if path.is_file() else None
        return read_interface(_without_weights(self.model).SerializeToString())

    def _refuse_own_format(self, options: SessionOptions) -> None:
        if isinstance(self.model, bytes):
            head = self.model[:8]
            if not head:
                raise as_kind(InvalidArgument, CompileError("the model has no bytes"))
        elif self.path is not None and self.path.is_file():
            with self.path.open("rb") as file:
                head = file.read(8)
        else:
            return
        is_named = options._entries.get("session.load_model_format", "").upper() == "ORT"
        if head[4:] == _ORT_FORMAT or is_named:
            name = self.path or "the model"
            raise as_kind(
                NotImplemented,
                CompileError(
                    f"{name} is in onnxruntime's own format (.ort), whose graph is optimized for its kernels",
                    hint="give the ONNX model that it was made from",
                ),
            )

    def _apply(self, options: SessionOptions) -> None:
        """Replaces initializers, puts files of external data from memory next to the model, and copies the model."""
        folder = options._entries.get("session.model_external_initializers_file_folder_path")
        if options._initializers or (folder is not None and isinstance(self.model, bytes)):
            self.model = _with_initializers(self._proto(folder), options._initializers)
        if options._files and isinstance(self.model, bytes | str | os.PathLike):
            from tempfile import TemporaryDirectory

            self._folder = TemporaryDirectory(prefix="nnefc-model-", ignore_cleanup_errors=True)
            path = Path(self._folder.name) / "model.onnx"
            if isinstance(self.model, bytes):
                path.write_bytes(self.model)
            else:
                shutil.copyfile(self.model, path)
            for name, content in options._files.items():
                (path.parent / Path(name).name).write_bytes(content)
            self.model = path
        if options.optimized_model_filepath:
            self._write_copy(options)

    def _proto(self, folder: str | None) -> onnx.ModelProto:
        import onnx

        if isinstance(self.model, bytes):
            proto = onnx.ModelProto.FromString(self.model)
            if folder is not None:
                onnx.load_external_data_for_model(proto, folder)
            return proto
        if isinstance(self.model, str | os.PathLike):
            return onnx.load(os.fspath(self.model))
        return self.model

    def _write_copy(self, options: SessionOptions) -> None:
        """Writes the model where a program wants it optimized.

        Raises:
            NotImplemented: it should be in onnxruntime's own format.
        """
        target = Path(options.optimized_model_filepath)
        if options._entries.get("session.save_model_format", "").upper() == "ORT" or target.suffix == ".ort":
            raise as_kind(
                NotImplemented,
                CompileError(
                    f"{target} cannot be written in onnxruntime's own format",
                    hint="nnefc.compile(model).export('model.so') writes a compiled library",
                ),
            )
        import onnx

        proto = self._proto(None)
        onnx.save(proto, str(target), save_as_external_data=proto.ByteSize() >= 1 << 31)


def _without_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Returns the inputs, outputs and names of initializers of a model."""
    import onnx

    made = onnx.ModelProto(ir_version=proto.ir_version)
    made.graph.input.extend(proto.graph.input)
    made.graph.output.extend(proto.graph.output)
    for tensor in proto.graph.initializer:
        made.graph.initializer.add(name=tensor.name)
    for sparse in proto.graph.sparse_initializer:
        made.graph.sparse_initializer.add().values.name = sparse.values.name
    return made


def _with_initializers(proto: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """Returns a copy of a model with other values of initializers.

    Raises:
        Fail: it has none of a name.
    """
    import onnx

    made = onnx.ModelProto()
    made.CopyFrom(proto)
    known = {tensor.name: tensor for tensor in made.graph.initializer}
    for name, value in values.items():
        if name not in known:
            raise as_kind(Fail, CompileError(f"the model has no initializer {name!r}; it has {', '.join(known)}"))
        known[name].CopyFrom(onnx.numpy_helper.from_array(np.ascontiguousarray(value), name))
    return made


def _no_model(given: Any) -> Exception:
    from nnefc.driver.in_memory import file_of

    try:
        file_of(given)
    except CompileError as error:
        return as_kind(TypeError, error)
    except ImportError:
        pass
    return TypeError(f"a session is made of a file or the bytes of a model, and not of a {type(given).__name__}")


def classified(error: CompileError, model: GivenModel) -> Exception:
    """Returns the error of a compilation as onnxruntime's class for what is wrong with the model."""
    if isinstance(error, ExternalDataError):
        if model.path is None:
            error.hint = (
                "give the path of the model's file in place of its bytes, or the contents of the files: "
                "SessionOptions.add_external_initializers_from_files_in_memory(NAMES, CONTENTS, SIZES)"
            )
        return as_kind(Fail, error)
    return as_kind(_kind(model), error)


def _kind(given: GivenModel) -> type[Exception]:
    """Returns the class of the error of a model that cannot be compiled, by what ONNX's checker says of it."""
    import onnx
    from google.protobuf.message import DecodeError

    try:
        model = given.model
        if isinstance(model, str | os.PathLike):
            if not Path(model).is_file() or Path(model).suffix in (".nnef", ".tgz", ".param"):
                return Fail
            model = Path(model).read_bytes()
        proto: Any = onnx.ModelProto.FromString(model) if isinstance(model, bytes) else model
        if not proto.HasField("graph"):
            return InvalidArgument
        unknown = _unknown_domains(proto)
        if unknown:
            return Fail if unknown <= {each.domain for each in proto.opset_import} else InvalidGraph
        onnx.checker.check_model(_with_shapes(proto))
        onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
    except (DecodeError, RecursionError):
        return InvalidProtobuf
    except onnx.checker.ValidationError:
        return InvalidGraph
    except (OSError, ValueError, TypeError, onnx.shape_inference.InferenceError):
        return Fail
    return NotImplemented


def _with_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a model whose inputs and outputs all have shapes, which onnxruntime does not ask for, but ONNX's checker;
    where there are none, a copy with any.
    """
    import onnx

    def without(graph: onnx.GraphProto) -> list[onnx.TypeProto.Tensor]:
        tensors = [info.type.tensor_type for info in (*graph.input, *graph.output) if info.type.HasField("tensor_type")]
        return [tensor for tensor in tensors if not tensor.HasField("shape")]

    if not without(model.graph):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in without(copy.graph):
        tensor.shape.SetInParent()
    return copy


def _unknown_domains(proto: onnx.ModelProto) -> set[str]:
    """Returns the domains of operators that neither onnxruntime nor a function of the model defines, and the standard's
    if the model imports a later version of it.
    """
    import onnx

    functions = {(function.domain, function.name) for function in proto.functions}
    others = {node.domain for node in proto.graph.node if (node.domain, node.op_type) not in functions}
    newest = onnx.defs.onnx_opset_version()
    late = {each.domain for each in proto.opset_import if each.version > newest and each.domain in ("", "ai.onnx")}
    return others - _DOMAINS | late


_DOMAINS = {"", "ai.onnx", "ai.onnx.ml", "ai.onnx.preview.training", "com.microsoft", "com.microsoft.nchwc"}
"""Those whose operators onnxruntime defines."""
