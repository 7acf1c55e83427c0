"""Quantized folders: each method's tensors against the numbers that its description says, in NumPy, bit by bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_folders import CONFIG, safetensors, values, write

import nnefc
from nnefc.frontends.decoder.weights import JoinedTensor, StoredTensor, stacked
from nnefc.frontends.huggingface.quantized import dequantizable
from nnefc.frontends.huggingface.safetensors import read_shards
from nnefc.frontends.tensor_types.floats import F16, F32
from nnefc.frontends.tensor_types.integers import INTEGERS
from nnefc.operators.nn.block_quantization import BlockTensor

ROWS, DEPTH, GROUP = 32, 96, 32
KINDS = {"<f4": "F32", "<f2": "F16", "|i1": "I8", "|u1": "U8", "<i4": "I32", "<i8": "I64"}
ALL_TYPES = {"F32": F32, "F16": F16} | INTEGERS
Tensors = dict[str, np.ndarray]


def stored(value: np.ndarray) -> tuple[str, tuple[int, ...], bytes]:
    return KINDS[value.dtype.str], value.shape, np.ascontiguousarray(value).tobytes()


def as_bytes(value: np.ndarray) -> np.ndarray:
    return np.frombuffer(value.tobytes(), np.uint8)


def words_of(codes: np.ndarray, bits: int) -> np.ndarray:
    """`[n, columns]` as `[words, columns]` int32: a column is one row of bits, the lowest ones first."""
    found = np.zeros((len(codes) * bits // 32, codes.shape[1]), np.uint32)
    for n, row in enumerate(codes.astype(np.uint64)):
        for bit in range(bits):
            at = n * bits + bit
            found[at // 32] |= ((row >> np.uint64(bit) & np.uint64(1)) << np.uint64(at % 32)).astype(np.uint32)
    return found.view(np.int32)


def gptq(
    rng: np.random.Generator, bits: int, is_symmetric: bool = True, is_ordered: bool = True, version: int = 1
) -> tuple[Tensors, np.ndarray]:
    """A matrix `[K, N]`, its groups in order or at random."""
    codes = rng.integers(0, 1 << bits, (DEPTH, ROWS))
    half = 1 << (bits - 1)
    zeros = (
        np.full((DEPTH // GROUP, ROWS), half) if is_symmetric else rng.integers(1, 1 << bits, (DEPTH // GROUP, ROWS))
    )
    scales = rng.uniform(0.01, 0.1, zeros.shape).astype(np.float16)
    index = np.arange(DEPTH) // GROUP
    index = index if is_ordered else rng.permutation(index)
    made = {
        "qweight": words_of(codes, bits),
        "qzeros": np.ascontiguousarray(words_of((zeros - (version == 1)).T, bits).T),
        "scales": scales,
        "g_idx": index.astype(np.int32),
    }
    return made, ((codes - zeros[index]) * scales[index].astype(np.float64)).T


def awq(rng: np.random.Generator) -> tuple[Tensors, np.ndarray]:
    codes, zeros = rng.integers(0, 16, (DEPTH, ROWS)), rng.integers(0, 16, (DEPTH // GROUP, ROWS))
    scales = rng.uniform(0.01, 0.1, zeros.shape).astype(np.float16)

    def words(elements: np.ndarray) -> np.ndarray:
        found = np.zeros((len(elements), ROWS // 8), np.uint32)
        for word in range(ROWS // 8):
            for position, column in enumerate((0, 2, 4, 6, 1, 3, 5, 7)):
                found[:, word] |= elements[:, 8 * word + column].astype(np.uint32) << np.uint32(4 * position)
        return found.view(np.int32)

    own = np.arange(DEPTH) // GROUP
    wanted = ((codes - zeros[own]) * scales[own].astype(np.float64)).T
    return {"qweight": words(codes), "qzeros": words(zeros), "scales": scales}, wanted


NF4 = np.array(
    [-1.0, -0.6961928, -0.52507305, -0.3949175, -0.28444138, -0.18477343, -0.09105004, 0.0, 0.0795803, 0.1609302,
     0.2461123, 0.33791524, 0.44070983, 0.562617, 0.72295684, 1.0], np.float32
)  # fmt: skip


def four_bits(rng: np.random.Generator, kind: str, is_nested: bool) -> tuple[Tensors, np.ndarray]:
    """Codes of a table, in blocks of 32 of the whole matrix."""
    table = NF4 if kind == "nf4" else np.concatenate([[0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4]] * 2)
    table = table if kind == "nf4" else (table * np.repeat([1, -1], 8)).astype(np.float32)
    codes = rng.integers(0, 16, ROWS * DEPTH)
    count = ROWS * DEPTH // GROUP
    scales = rng.uniform(0.1, 1, count).astype(np.float32)
    state: dict[str, Any] = {"quant_type": kind, "blocksize": GROUP, "dtype": "float32", "shape": [ROWS, DEPTH]}
    made = {"weight": (codes[::2] << 4 | codes[1::2]).astype(np.uint8).reshape(-1, 1), "weight.quant_map": table}
    if is_nested:
        numbers, of_scales = rng.uniform(-1, 1, 256).astype(np.float32), rng.integers(0, 256, count).astype(np.uint8)
        outer = rng.uniform(0.1, 0.2, -(-count // 16)).astype(np.float32)
        scales = numbers[of_scales] * np.repeat(outer, 16)[:count] + np.float32(0.5)
        state |= {"nested_blocksize": 16, "nested_offset": 0.5}
        made |= {
            "weight.absmax": of_scales,
            "weight.nested_absmax": outer,
            "weight.nested_quant_map": numbers,
        }
    else:
        made["weight.absmax"] = scales
    made[f"weight.quant_state.bitsandbytes__{kind}"] = np.frombuffer(json.dumps(state).encode(), np.uint8)
    wanted = table[codes].astype(np.float64) * np.repeat(scales.astype(np.float64), GROUP)
    return made, wanted.reshape(ROWS, DEPTH)


def row_bytes(rng: np.random.Generator) -> tuple[Tensors, np.ndarray]:
    codes, scales = rng.integers(-127, 128, (ROWS, DEPTH)).astype(np.int8), rng.uniform(1, 2, ROWS).astype(np.float32)
    made = {"weight": codes, "SCB": scales, "weight_format": np.zeros((), np.uint8)}
    return made, codes * (scales.astype(np.float64) / 127)[:, None]


def compressed(
    rng: np.random.Generator, bits: int, has_zeros: bool = False, is_ordered: bool = True, groups: int = DEPTH // GROUP
) -> tuple[Tensors, np.ndarray]:
    half = 1 << (bits - 1)
    codes = rng.integers(-half, half, (ROWS, DEPTH))
    zeros = rng.integers(-half, half, (ROWS, groups)) if has_zeros else np.zeros((ROWS, groups), int)
    scales = rng.uniform(0.01, 0.1, (ROWS, groups)).astype(np.float32)
    index = np.arange(DEPTH) // (DEPTH // groups)
    index = index if is_ordered else rng.permutation(index)
    made = {
        "weight_packed": np.ascontiguousarray(words_of((codes + half).T, bits).T),
        "weight_shape": np.array([ROWS, DEPTH], np.int64),
        "weight_scale": scales,
    }
    if has_zeros:
        made["weight_zero_point"] = words_of(zeros + half, bits)
    if not is_ordered:
        made["weight_g_idx"] = index.astype(np.int32)
    return made, (codes - zeros[:, index]) * scales[:, index].astype(np.float64)


def compressed_bytes(rng: np.random.Generator) -> tuple[Tensors, np.ndarray]:
    codes = rng.integers(-128, 128, (ROWS, DEPTH)).astype(np.int8)
    scales = rng.uniform(0.01, 0.1, (ROWS, 1)).astype(np.float32)
    return {"weight": codes, "weight_scale": scales}, codes * scales.astype(np.float64)


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def microscaled(rng: np.random.Generator) -> tuple[Tensors, np.ndarray]:
    codes, powers = rng.integers(0, 16, (ROWS, DEPTH)), rng.integers(110, 140, (ROWS, DEPTH // 32))
    made = {
        "weight_packed": (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8),
        "weight_scale": powers.astype(np.uint8),
    }
    return made, E2M1[codes] * np.repeat(2.0 ** (powers - 127), 32, 1)


STATE = ".quant_state.bitsandbytes__nf4"
PACKED = {"quant_method": "compressed-tensors", "format": "pack-quantized"}
V1, V2 = ({"quant_method": "gptq", "checkpoint_format": name} for name in ("gptq", "gptq_v2"))
BNB = {"quant_method": "bitsandbytes"}
CASES: dict[str, tuple[dict[str, Any], Callable[[np.random.Generator], tuple[Tensors, np.ndarray]], float]] = {
    **{f"gptq of {bits} bits": (V1, lambda rng, bits=bits: gptq(rng, bits), 0) for bits in (2, 3, 4, 8)},
    "gptq with zero points": (V1, lambda rng: gptq(rng, 4, is_symmetric=False), 1e-6),
    "gptq of the second format": (V2, lambda rng: gptq(rng, 4, is_symmetric=False, version=2), 1e-6),
    "gptq of 3 bits with zero points": (V1, lambda rng: gptq(rng, 3, is_symmetric=False), 1e-6),
    "gptq in order of activations": (V1, lambda rng: gptq(rng, 4, is_ordered=False), 0),
    "awq": ({"quant_method": "awq", "version": "gemm"}, awq, 1e-6),
    "nf4": (BNB, lambda rng: four_bits(rng, "nf4", is_nested=False), 1 / 253),
    "nf4 with nested scales": (BNB, lambda rng: four_bits(rng, "nf4", is_nested=True), 1 / 253),
    "fp4": (BNB, lambda rng: four_bits(rng, "fp4", is_nested=False), 1 / 253),
    "int8 of bitsandbytes": (BNB, row_bytes, 1e-6),
    "compressed of 4 bits": (PACKED, lambda rng: compressed(rng, 4), 0),
    "compressed of 8 bits": (PACKED, lambda rng: compressed(rng, 8, groups=1), 0),
    "compressed with zero points": (PACKED, lambda rng: compressed(rng, 4, has_zeros=True), 1e-6),
    "compressed in order of activations": (PACKED, lambda rng: compressed(rng, 4, is_ordered=False), 0),
    "compressed floats of 4 bits": (PACKED | {"format": "mxfp4-pack-quantized"}, microscaled, 0),
    "compressed bytes": (PACKED | {"format": "int-quantized"}, compressed_bytes, 0),
}


def read(folder: Path, tensors: Tensors, given: dict[str, Any]) -> JoinedTensor:
    content = safetensors({f"m.{part}": stored(value) for part, value in tensors.items()})
    write(folder, CONFIG, model=content)
    found = dequantizable(read_shards(folder)[0], {"quantization_config": given}, folder)
    assert list(found) == ["m.weight"]
    assert isinstance(found["m.weight"], JoinedTensor)
    return found["m.weight"]


def values_of(tensor: JoinedTensor) -> np.ndarray:
    """The matrix with its columns in the order of its operand."""
    value, made = tensor.value_as_floats(), np.empty(tensor.final_shape, np.float32)
    made[:, slice(None) if tensor.columns is None else tensor.columns] = value
    return made


@pytest.mark.parametrize("name", CASES)
def test_matrices_are_the_numbers_that_the_format_says(name: str, tmp_path: Path) -> None:
    given, make, bound = CASES[name]
    tensors, wanted = make(np.random.default_rng(3))
    tensor = read(tmp_path, tensors, given)
    assert isinstance(tensor.value(), BlockTensor)
    assert (tensor.columns is not None) == ("order of activations" in name)
    largest = np.abs(wanted).max()
    np.testing.assert_allclose(values_of(tensor), wanted, rtol=2e-7, atol=bound * largest)
    some = np.array([5, 0, 20])
    np.testing.assert_allclose(values_of(tensor.rows(some)), wanted[some], rtol=2e-7, atol=bound * largest)
    both = stacked([tensor, tensor])
    assert isinstance(both.value(), BlockTensor) == (tensor.columns is None)
    np.testing.assert_allclose(both.value_as_floats(), np.concatenate([wanted] * 2), rtol=2e-7, atol=bound * largest)


def test_older_folders_have_a_file_of_their_own(tmp_path: Path) -> None:
    tensors, wanted = awq(np.random.default_rng(3))
    content = safetensors({f"m.{part}": stored(value) for part, value in tensors.items()})
    write(tmp_path, CONFIG, model=content)
    (tmp_path / "quant_config.json").write_text(
        '{"zero_point": true, "q_group_size": 32, "w_bit": 4, "version": "GEMM"}'
    )
    found = dequantizable(read_shards(tmp_path)[0], CONFIG, tmp_path)
    largest = np.abs(wanted).max()
    np.testing.assert_allclose(found["m.weight"].value_as_floats(), wanted, rtol=2e-7, atol=1e-6 * largest)


def test_groups_without_common_blocks_become_floats(tmp_path: Path) -> None:
    """Groups of 12 columns; and groups of several sizes."""
    tensors, wanted = compressed(np.random.default_rng(4), 4, groups=8)
    np.testing.assert_allclose(values_of(read(tmp_path, tensors, PACKED)), wanted, rtol=2e-7, atol=1e-9)
    tensors, _ = gptq(np.random.default_rng(4), 4)
    tensors["g_idx"][:] = 1
    found = read(tmp_path, tensors, V1)
    assert isinstance(found.value(), np.ndarray) and found.columns is None


def test_groups_are_as_long_as_the_configuration_says(tmp_path: Path) -> None:
    """Of 96 columns groups of 40, the last one shorter; without the configuration nothing says how long they are."""
    rng = np.random.default_rng(7)
    codes, scales = rng.integers(0, 16, (DEPTH, ROWS)), rng.uniform(0.01, 0.1, (3, ROWS)).astype(np.float16)
    index = np.arange(DEPTH) // 40
    packed = {"qweight": words_of(codes, 4), "qzeros": np.full((3, ROWS // 8), 0x77777777, np.int32), "scales": scales}
    wanted = ((codes - 8) * scales[index].astype(np.float64)).T
    np.testing.assert_allclose(values_of(read(tmp_path, packed, V1 | {"group_size": 40})), wanted, rtol=2e-7)
    numbers, _ = compressed(np.random.default_rng(4), 4)
    numbers["weight_scale"] = np.ascontiguousarray(numbers["weight_scale"][:, [0, 1, 2, 0, 1]])
    with pytest.raises(nnefc.CompileError, match="has 5 groups for 96 columns, and nothing says how many"):
        read(tmp_path, numbers, PACKED)


def test_codes_of_four_bits_are_in_elements_of_any_type(tmp_path: Path) -> None:
    tensors, wanted = four_bits(np.random.default_rng(3), "nf4", is_nested=False)
    tensors["weight"] = tensors["weight"].reshape(-1).view(np.float32).reshape(-1, 1)
    np.testing.assert_allclose(values_of(read(tmp_path, tensors, BNB)), wanted, atol=np.abs(wanted).max() / 253)


def test_experts_in_floats_of_4_bits_are_matrices_below_each_other(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    blocks = rng.integers(0, 256, (2, 3, 4, 16)).astype(np.uint8)
    scales = rng.integers(110, 140, (2, 3, 4)).astype(np.uint8)
    numbers = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    table = np.concatenate([numbers, -numbers])
    elements = np.stack([table[blocks & 15], table[blocks >> 4]], -1).reshape(2, 3, 4, 32)
    wanted = (elements * 2.0 ** (scales.astype(int) - 127)[..., None]).reshape(6, 128)
    content = safetensors({"e_blocks": stored(blocks), "e_scales": stored(scales)})
    write(tmp_path, CONFIG, model=content)
    found = dequantizable(read_shards(tmp_path)[0], {"quantization_config": {"quant_method": "mxfp4"}}, tmp_path)
    assert isinstance(found["e.weight"].value(), BlockTensor)
    np.testing.assert_array_equal(found["e.weight"].value_as_floats(), wanted)


def test_floats_of_4_bits_with_floats_as_scales(tmp_path: Path) -> None:
    """Blocks of 16 whose scales are floats of 8 bits, all of them over one number."""
    rng = np.random.default_rng(9)
    codes, scales = rng.integers(0, 16, (ROWS, DEPTH)), rng.integers(1, 120, (ROWS, DEPTH // 16)).astype(np.uint8)
    exponent, mantissa = (scales >> 3).astype(float), (scales & 7) / 8
    numbers = np.where(exponent > 0, (1 + mantissa) * 2.0 ** (exponent - 7), mantissa * 2.0**-6) / np.float32(3)
    packed = (codes[:, ::2] | codes[:, 1::2] << 4).astype(np.uint8)
    parts = {
        "m.weight_packed": stored(packed), "m.weight_scale": ("F8_E4M3", scales.shape, scales.tobytes()),
        "m.weight_global_scale": stored(np.array([3], np.float32)),
    }  # fmt: skip
    write(tmp_path, CONFIG, model=safetensors(parts))
    given = {"quantization_config": PACKED | {"format": "nvfp4-pack-quantized"}}
    found = dequantizable(read_shards(tmp_path)[0], given, tmp_path)["m.weight"]
    assert isinstance(found.value(), BlockTensor)
    np.testing.assert_allclose(found.value_as_floats(), E2M1[codes] * np.repeat(numbers, 16, 1), rtol=1e-6)


def test_a_quantized_network_is_that_of_its_numbers(tmp_path: Path) -> None:
    """A model of which half of the matrices are in the order of activations, and one of their numbers as floats."""
    rng = np.random.default_rng(6)
    whole = {name: stored(value) for name, value in values().items()}
    packed = dict(whole)
    for name, (_, shape, _) in list(whole.items()):
        if len(shape) < 2 or "embed" in name:
            continue
        depth = shape[1]
        codes, groups = rng.integers(0, 16, (depth, shape[0])), depth // 16
        zeros = rng.integers(1, 16, (groups, shape[0]))
        scales = rng.uniform(0.01, 0.05, zeros.shape).astype(np.float16)
        index = np.arange(depth) // 16
        index = index if "mlp" in name else rng.permutation(index)
        whole[name] = stored(((codes - zeros[index]) * scales[index].astype(np.float32)).T.astype(np.float32))
        del packed[name]
        stem = name.removesuffix(".weight")
        for part, value in (
            ("qweight", words_of(codes, 4)), ("qzeros", np.ascontiguousarray(words_of((zeros - 1).T, 4).T)),
            ("scales", scales), ("g_idx", index.astype(np.int32)),
        ):  # fmt: skip
            packed[f"{stem}.{part}"] = stored(value)
    write(tmp_path / "floats", CONFIG, model=safetensors(whole))
    config = CONFIG | {"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 16, "desc_act": True}}
    write(tmp_path / "packed", config, model=safetensors(packed))
    found = []
    for name in ("floats", "packed"):
        artifact = nnefc.compile(tmp_path / name, strict=True, context=8, kv_cache="f32")
        with artifact.load(threads=1) as model:
            found.append((np.asarray(model(np.array([[3, 5, 8, 13]]))), artifact.description.constant_bytes))
    (wanted, floats), (logits, blocks) = found
    np.testing.assert_allclose(logits, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
    assert blocks < 0.7 * floats


WRONG: dict[str, tuple[dict[str, Any], Tensors]] = {
    "the key 'quantization_config.quant_method' is 'hqq'": ({"quant_method": "hqq"}, {}),
    "the key 'quantization_config.checkpoint_format' is 'marlin'": (V1 | {"checkpoint_format": "marlin"}, {}),
    "the key 'quantization_config.version' is 'gemv'": ({"quant_method": "awq", "version": "gemv"}, {}),
    "the key 'quantization_config.format' is 'marlin-24'": (PACKED | {"format": "marlin-24"}, {}),
    "'quantization_config.sparsity_config.format' is 'x'": (PACKED | {"sparsity_config": {"format": "x"}}, {}),
    "the module 'm' has no tensor 'qzeros'": (V1, {"qweight": np.zeros((4, 8), np.int32)}),
    "the module 'm' has a tensor 'qweight' with elements of the type U8": (V1, {"qweight": np.zeros((4, 8), np.uint8)}),
    "which do not fit each other": (V1, gptq(np.random.default_rng(1), 4)[0] | {"scales": np.ones((3, 7), np.float16)}),
    "has groups [96] of 3": (V1, gptq(np.random.default_rng(1), 4)[0] | {"g_idx": np.full(DEPTH, 9, np.int32)}),
    "has 3 scales for the rows": (BNB, row_bytes(np.random.default_rng(1))[0] | {"SCB": np.ones(3, np.float32)}),
    "no object in JSON": (BNB, {f"weight{part}": np.zeros(3, np.uint8) for part in ("", STATE)}),
}  # fmt: skip


@pytest.mark.parametrize("reason", WRONG)
def test_what_is_not_known_or_does_not_fit_is_one_line(reason: str, tmp_path: Path) -> None:
    given, tensors = WRONG[reason]
    with pytest.raises(nnefc.CompileError) as found:
        read(tmp_path, tensors, given)
    assert reason in str(found.value)


def test_integers_are_no_weights_by_themselves(tmp_path: Path) -> None:
    tensors = {name: stored(value) for name, value in values().items()}
    tensors["model.layers.0.mlp.up_proj.weight"] = stored(np.zeros((48, 32), np.int8))
    write(tmp_path, CONFIG, model=safetensors(tensors))
    with pytest.raises(
        nnefc.CompileError, match=r"'model\.layers\.0\.mlp\.up_proj\.weight' has elements of the type I8"
    ):
        nnefc.convert(tmp_path, tmp_path.parent / "written")


def damaged(tensors: Tensors, rng: np.random.Generator) -> Tensors:
    """Tensors one of which is missing, empty, shorter, of another rank or type, or random."""
    made = dict(tensors)
    name = str(rng.choice(list(made)))
    value = made[name]
    changes = [
        value.reshape(-1), value[:0], value[: len(value) // 2], value[..., :1], np.zeros(value.shape, "|u1"),
        np.ones(value.shape, "<f4"), np.frombuffer(rng.bytes(value.nbytes), value.dtype).reshape(value.shape),
    ] if value.ndim else []  # fmt: skip
    number = int(rng.integers(len(changes) + 1))
    if number < len(changes):
        made[name] = changes[number]
    else:
        del made[name]
    return made


@pytest.mark.filterwarnings("error")
def test_damaged_folders_are_refused_or_read(tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    refused = 0
    for given, make, _ in CASES.values():
        tensors, _ = make(rng)
        for _ in range(30):
            parts = damaged(damaged(tensors, rng), rng)
            stored_parts = {
                f"m.{part}": StoredTensor(ALL_TYPES[KINDS[value.dtype.str]], value.shape, as_bytes(value))
                for part, value in parts.items()
            }
            try:
                for tensor in dequantizable(stored_parts, {"quantization_config": given}, tmp_path).values():
                    tensor.value()
            except nnefc.CompileError as error:
                assert "'m'" in str(error) or "scales" in str(error), error
                refused += 1
    assert refused > 100
