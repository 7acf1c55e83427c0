"""Three models with operators of our own, one of each format, compiled and compared with NumPy.

    python examples/custom_operator/run.py

The operators are registered in operators.py; for `nnefc compile` it is named with --operators.
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

import nnefc

OPERATORS = Path(__file__).with_name("operators.py")

NNEF = """version 1.0;
extension KHR_enable_fragment_definitions;

fragment soft_threshold(x: tensor<scalar>, level: scalar = 0.5) -> (y: tensor<scalar>);
fragment pairwise_distance(a: tensor<scalar>, b: tensor<scalar>, p: scalar) -> (y: tensor<scalar>);

graph distances(x, w) -> (y)
{
    x = external<scalar>(shape = [0, 3]);
    w = external<scalar>(shape = [4, 3]);
    h = soft_threshold(x, level = 0.25);
    y = pairwise_distance(h, w, p = 2.0);
}
"""

PNNX = """7767517
6 5
pnnx.Input                 x         0 1 0 #0=(?,3)f32
pnnx.Input                 w         0 1 1 #1=(4,3)f32
example.SoftThreshold      soft      1 1 0 2 level=2.500000e-01 #2=(?,3)f32
prim::Constant             p         0 1 3 value=2.000000e+00
example::pairwise_distance distance  3 1 2 1 3 4 #4=(?,4)f32
pnnx.Output                y         1 0 4
"""


def write_onnx(path: Path) -> None:
    x, w, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", ["n", 3]), ("w", [4, 3]), ("y", ["n", 4]))
    )
    nodes = [
        helper.make_node("SoftThreshold", ["x"], ["h"], domain="com.example", level=0.25),
        helper.make_node("PairwiseDistance", ["h", "w"], ["y"], domain="com.example"),
    ]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.example", 1)]
    onnx.save(helper.make_model(helper.make_graph(nodes, "distances", [x, w], [y]), opset_imports=opsets), path)


def write_pnnx(path: Path) -> None:
    path.write_text(PNNX)
    zipfile.ZipFile(path.with_suffix(".bin"), "w").close()  # weights: none


MODELS: dict[str, Callable[[Path], object]] = {
    "model.onnx": write_onnx,
    "model.nnef": lambda path: path.write_text(NNEF),
    "model.pnnx.param": write_pnnx,
}


def expected(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    h = np.sign(x) * np.maximum(np.abs(x) - 0.25, 0)
    return np.sqrt(((h[:, None] - w) ** 2).sum(axis=-1))


def main() -> None:
    random = np.random.default_rng(0)
    w = random.standard_normal((4, 3)).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        for name, write in MODELS.items():
            write(Path(folder) / name)
            with nnefc.compile(Path(folder) / name, operators=[OPERATORS]).load() as model:
                for rows in (2, 7):
                    x = random.standard_normal((rows, 3)).astype(np.float32)
                    difference = np.abs(model(x, w) - expected(x, w)).max()
                    assert difference < 1e-5, f"{name}: {difference}"
                    print(f"{name:18}{rows} rows: within {difference:.1e} of NumPy")


if __name__ == "__main__":
    main()
