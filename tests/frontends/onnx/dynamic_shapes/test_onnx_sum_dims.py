"""Decoders whose mask has as many positions as the cache and the new words together, compared with onnxruntime."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from cached_decoders import cached_decoder, feeds
from onnx import TensorProto, helper

import nnefc
from nnefc.driver.formats import load_network, load_outline
from nnefc.driver.options import ReadOptions
from nnefc.driver.specializations import Specializations
from nnefc.loader import RunError
from nnefc.support.diagnostics import CompileError, ModelWarning

RNG = np.random.default_rng(2)
SIZES = [(1, 5, 0), (2, 1, 5), (1, 1, 6), (3, 4, 7)]


def check(library: nnefc.Model, path: Path, given: Mapping[str, np.ndarray]) -> None:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for made, expected in zip(library.run(given).values(), session.run(None, dict(given)), strict=True):
        np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-5)


def test_a_mask_is_as_long_as_the_operators_need_it(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(cached_decoder("total", table=True), path)
    with pytest.warns(ModelWarning, match="past_sequence_length \\+ sequence_length must be no more than 64"):
        artifact = nnefc.compile(path)
    description = artifact.description
    assert [(each.name, each.formula) for each in description.formulas] == [
        ("total", ("+", "past_sequence_length", "sequence_length"))
    ]
    assert {d.name: (d.minimum, d.maximum) for d in description.dimensions if d.name != "batch_size"} == {
        "sequence_length": (1, 64), "past_sequence_length": (0, 63), "total": (1, 64)
    }  # fmt: skip
    assert description.outputs[1].shape == ("batch_size", 2, "total", 8)
    with artifact.load(threads=1) as library:
        for sizes in SIZES:
            check(library, path, feeds(*sizes, RNG))
        long = feeds(1, 3, 2, RNG) | {"attention_mask": np.ones((1, 9), np.int64)}
        with pytest.raises(RunError, match=r'1 of input "attention_mask" is 9, but .* is 5 by the other sizes'):
            library.run(long)
        with pytest.raises(RunError, match='"attention_mask" is 65, but the network takes 1 to 64 for "total"'):
            library.run(feeds(1, 3, 62, RNG))


def test_names_of_dimensions_say_what_they_are_the_sum_of(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(cached_decoder("past_sequence_length + 1", length=1), path)
    artifact = nnefc.compile(path)
    assert [(d.name, d.maximum) for d in artifact.description.dimensions][1:] == [
        ("past_sequence_length", 1 << 20), ("past_sequence_length + 1", 1 << 20)
    ]  # fmt: skip
    with artifact.load(threads=1) as library:
        for batch, past in ((1, 0), (2, 5), (3, 11)):
            check(library, path, feeds(batch, 1, past, RNG))


@pytest.mark.filterwarnings("ignore:.*must be .* for its operators")
@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ({"past": 3, "new": 4}, (3, 4, 7)),
        ({"past": 3, "past + new": 7}, (3, 4, 7)),
        ({"past": "0..5", "past + new": "1..8"}, ("past", "new", "past + new")),
    ],
)
def test_sizes_that_are_given_tell_others(shape: dict[str, Any], expected: tuple[Any, ...], tmp_path: Path) -> None:
    network = load_network(joined(tmp_path, "past + new"), ReadOptions(shape=shape))
    names = {d.name: d for d in network.dynamic_dimensions}
    found = [size for (size, _) in network.input_shapes.values()]
    assert [next((n for n, d in names.items() if d.size == size), size) for size in found] == list(expected)
    assert "new" not in names or names["new"].maximum == 8


def test_a_line_to_type_has_no_sizes_that_follow_from_others(tmp_path: Path) -> None:
    path = joined(tmp_path, "past + new")
    assert load_outline(path).option == "--shape past=128,new=1"
    for sizes, fits in (((3, 4), True), ((0, 1), True), ((3, 129), False)):
        given = [dict(zip(("past", "new"), sizes, strict=True))]
        network = load_network(path, ReadOptions(shape={"new": "1..128"}))
        if fits:
            special = Specializations.of(given, False, network, lambda **fixed: load_network(path, **fixed))
            assert special.sizes == ((*sizes[::-1], sum(sizes)),)
        else:
            with pytest.raises(CompileError, match="'new' cannot be 129"):
                Specializations.of(given, False, network, lambda **fixed: load_network(path, **fixed))


def test_sizes_that_contradict_a_sum_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"'past \+ new' is 8 by what is given for it, but not 7"):
        load_network(joined(tmp_path, "past + new"), ReadOptions(shape={"past": 3, "new": 4, "past + new": 8}))


@pytest.mark.parametrize("name", ["2*past + new - 1", "(past + new)//2", "Max(past, new)"])
def test_formulas_in_names_are_checked(name: str, tmp_path: Path) -> None:
    (dimension,) = (d for d in load_network(joined(tmp_path, name, add=False)).dynamic_dimensions if d.name == name)
    assert dimension.formula is not None


def joined(folder: Path, name: str, add: bool = True) -> Path:
    """A model that joins two inputs, and adds a third one of this size if `add`."""
    info, real = helper.make_tensor_value_info, TensorProto.FLOAT
    nodes = [helper.make_node("Concat", ["a", "b"], ["ab"], axis=0)]
    nodes.append(helper.make_node("Add", ["ab", "c"], ["y"]) if add else helper.make_node("Neg", ["c"], ["y"]))
    inputs = [info("a", real, ["past", 2]), info("b", real, ["new", 2]), info("c", real, [name, 2])]
    graph = helper.make_graph(nodes, "g", inputs, [info("y", real, None)])
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_counts_may_be_sums(tmp_path: Path) -> None:
    """Where the number of elements is data-dependent, and they must be as many as two inputs have together."""
    info, real = helper.make_tensor_value_info, TensorProto.FLOAT
    nodes = [
        helper.make_node("Concat", ["a", "b"], ["ab"], axis=0),
        helper.make_node("Compress", ["c", "chosen"], ["some"], axis=0),
        helper.make_node("Add", ["ab", "some"], ["y"]),
    ]
    inputs = [info("a", real, ["past"]), info("b", real, ["new"]), info("c", real, ["all"])]
    inputs.append(info("chosen", TensorProto.BOOL, ["all"]))
    graph = helper.make_graph(nodes, "g", inputs, [info("y", real, None)])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library = nnefc.compile(path).load(threads=1)
    a, b, c = (RNG.standard_normal(size).astype(np.float32) for size in (2, 3, 8))
    chosen = np.array([1, 0, 1, 1, 0, 1, 1, 0], bool)
    np.testing.assert_allclose(library(a, b, c, chosen), np.concatenate([a, b]) + c[chosen])
    with pytest.raises(RunError, match="the data ask for a size"):
        library(a, b[:2], c, chosen)


@pytest.mark.filterwarnings("ignore:.*must be .* for its operators")
@pytest.mark.parametrize(("size", "formula"), [("early", ("+", "early", "new")), (3, ("+", "new", 3))])
@pytest.mark.sample(1)
def test_what_a_sum_is_of_may_be_another_dimension_or_a_number(size: int | str, formula: Any, tmp_path: Path) -> None:
    info, real = helper.make_tensor_value_info, TensorProto.FLOAT
    nodes = [
        helper.make_node("Concat", ["a", "b"], ["ab"], axis=0),
        helper.make_node("Add", ["ab", "c"], ["y"]),
        helper.make_node("MatMul", ["a", "e"], ["z"]),
    ]
    inputs = [info(name, real, [own]) for name, own in zip("eabc", (size, "past", "new", "total"), strict=True)]
    graph = helper.make_graph(nodes, "g", inputs, [info("y", real, None), info("z", real, None)])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    artifact = nnefc.compile(path)
    assert [(each.name, each.formula) for each in artifact.description.formulas] == [("total", formula)]
    e, a, b, c = (RNG.standard_normal(elements).astype(np.float32) for elements in (3, 3, 2, 5))
    with artifact.load(threads=1) as library:
        made = library.run({"a": a, "b": b, "c": c, "e": e})
        np.testing.assert_array_equal(made["y"], np.concatenate([a, b]) + c)
        with pytest.raises(RunError, match=r'"c" is 4, but .* is 5 by the other sizes'):
            library.run({"a": a, "b": b, "c": c[:4], "e": e})
