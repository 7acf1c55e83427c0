"""Files of GGUF that are cut off, damaged, or made to be wrong: each is one error that names the key or the tensor."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import gguf
import numpy as np
import pytest
import tvm
from language_models import logits, write_model

import nnefc
from nnefc.driver.formats import load_network
from nnefc.driver.options import ReadOptions
from nnefc.frontends.decoder.weights import StoredTensor, float_tensor
from nnefc.frontends.gguf.container import read_container
from nnefc.frontends.gguf.parts import read_files, with_factors
from nnefc.frontends.tensor_types.blocks_of_32 import Q4_0
from nnefc.frontends.tensor_types.floats import F32

STRING, ARRAY, U32 = 8, 9, 4


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def tensor(name: str, shape: tuple[int, ...], kind: int, offset: int) -> bytes:
    """What the header says of a tensor; dimensions from the innermost."""
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def container(keys: list[bytes], tensors: list[bytes], data: int = 256, version: int = 3, alignment: int = 32) -> bytes:
    made = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys)) + b"".join(keys + tensors)
    return made + bytes(-len(made) % alignment) + bytes(data)


NESTED = b"".join(struct.pack("<IQ", ARRAY, 1) for _ in range(9))
WRONG = {
    "big-endian": container([], [], version=3 << 24),
    "version 1 ": container([], [], version=1),
    "the key 'a': it is there twice": container([key("a", U32, bytes(4))] * 2, []),
    "the key 'a': there is no type 77": container([key("a", 77, b"")], []),
    "the key 'a': an array of 1,099,511,627,776 elements": container(
        [key("a", ARRAY, struct.pack("<IQ", U32, 1 << 40))], []
    ),
    "the key 'a': arrays have more than 16,777,216 elements": container(
        [key("a", ARRAY, struct.pack("<IQ", 0, (1 << 24) + 1) + bytes((1 << 24) + 1))], []
    ),
    "the key 'a': arrays are nested": container([key("a", ARRAY, NESTED)], []),
    "the key 'a': a string of": container([key("a", STRING, struct.pack("<Q", 1 << 50))], []),
    "'general.alignment': 33 is not a power": container([key("general.alignment", U32, struct.pack("<I", 33))], []),
    "tensor 't': it is there twice": container([], [tensor("t", (8,), 0, 0), tensor("t", (8,), 0, 32)]),
    "tensor 't': it overlaps the tensor 's'": container([], [tensor("t", (8,), 0, 32), tensor("s", (9,), 0, 0)]),
    "tensor 't': its 1,024 bytes": container([], [tensor("t", (256,), 0, 0)]),
    "tensor 't': its offset 8": container([], [tensor("t", (8,), 0, 8)]),
    "tensor 't' has elements of type 99": container([], [tensor("t", (8,), 99, 0)]),
    "tensor 't': rows of 33 elements": container([], [tensor("t", (33,), 2, 0)]),
    "tensor 't': a tensor cannot have the shape": container([], [tensor("t", (1 << 40, 1 << 40), 0, 0)]),
    "tensor 't': 5 dimensions": container([], [tensor("t", (1, 1, 1, 1, 1), 0, 0)]),
    "more than 65,536 and": b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 1 << 60),
    "architecture 'None' is not supported": container([], []),
}


@pytest.mark.parametrize("reason", WRONG)
def test_wrong_files_are_refused_with_the_reason(reason: str, tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(WRONG[reason])
    with pytest.raises(nnefc.CompileError) as found:
        nnefc.compile(tmp_path / "m.gguf")
    assert reason in str(found.value)
    assert "m.gguf" in str(found.value)


def test_files_that_are_cut_off_anywhere_are_refused(tmp_path: Path) -> None:
    write_model(tmp_path / "m.gguf", tied=True, layers=1)
    content = (tmp_path / "m.gguf").read_bytes()
    for size in (4, 11, 24, 40, 100, 3000, len(content) // 2, len(content) - 1):
        (tmp_path / "cut.gguf").write_bytes(content[:size])
        with pytest.raises(nnefc.CompileError, match=r"cut\.gguf"):
            read_container(tmp_path / "cut.gguf")


@pytest.mark.parametrize(
    ("other", "what"),
    [
        ("blk.0.attn_sinks", "'blk.0.attn_sinks.weight' is none of the architecture 'llama'"),
        ("rope_factors_long", "'rope_factors_long.weight' is none of the architecture 'llama'"),
    ],
)
def test_tensors_that_an_architecture_does_not_have_are_refused(other: str, what: str, tmp_path: Path) -> None:
    write_model(tmp_path / "m.gguf", True, other=other, layers=1)
    with pytest.raises(nnefc.CompileError) as found:
        nnefc.convert(tmp_path / "m.gguf", tmp_path / "m")
    assert what in str(found.value)
    assert not (tmp_path / "m").exists()


def test_an_incomplete_file_is_refused_with_the_tensor(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    for name, value in (("block_count", 1), ("embedding_length", 64), ("attention.head_count", 4)):
        writer.add_uint32(f"llama.{name}", value)
    writer.add_tensor("token_embd.weight", np.zeros((8, 64), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(nnefc.CompileError, match=r"has no tensor 'blk\.0\.attn_norm\.weight'"):
        nnefc.compile(tmp_path / "m.gguf")


def test_metadata_and_tensors_are_those_that_the_package_gguf_reads(tmp_path: Path) -> None:
    write_model(tmp_path / "m.gguf", tied=True, layers=1)
    found, wanted = read_container(tmp_path / "m.gguf"), gguf.GGUFReader(tmp_path / "m.gguf")
    for name, value in found.metadata.items():
        assert value == wanted.fields[name].contents(), name
    assert list(found.tensors) == [each.name for each in wanted.tensors]
    for each in wanted.tensors:
        own = found.tensors[each.name]
        assert (own.type.name, own.shape) == (each.tensor_type.name, tuple(map(int, reversed(each.shape))))
        assert own.data.tobytes() == each.data.tobytes()


def test_a_converted_model_is_the_same_network(tmp_path: Path) -> None:
    """Tensors keep their bytes, and the document is read as the program of the file."""
    write_model(tmp_path / "m.gguf", tied=True, layers=1)
    nnefc.convert(tmp_path / "m.gguf", tmp_path / "m", context=16)
    of_file, of_folder = load_network(tmp_path / "m.gguf", ReadOptions(context=16)), load_network(tmp_path / "m")
    tvm.ir.assert_structural_equal(of_file.module, of_folder.module)
    assert (of_file.inputs, of_file.outputs) == (of_folder.inputs, of_folder.outputs)
    for one, other in zip(of_file.states, of_folder.states, strict=True):
        assert one.name == other.name and one.initial.dtype == other.initial.dtype
        np.testing.assert_array_equal(one.initial, other.initial)
    stored = read_container(tmp_path / "m.gguf").tensors["token_embd.weight"].data.tobytes()
    assert (tmp_path / "m/token_embd.weight.dat").read_bytes()[128:] == stored


def write_parts(folder: Path, count: int, **more: np.ndarray) -> Path:
    """A random model in several files, as llama.cpp's tool writes them; returns the first."""
    write_model(folder / "whole.gguf", tied=True, layers=1, mixed=False)
    whole = gguf.GGUFReader(folder / "whole.gguf")
    names = [f"m-{n + 1:05}-of-{count:05}.gguf" for n in range(count)]
    for n, name in enumerate(names):
        writer = gguf.GGUFWriter(folder / name, "llama") if n == 0 else gguf.GGUFWriter(folder / name, "")
        for field in whole.fields.values() if n == 0 else ():
            if not field.name.startswith("GGUF.") and field.name != "general.architecture":
                kind = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
                writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=kind)
        writer.add_uint16("split.no", n)
        writer.add_uint16("split.count", count)
        writer.add_int32("split.tensors.count", len(whole.tensors) + len(more))
        for each in whole.tensors[n::count]:
            writer.add_tensor(each.name, each.data, raw_dtype=each.tensor_type)
        for label, value in more.items() if n == 0 else ():
            writer.add_tensor(label, value)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return folder / names[0]


