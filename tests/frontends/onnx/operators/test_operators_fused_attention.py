"""Attention as onnxruntime's tools write it, compared with onnxruntime; decoders with caches that grow."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime
import pytest
from exact_products import HAS_EXACT_PRODUCTS
from models.decoders import Heads, RandomWeights, decoder, feeds, in_blocks
from onnx import TensorProto
from onnx_operator_cases import SAMPLE_AND_ALL, Case, by_onnxruntime, check, compiled, sample

import nnefc
from nnefc.driver.artifact import Artifact
from nnefc.support.diagnostics import CompileError, ModelWarning

RNG = np.random.default_rng(17)
BATCH, LENGTH, HEADS, SIZE, PAST = 2, 5, 3, 8, 4
WIDTH = HEADS * SIZE


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, np.float32)


def int32(*elements: int) -> np.ndarray:
    return np.array(elements, np.int32)


def truth(*shape: int) -> np.ndarray:
    return RNG.integers(0, 2, shape, np.int32)


def case(op: str, *inputs: np.ndarray | None, outputs: int = 1, constant: tuple[int, ...] = (), **given: Any) -> Case:
    return Case(op, inputs, given, frozenset(constant), outputs, domain="com.microsoft")


def joined(*more: np.ndarray | None, values: int = WIDTH, **given: Any) -> Case:
    """Attention with its projections."""
    width = 2 * WIDTH + values
    return case("Attention", real(BATCH, LENGTH, 10), real(10, width), real(width), *more, num_heads=HEADS, **given)


def separate(keys: int, *more: np.ndarray | None, values: int = WIDTH, **given: Any) -> Case:
    """Attention of queries, keys and values."""
    parts = real(BATCH, LENGTH, WIDTH), real(BATCH, keys, WIDTH), real(BATCH, keys, values)
    return case("MultiHeadAttention", *parts, *more, num_heads=HEADS, **given)


def rotated(*shape: int, positions: np.ndarray, pairs: int = 8, **given: Any) -> Case:
    return case("RotaryEmbedding", real(*shape), positions, real(10, pairs), real(10, pairs), **given)


@SAMPLE_AND_ALL
def test_attention_agrees_with_onnxruntime(whole: bool) -> None:
    past, whole = real(2, BATCH, HEADS, PAST, SIZE), LENGTH + PAST
    bias = real(2 * WIDTH + 12)
    positions = np.array([[0, 1, 2, 3, 4], [3, 4, 5, 6, 7]])
    quantized = RNG.integers(0, 255, (BATCH, LENGTH, 10)).astype(np.uint8)
    largest = 127 if HAS_EXACT_PRODUCTS else 63  # onnxruntime saturates sums of wider ones
    weights = RNG.integers(-largest, largest, (10, 3 * WIDTH)).astype(np.int8)
    scales = np.array(0.01, np.float32), np.array(0.02, np.float32)
    zeros = np.array(120, np.uint8), np.array(0, np.int8)
    given = [
        joined(),
        joined(truth(BATCH, LENGTH)),
        joined(int32(5, 3)),
        joined(int32(5, 3, 1, 0)),
        joined(truth(BATCH, LENGTH, LENGTH), unidirectional=1, mask_filter_value=-9.0),
        joined(truth(BATCH, whole), past, unidirectional=1, outputs=2),
        joined(None, None, real(1, HEADS, LENGTH, LENGTH), scale=0.2),
        joined(values=12, qkv_hidden_sizes=[WIDTH, WIDTH, 12]),
        case("QAttention", quantized, weights, real(3 * WIDTH), *scales, truth(BATCH, LENGTH), *zeros, constant=(1,),
             num_heads=HEADS),
        separate(7, values=12),
        separate(LENGTH, bias, values=12, outputs=3),
        separate(7, None, truth(BATCH, 7)),
        separate(7, None, int32(7, 4), outputs=4),
        separate(LENGTH, None, None, real(BATCH, 1, LENGTH, whole), past[0], past[1], outputs=3, unidirectional=1),
        case("MultiHeadAttention", real(BATCH, LENGTH, WIDTH), past[0], past[1], num_heads=HEADS),
        rotated(BATCH, LENGTH, 64, positions=positions),
        rotated(BATCH, LENGTH, 64, positions=np.array([3]), interleaved=1),
        rotated(BATCH, 4, LENGTH, 16, positions=positions),
        rotated(BATCH, 4, LENGTH, 32, positions=positions, rotary_embedding_dim=16, num_heads=4),
        rotated(BATCH, LENGTH, 128, positions=positions, rotary_embedding_dim=16, num_heads=4, interleaved=1),
    ]  # fmt: skip
    given = [given[index] for index in sample(given, whole)]
    check(given, compiled(given, 17), by_onnxruntime(given, 17), tolerance=1e-4)


def test_packed_operands_are_those_apart() -> None:
    query, key, value = (real(BATCH, LENGTH, HEADS, SIZE) for _ in range(3))
    flat = [part.reshape(BATCH, LENGTH, WIDTH) for part in (query, key, value)]
    given = [
        case("MultiHeadAttention", *flat, num_heads=HEADS),
        case("MultiHeadAttention", np.stack([query, key, value], 3), num_heads=HEADS),
        case("MultiHeadAttention", flat[0], np.stack([key, value], 3), num_heads=HEADS),
        case("DecoderMaskedMultiHeadAttention", *flat, num_heads=HEADS),
    ]
    first, *others = compiled(given, 17)
    check(given[1:], others, [first] * 3)


def test_sequences_without_padding_are_those_with_padding() -> None:
    lengths, positions = int32(5, 2), int32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9).reshape(2, 5)
    kept = np.concatenate([positions[0], positions[1, :2]])
    order = np.concatenate([kept, positions[1, 2:]]).reshape(2, 5)
    x, weights, bias = real(2, 5, 10), real(10, 3 * WIDTH), real(3 * WIDTH)
    rows, starts = x.reshape(10, 10)[kept], int32(0, 5, 7)
    parts = np.split(rows @ weights, 3, -1)
    stacked = np.stack([part.reshape(7, HEADS, SIZE) for part in parts], 2)
    given = [
        case("Attention", x, weights, bias, lengths, num_heads=HEADS),
        case("PackedAttention", rows, weights, bias, order, starts, num_heads=HEADS),
        case("PackedMultiHeadAttention", *parts, bias, order, starts, num_heads=HEADS),
        case("PackedMultiHeadAttention", stacked, None, None, bias, order, starts, num_heads=HEADS),
    ]
    (whole,), *others = compiled(given, 17)
    check(given[1:], others, [[whole.reshape(10, WIDTH)[kept]]] * 3, tolerance=1e-4)


def grouped(past: int, total: int, last: np.ndarray, *more: np.ndarray | None, **given: Any) -> Case:
    """Attention of 4 heads of queries and 2 of keys to those in caches of `past` positions, `total` afterwards."""
    batch, length, packed = len(last), given.pop("length", 1), given.pop("packed", False)
    parts = [real(batch, length, 64), real(batch, length, 32), real(batch, length, 32)]
    parts = [np.concatenate(parts, -1), None, None] if packed else parts
    caches = [real(batch, 2, past, 16) if past else None for _ in range(2)]
    tables = [real(20, 8), real(20, 8)] if given.get("do_rotary") else [None, None]
    constant = given.pop("constant", (6,))
    inputs = [*parts, *caches, last, np.array(total, np.int32), *tables, *more]
    given = {"num_heads": 4, "kv_num_heads": 2, "outputs": 3, **given}
    return case("GroupQueryAttention", *inputs, constant=constant, **given)


@SAMPLE_AND_ALL
def test_attention_in_groups_agrees_with_onnxruntime(whole: bool) -> None:
    given = [
        grouped(0, 5, int32(4, 4), length=5),
        grouped(0, 5, int32(4, 4), length=5, packed=True, do_rotary=1),
        grouped(7, 8, int32(7, 7), packed=True, do_rotary=1, rotary_interleaved=1),
        grouped(12, 8, int32(7, 4), do_rotary=1),
        grouped(6, 9, int32(8), length=3, do_rotary=1),
        grouped(7, 5, int32(4, 4), length=5, do_rotary=1),
        grouped(0, 5, int32(4, 4), length=5, local_window_size=2, softcap=1.5, scale=0.3),
        grouped(7, 8, int32(7, 4), local_window_size=3, smooth_softmax=1),
        grouped(7, 8, int32(7, 7), None, real(1, 4, 1, 8)),
        grouped(0, 5, int32(4, 4), None, real(2, 1, 5, 5), real(4), length=5),
        grouped(7, 8, int32(7, 7), np.array([[5], [6]]), do_rotary=1),
        grouped(0, 5, int32(4, 4), length=5, qk_output=1, outputs=4),
        grouped(0, 5, int32(4, 4), length=5, qk_output=2, outputs=4),
    ]
    given = [given[index] for index in sample(given, whole)]
    check(given, compiled(given, 17), by_onnxruntime(given, 17), tolerance=1e-4)


@pytest.mark.parametrize(("kind", "shape"), [("PER_TENSOR", (1,)), ("PER_CHANNEL", (1, 2, 1, 16))])
@pytest.mark.sample(1)
def test_caches_may_be_of_8_bits(kind: str, shape: tuple[int, ...]) -> None:
    """Of the same integers as onnxruntime's."""
    steps = [RNG.uniform(0.01, 0.03, shape).astype(np.float32) for _ in range(2)]
    more = [None, None, None, *steps]
    given = []
    for past, total, length in ((7, 8, 1), (6, 9, 3)):
        kinds = {"k_quant_type": kind, "v_quant_type": kind, "kv_cache_bit_width": 8}
        made = grouped(past, total, int32(total - 1), *more, length=length, do_rotary=1, **kinds)
        caches = [RNG.integers(-128, 128, (1, 2, past, 16)).astype(np.int8) for _ in range(2)]
        types = {1: TensorProto.INT8, 2: TensorProto.INT8}
        given.append(replace(made, inputs=[*made.inputs[:3], *caches, *made.inputs[5:]], types=types))
    found, wanted = compiled(given, 17), by_onnxruntime(given, 17)
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one[0], other[0], rtol=0, atol=1e-5)
        for cache, right in zip(one[1:], other[1:], strict=True):
            assert np.abs(cache.astype(int) - right).max() <= 1  # halves of steps, of angles computed otherwise
            assert (cache != right).mean() < 0.01


