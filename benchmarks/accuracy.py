"""How exact single operations are: nnefc, with and without --strict, compared with its peers, against float64.

    python benchmarks/accuracy.py [TEXT]

computes each operation below on normally distributed values, compiled as a network of its own, and prints a table; only
those whose title has TEXT, if one is given. Without, it writes benchmarks/results/accuracy.md.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
from conditions import Conditions, page, write_page
from exact import errors, exact_outputs
from onnx import ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper
from peers import STRICT, make_peer

import nnefc

TITLE = "How exact the results are"
ENGINES = [name for name in ("nnefc", STRICT, "onnxruntime", "openvino") if find_spec(name.partition(" ")[0])]
OPSET = 20

# Numbers of channels, size, filters, side of a filter, groups
CONVOLUTIONS = (
    (512, 14, 512, 3, 1), (256, 14, 256, 3, 1), (64, 56, 64, 3, 1), (512, 7, 512, 3, 1), (128, 28, 128, 5, 1),
    (256, 56, 64, 1, 1), (1024, 14, 256, 1, 1), (2048, 7, 512, 1, 1), (128, 56, 128, 3, 128), (480, 14, 480, 5, 480),
)  # fmt: skip
PRODUCTS = ((128, 64, 768), (128, 256, 768), (128, 768, 768), (128, 1024, 512), (128, 3072, 768), (384, 4096, 512),
            (1, 4096, 1000), (64, 1009, 256))  # fmt: skip


@dataclass(frozen=True)
class Operation:
    """A node of an input `x` and trained values; `attributes` are ONNX's."""

    title: str
    op_type: str
    shape: tuple[int, ...]
    trained: Sequence[tuple[str, np.ndarray]] = ()
    attributes: Mapping[str, Any] | None = None

    def model(self) -> ModelProto:
        names = [name for name, _ in self.trained]
        node = helper.make_node(self.op_type, ["x", *names], ["y"], **(self.attributes or {}))
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)
        trained = [numpy_helper.from_array(value, name) for name, value in self.trained]
        graph = helper.make_graph([node], "operation", [x], [ValueInfoProto(name="y")], trained)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
        return onnx.shape_inference.infer_shapes(model)


