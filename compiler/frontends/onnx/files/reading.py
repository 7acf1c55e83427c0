"""Reads the bytes of an `.onnx` file to a :class:`~nnefc.frontends.onnx.files.model.Model`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError

from nnefc.frontends.compressed import GZIP, largest_content, unpacked
from nnefc.frontends.onnx.checks.tolerance import with_all_imports
from nnefc.frontends.onnx.checks.topological_order import in_topological_order
from nnefc.frontends.onnx.checks.types import ValueInfo, read_type
from nnefc.frontends.onnx.columns import Column
from nnefc.frontends.onnx.files.external_data import ExternalData
from nnefc.frontends.onnx.files.large_tensors import ITSELF, LOCATIONS, Message, mapped_message, without_large_tensors
from nnefc.frontends.onnx.files.model import AttributeRef, NodeDef, OnnxFunction, OnnxGraph, OnnxModel, Opsets, Training
from nnefc.frontends.onnx.files.tensors import read_sparse_tensor, read_tensor
from nnefc.frontends.onnx.values import Array, SparseTensor, same_values
from nnefc.ir.model_metadata import MetadataEntries, metadata_of
from nnefc.support.diagnostics import CompileError, warn
from nnefc.support.mapped_files import LARGE

__all__ = ["read_function", "read_model", "read_proto"]

_A = onnx.AttributeProto
_OF_COLUMNS = ("TreeEnsembleClassifier", "TreeEnsembleRegressor", "TreeEnsemble")
"""Operators whose lists stay columns; others get tuples, which take more memory."""

_MAX_DEPTH = 24
"""Graphs inside each other: protobuf itself stops a little later."""

_FIRST_WITH_OPSETS = 3
"""The version of the format in which models began to say which versions of operators they have."""

_MAX_FILE_BYTES = 1 << 31
"""The maximum size of a protobuf message; larger models keep their weights in files next to them."""

_FIELDS: Mapping[int, str] = {
    _A.FLOAT: "f",
    _A.INT: "i",
    _A.STRING: "s",
    _A.TENSOR: "t",
    _A.GRAPH: "g",
    _A.SPARSE_TENSOR: "sparse_tensor",
    _A.TYPE_PROTO: "tp",
    _A.FLOATS: "floats",
    _A.INTS: "ints",
    _A.STRINGS: "strings",
    _A.TENSORS: "tensors",
    _A.GRAPHS: "graphs",
    _A.SPARSE_TENSORS: "sparse_tensors",
    _A.TYPE_PROTOS: "type_protos",
}
"""The field of an attribute's value, by the attribute's type."""

_ELEMENT: Mapping[int, int] = {
    _A.FLOATS: _A.FLOAT,
    _A.INTS: _A.INT,
    _A.STRINGS: _A.STRING,
    _A.TENSORS: _A.TENSOR,
    _A.GRAPHS: _A.GRAPH,
    _A.SPARSE_TENSORS: _A.SPARSE_TENSOR,
    _A.TYPE_PROTOS: _A.TYPE_PROTO,
}
"""The type of one element, by the type of the repeated attribute."""

_SINGULAR = tuple(_ELEMENT.values())


def read_model(path: Path) -> OnnxModel:
    """Read a model, also one compressed with gzip, with the data in files next to it.

    Raises:
        CompileError: no such file, no ONNX model, a message that is not as the standard says.
    """
    external = ExternalData(path.parent)
    reader = _Reader(external)
    model = reader.model(read_proto(path, external), path)
    for text in dict.fromkeys(reader.warnings):
        warn(f"{path.name}: {text}")
    return model


def read_proto(path: Path, external: ExternalData | None = None) -> onnx.ModelProto:
    """The message in a file, whose parts are not looked at yet.

    Args:
        path: the file.
        external: gets the file where large tensors stay in it, in the message as data in another file; None: all of
            the file becomes the message.

    Raises:
        CompileError: no such file, no ONNX model.
    """
    proto = onnx.ModelProto()
    try:
        if path.stat().st_size >= _MAX_FILE_BYTES:
            raise CompileError(
                f"{path} has 2 GB or more, which a protobuf message cannot have",
                hint="keep the weights as external data: onnx.save(model, path, save_as_external_data=True)",
            )
        mapped = mapped_message(path) if external is not None else None
        content = np.frombuffer(path.read_bytes(), np.uint8) if mapped is None else mapped
        if content[: len(GZIP)].tobytes() == GZIP:
            content = _unpacked(path, content)
        if external is None or len(content) < LARGE:
            proto.ParseFromString(content.tobytes())
        else:
            for location in (ITSELF, *LOCATIONS.values()):
                external.add(location, content)
            proto.ParseFromString(without_large_tensors(content))
    except OSError as error:
        raise CompileError(f"cannot read {path}: {error.strerror}") from error
    except (DecodeError, RecursionError) as error:
        raise CompileError(
            f"{path} is not an ONNX model: it cannot be parsed as one",
            hint="the file may be cut off or damaged: download or export it again",
        ) from error
    if not proto.HasField("graph"):
        raise CompileError(f"{path} is not an ONNX model: it has no graph")
    return proto


def _unpacked(path: Path, content: Message) -> Message:
    """The message in a file of gzip's."""
    maximum = min(largest_content(len(content)), _MAX_FILE_BYTES)
    hint = f"unpack it first: gunzip -k {path}"
    return unpacked(path, content, maximum, hint)