@pytest.mark.slow
def test_the_length_may_be_data_dependent() -> None:
    given = [grouped(7, 8, int32(7, 7), constant=())]
    check(given, compiled(given, 17), by_onnxruntime(given, 17), tolerance=1e-4)


@pytest.mark.parametrize(
    ("attributes", "what"),
    [
        ({"k_quant_type": "PER_TENSOR", "kv_cache_bit_width": 4}, "caches of 4 bits are not supported"),
        ({"sliding_window_cache": 1, "local_window_size": 4}, "caches of a window are not supported"),
    ],
)
def test_caches_that_are_not_supported(attributes: dict[str, Any], what: str) -> None:
    with pytest.raises(CompileError, match=what):
        compiled([grouped(7, 8, int32(7, 7), **attributes)], 17)


LAYERS = (
    Heads(packed=True, attributes={"softcap": 1.5}),
    Heads(rotates=False, attributes={"local_window_size": 3, "scale": 0.3}),
)


@pytest.fixture(scope="module")
def decoders(tmp_path_factory: pytest.TempPathFactory) -> tuple[onnxruntime.InferenceSession, Artifact]:
    """A decoder of 4-bit weights, with zero points or without, and of two forms of attention."""
    path = tmp_path_factory.mktemp("decoder") / "decoder.onnx"
    model = decoder(RandomWeights(lambda matrix: in_blocks(matrix, matrix.shape[1] == 64)), LAYERS)
    path.write_bytes(model.SerializeToString())
    with warnings.catch_warnings():
        warnings.simplefilter("error", ModelWarning)
        made = nnefc.compile(path)
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]), made


