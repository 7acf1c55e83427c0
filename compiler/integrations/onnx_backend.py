"""Implements ONNX's interface for engines, `onnx.backend.base.Backend`.

    import nnefc.integrations.onnx_backend as backend
    prepared = backend.prepare(onnx.load("model.onnx"))
    (y,) = prepared.run([x])

ONNX's own test runner, `onnx.backend.test.BackendTest(NnefcBackend, __name__)`, drives engines by it.
:func:`nnefc.compile` is the shorter way, and its library needs neither onnx nor a compiler to run.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from ctypes.util import find_library
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, shape_inference
from onnx.backend.base import Backend, BackendRep, namedtupledict

from nnefc.driver.artifact import Artifact
from nnefc.driver.compile import compile_model
from nnefc.driver.formats import load_outline
from nnefc.driver.in_memory import AnyModel, file_of
from nnefc.driver.option_keywords import compile_options
from nnefc.frontends.onnx.checks.types import OnnxTensorType, OptionalType, SequenceType, Type, read_type
from nnefc.frontends.onnx.operator import from_storage, to_storage
from nnefc.frontends.onnx.values import STORAGE, numpy_dtype
from nnefc.loader import Model
from nnefc.support.diagnostics import CompileError

__all__ = [
    "NnefcBackend",
    "NnefcBackendRep",
    "is_compatible",
    "is_small",
    "prepare",
    "run_model",
    "run_node",
    "supports_device",
]

_MAX_LIBRARIES = 8
"""Maximum number of libraries that a prepared model keeps, if the inputs of a run determine what is compiled."""

_OF_THE_RUNNER = ("rtol", "atol")
"""Keywords that ONNX's test runner passes to `prepare`, and that do not concern engines."""


@dataclass(frozen=True)
class _Known:
    """The shapes and values of inputs for which a library is compiled, by name."""

    shapes: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> Hashable:
        """A key that is equal for inputs that can use the same library."""
        return _frozen(self.shapes), _frozen(self.values)


