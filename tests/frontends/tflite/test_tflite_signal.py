"""Fourier transforms and movements of complex tensors give what LiteRT gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tflite_files import Graph, model_file, reference

import nnefc
from nnefc.support.diagnostics import CompileError

pytest.importorskip("ai_edge_litert")

RNG = np.random.default_rng(5)


def written(folder: Path, content: bytes) -> Path:
    path = folder / "model.tflite"
    path.write_bytes(content)
    return path


def transformed(graph: Graph, shape: tuple[int, ...], lengths: tuple[int, int]) -> tuple[int, list[int]]:
    """Adds a transform of a new input; returns the tensor, and its shape."""
    x = graph.input(shape)
    result = [*shape[:-2], lengths[0], lengths[1] // 2 + 1]
    made = graph.tensor(result, "complex64")
    graph.add("RFFT2D", [x, graph.tensor((2,), "int32", np.array(lengths, np.int32))], [made], "Rfft2dOptions")
    return made, result


def test_transforms_and_their_parts(tmp_path: Path) -> None:
    """Of rows, of images, of signals that are cut, and of such as zeros follow."""
    graph = Graph()
    for shape, lengths in (((3, 1, 16), (1, 16)), ((2, 4, 8), (4, 8)), ((2, 1, 20), (1, 16)), ((1, 12), (1, 32))):
        made, result = transformed(graph, shape, lengths)
        flat = graph.tensor([int(np.prod(result))], "complex64")
        graph.add("RESHAPE", [made, graph.tensor((1,), "int32", np.array([-1], np.int32))], [flat], "ReshapeOptions",
                  new_shape=[-1])  # fmt: skip
        for name in ("COMPLEX_ABS", "REAL", "IMAG"):
            graph.add(name, [flat], [graph.output([int(np.prod(result))])])
    content = model_file(graph)
    values = [RNG.standard_normal(graph.tensors[index]["shape"]).astype(np.float32) for index in graph.inputs]
    names = [graph.tensors[index]["name"] for index in graph.inputs]
    found = nnefc.compile(written(tmp_path, content)).run(dict(zip(names, values, strict=True)))
    (wanted,) = reference(content, values)
    for mine, other in zip(found.values(), wanted, strict=True):
        np.testing.assert_allclose(mine, other, rtol=0, atol=1e-5)


def test_a_complex_result_has_its_parts_last(tmp_path: Path) -> None:
    graph = Graph()
    made, _ = transformed(graph, (2, 4, 8), (4, 8))
    moved = graph.output((2, 5, 4), "complex64")
    graph.add("TRANSPOSE", [made, graph.tensor((3,), "int32", np.array([0, 2, 1], np.int32))], [moved])
    value = RNG.standard_normal((2, 4, 8)).astype(np.float32)
    (found,) = nnefc.compile(written(tmp_path, model_file(graph))).run({"t0": value}).values()
    wanted = np.fft.rfft2(value).transpose(0, 2, 1)
    np.testing.assert_allclose(found, np.stack([wanted.real, wanted.imag], -1), rtol=0, atol=1e-5)


def test_magnitudes_of_large_and_infinite_numbers(tmp_path: Path) -> None:
    graph = Graph()
    made, result = transformed(graph, (4, 1, 2), (1, 2))
    graph.add("COMPLEX_ABS", [made], [graph.output(result)])
    value = np.array([[3e38, 0], [1e-30, 0], [0, 0], [np.inf, 0]], np.float32).reshape(4, 1, 2)
    (found,) = nnefc.compile(written(tmp_path, model_file(graph))).run({"t0": value}).values()
    np.testing.assert_allclose(found[:3, 0, 0], [3e38, 1e-30, 0], rtol=1e-6)


def test_arithmetic_of_complex_numbers_is_refused(tmp_path: Path) -> None:
    graph = Graph()
    made, result = transformed(graph, (4, 8), (4, 8))
    graph.add("MUL", [made, made], [graph.output(result, "complex64")], "MulOptions")
    with pytest.raises(CompileError, match="MUL of complex64 is not supported"):
        nnefc.compile(written(tmp_path, model_file(graph)))
