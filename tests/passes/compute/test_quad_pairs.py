"""Products of int8 with sums in int16: exact for the largest data and weights, whatever pairs the weights allow."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import nnefc
from nnefc.passes.compute.dot import quad_pairs
from nnefc.passes.compute.dot.quad_pairs import QuadPairs, pair_quads, quads_of_filter
from nnefc.targets.machine.cpu.parsing import parse_target

_LANES = 8


def normal(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Weights that are normally distributed, scaled by channel to 127."""
    wide = rng.standard_normal(shape)
    largest = np.abs(wide).max(axis=tuple(range(1, len(shape))), keepdims=True)
    return np.rint(127 * wide / largest).astype(np.int8)


def weights_of(kind: str, shape: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(3)
    match kind:
        case "normal":
            return normal(rng, shape)
        case "seven bits":
            return normal(rng, shape) // 2
        case "small":
            return rng.integers(-16, 17, shape).astype(np.int8)
        case "mixed":
            return np.where(rng.random(shape) < 0.02, np.int8(-128), normal(rng, shape) // 4)
        case _:
            return rng.choice([-128, 127], shape).astype(np.int8)


@pytest.fixture(autouse=True)
def always_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quad_pairs, "_WORTH_IT", 100)


def saturating(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """`vpmaddubsw` of `[…, 4]` bytes: `[…, 2]`, int16."""
    products = left.astype(np.int64) * right.astype(np.int64)
    return np.clip(products.reshape(*products.shape[:-1], 2, 2).sum(-1), -(1 << 15), (1 << 15) - 1).astype(np.int16)


def emulated(pairs: QuadPairs, data: np.ndarray) -> np.ndarray:
    """The sums that the instructions compute of uint8 data `[quads, 4]`: `[blocks · lanes]`."""
    weights = pairs.weights.view(np.int8).reshape(*pairs.weights.shape, 4)
    read = np.broadcast_to(data[pairs.table][:, :, None], weights.shape)
    sign = np.where(weights < 0, 0x7F, 0x80).astype(np.uint8)
    magnitudes = np.abs(weights.astype(np.int16)).astype(np.uint8)
    direct, folded = saturating(read, weights), saturating(magnitudes, (read ^ sign).view(np.int8))

    def added_up(products: np.ndarray, together: int) -> np.ndarray:
        """Products of so many quads in int16, modulo 2¹⁶, and all of these, by lane."""
        grouped = products.reshape(-1, together, *products.shape[1:])
        return np.asarray(grouped.sum(1, dtype=np.int16).astype(np.int64).sum((0, 2)))

    found = []
    for block, ends in enumerate(2 * pairs.ends):
        shared, last_direct, joined, end = ends
        sums = added_up(direct[block, :shared], 4) + added_up(direct[block, shared:last_direct], 2)
        sums += added_up(folded[block, last_direct:joined], 2) + added_up(folded[block, joined:end], 1)
        found.append(sums)
    return np.concatenate(found) + pairs.shift


@pytest.mark.parametrize("largest", [255, 127])
@pytest.mark.parametrize("kind", ["normal", "seven bits", "small", "mixed", "limits"])
def test_sums_in_int16_are_exact(kind: str, largest: int) -> None:
    filters = weights_of(kind, (19, 37, 4))
    pairs = paired(filters, largest)
    rng, limits = np.random.default_rng(5), [0, largest]
    data = [rng.choice(limits, (37, 4)), rng.integers(0, largest + 1, (37, 4)), *(np.full((37, 4), n) for n in limits)]
    data += [np.where(filters[lane] > 0, largest, 0) for lane in range(3)]  # the largest sums of a lane
    data += [np.where(filters[lane] > 0, 0, largest) for lane in range(3)]
    for each in data:
        expected = (filters.astype(np.int64) * each.astype(np.int64)).sum((1, 2))
        np.testing.assert_array_equal(emulated(pairs, each.astype(np.uint8))[:19], expected)


def paired(filters: np.ndarray, largest: int = 255) -> QuadPairs:
    pairs = pair_quads(filters, np.arange(filters.shape[1]), _LANES, largest)
    assert pairs is not None
    return pairs


def test_pairs_follow_the_weights() -> None:
    small, limits = (paired(weights_of(kind, (8, 64, 4))) for kind in ("small", "limits"))
    assert (small.ends.tolist(), small.kinds) == ([[32, 32, 32, 32]], (True, False, False, False))
    assert (limits.ends.tolist(), limits.kinds) == ([[0, 0, 0, 32]], (False, False, False, True))
    wide = normal(np.random.default_rng(0), (8, 576, 4))
    assert paired(wide).ends[0, 1] > 288 * 0.85  # of normal weights, nearly all quads have a partner
    assert paired(wide // 2).ends[0, 0] > 288 * 0.8  # and many pairs, too, if weights have 7 bits
    assert paired(wide, largest=127).ends[0, 0] > 288 * 0.8  # or data


def test_each_block_has_its_own_pairs() -> None:
    wide = normal(np.random.default_rng(0), (8, 128, 4))
    pairs = paired(np.concatenate([wide, wide // 4, np.where(wide > 0, 127, -128)]))
    direct = np.diff(pairs.ends, axis=1, prepend=0)[:, 1]
    assert 0 < pairs.ends[0, 1] < 64 and direct[1] < 64 and pairs.ends[1, 0] > 0
    assert pairs.ends[2].tolist() == [0, 0, 0, 64]
    assert pairs.kinds == (True, True, True, True)


def test_weights_that_pairs_do_not_pay_for_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    for quads, pays in ((2, False), (4, False), (6, True), (64, True)):
        pairs = pair_quads(weights_of("limits", (16, quads, 4)), np.arange(quads), _LANES)
        assert (pairs is not None) == pays


def test_filters_are_read_where_their_channels_are() -> None:
    filters = np.arange(2 * 3 * 2 * 3, dtype=np.int8).reshape(2, 3, 2, 3)
    order = (-1, 2, 0, -1, 1, -1, -1, -1)
    quads, steps = quads_of_filter(filters, order, 8, (5, 7), (2, 1))
    assert steps == [14, 2]
    spread = np.zeros((2, 1, 2, 3, 2, 4), np.int8)
    for slot, channel in enumerate(order):
        if channel >= 0:
            spread[:, 0, :, :, slot // 4, slot % 4] = filters[:, channel]
    np.testing.assert_array_equal(quads.weights, spread.reshape(2, 12, 4))
    assert quads.offsets.tolist() == [28 * y + 2 * x + q for y in range(2) for x in range(3) for q in range(2)]


def network() -> tuple[onnx.ModelProto, dict[str, tuple[np.dtype, tuple[int, ...]]]]:
    """Convolutions and products of bytes side by side."""
    cases: list[tuple[str, type, str, tuple[int, ...], tuple[int, ...], dict[str, list[int]]]] = [
        ("ConvInteger", np.uint8, "normal", (1, 40, 6, 13), (21, 40, 3, 3), {"pads": [1, 1, 1, 1]}),
        ("ConvInteger", np.int8, "mixed", (2, 24, 9, 10), (16, 24, 3, 2), {"strides": [2, 1], "dilations": [1, 2]}),
        ("ConvInteger", np.uint8, "limits", (1, 3, 11, 11), (8, 3, 5, 5), {"pads": [2, 0, 2, 1], "strides": [2, 2]}),
        ("ConvInteger", np.int8, "limits", (1, 12, 7, 7), (9, 12, 1, 1), {}),
        ("MatMulInteger", np.uint8, "normal", (13, 70), (70, 21), {}),
        ("MatMulInteger", np.int8, "limits", (2, 9, 64), (64, 40), {}),
        ("MatMulInteger", np.uint8, "seven bits", (7, 83), (83, 9), {}),
        ("ConvInteger", np.int8, "normal", (1, 12, 5, 7), (8, 12, 2, 3), {"pads": [0, 1, 1, 1]}),  # data in 7 bits
        ("MatMulInteger", np.uint8, "limits", (7, 29), (29, 9), {}),  # data in 7 bits
        *(("MatMulInteger", np.int8, "limits", (5, depth), (depth, 9), {}) for depth in (1, 5, 9)),
    ]
    clamped = (7, 8)
    nodes, constants, inputs = [], [], {}
    for n, (operator, dtype, kind, data, shape, attributes) in enumerate(cases):
        constants += [numpy_helper.from_array(weights_of(kind, shape), f"w{n}")]
        constants += [numpy_helper.from_array(np.array(5, dtype), f"z{n}")]
        name = f"x{n}"
        if n in clamped:
            bounds = [numpy_helper.from_array(np.array(v, dtype), f"{v}_{n}") for v in (0, 127)]
            constants += bounds
            nodes.append(helper.make_node("Clip", [name, *(bound.name for bound in bounds)], [f"c{n}"]))
            name = f"c{n}"
        nodes.append(helper.make_node(operator, [name, f"w{n}", f"z{n}"], [f"y{n}"], **attributes))
        inputs[f"x{n}"] = np.dtype(dtype), data
    element = helper.np_dtype_to_tensor_dtype
    graph = helper.make_graph(
        nodes,
        "quads",
        [helper.make_tensor_value_info(name, element(dtype), shape) for name, (dtype, shape) in inputs.items()],
        [helper.make_tensor_value_info(f"y{n}", onnx.TensorProto.INT32, None) for n in range(len(cases))],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), inputs


def test_convolutions_and_products_are_exact() -> None:
    host = parse_target("llvm")
    if not host.triple.startswith("x86_64") or "avx2" not in host.features:
        pytest.skip("needs AVX2")
    model, inputs = network()
    library = nnefc.compile(model, target="x86-64-v3")
    loaded = library.load(threads=1)
    reference = ReferenceEvaluator(model)
    rng = np.random.default_rng(7)
    for largest in (False, True):
        data = {}
        for name, (dtype, shape) in inputs.items():
            limits = np.iinfo(dtype)
            drawn = (
                rng.choice([limits.min, limits.max], shape)
                if largest
                else rng.integers(limits.min, limits.max + 1, shape)
            )
            data[name] = drawn.astype(dtype)
        found = loaded.run(data)
        for expected, value in zip(reference.run(None, data), found.values(), strict=True):
            np.testing.assert_array_equal(value, expected)


def test_a_level_multiplies_by_its_own_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a library for several levels, in which others have vectors of more columns."""
    host = parse_target("llvm")
    if not host.triple.startswith("x86_64") or "avx2" not in host.features:
        pytest.skip("needs AVX2")
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 13]>
        g (uint8[5, 40] x) => (int32[5, 33] y) { p = MatMulInteger (x, w)
                                                 y = Neg (p) }""")
    model.graph.initializer.append(numpy_helper.from_array(weights_of("limits", (40, 33)), "w"))
    monkeypatch.setenv("NNEFC_LEVEL", "x86-64-v3")
    x = np.random.default_rng(3).integers(0, 256, (5, 40)).astype(np.uint8)
    with nnefc.compile(model, "x86-64", multi=True).load(threads=2) as library:
        assert library.target == "x86-64-v3"
        np.testing.assert_array_equal(library(x), ReferenceEvaluator(model).run(None, {"x": x})[0])