class NnefcBackendRep(BackendRep):  # type: ignore[misc]
    """A model that is ready to run.

    It is compiled in advance, with dynamic dimensions where the model has them. A model for which that is not possible
    is compiled when it runs: for the shapes of the inputs, or else also for the values of inputs that may be shapes,
    axes or counts.

    Attributes:
        inputs, outputs: names, in the order of `run`.
        known: the inputs with whose values the library of the last run was compiled, by name.
    """

    def __init__(self, path: Path, folder: Any, target: str, device: int, options: Mapping[str, Any]) -> None:
        self._path, self._folder = path, folder  # the folder is there as long as this is
        keywords = dict(options)
        self._load = {"threads": keywords.pop("threads", None), "device": device}
        self._options = compile_options("nnefc.onnx_backend.prepare", keywords, target)
        proto = onnx.load(path, load_external_data=False)
        constants = {tensor.name for tensor in proto.graph.initializer}
        constants |= {tensor.values.name for tensor in proto.graph.sparse_initializer}
        self._types = {i.name: read_type(i.type, f"'{i.name}'") for i in (*proto.graph.input, *proto.graph.output)}
        self.inputs = tuple(i.name for i in proto.graph.input if i.name not in constants)
        self.outputs = tuple(info.name for info in proto.graph.output)
        self.known: tuple[str, ...] = ()
        self._libraries: OrderedDict[Hashable, Model] = OrderedDict()
        self._step = 0
        if all(isinstance(self._types[name], OnnxTensorType) for name in self.inputs):
            self._compile_as_it_stands()

    def _compile_as_it_stands(self) -> None:
        """Compile the model before its inputs are known, if possible.

        Raises:
            CompileError: the model cannot be compiled for any inputs.
        """
        try:
            self._loaded(_Known())
        except CompileError:
            if not any(self._may_decide(name) for name in self.inputs):
                raise
            self._step = 1

    def _may_decide(self, name: str) -> bool:
        """Return whether an actual input can help to compile: it has a dynamic size, or its values may determine
        shapes.
        """
        type_ = self._types[name]
        if not isinstance(type_, OnnxTensorType) or type_.shape is None or len(type_.shape) < 2:
            return True
        return any(not isinstance(size, int) for size in type_.shape)

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """Run the model.

        Args:
            inputs: arrays in the order of the inputs, or by name; lists of arrays for sequences, None for absent
                optional inputs.

        Returns:
            the outputs in their order, a named tuple; sequences and optional values as in `inputs`.

        Raises:
            CompileError: the model cannot be compiled, not even for these inputs.
            RunError: the run failed.
        """
        given = self._given(inputs)
        library, known = self._library(given)
        self.known = tuple(known.values)
        feeds = {leaf: array for name, value in given.items() for leaf, array in _leaves(name, value)}
        made = library.run({tensor.name: _stored(feeds[tensor.name]) for tensor in library.inputs})
        results = [_gathered(name, self._types[name], made) for name in self.outputs]
        named: tuple[Any, ...] = namedtupledict("Outputs", self.outputs)(*results)
        return named

    def _given(self, inputs: Any) -> dict[str, Any]:
        """Return the inputs by name, in their order; missing ones at the end are absent."""
        if isinstance(inputs, Mapping):
            unknown = next((name for name in inputs if name not in self.inputs), None)
            if unknown is not None:
                raise CompileError(f"the model has no input '{unknown}'", hint=f"it has {', '.join(self.inputs)}")
            values = [inputs.get(name) for name in self.inputs]
        else:
            values = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
        if len(values) > len(self.inputs):
            raise CompileError(f"the model has {len(self.inputs)} inputs, {len(values)} are given")
        values += [None] * (len(self.inputs) - len(values))
        for name, value in zip(self.inputs, values, strict=True):
            if value is None and not isinstance(self._types[name], OptionalType):
                raise CompileError(f"there is no value for the input '{name}'")
        return {name: _converted(value) for name, value in zip(self.inputs, values, strict=True)}

    def _library(self, given: Mapping[str, Any]) -> tuple[Model, _Known]:
        """Return a library for these inputs that depends on as little of them as possible, and what it depends on."""
        first: CompileError | None = None
        for step, known in list(enumerate(self._steps(given)))[self._step :]:
            try:
                library = self._loaded(known)
            except CompileError as error:
                first = first or error
                continue
            self._step = step
            return library, known
        assert first is not None
        raise first

    def _steps(self, given: Mapping[str, Any]) -> Iterator[_Known]:
        """Yield what a library may depend on, from nothing to all shapes and values."""
        shapes = {name: _shapes(value) for name, value in given.items()}
        yield _Known({name: shapes[name] for name in given if not isinstance(self._types[name], OnnxTensorType)})
        yield _Known(shapes)
        values = {name: value for index, (name, value) in enumerate(given.items()) if is_small(value, index == 0)}
        yield _Known({name: shape for name, shape in shapes.items() if name not in values}, values)

    def _loaded(self, known: _Known) -> Model:
        key = known.key
        if key in self._libraries:
            self._libraries.move_to_end(key)
            return self._libraries[key]
        read = self._options.read
        values = {**known.values, **(read.values or {})}
        shape = {name: shape for name, shape in {**known.shapes, **(read.shape or {})}.items() if name not in values}
        options = replace(self._options, read=replace(read, shape=shape, values=values))
        artifact: Artifact = compile_model(self._path, options)
        self._libraries[key] = self._opened(artifact)
        if len(self._libraries) > _MAX_LIBRARIES:
            self._libraries.popitem(last=False)[1].close()
        return self._libraries[key]

    def _opened(self, artifact: Artifact) -> Model:
        """Load an artifact."""
        return artifact.load(**self._load)