@pytest.mark.parametrize(("batch", "length", "room"), [(1, 7, 0), (2, 3, 0), (2, 5, 12)])
@pytest.mark.slow
def test_a_decoder_takes_prompts_and_then_tokens(
    decoders: tuple[onnxruntime.InferenceSession, Artifact], batch: int, length: int, room: int
) -> None:
    """One library for all lengths and batches, each run on the caches that the last one made.

    These grow, or have room for some positions from the start.
    """
    session, artifact = decoders
    names = [output.name for output in session.get_outputs()]
    with artifact.load(threads=1) as library:
        words, total = RNG.integers(0, 50, (batch, length)), length
        wanted: dict[str, np.ndarray] = {name: np.zeros((batch, 2, room, 16), np.float32) for name in names[1:]}
        found = wanted
        for count in (1, 4, 1) if batch == 1 else (1, 1, 1):  # onnxruntime reads no more of several at once
            wanted = dict(zip(names, session.run(names, feeds(words, total, but_logits(wanted), True)), strict=True))
            found = library.run(feeds(words, total, but_logits(found), True))
            for name in names:
                one, other = (made[name][:, :, :total] if "present" in name else made[name] for made in (found, wanted))
                np.testing.assert_allclose(one, other, rtol=0, atol=2e-4 * abs(other).max(), err_msg=name)
            words, total = RNG.integers(0, 50, (batch, count)), total + count


def but_logits(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: array for name, array in arrays.items() if name != "logits"}