def operations() -> Iterator[Operation]:
    """Sums of products, other sums, and normalizations; lazily, for they take memory."""
    for channels, size, filters, side, groups in CONVOLUTIONS:
        kind = "depthwise" if groups > 1 else f"→ {filters}"
        weights = values(filters, channels // groups, side, side)
        attributes = {"pads": [side // 2] * 4, "group": groups}
        title = f"convolution {side} × {side}, {channels} {kind}, {size}²"
        yield Operation(title, "Conv", (1, channels, size, size), [("w", weights)], attributes)
    for rows, depth, columns in PRODUCTS:
        yield Operation(
            f"product {rows} × {depth} × {columns}", "MatMul", (rows, depth), [("w", values(depth, columns))]
        )
    last, all_rows = np.array([-1]), np.array([0])
    yield Operation("sum of 10⁶ in a row", "ReduceSum", (4, 1_000_000), [("axes", last)])
    yield Operation("sum of 10⁶ in a column", "ReduceSum", (1_000_000, 16), [("axes", all_rows)])
    yield Operation("mean of 10⁶ in a row", "ReduceMean", (4, 1_000_000), [("axes", last)])
    yield Operation("mean of 7² pixels", "GlobalAveragePool", (1, 2048, 7, 7))
    yield Operation("softmax of 1,000", "Softmax", (64, 1000), (), {"axis": -1})
    yield Operation("softmax of 50,257", "Softmax", (4, 50257), (), {"axis": -1})
    scale, bias = values(768), values(768)
    yield Operation("layer normalization of 768", "LayerNormalization", (128, 768), [("scale", scale), ("bias", bias)])


# Operator, from, to, and the function in float64
FUNCTIONS: dict[str, tuple[str, float, float, Callable[[np.ndarray], np.ndarray]]] = {
    "exp": ("Exp", -80, 80, np.exp),
    "log": ("Log", 1e-6, 1e6, np.log),
    "sqrt": ("Sqrt", 0, 1e6, np.sqrt),
    "tanh": ("Tanh", -10, 10, np.tanh),
    "sigmoid": ("Sigmoid", -20, 20, lambda x: 1 / (1 + np.exp(-x))),
    "erf": ("Erf", -4, 4, np.vectorize(math.erf)),
    "sin": ("Sin", -100, 100, np.sin),
    "cos": ("Cos", -100, 100, np.cos),
    "softplus": ("Softplus", -20, 20, lambda x: np.logaddexp(x, 0)),
}
VALUES = 200_000


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def answers(model: ModelProto, x: np.ndarray) -> dict[str, np.ndarray]:
    """Each engine's output; engines that refuse the model are left out."""
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "operation.onnx"
        onnx.save(model, path)
        for engine in ENGINES:
            file = path
            if engine.startswith("nnefc"):
                file = path.with_suffix(".so")
                nnefc.compile(path, strict=engine == STRICT, memory_budget=math.inf).export(file)  # all algorithms
            try:
                (found[engine],) = make_peer(engine, file, 1).run({"x": x})
            except RuntimeError as error:
                click.echo(f"{engine} refuses {model.graph.node[0].op_type}: {error}", err=True)
    return found


def units(found: np.ndarray, exact: np.ndarray) -> float:
    """The largest error in units of the last place of what float32 can say at best."""
    nearest = exact.astype(np.float32)
    return float((np.abs(found.astype(np.float64) - exact) / np.spacing(np.abs(nearest)).astype(np.float64)).max())


def sums(text: str) -> Iterator[list[str]]:
    """Rows of errors, largest and of the mean square."""
    for operation in operations():
        if text not in operation.title:
            continue
        model, x = operation.model(), values(*operation.shape)
        (exact,) = exact_outputs(model, {"x": x})
        found = answers(model, x)
        yield [operation.title, *(_cell(errors(found[e], exact)) if e in found else "-" for e in ENGINES)]


def functions(text: str) -> Iterator[list[str]]:
    """Rows of errors in units of the last place."""
    for title, (op_type, low, high, function) in FUNCTIONS.items():
        if text not in title:
            continue
        x = np.random.default_rng(0).uniform(low, high, VALUES).astype(np.float32)
        found = answers(Operation(title, op_type, x.shape).model(), x)
        exact = function(x.astype(np.float64))
        cells = [f"{units(found[e], exact):.1f}" if e in found else "-" for e in ENGINES]
        yield [f"{title}, {low:g} … {high:g}", *cells]


def _cell(both: tuple[float, float]) -> str:
    return "{:.1e} ({:.1e})".format(*both)


def body(text: str) -> list[str]:
    """The page: how it was measured, and two tables."""
    head = f" | {' | '.join(ENGINES)} |"
    rule = f"|---|{'---:|' * len(ENGINES)}"
    return [
        "Against float64, of normally distributed values: the largest error over the largest value, and the root of the"
        " mean square error over that of the values.",
        "",
        f"| operation{head}",
        rule,
        *(f"| {' | '.join(row)} |" for row in sums(text)),
        "",
        f"The largest error of {VALUES:,} values in units of the last place.",
        "",
        f"| function{head}",
        rule,
        *(f"| {' | '.join(row)} |" for row in functions(text)),
    ]


@click.command()
@click.argument("text", default="")
def main(text: str) -> None:
    """Measure the operations whose title has TEXT, or all of them."""
    lines, conditions = body(text), Conditions.now()
    click.echo(page(TITLE, conditions, lines))
    if not text:
        write_page("accuracy", TITLE, conditions, lines)


if __name__ == "__main__":
    main()
