"""Converts scikit-learn estimators to ONNX models that compute in the float types of the estimators' own methods.

skl2onnx declares results of tree ensembles as float64 if the samples are, although ONNX's operators compute float32,
and writes thresholds in float32. scikit-learn converts samples to float32 for its trees, and compares them in float64
in its histogram-based trees. Both are corrected here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any

import numpy as np
import onnx
import skl2onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper, shape_inference
from skl2onnx.common import data_types
from sklearn.base import is_classifier
from sklearn.ensemble import RandomTreesEmbedding, VotingClassifier
from sklearn.feature_extraction.text import CountVectorizer

from nnefc.integrations.sklearn_samples import columns_of
from nnefc.integrations.sklearn_texts import token_expression
from nnefc.support.diagnostics import CompileError

__all__ = ["conversions"]

_OF_TREES = "ai.onnx.ml"

_OPSETS = {"": 21, _OF_TREES: 3}
"""The versions of ONNX's operator sets that the converter writes."""

_ELEMENTS: Mapping[np.dtype[Any], int] = {
    np.dtype(kind): helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    for kind in (
        "bool",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
    )
}

_TEXT = np.dtype(object)

_DECLARED: Mapping[np.dtype[Any], Callable[[list[int | None]], Any]] = {
    _TEXT: data_types.StringTensorType,
    np.dtype(np.bool_): data_types.BooleanTensorType,
    np.dtype(np.uint8): data_types.UInt8TensorType,
    np.dtype(np.int8): data_types.Int8TensorType,
    np.dtype(np.int16): data_types.Int16TensorType,
    np.dtype(np.int32): data_types.Int32TensorType,
    np.dtype(np.int64): data_types.Int64TensorType,
    np.dtype(np.float32): data_types.FloatTensorType,
    np.dtype(np.float64): data_types.DoubleTensorType,
}
"""What skl2onnx calls the types of samples."""

_OTHER: Mapping[np.dtype[Any], np.dtype[Any]] = {
    np.dtype(np.float32): np.dtype(np.float64),
    np.dtype(np.float64): np.dtype(np.float32),
}

_UNKNOWN = re.compile(r"Unable to find a (?:shape calculator|converter) for .*?(\w+)'>")

_TREES = ("TreeEnsembleClassifier", "TreeEnsembleRegressor")


def conversions(estimator: Any, samples: Any) -> tuple[Callable[[], onnx.ModelProto], ...]:
    """Return functions that convert an estimator: in the float type of the samples, and in the other float type with a
    cast.

    Some estimators can be converted in one of the types only: each of the functions may raise a CompileError.

    Args:
        estimator: a trained estimator.
        samples: an array or a data frame.
    """
    columns = columns_of(samples)
    given = {"X": samples} if columns is None else columns
    own = {name: _given_type(name, array, table=columns is not None) for name, array in given.items()}
    other = {name: _OTHER.get(kind, kind) for name, kind in own.items()}

    def converted(types: Mapping[str, np.dtype[Any]]) -> onnx.ModelProto:
        declared = [(name, _DECLARED[kind]([None, *given[name].shape[1:]])) for name, kind in types.items()]
        model = _repaired(_converted(estimator, declared), estimator)
        for tensor, array, kind in zip(model.graph.input, given.values(), types.values(), strict=True):
            if columns is not None:
                tensor.type.tensor_type.shape.dim[0].dim_param = "n"
            if kind != _TEXT and (read := array.dtype.newbyteorder("=")) != kind:
                _read_as(model.graph, tensor, _ELEMENTS[read], _ELEMENTS[kind])
        return model

    ways = (own, other) if other != own else (own,)
    return tuple(partial(converted, types) for types in ways)


def _given_type(name: str, array: NDArray[Any], *, table: bool) -> np.dtype[Any]:
    """Return the type of samples for skl2onnx: int64 for integers and booleans of a table."""
    kind = array.dtype.newbyteorder("=")
    if kind.kind in "OUT":
        return _TEXT
    if kind.kind in "biu" and (table or kind not in _DECLARED):
        return np.dtype(np.int64)
    if kind.kind == "f" and kind in _ELEMENTS:
        return kind if kind in _DECLARED else np.dtype(np.float32)
    if kind not in _DECLARED:
        raise CompileError(f"{name} has values of {kind}, which no estimator reads", hint="make float64 of them")
    return kind


