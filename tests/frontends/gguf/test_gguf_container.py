"""Files of GGUF that are cut off, damaged, or made to be wrong: each is one error that names the key or the tensor."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
import tvm
from language_models import write_model

import nnefc
from nnefc.driver.formats import load_network
from nnefc.driver.options import ReadOptions
from nnefc.frontends.gguf.container import read_container

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
