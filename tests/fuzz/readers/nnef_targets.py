"""What is done with inputs for the NNEF front end: each kind goes down to Relax where it is small enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from nnefc.driver.formats import load_network
from nnefc.driver.options import ReadOptions
from nnefc.frontends.nnef import document_of, print_flat
from nnefc.frontends.nnef.declarations import STANDARD
from nnefc.frontends.nnef.evaluation import evaluate
from nnefc.frontends.nnef.files.archive import open_model
from nnefc.frontends.nnef.files.quantization import dequantize, parse_algorithm, parse_quantization
from nnefc.frontends.nnef.files.tensor_file import ElementType, StoredTensor, parse_tensor
from nnefc.frontends.nnef.flat import FlatGraph
from nnefc.frontends.nnef.language.parser import parse
from nnefc.frontends.nnef.language.types import Dialect
from nnefc.support.diagnostics import CompileError

__all__ = ["TARGETS"]

LIMITS: dict[str, Any] = {"max_depth": 300, "max_operations": 2_000, "max_steps": 100_000}

MAX_ELEMENTS = 100_000
MAX_OPERATIONS = 60


def document(content: bytes, folder: Path) -> None:
    """A document alone: flattened, printed, read back; then the whole way to Relax with random weights."""
    flat = evaluate(parse(content, "fuzz.nnef"), registry=STANDARD, **LIMITS)
    printed = print_flat(flat)
    again = evaluate(parse(printed, "printed.nnef"), registry=STANDARD)
    assert again.dialect is flat.dialect, "the printed document is of the other dialect"
    assert print_flat(again) == printed, "the printed document reads back as another graph"
    if _small(flat):
        path = folder / "graph.nnef"
        path.write_bytes(content)
        load_network(path, ReadOptions(random_weights=0))


def quantization(content: bytes, folder: Path) -> None:
    """The text of `graph.quant`, and what its entries make of stored integers."""
    text = content.decode("latin1")
    for dialect in Dialect:
        try:
            entries = parse_quantization(text, "graph.quant", dialect)
        except CompileError:
            continue
        for entry in entries.values():
            for shape in ((2, 3), (1, 4, 1)):
                codes = np.arange(math.prod(shape), dtype=np.int8).reshape(shape)
                try:
                    dequantize(StoredTensor(codes, ElementType.QUANTIZED_SIGNED, 8), entry, "w.dat")
                except CompileError:
                    continue


def tensor(content: bytes, folder: Path) -> None:
    """A tensor file, with its algorithm if it has one."""
    stored = parse_tensor(np.frombuffer(content, np.uint8), "w.dat")
    assert stored.array.size * stored.bits <= 8 * len(content) + 8
    if stored.algorithm:
        dequantize(stored, parse_algorithm(stored.algorithm, "w.dat"), "w.dat")


def archive(content: bytes, folder: Path) -> None:
    """An archive with all its files."""
    path = folder / "model.tar"
    path.write_bytes(content)
    with open_model(path) as files:
        files.text()
        files.quantization()
        for name in ("a/w.dat", "w.dat", "a"):
            files.find(name)
    if _small(document_of(path)):
        load_network(path, ReadOptions(random_weights=0))


def dynamic(content: bytes, folder: Path) -> None:
    """A document of tract's dialect, whose operators build while they are evaluated."""
    path = folder / "dynamic.nnef"
    path.write_bytes(content)
    load_network(path, ReadOptions(random_weights=0))


def _small(flat: FlatGraph) -> bool:
    """A model may be as large as its user likes; the fuzzer leaves large ones alone."""
    elements = sum(math.prod(tensor.shape) for invocation in flat.invocations for tensor in invocation.tensors)
    return elements <= MAX_ELEMENTS and len(flat.invocations) <= MAX_OPERATIONS


TARGETS: dict[bytes, Callable[[bytes, Path], None]] = {
    b"D": document,
    b"Q": quantization,
    b"T": tensor,
    b"A": archive,
    b"Y": dynamic,
}