class NnefcBackend(Backend):  # type: ignore[misc]
    """nnefc as an ONNX backend."""

    @classmethod
    def is_compatible(cls, model: AnyModel, device: str = "CPU", **_: Any) -> bool:
        """Return whether a model can be read, and all its operators and the device are supported."""
        if not cls.supports_device(device):
            return False
        path, _folder = file_of(model)
        try:
            return not load_outline(path).unsupported
        except CompileError:
            return False

    @classmethod
    def prepare(cls, model: AnyModel, device: str = "CPU", **options: Any) -> NnefcBackendRep:
        """Compile a model.

        Args:
            model: in memory, or its file; models with external data must be files.
            device: `CPU`, `CUDA`, or `CUDA:1` for the second GPU.
            options: keywords of :func:`nnefc.compile`, and `threads` of :func:`nnefc.load`.

        Raises:
            CompileError: the model, an option or the device is not supported.
        """
        kind, _, number = device.partition(":")
        if not cls.supports_device(device):
            raise CompileError(f"there is no device '{device}' here", hint="devices are CPU, CUDA, CUDA:1, …")
        options = {name: value for name, value in options.items() if name not in _OF_THE_RUNNER}
        target = options.pop("target", "llvm" if kind == "CPU" else "cuda")
        path, folder = file_of(model)
        return NnefcBackendRep(path, folder, target, int(number or 0), options)

    @classmethod
    def run_model(cls, model: AnyModel, inputs: Any, device: str = "CPU", **options: Any) -> tuple[Any, ...]:
        """Compile a model and run it once; the arguments are those of `prepare` and of `NnefcBackendRep.run`."""
        return cls.prepare(model, device, **options).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        **options: Any,
    ) -> tuple[Any, ...]:
        """Run one operator.

        Args:
            node: the operator.
            inputs: values of the node's inputs, in their order or by name.
            device: as in :meth:`prepare`.
            outputs_info: element types and shapes of the outputs; None: they are inferred.
            options: `opset_version`, by default the newest; and those of :meth:`prepare`.

        Raises:
            CompileError: as :meth:`prepare`; or the types of the results cannot be inferred.
        """
        opset = options.pop("opset_version", onnx.defs.onnx_opset_version())
        names = list(dict.fromkeys(name for name in node.input if name))
        values = [inputs[n] for n in names] if isinstance(inputs, Mapping) else list(inputs)
        model = _model_of(node, dict(zip(names, map(_converted, values), strict=True)), outputs_info, opset)
        return cls.run_model(model, values, device, **options)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether networks can be compiled for a device and, for a GPU, whether there is a driver."""
        kind, _, number = device.partition(":")
        if not number.isdecimal() and number:
            return False
        return kind == "CPU" or (kind == "CUDA" and _has_driver())


is_compatible = NnefcBackend.is_compatible
prepare = NnefcBackend.prepare
run_model = NnefcBackend.run_model
run_node = NnefcBackend.run_node
supports_device = NnefcBackend.supports_device


@functools.cache
def _has_driver() -> bool:
    """Return whether NVIDIA's driver is installed. Cached: finding it starts three programs, and ONNX's runner asks
    in each of its tests.
    """
    return find_library("cuda") is not None


def _model_of(
    node: onnx.NodeProto, given: Mapping[str, Any], outputs: Sequence[tuple[Any, tuple[int, ...]]] | None, opset: int
) -> onnx.ModelProto:
    """Return a model of one node."""
    types = {name: _type_of(value) for name, value in given.items()}
    opsets = [helper.make_opsetid("", opset)]
    opsets += [helper.make_opsetid(node.domain, 1)] if node.domain not in ("", "ai.onnx") else []
    names = [name for name in node.output if name]
    if outputs is not None:
        made = {
            name: helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
            for name, (dtype, shape) in zip(names, outputs, strict=True)
        }
    else:
        made = _inferred(node, types, given, opsets)
    graph = helper.make_graph(
        [node],
        node.op_type,
        [helper.make_value_info(name, type_) for name, type_ in types.items()],
        [helper.make_value_info(name, made[name]) for name in names],
    )
    return helper.make_model(graph, opset_imports=opsets)


def _inferred(
    node: onnx.NodeProto,
    types: Mapping[str, onnx.TypeProto],
    given: Mapping[str, Any],
    opsets: list[onnx.OperatorSetIdProto],
) -> dict[str, onnx.TypeProto]:
    """Return the types of a node's outputs, by onnx's inference."""
    domain = "" if node.domain == "ai.onnx" else node.domain
    version = next(opset.version for opset in opsets if opset.domain == domain)
    data = {
        name: onnx.numpy_helper.from_array(value, name)
        for name, value in given.items()
        if isinstance(value, np.ndarray) and value.dtype.kind in "iub"
    }
    try:
        schema = onnx.defs.get_schema(node.op_type, version, domain)
        made = shape_inference.infer_node_outputs(schema, node, dict(types), data, opset_imports=opsets)
    except Exception as error:  # of onnx's own
        raise CompileError(
            f"the types of the results of {node.op_type} cannot be inferred: {error}",
            hint="give them: outputs_info=[(np.float32, (2, 3))]",
        ) from error
    return dict(made)


def _type_of(value: Any) -> onnx.TypeProto:
    if isinstance(value, list):
        element = _type_of(value[0]) if value else helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, None)
        return helper.make_sequence_type_proto(element)
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def _converted(value: Any) -> Any:
    """Return a value as an array, a list of arrays, or None."""
    match value:
        case None:
            return None
        case list() if not value or isinstance(value[0], np.ndarray | list):
            return [_converted(element) for element in value]
    return np.asarray(value)


def _shapes(value: Any) -> Any:
    match value:
        case None:
            return None
        case list():
            return [_shapes(element) for element in value]
    return value.shape


def is_small(value: Any, is_first: bool) -> bool:
    """Return whether a value may be a shape, axes, a count and the like. A first input is data, unless it has
    integers.
    """
    if not isinstance(value, np.ndarray) or value.ndim > 1:
        return False
    return not is_first or value.ndim == 0 or value.dtype.kind in "iubO"


def _leaves(name: str, value: Any) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Yield the tensors of an input, with their names in the library."""
    match value:
        case None:
            return
        case list():
            for index, element in enumerate(value):
                yield from _leaves(f"{name}.{index}", element)
        case _:
            yield name, value