def _converted(estimator: Any, declared: Sequence[tuple[str, Any]]) -> onnx.ModelProto:
    """Convert an estimator by skl2onnx, with probabilities as an array if the converter has an option for that."""
    estimator = _convertible(estimator, {})
    options = {id(each): {"tokenexp": token_expression(each)} for each in _vectorizers(estimator, set())}
    without_zipmap = {id(estimator): {"zipmap": False}} if is_classifier(estimator) else {}
    try:
        try:
            return _written(estimator, declared, options | without_zipmap)
        except NameError:  # so the converter says that the estimator does not have the option
            return _written(estimator, declared, options)
    except CompileError:
        raise
    except Exception as error:  # converters raise whatever their code does
        first = next(iter(str(error).strip().splitlines()), type(error).__name__)
        if isinstance(error, KeyError) and error.args and isinstance(error.args[0], type):
            first = f"it has no converter for the {error.args[0].__name__} in it"
        if (unknown := _UNKNOWN.search(first)) is not None:
            first = f"it has no converter for the {unknown[1]} in it"
        raise CompileError(
            f"skl2onnx cannot convert {type(estimator).__name__}: {first}",
            hint="it must be trained, and each of its steps be of scikit-learn or have a registered converter",
        ) from error


def _written(estimator: Any, declared: Sequence[tuple[str, Any]], options: Mapping[int, Any]) -> onnx.ModelProto:
    made: onnx.ModelProto = skl2onnx.to_onnx(
        estimator, initial_types=list(declared), options=dict(options) or None, target_opset=_OPSETS
    )
    return made


def _convertible(part: Any, seen: dict[int, Any]) -> Any:
    """Return an estimator, or a copy without properties that skl2onnx refuses although they have no effect.

    These are weights in a list and `flatten_transform` of a VotingClassifier, which concerns `transform` only, and
    sparse results of a RandomTreesEmbedding.

    Args:
        part: an estimator, or a part of one, such as a list of steps.
        seen: the results for parts by their ids.

    Raises:
        CompileError: an imputer adds indicator columns for missing values, which skl2onnx omits.
    """
    if id(part) in seen:
        return seen[id(part)][1]
    made = part
    if isinstance(part, list | tuple) and type(part) in (list, tuple):
        elements = [_convertible(element, seen) for element in part]
        if any(new is not old for new, old in zip(elements, part, strict=True)):
            made = type(part)(elements)
    elif hasattr(part, "get_params") and not isinstance(part, type):
        attributes = {name: _convertible(value, seen) for name, value in vars(part).items()}
        if len(getattr(getattr(part, "indicator_", None), "features_", ())):
            raise CompileError(
                f"{type(part).__name__} with add_indicator=True cannot be converted to ONNX",
                hint="without its columns of missing values it can",
            )
        if isinstance(part, VotingClassifier):
            attributes |= {"flatten_transform": False, "weights": _used_weights(part)}
        if isinstance(part, RandomTreesEmbedding):
            attributes |= {"sparse_output": False}
        if any(value is not vars(part)[name] for name, value in attributes.items()):
            made = copy(part)
            vars(made).update(attributes)
    seen[id(part)] = part, made  # the part is kept, so that its id is not given to another one
    return made


def _used_weights(voting: VotingClassifier) -> NDArray[np.float64] | None:
    """Return the weights of those estimators that were not dropped."""
    if voting.weights is None:
        return None
    pairs = zip(voting.estimators, voting.weights, strict=True)
    return np.array([weight for (_, estimator), weight in pairs if not isinstance(estimator, str)], np.float64)


def _read_as(graph: onnx.GraphProto, tensor: onnx.ValueInfoProto, given: int, wanted: int) -> None:
    """Change an input to the type `given`, and cast it to `wanted`."""
    tensor.type.tensor_type.elem_type = given
    cast = f"{tensor.name}/cast"
    _rename(graph, tensor.name, cast)
    graph.node.insert(0, helper.make_node("Cast", [tensor.name], [cast], to=wanted))


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    """Make all nodes, those in branches and bodies included, read `new` instead of the input `old`."""
    for node in graph.node:
        node.input[:] = [new if name == old else name for name in node.input]
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                _rename(attribute.g, old, new)


def _vectorizers(part: Any, seen: set[int]) -> Iterator[CountVectorizer]:
    """Yield the text vectorizers in an estimator."""
    if id(part) in seen:
        return
    seen.add(id(part))
    if isinstance(part, CountVectorizer):
        yield from [part] * hasattr(part, "vocabulary_")
        return
    for each in _parts(part):
        yield from _vectorizers(each, seen)


def _parts(part: Any) -> Sequence[Any]:
    """Return the parts of an estimator, or of a container within one."""
    if hasattr(part, "get_params") and not isinstance(part, type):
        return list(vars(part).values())
    if isinstance(part, dict):
        return list(part.values())
    if isinstance(part, (list, tuple)) or (isinstance(part, np.ndarray) and part.dtype == object):
        return list(part)
    return ()