def read_function(proto: onnx.FunctionProto) -> OnnxFunction:
    """A function that the standard gives as the body of an operator."""
    return _Reader(ExternalData(Path())).function(proto)


class _Reader:
    """Makes frozen values of messages.

    Attributes:
        warnings: of what breaks a rule of the format and is read all the same.
    """

    def __init__(self, external: ExternalData) -> None:
        self._external = external
        self._depth = 0
        self.warnings: list[str] = []

    def model(self, proto: onnx.ModelProto, path: Path) -> OnnxModel:
        version = proto.ir_version or (_FIRST_WITH_OPSETS if proto.opset_import else 1)
        if not proto.ir_version:
            self.warnings.append(f"it does not say which version of the format it is in: {version} is taken")
        if proto.ir_version > onnx.IR_VERSION:
            raise CompileError(
                f"{path} is in version {proto.ir_version} of the format, the newest that the installed package onnx "
                f"knows is {onnx.IR_VERSION}",
                hint="install a newer one: pip install -U onnx",
            )
        if version >= _FIRST_WITH_OPSETS and not proto.opset_import:
            raise CompileError(
                f"{path} imports no operator set ('opset_import'), which says what its operators mean",
                hint="add the one that it was written for: model.opset_import.append(onnx.helper.make_opsetid('', 13))",
            )
        if 0 < version < _FIRST_WITH_OPSETS and proto.opset_import:
            self.warnings.append(
                f"it imports operator sets, which version {version} of the format lacks; they are taken"
            )
        functions: dict[tuple[str, str, str], OnnxFunction] = {}
        for element in proto.functions:
            function = self.function(element)
            if function.key in functions:
                raise CompileError(f"the model has two functions '{_spelled(function)}'")
            functions[function.key] = function
        metadata = _metadata(proto)
        self.warnings += metadata.warnings
        model = OnnxModel(
            name=proto.graph.name or path.stem.removesuffix(".onnx"),
            opsets=_opsets(proto.opset_import, f"the model {path.name}") or {"": 1},
            graph=self.graph(proto.graph, "the model's graph"),
            functions=functions,
            trainings=tuple(self._training(element, i) for i, element in enumerate(proto.training_info)),
            files=self._external.files,
            producer=str(proto.producer_name),
            metadata=metadata.entries,
        )
        model, warnings = with_all_imports(model, version)
        self.warnings += warnings
        return model

    def graph(self, proto: onnx.GraphProto, what: str) -> OnnxGraph:
        if self._depth >= _MAX_DEPTH:
            raise CompileError(f"{what} is nested more than {_MAX_DEPTH} graphs deep")
        self._depth += 1
        try:
            inputs = tuple(self._info(element, "input", what) for element in proto.input)
            initializers = self._initializers(proto, what)
            return OnnxGraph(
                name=proto.name or what,
                inputs=inputs,
                outputs=tuple(self._info(element, "output", what) for element in proto.output),
                initializers=initializers,
                nodes=self._nodes(proto.node, [*(element.name for element in inputs), *initializers], what),
                infos=self._infos(proto.value_info, what),
            )
        finally:
            self._depth -= 1

    def _infos(self, protos: Iterable[onnx.ValueInfoProto], what: str) -> dict[str, ValueInfo]:
        """Types of values inside; one without a name says nothing."""
        return {element.name: self._info(element, "value", what) for element in protos if element.name}

    def _info(self, proto: onnx.ValueInfoProto, role: str, what: str) -> ValueInfo:
        _check_texts(what, proto.name)
        if not proto.name:
            raise CompileError(f"{what} has an {role} without a name")
        return ValueInfo(proto.name, read_type(proto.type, f"the {role} '{proto.name}'"))

    def _initializers(self, proto: onnx.GraphProto, what: str) -> dict[str, Array | SparseTensor]:
        found: dict[str, Array | SparseTensor] = {}
        for tensor in proto.initializer:
            value = read_tensor(tensor, f"the initializer '{tensor.name}'", self._external)
            self._add_initializer(found, tensor.name, value, what)
        for sparse in proto.sparse_initializer:
            name = sparse.values.name
            values = read_sparse_tensor(sparse, f"the sparse initializer '{name}'", self._external)
            self._add_initializer(found, name, values, what)
        return found

    def _add_initializer(
        self, found: dict[str, Array | SparseTensor], name: str, value: Array | SparseTensor, what: str
    ) -> None:
        """Add an initializer; nothing can read one without a name, and a second one may only repeat the first."""
        _check_texts(what, name)
        if not name:
            self.warnings.append(f"{what} has an initializer without a name, which nothing can read")
            return
        if name in found:
            both = (
                element.dense() if isinstance(element, SparseTensor) else element for element in (found[name], value)
            )
            if not same_values(*both):
                raise CompileError(
                    f"{what} has two initializers '{name}' with different values",
                    hint="give one of them another name, or remove it",
                )
            self.warnings.append(f"{what} has the initializer '{name}' twice, with the same values")
        found[name] = value

    def _nodes(self, protos: Iterable[onnx.NodeProto], given: Iterable[str], what: str) -> tuple[NodeDef, ...]:
        """The nodes of a graph, each after those that make what it needs; `given` names inputs and initializers."""
        nodes = tuple(map(self.node, protos))
        ordered = in_topological_order(nodes, given)
        if ordered is not nodes:
            self.warnings.append(f"the nodes of {what} are not in topological order; they are read as if they were")
        return ordered

    def node(self, proto: onnx.NodeProto) -> NodeDef:
        """A node, its attributes decoded."""
        _check_texts("a node", proto.op_type, proto.domain, proto.name, *proto.input, *proto.output)
        node = NodeDef(
            op_type=proto.op_type,
            domain=_domain(proto.domain),
            name=proto.name,
            overload=getattr(proto, "overload", ""),
            inputs=tuple(proto.input),
            outputs=tuple(proto.output),
            attributes={},
            kinds={},
        )
        if not proto.op_type:
            raise CompileError(f"{node.description} does not name an operator")
        attributes: dict[str, Any] = {}
        kinds: dict[str, int] = {}
        for attribute in proto.attribute:
            name = attribute.name
            if not name:
                raise CompileError(f"{node.description} has an attribute without a name")
            if name in attributes:
                raise CompileError(f"{node.description} has the attribute '{name}' twice")
            kind, value = self._attribute(attribute, f"attribute '{name}' of {node.description}")
            is_list = isinstance(value, Column) and node.op_type not in _OF_COLUMNS
            kinds[name], attributes[name] = kind, tuple(value) if is_list else value
        return NodeDef(
            node.op_type, node.domain, node.name, node.overload, node.inputs, node.outputs, attributes, kinds
        )

    def _attribute(self, proto: onnx.AttributeProto, what: str) -> tuple[int, Any]:
        """Type and value; the value must be in the one field that belongs to the type."""
        given = [kind for kind, field in _FIELDS.items() if _is_given(proto, kind, field)]
        kind = proto.type
        if proto.ref_attr_name:
            if given:
                raise CompileError(f"the {what} has a value, and refers to '{proto.ref_attr_name}' too")
            return kind, AttributeRef(proto.ref_attr_name, kind)
        if len(given) > 1:
            fields = " and ".join(f"'{_FIELDS[element]}'" for element in given)
            raise CompileError(f"the {what} has values in {fields}: there must be exactly one")
        if not kind and not given:
            raise CompileError(f"the {what} has neither type nor value")
        kind = kind or given[0]  # the first version of the format has no types
        if kind not in _FIELDS:
            raise CompileError(f"the {what} has the unknown type {kind}")
        if given == [_A.TENSOR] and _is_column(proto.t, kind):
            return kind, Column(self._external.read(proto.t.external_data, None, what), kind, what)
        if given and given[0] != kind:
            raise CompileError(f"the {what} has a value in '{_FIELDS[given[0]]}', its type says '{_FIELDS[kind]}'")
        # The default value of a field, 0 for one, need not be written to the file.
        if not given and kind in (_A.TENSOR, _A.GRAPH, _A.SPARSE_TENSOR, _A.TYPE_PROTO):
            raise CompileError(f"the {what} has no value")
        return kind, self._value(kind, getattr(proto, _FIELDS[kind]), what)

    def _value(self, kind: int, value: Any, what: str) -> Any:
        readers: Mapping[int, Callable[[Any], Any]] = {
            _A.FLOAT: float,
            _A.INT: int,
            _A.STRING: lambda element: _text(element, what),
            _A.TENSOR: lambda element: read_tensor(element, f"the tensor of {what}", self._external),
            _A.GRAPH: lambda element: self.graph(element, f"the graph of {what}"),
            _A.SPARSE_TENSOR: lambda element: read_sparse_tensor(element, f"the tensor of {what}", self._external),
            _A.TYPE_PROTO: lambda element: read_type(element, what),
        }
        if kind in readers:
            return readers[kind](value)
        elements = map(readers[_ELEMENT[kind]], value)
        if kind not in (_A.INTS, _A.STRINGS):
            return tuple(elements)
        shared: dict[Any, Any] = {}  # an ensemble of trees has millions, few of them different
        return tuple(shared.setdefault(element, element) for element in elements)

    def function(self, proto: onnx.FunctionProto) -> OnnxFunction:
        """A function; that nodes use only what it imports is checked with its scopes."""
        what = f"the function '{proto.name}'"
        _check_texts(what, proto.name, proto.domain, *proto.input, *proto.output)
        if not proto.name:
            raise CompileError("a function of the model has no name")
        names = [*proto.attribute, *(element.name for element in proto.attribute_proto)]
        _distinct(names, "attribute", what)
        _distinct(proto.input, "input", what)
        _distinct(proto.output, "output", what)
        return OnnxFunction(
            name=proto.name,
            domain=_domain(proto.domain),
            overload=getattr(proto, "overload", ""),
            inputs=tuple(proto.input),
            outputs=tuple(proto.output),
            required=tuple(proto.attribute),
            defaults={a.name: self._attribute(a, f"attribute '{a.name}' of {what}")[1] for a in proto.attribute_proto},
            nodes=self._nodes(proto.node, proto.input, what),
            opsets=_opsets(proto.opset_import, what),
            infos=self._infos(getattr(proto, "value_info", ()), what),
        )

    def _training(self, proto: onnx.TrainingInfoProto, index: int) -> Training:
        what = f"training:{index}"
        initialization = None
        if proto.HasField("initialization"):
            initialization = self.graph(proto.initialization, f"the initialization of {what}")
        return Training(
            initialization=initialization,
            algorithm=self.graph(proto.algorithm, f"the algorithm of {what}"),
            initialization_binding=_binding(proto.initialization_binding, f"the initialization binding of {what}"),
            update_binding=_binding(proto.update_binding, f"the update binding of {what}"),
        )