def _stored(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(to_storage(array)).reshape(array.shape)


def _gathered(name: str, type_: Type | None, made: Mapping[str, Any]) -> Any:
    """Return an output of the model, gathered from the library's outputs."""
    match type_:
        case OptionalType(element):
            parts = [key for key in made if key == name or key.startswith(f"{name}.")]
            return _gathered(name, element, made) if parts else None
        case SequenceType(element) if name in made:  # one tensor, of elements of one shape
            return [_gathered(name, element, {name: part}) for part in made[name]]
        case SequenceType(element):
            parts = []
            while any(key == f"{name}.{len(parts)}" or key.startswith(f"{name}.{len(parts)}.") for key in made):
                parts.append(_gathered(f"{name}.{len(parts)}", element, made))
            return parts
        case OnnxTensorType(dtype):
            array = made[name]
            if dtype == "bfloat16" and array.dtype == np.uint16:
                return array.view(numpy_dtype(dtype))
            return from_storage(array, dtype) if dtype in STORAGE else array
    return made[name]


def _frozen(value: Any) -> Hashable:
    """Return a hashable key for a value."""
    match value:
        case Mapping():
            return tuple((name, _frozen(element)) for name, element in value.items())
        case list() | tuple():
            return tuple(map(_frozen, value))
        case np.ndarray():
            content = tuple(value.ravel().tolist()) if value.dtype == object else value.tobytes()
            return str(value.dtype), value.shape, content
    return value  # type: ignore[no-any-return]
