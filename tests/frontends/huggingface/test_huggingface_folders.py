"""Folders of language models: shards, element types, and files that are damaged, missing, or made to be wrong."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_folders import CONFIG, safetensors, values, with_header, write
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

import nnefc
from nnefc.frontends.decoder.weights import float_tensor
from nnefc.frontends.huggingface import load
from nnefc.frontends.huggingface.config import architecture_of, hyperparameters_of
from nnefc.frontends.huggingface.quantized import dequantizable
from nnefc.frontends.huggingface.safetensors import read_shards
from nnefc.frontends.huggingface.text_parts import text_configuration, text_tensors, without_predictors
from nnefc.operators.nn.block_quantization import BlockTensor

RNG = np.random.default_rng(4)


def stored(name: str, value: np.ndarray, kind: str) -> tuple[str, tuple[int, ...], bytes]:
    """A tensor in one of three element types; of bfloat16 what is cut off is not there before either."""
    content = {"F32": value.tobytes, "F16": value.astype("<f2").tobytes, "BF16": lambda: upper_bits(value)}[kind]()
    return kind, value.shape, content


def upper_bits(value: np.ndarray) -> bytes:
    return (value.view(np.uint32) >> 16).astype("<u2").tobytes()


def test_shards_of_several_element_types_are_one_model(tmp_path: Path) -> None:
    """The same numbers in one file of float32, and in two of float16 and bfloat16 with an index."""
    rounded = {name: value.astype("<f2").astype(np.float32) for name, value in values().items()}
    for name in list(rounded)[::2]:
        rounded[name] = (rounded[name].view(np.uint32) & 0xFFFF0000).view(np.float32)
    whole = {name: stored(name, value, "F32") for name, value in rounded.items()}
    parts = {name: stored(name, value, ("BF16", "F16")[n % 2]) for n, (name, value) in enumerate(rounded.items())}
    write(tmp_path / "one", CONFIG, model=safetensors(whole))
    names = {name: f"model-0000{1 + n % 2}-of-00002" for n, name in enumerate(parts)}
    shards = {file: {n: parts[n] for n in parts if names[n] == file} for file in sorted(set(names.values()))}
    write(tmp_path / "two", CONFIG, **{file: safetensors(own) for file, own in shards.items()})
    index = {"weight_map": {name: f"{file}.safetensors" for name, file in names.items()}}
    (tmp_path / "two/model.safetensors.index.json").write_text(json.dumps(index))
    one, two = (nnefc.compile(tmp_path / name) for name in ("one", "two"))
    tokens = np.array([[3, 5, 8]])
    with one.load(threads=1) as first, two.load(threads=1) as second:
        np.testing.assert_array_equal(np.asarray(first(tokens)), np.asarray(second(tokens)))


def test_matrices_are_rounded_where_that_is_asked(tmp_path: Path) -> None:
    """The library is smaller by what is saved, and logits are near those of the floats."""
    write(tmp_path, CONFIG, model=safetensors({name: stored(name, value, "BF16") for name, value in values().items()}))
    found = {}
    for how in (None, "q8"):
        artifact = nnefc.compile(tmp_path, quantize=how)
        with artifact.load(threads=1) as model:
            found[how] = np.asarray(model(np.array([[3, 5, 8]]))), artifact.description.constant_bytes
    (floats, size), (rounded, smaller) = found[None], found["q8"]
    assert 0 < np.abs(floats - rounded).max() < 0.03 * np.abs(floats).max()
    assert smaller < 0.6 * size


def test_the_tokenizer_of_a_folder_is_in_the_network(tmp_path: Path) -> None:
    """One that is not supported is a warning: the network takes tokens."""
    write(tmp_path, CONFIG, model=safetensors({name: stored(name, value, "F32") for name, value in values().items()}))
    tokenizer = Tokenizer(models.BPE({letter: n for n, letter in enumerate("abcdefgh")}, []))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}")
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [1, 0]}')
    network = load(tmp_path, context=8)
    assert network.vocabulary
    wanted = {"tokenizer.end_tokens": "1 0", "tokenizer.chat_template": "{{ messages[0].content }}"}
    assert network.metadata.items() >= wanted.items()
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.warns(nnefc.ModelWarning, match="tokenizer"):
        assert not load(tmp_path, context=8).vocabulary
    (tmp_path / "tokenizer.json").rename(tmp_path / "tokenizer.model")
    with pytest.warns(nnefc.ModelWarning, match=r"has tokenizer\.model, but no tokenizer\.json"):
        assert not load(tmp_path, context=8).vocabulary


def test_floats_of_8_bits_are_multiplied_with_their_scales(tmp_path: Path) -> None:
    codes = np.arange(256, dtype=np.uint8).reshape(8, 32)
    codes[codes & 127 == 127] = 0
    scales = np.array([[0.5, 2.0], [3.0, 4.0]], np.float32)
    content = safetensors(
        {"w.weight": ("F8_E4M3", (8, 32), codes.tobytes()), "w.weight_scale_inv": ("F32", (2, 2), scales.tobytes())}
    )
    write(tmp_path, CONFIG, model=content)
    tensors, _ = read_shards(tmp_path)
    given = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [6, 30]}}
    found = dequantizable(tensors, given, tmp_path)
    assert list(found) == ["w.weight"]
    exponent, mantissa = (codes >> 3 & 15).astype(float), (codes & 7) / 8
    wanted = np.where(exponent > 0, (1 + mantissa) * 2.0 ** (exponent - 7), mantissa * 2.0**-6)
    numbers = np.where(codes >= 128, -wanted, wanted)
    wanted = numbers * scales[np.arange(8)[:, None] // 6, np.arange(32) // 30]
    np.testing.assert_array_equal(found["w.weight"].value(), wanted.astype(np.float32))
    given["quantization_config"]["weight_block_size"] = [6, 16]  # blocks of as many elements in each row
    blocks = dequantizable(tensors, given, tmp_path)["w.weight"].rows(np.array([7, 2])).value()
    assert isinstance(blocks, BlockTensor) and blocks.is_float
    wanted = numbers * scales[np.arange(8)[:, None] // 6, np.arange(32) // 16]
    np.testing.assert_array_equal(blocks.values(), wanted[[7, 2]].astype(np.float32))
    with pytest.raises(nnefc.CompileError, match=r"'w\.weight' do not fit"):
        dequantizable(tensors, {"quantization_config": {"quant_method": "fp8", "weight_block_size": [4, 4]}}, tmp_path)


F32 = ("F32", (2,), bytes(8))
ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
WRONG = {
    "its header of": b"\xff" * 8,
    "is a pointer of Git LFS's": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
    "is not in JSON": with_header(b"[" * 100_000),
    "is not an object": with_header(b"[1]"),
    "'t' is no object": with_header(json.dumps({"t": 3}).encode()),
    "'t' has no shape": with_header(json.dumps({"t": ENTRY | {"shape": [-1]}}).encode(), bytes(8)),
    "'t' has no two offsets": with_header(json.dumps({"t": ENTRY | {"data_offsets": [0, 8, 9]}}).encode(), bytes(8)),
    "'t' has elements of the type C64": with_header(json.dumps({"t": ENTRY | {"dtype": "C64"}}).encode(), bytes(8)),
    "'t' lies at 0 to 8, beyond": with_header(json.dumps({"t": ENTRY}).encode(), bytes(7)),
    "of the shape [2] has 7 bytes": with_header(json.dumps({"t": ENTRY | {"data_offsets": [0, 7]}}).encode(), bytes(8)),
    "'u' overlaps the tensor 't'": with_header(json.dumps({"t": ENTRY, "u": ENTRY}).encode(), bytes(8)),
}


def test_one_file_of_tensors_is_taken_before_an_index(tmp_path: Path) -> None:
    """The index of shards that are gone."""
    write(tmp_path, CONFIG, model=safetensors({"t": F32}))
    (tmp_path / "model.safetensors.index.json").write_text('{"weight_map": {"u": "model-00001-of-00002.safetensors"}}')
    tensors, names = read_shards(tmp_path)
    assert list(tensors) == ["t"] and names == ("model.safetensors",)


def test_missing_files_are_known_by_the_numbers_of_others(tmp_path: Path) -> None:
    write(tmp_path, CONFIG, **{"model-00001-of-00002": safetensors({})})
    with pytest.raises(nnefc.CompileError, match="has 1 of 2 files of safetensors"):
        nnefc.compile(tmp_path)


@pytest.mark.parametrize("reason", WRONG)
def test_wrong_files_are_refused_with_the_reason(reason: str, tmp_path: Path) -> None:
    write(tmp_path, CONFIG, model=WRONG[reason])
    with pytest.raises(nnefc.CompileError) as found:
        nnefc.compile(tmp_path)
    assert reason in str(found.value)
    assert "model.safetensors" in str(found.value)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"model_type": "gpt7"}, "the model_type 'gpt7' is not supported"),
        ({"hidden_size": "x"}, "the key 'hidden_size' is 'x'"),
        ({"rope_scaling": {"rope_type": "linear"}}, "'factor' is missing or 0"),
        ({"num_attention_heads": 0}, "the key 'num_attention_heads' is 0"),
        ({"hidden_act": "relu2"}, "the key 'hidden_act' is 'relu2'"),
        ({"rope_scaling": {"type": "su", "factor": 2.0}}, "0 factors for 8 pairs"),
        ({"rope_scaling": {"rope_type": "new"}}, "positions scaled as 'new' are not supported"),
        ({"layer_types": ["linear_attention"]}, "the key 'layer_types' has layers of the kind 'linear_attention'"),
        ({"num_key_value_heads": 3}, "2 heads of 16 elements, 3 heads of keys"),
        ({"num_hidden_layers": 2}, "has no tensor 'model.layers.1.input_layernorm.weight'"),
        ({"vocab_size": 41}, "'model.embed_tokens.weight' has the shape [40, 32], its network needs [41, 32]"),
    ],
)
def test_wrong_configurations_are_refused_with_the_key(change: dict[str, Any], what: str, tmp_path: Path) -> None:
    content = safetensors({name: stored(name, value, "F32") for name, value in values().items()})
    write(tmp_path, CONFIG | change, model=content)
    with pytest.raises(nnefc.CompileError) as found:
        nnefc.convert(tmp_path, tmp_path.parent / "written")
    assert what in str(found.value)


def test_tensors_that_are_not_known_and_shards_that_are_missing_are_named(tmp_path: Path) -> None:
    tensors = {name: stored(name, value, "F32") for name, value in values().items()}
    extra = {"model.layers.0.self_attn.q_proj.lora_A": F32}
    write(tmp_path, CONFIG, model=safetensors(tensors | extra))
    with pytest.raises(nnefc.CompileError, match=r"'model\.layers\.0\.self_attn\.q_proj\.lora_A' is none of"):
        nnefc.convert(tmp_path, tmp_path.parent / "written")
    (tmp_path / "model.safetensors").unlink()
    for name, what in (("../x.safetensors", "no file of safetensors in the folder"), ("y.safetensors", "cannot read")):
        (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
        with pytest.raises(nnefc.CompileError, match=what):
            read_shards(tmp_path)


def test_configurations_of_older_and_newer_releases_say_the_same() -> None:
    path = Path("config.json")
    scaling = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192}
    old = hyperparameters_of(CONFIG | {"rope_theta": 5e5, "rope_scaling": scaling}, "llama", path)
    new = hyperparameters_of(CONFIG | {"rope_parameters": scaling | {"rope_theta": 5e5}}, "llama", path)
    assert old == new
    assert old.base == 5e5 and old.scaling.factor == 8.0
    assert architecture_of(CONFIG, path) == "llama"


def test_other_parts_of_a_model_are_left_out() -> None:
    """Towers of images and sounds, and layers that predict further tokens."""
    tensor = float_tensor(np.zeros(2))
    config = {"model_type": "gemma3n", "text_config": {"model_type": "gemma3n_text"}, "tie_word_embeddings": True}
    assert text_configuration(config) == {"model_type": "gemma3n_text", "tie_word_embeddings": True}
    assert text_configuration(CONFIG) is CONFIG
    names = ["model.language_model.norm.weight", "lm_head.weight", "model.vision_tower.a", "model.embed_audio.b"]
    assert list(text_tensors(config, dict.fromkeys(names, tensor))) == ["model.norm.weight", "lm_head.weight"]
    older = ["language_model.model.norm.weight", "language_model.lm_head.weight", "multi_modal_projector.a"]
    llava = {"model_type": "llava", "text_config": CONFIG}
    assert text_configuration(llava) == CONFIG
    assert list(text_tensors(llava, dict.fromkeys(older, tensor))) == ["model.norm.weight", "lm_head.weight"]
    assert list(text_tensors(CONFIG, dict.fromkeys(names, tensor))) == names
    layers = [f"model.layers.{n}.eh_proj.weight" for n in range(3)]
    assert list(without_predictors(dict.fromkeys(layers, tensor), 2)) == layers[:2]


def test_experts_of_16_bits_stay_so(tmp_path: Path) -> None:
    """A library of floats of 16 bits, and one of nearly the same numbers that 16 bits do not hold."""
    tensors = {name: value for name, value in values().items() if ".mlp." not in name}
    shapes = {"w1": (48, 32), "w3": (48, 32), "w2": (32, 48)}
    prefix = "model.layers.0.block_sparse_moe"
    tensors[f"{prefix}.gate.weight"] = (RNG.standard_normal((4, 32)) * 0.3).astype(np.float32)
    for n in range(4):
        for part, shape in shapes.items():
            tensors[f"{prefix}.experts.{n}.{part}.weight"] = (RNG.standard_normal(shape) * 0.3).astype(np.float32)
    tensors = {name: value.astype("<f2").astype(np.float32) for name, value in tensors.items()}
    config = CONFIG | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
    found = []
    for name, factor in (("fp16", 1), ("floats", 1 + 2e-6)):
        content = {label: stored(label, (value * factor).astype(np.float32), "F32") for label, value in tensors.items()}
        write(tmp_path / name, config, model=safetensors(content))
        artifact = nnefc.compile(tmp_path / name, context=8, kv_cache="f32")
        with artifact.load(threads=1) as model:
            found.append((np.asarray(model(np.array([[3, 5, 8, 13]]))), artifact.description.constant_bytes))
    (logits, size), (wanted, whole) = found
    np.testing.assert_allclose(logits, wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())
    assert size < whole - 4 * 3 * 48 * 32 * 1.9
