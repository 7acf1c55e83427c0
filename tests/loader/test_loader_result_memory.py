"""Memory of large results that later runs use again."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import nnefc
from nnefc.loader import Model
from nnefc.loader.result_memory import ResultMemory

_MEGABYTE = 1 << 20
_FLOAT32 = np.dtype(np.float32)


@pytest.fixture(scope="module")
def negation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    node = helper.make_node("Neg", ["x"], ["y"])
    tensors = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 1000]) for name in "xy")
    graph = helper.make_graph([node], "negation", [next(tensors)], [next(tensors)])
    path = tmp_path_factory.mktemp("negation") / "negation.so"
    nnefc.compile(helper.make_model(graph, opset_imports=[onnx.OperatorSetIdProto(version=17)])).export(path)
    return path


def _address(array: np.ndarray) -> int:
    return array.ctypes.data


def test_results_that_are_gone_give_their_memory_to_the_next(negation: Path) -> None:
    with nnefc.load(negation) as model:
        given = np.ones((300, 1000), np.float32)
        addresses = {_address(model(given)) for _ in range(5)}
        assert len(addresses) == 1
        by_rows = {_address(model(given[:rows])) for rows in range(296, 301)}
        assert by_rows == addresses, "results that grow by a row fit into their block"


def _held(model: Model, given: np.ndarray, hold: str) -> object:
    result = model(given)
    return {"itself": lambda: result, "view": lambda: result[7:, ::2], "buffer": lambda: memoryview(result)}[hold]()


@pytest.mark.parametrize("hold", ["itself", "view", "buffer"])
def test_results_that_are_held_keep_their_elements(negation: Path, hold: str) -> None:
    with nnefc.load(negation) as model:
        held = [_held(model, np.full((300, 1000), number, np.float32), hold) for number in range(4)]
        for number, value in enumerate(held):
            assert (np.asarray(value) == -number).all()
    for number, value in enumerate(held):
        assert (np.asarray(value) == -number).all(), "also after the session is closed"


def test_what_is_kept_has_the_bytes_of_one_run() -> None:
    memory = ResultMemory()
    memory.limit(4 * _MEGABYTE)
    made = [memory.empty((_MEGABYTE // 4,), _FLOAT32) for _ in range(9)]
    del made
    assert memory.kept_bytes == 4 * _MEGABYTE
    one, other = memory.empty((3, 100, 1000), _FLOAT32), memory.empty((2, 100, 1000), _FLOAT32)
    sizes = one.nbytes, other.nbytes
    del one
    del other
    assert sum(sizes) <= memory.kept_bytes <= 4.5 * _MEGABYTE, (
        "sizes that are used are kept, those of earlier runs freed"
    )
    memory.limit(0)
    assert memory.kept_bytes == 0


def test_small_results_and_those_of_no_elements_have_no_block() -> None:
    memory = ResultMemory()
    memory.limit(_MEGABYTE)
    assert memory.empty((100, 100), _FLOAT32).base is None
    assert memory.empty((0, 1 << 40), _FLOAT32).size == 0


def test_blocks_have_few_sizes() -> None:
    memory = ResultMemory()
    sizes = range(_MEGABYTE, 4 * _MEGABYTE, 4096)
    blocks = [len(memory.empty((size,), np.dtype(np.uint8)).base) for size in sizes]
    assert all(size <= block <= 1.125 * size for size, block in zip(sizes, blocks, strict=True))
    assert sum(before != after for before, after in pairwise(blocks)) <= 16