def _repaired(model: onnx.ModelProto, estimator: Any) -> onnx.ModelProto:
    """Return the model with corrections.

    Samples are compared in scikit-learn's types, and outputs are declared in the types of the operators. Solutions of
    linear systems with constant matrices become products with inverses, since ONNX has no operator that solves systems.
    """
    thresholds = list(_thresholds(estimator, set()))
    known = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes = []
    for number, node in enumerate(model.graph.node):
        if node.op_type == "Solve" and node.input[0] in known:
            matrix = numpy_helper.to_array(known[node.input[0]])
            inverse = np.linalg.inv(matrix.astype(np.float64)).astype(matrix.dtype)
            model.graph.initializer.append(numpy_helper.from_array(inverse, f"{node.input[0]}/inverse{number}"))
            node = helper.make_node("MatMul", [f"{node.input[0]}/inverse{number}", node.input[1]], node.output)
        if node.op_type in _TREES:
            cast = f"{node.input[0]}/samples{number}"
            wanted = TensorProto.DOUBLE if _compares_in_float64(node, thresholds) else TensorProto.FLOAT
            nodes.append(helper.make_node("Cast", [node.input[0]], [cast], to=wanted))
            node.input[0] = cast
        nodes.append(node)
    for opset in model.opset_import:
        if opset.domain == _OF_TREES and any(node.op_type in _TREES for node in nodes):
            opset.version = max(opset.version, _OPSETS[_OF_TREES])  # the first with thresholds in float64
    model.graph.ClearField("node")
    model.graph.node.extend(nodes)
    _join_in_float64(model)
    _declare(model)
    return model


def _join_in_float64(model: onnx.ModelProto) -> None:
    """Cast operands of a Concat to float64 if others are float64: the column of ones of PolynomialFeatures is always
    float32.
    """
    graph = shape_inference.infer_shapes(model).graph
    types = {value.name: value.type.tensor_type.elem_type for value in (*graph.value_info, *graph.input)}
    types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    nodes = []
    for number, node in enumerate(model.graph.node):
        found = [types.get(name) for name in node.input]
        if node.op_type == "Concat" and set(found) == {TensorProto.FLOAT, TensorProto.DOUBLE}:
            for position, kind in enumerate(found):
                if kind == TensorProto.FLOAT:
                    cast = f"{node.input[position]}/joined{number}"
                    nodes.append(helper.make_node("Cast", [node.input[position]], [cast], to=TensorProto.DOUBLE))
                    node.input[position] = cast
        nodes.append(node)
    model.graph.ClearField("node")
    model.graph.node.extend(nodes)


def _declare(model: onnx.ModelProto) -> None:
    """Declare outputs in the types that the operators determine, where they do."""
    untyped = onnx.ModelProto()
    untyped.CopyFrom(model)
    for output in untyped.graph.output:
        output.ClearField("type")
    types = {output.name: output.type for output in shape_inference.infer_shapes(untyped).graph.output}
    for output in model.graph.output:
        found = types[output.name].tensor_type.elem_type
        if found:
            output.type.tensor_type.elem_type = found


def _thresholds(part: Any, seen: set[int]) -> Iterator[NDArray[np.float64]]:
    """Yield the thresholds of each histogram-based tree ensemble in an estimator, tree by tree, as skl2onnx writes
    them.
    """
    if id(part) in seen:
        return
    seen.add(id(part))
    predictors = getattr(part, "_predictors", None)
    if isinstance(predictors, list) and predictors:
        nodes = [tree.nodes for trees in predictors for tree in trees]
        yield np.concatenate([np.where(each["is_leaf"], 0, each["num_threshold"]) for each in nodes])
    for each in _parts(part):
        yield from _thresholds(each, seen)


def _compares_in_float64(node: onnx.NodeProto, thresholds: Sequence[NDArray[np.float64]]) -> bool:
    """If a node has such thresholds in float32, replace them by float64, and return whether it does."""
    (attribute,) = (each for each in node.attribute if each.name == "nodes_values")
    written = np.array(attribute.floats, np.float32)
    for exact in thresholds:
        if exact.shape == written.shape and np.allclose(exact, written, rtol=1e-6, atol=1e-37):
            node.attribute.remove(attribute)
            tensor = numpy_helper.from_array(exact, "nodes_values_as_tensor")
            node.attribute.append(helper.make_attribute("nodes_values_as_tensor", tensor))
            return True
    return False