def test_models_in_several_files_are_read_whole(tmp_path: Path) -> None:
    first = write_parts(tmp_path, 3)
    whole = read_container(tmp_path / "whole.gguf")
    for path in (first, tmp_path / "m-00002-of-00003.gguf"):
        found, others = read_files(path)
        assert found.metadata["general.architecture"] == "llama"
        assert {name: bytes(each.data) for name, each in found.tensors.items()} == {
            name: bytes(each.data) for name, each in whole.tensors.items()
        }
        assert len(others) == 2 and path.name not in others
    (tmp_path / "m-00003-of-00003.gguf").rename(tmp_path / "else.gguf")
    with pytest.raises(nnefc.CompileError, match=r"'m-00003-of-00003\.gguf' is not next to it"):
        nnefc.compile(first)
    with pytest.raises(nnefc.CompileError, match="names must be as NAME-00001-of-00003"):
        nnefc.compile(tmp_path / "else.gguf")
    (tmp_path / "m-00003-of-00003.gguf").write_bytes((tmp_path / "m-00002-of-00003.gguf").read_bytes())
    with pytest.raises(nnefc.CompileError, match="is not number 2 of 3 files"):
        nnefc.compile(first)


def test_scales_in_tensors_of_their_own_are_factors() -> None:
    """Of a matrix in blocks, of its rows in another order, of floats, and of experts below each other."""
    kinds, rng = gguf.GGMLQuantizationType, np.random.default_rng(5)
    own = {
        "a": (Q4_0, (6, 64), gguf.quants.quantize(rng.standard_normal((6, 64)).astype(np.float32), kinds.Q4_0)),
        "b": (F32, (3, 4), rng.standard_normal((3, 4)).astype(np.float32)),
        "c": (Q4_0, (2, 3, 32), gguf.quants.quantize(rng.standard_normal((2, 3, 32)).astype(np.float32), kinds.Q4_0)),
    }
    tensors = {f"{name}.weight": StoredTensor(kind, shape, data.view(np.uint8).reshape(-1))
               for name, (kind, shape, data) in own.items()}  # fmt: skip
    factors = {"a": [0.5], "b": [3.0], "c": [2.0, -1.0]}
    given = {f"{name}.scale": float_tensor(np.array(value)) for name, value in factors.items()}
    found = with_factors(tensors | given | {"a.input_scale": float_tensor(np.ones(1))}, Path("m.gguf"))
    assert set(found) == set(tensors)
    for name, value in factors.items():
        before, after = tensors[f"{name}.weight"], found[f"{name}.weight"]
        wide = np.array(value, np.float32).reshape(-1, *(1,) * (len(before.shape) - 1))
        np.testing.assert_array_equal(after.value_as_floats(), before.value_as_floats() * wide)
    order = np.array([4, 0, 5])
    below = replace(found["c.weight"], shape=(6, 32)).rows(order)
    wanted = replace(tensors["c.weight"], shape=(6, 32)).value_as_floats() * np.repeat([[2], [-1]], 3, 0)
    np.testing.assert_array_equal(below.value_as_floats(), wanted[order])
    with pytest.raises(nnefc.CompileError, match=r"'a\.scale' has the shape \[3\]"):
        with_factors(tensors | {"a.scale": float_tensor(np.ones(3))}, Path("m.gguf"))


def test_factors_of_matrices_are_in_the_network(tmp_path: Path) -> None:
    """Logits with a factor are those of the matrix that is multiplied by it."""
    factor = np.array([0.25], np.float32)
    scaled = write_parts(tmp_path, 2, **{"blk.0.ffn_up.scale": factor, "blk.0.ffn_up.input_scale": factor})
    values = write_model(tmp_path / "whole.gguf", tied=True, layers=1, mixed=False)
    wanted = logits(values | {"blk.0.ffn_up": values["blk.0.ffn_up"] * factor}, [3, 1, 4])
    with nnefc.compile(scaled, strict=True, context=8, kv_cache="f32").load(threads=1) as model:
        (found,) = np.asarray(model(np.array([[3, 1, 4]])))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=2e-4 * np.abs(wanted).max())
