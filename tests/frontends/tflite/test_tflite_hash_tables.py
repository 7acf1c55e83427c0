"""Hash tables, strings and random numbers give what LiteRT gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tflite_files import Graph, model_file, reference

import nnefc
from nnefc.frontends.tflite import load
from nnefc.support.diagnostics import CompileError

pytest.importorskip("ai_edge_litert")

WORDS = np.array(["cat", "dog", "", "cat", "a longer word"], object)
NUMBERS = np.array([7, -3, 1 << 40, 9, 0], np.int64)


def add_table(graph: Graph, handle: int, number: int) -> None:
    """Adds the operator that makes a handle: of words by numbers for the first table, else of numbers by words."""
    types = dict(zip(("key_dtype", "value_dtype"), (4, 5) if number == 1 else (5, 4), strict=True))
    graph.add("HASHTABLE", [], [handle], "HashtableOptions", table_id=number, **types)


def filled(constant: bool = True) -> Graph:
    """The subgraph that fills table 1 with words by numbers, and table 2 with numbers by words."""
    graph = Graph("fill")
    for number, dtypes in ((1, ("int64", "string")), (2, ("string", "int64"))):
        handle = graph.tensor((1,), "resource")
        values = [NUMBERS if dtype == "int64" else WORDS for dtype in dtypes]
        content = [graph.tensor((5,), dtype, value if constant else None)
                   for dtype, value in zip(dtypes, values, strict=True)]  # fmt: skip
        add_table(graph, handle, number)
        graph.add("HASHTABLE_IMPORT", [handle, *content], [])
    return graph


def looked_up() -> Graph:
    """Keys in both tables, the sizes of these, and words that are compared and moved."""
    graph = Graph()
    graph.add("CALL_ONCE", [], [], "CallOnceOptions", init_subgraph_index=1)
    number, word = graph.input((2, 2), "int64"), graph.input((3,), "string")
    for table, keys, dtype, default in (
        (1, number, "string", np.array(["none"], object)),
        (2, word, "int64", np.array([-1], np.int64)),
    ):
        handle = graph.tensor((1,), "resource")
        add_table(graph, handle, table)
        missing = graph.tensor((1,), dtype, default)
        graph.add("HASHTABLE_FIND", [handle, keys, missing], [graph.output((), dtype)])
        graph.add("HASHTABLE_SIZE", [handle], [graph.output((1,), "int64")])
    other = graph.tensor((), "string", np.array("mouse", object))
    graph.add("NOT_EQUAL", [word, other], [graph.output((3,), "bool")])
    axis = graph.tensor((), "int32", np.array(1, np.int32))
    graph.add("EXPAND_DIMS", [word, axis], [graph.output((3, 1), "string")])
    return graph


def written(folder: Path, *graphs: Graph) -> Path:
    path = folder / "model.tflite"
    path.write_bytes(model_file(*graphs))
    return path


def test_keys_are_found_in_constant_tables(tmp_path: Path) -> None:
    path = written(tmp_path, looked_up(), filled())
    numbers, words = np.array([[9, 7], [5, 1 << 40]]), np.array(["cat", "mouse", ""], object)
    found = list(nnefc.compile(path).run({"t0": numbers, "t1": words}).values())
    (wanted,) = reference(path.read_bytes(), [numbers, words], optimized=True)
    for mine, other in zip(found, wanted, strict=True):
        assert mine.shape == other.shape
        expected = [x.decode() if isinstance(x, bytes) else x for x in other.reshape(-1).tolist()]
        assert mine.reshape(-1).tolist() == expected


def test_contents_that_are_computed_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"\(HASHTABLE_FIND\): the contents of the hash table are no constants"):
        load(written(tmp_path, looked_up(), filled(constant=False)))


def test_strings_are_no_numbers(tmp_path: Path) -> None:
    graph = Graph()
    graph.add("CAST", [graph.input((3,), "string")], [graph.output((3,), "int32")], "CastOptions")
    with pytest.raises(CompileError, match="CAST of strings is not supported"):
        load(written(tmp_path, graph))


def test_random_numbers_are_those_of_litert_for_its_seeds(tmp_path: Path) -> None:
    """Run after run; and without seeds others for each run, which begin again after a reset."""
    graph = Graph()
    seeds = {"seed": 0x123456789ABCDEF, "seed2": -7}
    shape = graph.tensor((2,), "int32", np.array([3, 6], np.int32))
    for name in ("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL"):
        graph.add(name, [shape], [graph.output((3, 6))], "RandomOptions", **seeds)
    logits, samples = graph.input((2, 4)), graph.tensor((), "int32", np.array(9, np.int32))
    graph.add("MULTINOMIAL", [logits, samples], [graph.output((2, 9), "int64")], "RandomOptions", **seeds)
    graph.add("RANDOM_UNIFORM", [shape], [graph.output((3, 6))], "RandomOptions")
    path = written(tmp_path, graph)
    given = np.array([[0.1, -1, 2, 0.5], [-np.inf, 3, 3, 0]], np.float32)
    session, unseeded = nnefc.compile(path).load(), []
    for wanted in reference(path.read_bytes(), [given], [given], [given]):
        uniform, normal, chosen, *others = session.run({"t3": given}).values()
        np.testing.assert_array_equal(uniform, wanted[0])
        np.testing.assert_allclose(normal, wanted[1], rtol=2e-5, atol=2e-6)
        np.testing.assert_array_equal(chosen, wanted[2])
        unseeded += others
    assert len({value.tobytes() for value in unseeded}) == 3
    assert all(value.min() >= 0 and value.max() < 1 for value in unseeded)
    session.reset()
    np.testing.assert_array_equal(list(session.run({"t3": given}).values())[3], unseeded[0])
