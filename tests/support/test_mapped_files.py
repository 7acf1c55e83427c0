"""Constants that stay in the files of their models while these are compiled."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import nnefc
from nnefc.frontends.onnx.files.large_tensors import ITSELF, without_large_tensors
from nnefc.frontends.tensor_types.floats import F16
from nnefc.support import mapped_files
from nnefc.support.mapped_files import (
    ALIGNMENT,
    LARGE,
    aligned_copy,
    empty_array,
    is_mapped,
    map_path,
    release_pages,
    tensor_of,
)

SIZE = 2304
"""Of matrices, of 20 MiB each."""


def chain(path: Path, size: int, count: int, *, external: bool, name: str = "w") -> list[np.ndarray]:
    """A model of products with constant matrices; returns these."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((size, size), np.float32) / np.float32(size**0.5) for _ in range(count)]
    held = [numpy_helper.from_array(array, f"{name}{i}") for i, array in enumerate(weights)]
    nodes = [helper.make_node("MatMul", [f"x{i}", f"{name}{i}"], [f"x{i + 1}"]) for i in range(count)]
    shape = [1, size]
    ends = [helper.make_tensor_value_info(each, TensorProto.FLOAT, shape) for each in ("x0", f"x{count}")]
    model = helper.make_model(
        helper.make_graph(nodes, "chain", ends[:1], ends[1:], held),
        ir_version=9,
        opset_imports=[helper.make_opsetid("", 17)],
    )
    onnx.save_model(model, path, save_as_external_data=external, location="weights.data")
    return weights


def product(x: np.ndarray, weights: list[np.ndarray]) -> np.ndarray:
    made = x.astype(np.float64)
    for array in weights:
        made = made @ array.astype(np.float64)
    return made


@pytest.mark.parametrize(("external", "name"), [(True, "w"), (False, "w"), (False, "ww")])
@pytest.mark.sample(1)
def test_libraries_do_not_depend_on_the_file_any_more(external: bool, name: str, tmp_path: Path) -> None:
    weights = chain(tmp_path / "m.onnx", SIZE, 1, external=external, name=name)
    artifact = nnefc.compile(tmp_path / "m.onnx")
    for path in tmp_path.iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    x = np.random.default_rng(1).standard_normal((1, SIZE), np.float32)
    (found,) = artifact.run({"x0": x}).values()
    np.testing.assert_allclose(found, product(x, weights), atol=1e-5)


def test_a_table_that_no_pass_changes_is_copied(tmp_path: Path) -> None:
    table = np.random.default_rng(0).standard_normal((1024, 512), np.float32)
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "at"], ["y"])],
        "rows",
        [helper.make_tensor_value_info("at", TensorProto.INT64, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 512])],
        [numpy_helper.from_array(table, "table")],
    )
    model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save_model(model, tmp_path / "m.onnx", save_as_external_data=True, location="weights.data")
    artifact = nnefc.compile(tmp_path / "m.onnx")
    (tmp_path / "weights.data").write_bytes(bytes(table.nbytes))
    np.testing.assert_array_equal(artifact.run({"at": np.array([3, 100])})["y"], table[[3, 100]])


def test_messages_without_large_tensors_are_the_same_but_for_these(tmp_path: Path) -> None:
    chain(tmp_path / "m.onnx", 1024, 2, external=False)
    content = (tmp_path / "m.onnx").read_bytes()
    whole = onnx.load_from_string(content)
    apart = onnx.load_from_string(without_large_tensors(np.frombuffer(content, np.uint8)))
    for mine, theirs in zip(apart.graph.initializer, whole.graph.initializer, strict=True):
        keys = {entry.key: entry.value for entry in mine.external_data}
        assert keys.pop("location") == ITSELF
        start, length = int(keys["offset"]), int(keys["length"])
        assert content[start : start + length] == theirs.raw_data
        mine.ClearField("external_data")
        mine.ClearField("data_location")
        mine.raw_data = theirs.raw_data
    assert apart == whole


def test_what_is_no_message_is_left_to_the_parser() -> None:
    content = b"\x3a\xff\xff\xff\x7f" + bytes(2 << 20)
    assert without_large_tensors(np.frombuffer(content, np.uint8)) == content


def test_arrays_of_users_are_copied(tmp_path: Path) -> None:
    array = aligned_copy(np.ones(LARGE, np.uint8))
    shared, own = tensor_of(array), np.ones(LARGE, np.uint8)
    copied = tensor_of(own)
    own[:] = 2
    assert np.from_dlpack(shared).ctypes.data == array.ctypes.data
    assert int(np.from_dlpack(copied)[0]) == 1
    (tmp_path / "file").write_bytes(bytes(10))
    assert is_mapped(map_path(tmp_path / "file")[3:])
    assert not is_mapped(own)


def test_arrays_beyond_a_limit_are_in_files_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_files, "_arrays", mapped_files._Arrays())
    monkeypatch.setattr(mapped_files, "_MAX_IN_MEMORY", 4 * LARGE)
    made = [empty_array((LARGE // 4 + n,), np.float32) for n in range(9)]
    for n, array in enumerate(made):
        array[:] = n
    release_pages()
    assert all((array == n).all() for n, array in enumerate(made))
    assert all(array.ctypes.data % ALIGNMENT == 0 for array in made)
    assert len(mapped_files._arrays._files) == 1
    assert mapped_files._arrays._in_memory <= 4 * LARGE
    assert not any(map(is_mapped, made))  # as nothing changes them that is not this process
    del array, made
    assert mapped_files._arrays._in_memory == 0


def test_a_process_that_was_forked_has_files_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_files, "_arrays", mapped_files._Arrays())
    monkeypatch.setattr(mapped_files, "_MAX_IN_MEMORY", 0)
    arrays = [empty_array((LARGE,), np.uint8)]
    monkeypatch.setattr(os, "getpid", lambda: 0)
    arrays.append(empty_array((LARGE,), np.uint8))
    assert len(mapped_files._arrays._files) == 2


def test_without_room_for_a_file_arrays_are_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(size: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(mapped_files, "_arrays", mapped_files._Arrays())
    monkeypatch.setattr(mapped_files, "_MAX_IN_MEMORY", 0)
    monkeypatch.setattr(mapped_files, "_temporary_file", full)
    array = empty_array((LARGE,), np.uint8)
    array[:] = 7
    assert (array == 7).all()
    assert mapped_files._arrays._in_memory == LARGE


@pytest.mark.parametrize("dtype", [None, np.float64])
def test_a_copy_in_parts_is_that_of_the_whole(dtype: type | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_files, "_PART", 1 << 12)
    given = np.random.default_rng(0).standard_normal((300, 257), np.float32).T
    found = aligned_copy(given, dtype)
    assert found.dtype == (dtype or np.float32)
    assert found.flags.c_contiguous
    assert found.ctypes.data % ALIGNMENT == 0
    np.testing.assert_array_equal(found, given)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system does not say what is resident")
def test_floats_that_become_wider_are_not_resident(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped_files, "_MAX_IN_MEMORY", 0)
    given = np.random.default_rng(0).standard_normal((1 << 11, 1 << 11), np.float32).astype(np.float16)
    before = _resident_of_files()
    found = F16.tensor(given.view(np.uint8).reshape(-1), given.shape)
    assert isinstance(found, np.ndarray)
    assert _resident_of_files() - before < found.nbytes // 2
    np.testing.assert_array_equal(found, given.astype(np.float32))


def _resident_of_files() -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(("RssFile", "RssShmem")))