def _is_given(proto: onnx.AttributeProto, kind: int, field: str) -> bool:
    return proto.HasField(field) if kind in _SINGULAR else len(getattr(proto, field)) > 0


def _is_column(proto: onnx.TensorProto, kind: int) -> bool:
    """Returns whether a tensor stands for elements of an attribute that are in the model's file."""
    return kind in LOCATIONS and any(e.key == "location" and e.value == LOCATIONS[kind] for e in proto.external_data)


def _metadata(proto: onnx.ModelProto) -> MetadataEntries:
    """Returns the model's metadata, from its own fields and from its author's entries."""
    fields = {
        "producer_name": proto.producer_name,
        "producer_version": proto.producer_version,
        "domain": proto.domain,
        "model_version": str(proto.model_version) if proto.HasField("model_version") else "",
        "doc_string": proto.doc_string,
        "graph_doc_string": proto.graph.doc_string,
    }
    return metadata_of(fields, ((entry.key, entry.value) for entry in proto.metadata_props))


def _text(value: bytes, what: str) -> str:
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        raise CompileError(f"the {what} is not UTF-8") from None


def _check_texts(what: str, *texts: str | bytes) -> None:
    """Names must be text; protobuf gives those that are none as bytes."""
    for text in texts:
        if isinstance(text, bytes):
            raise CompileError(f"{what} has a name that is not UTF-8: {text[:40]!r}")


def _domain(name: str) -> str:
    return "" if name == "ai.onnx" else name


def _opsets(imports: Iterable[Any], what: str) -> Opsets:
    found: dict[str, int] = {}
    for element in imports:
        domain = _domain(element.domain)
        if found.setdefault(domain, element.version) != element.version:
            raise CompileError(f"{what} imports the operator set '{domain or 'ai.onnx'}' in two versions")
        if element.version < 1:
            raise CompileError(f"{what} imports the operator set '{domain or 'ai.onnx'}' in version {element.version}")
    return {domain: int(version) for domain, version in found.items()}


def _binding(entries: Iterable[Any], what: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in entries:
        if entry.key in found:
            raise CompileError(f"{what} assigns to '{entry.key}' twice")
        found[entry.key] = entry.value
    return found


def _distinct(names: Iterable[str], kind: str, what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise CompileError(f"{what} has the {kind} '{name}' twice")
        seen.add(name)


def _spelled(function: OnnxFunction) -> str:
    return ".".join(filter(None, function.key))
