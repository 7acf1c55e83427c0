"""Small models of the same kinds as the cases of NNEF that tract's own harness has, with contents of our own.

The harness (`harness/nnef-test-cases` in tract's repository, 0.23) holds documents that once were read wrongly. Each
kind is here by the name that it has there: which operations, which features of the dialect, static or with symbols.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nnefc.frontends.nnef.files.tensor_file import write_tensor

__all__ = ["CASES", "Case"]

Array = npt.NDArray[Any]
Shape = tuple[int | str, ...]

_CORE = "extension tract_registry tract_core;\n"
_TRANSFORMERS = _CORE + "extension tract_registry tract_transformers;\n"


@dataclass(frozen=True)
class Case:
    """A model, and what it is run with.

    Attributes:
        text: the document without its version.
        inputs: the type and the shape of each; names in shapes are symbols.
        files: values by labels of variables.
        quantization: the text of `graph.quant`.
        sizes: of the symbols, in each run.
        packed: other models in it, as archives; by their labels.
        blocks: labels whose values are stored as Q4_0.
        other_text: another text of the same values, where tract's wheel has not what its sources have.
        tolerance: over the largest value.
    """

    text: str
    inputs: Mapping[str, tuple[str, Shape]]
    files: Mapping[str, Array] = field(default_factory=dict)
    quantization: str = ""
    sizes: Sequence[Mapping[str, int]] = ({},)
    packed: Mapping[str, Case] = field(default_factory=dict)
    blocks: frozenset[str] = frozenset()
    other_text: str = ""
    tolerance: float = 1e-5

    def write(self, folder: Path) -> None:
        """Write the model's files."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "graph.nnef").write_text(f"version 1.0;\n{self.text}")
        if self.quantization:
            (folder / "graph.quant").write_text(self.quantization)
        for label, value in self.files.items():
            if label in self.blocks:
                (folder / f"{label}.dat").write_bytes(_in_blocks(value))
            else:
                write_tensor(folder / f"{label}.dat", value)
        for label, inner in self.packed.items():
            inner.write(folder / f".{label}")
            with tarfile.open(folder / f"{label}.nnef.tgz", "w:gz") as archive:
                for file in sorted((folder / f".{label}").iterdir()):
                    entry = tarfile.TarInfo(file.name)
                    entry.size = file.stat().st_size
                    archive.addfile(entry, io.BytesIO(file.read_bytes()))
                    file.unlink()
            (folder / f".{label}").rmdir()

    def values(self, sizes: Mapping[str, int]) -> dict[str, Array]:
        """Inputs of a run."""
        rng = np.random.default_rng(5)
        made: dict[str, Array] = {}
        for name, (dtype, shape) in self.inputs.items():
            known = tuple(sizes[size] if isinstance(size, str) else size for size in shape)
            if np.dtype(dtype).kind == "f":
                made[name] = rng.standard_normal(known).astype(dtype)
            else:
                lowest = 0 if np.dtype(dtype).kind == "u" else -3
                made[name] = rng.integers(lowest, 100 if dtype in ("int8", "uint8") else 4, known).astype(dtype)
        return made


_RNG = np.random.default_rng(23)


def _real(*shape: int, scale: float = 1.0) -> Array:
    return (_RNG.standard_normal(shape) * scale).astype(np.float32)


def _in_blocks(value: Array) -> bytes:
    """A tensor file of Q4_0: blocks of 32 elements with a scale, the first half in the low bits of bytes."""
    rows = value.reshape(-1, 32)
    peaks = np.take_along_axis(rows, abs(rows).argmax(1)[:, None], 1)
    scales = (peaks / -8).astype(np.float16)
    codes = np.clip(np.round(rows / np.where(scales == 0, 1, scales.astype(np.float32))) + 8, 0, 15).astype(np.uint8)
    packed = codes[:, :16] | codes[:, 16:] << 4
    data = b"".join(scale.tobytes() + row.tobytes() for scale, row in zip(scales, packed, strict=True))
    head = bytearray(128)
    head[:4] = b"\x4e\xef\x01\x00"
    words = np.zeros(31, "<u4")
    words[:2] = len(data), value.ndim
    words[2 : 2 + value.ndim] = value.shape
    words[10], words[11] = 0xFFFFFFFF, 0x54523040
    head[4:] = words.tobytes()
    return bytes(head) + data


def _floats(**shapes: Shape) -> dict[str, tuple[str, Shape]]:
    return {name: ("float32", shape) for name, shape in shapes.items()}


def _gru(step: str) -> str:
    """A recurrent network as tract writes it: one product for all steps, and a scan over them."""
    return f"""{_CORE}
fragment step(past: tensor<scalar>, part: tensor<scalar>, weight: tensor<scalar>, first: tensor<scalar>,
              second: tensor<scalar>) -> (next: tensor<scalar>)
{{
    a = add(squeeze(part, axes = [0]), first);
    h = squeeze(past, axes = [0]);
    {step}
    next = unsqueeze(c, axes = [0]);
}}
graph network(x) -> (y, last)
{{
    x = external(shape = [5, 2, 3]);
    rows = reshape(x, shape = [10], axis_start = 0, axis_count = 2);
    product = matmul(rows, variable<scalar>(label = 'w', shape = [9, 3]), transposeA = false, transposeB = true);
    steps = reshape(product, shape = [5, 2], axis_start = 0, axis_count = 1);
    zero = [[[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]];
    r = variable<scalar>(label = 'r', shape = [9, 3]);
    wb = variable<scalar>(label = 'wb', shape = [1, 9]);
    rb = variable<scalar>(label = 'rb', shape = [1, 9]);
    (all, final) = tract_core_scan(body = 'step', scan = [('part', steps, 0, 1)],
        full = [('weight', r), ('first', wb), ('second', rb)], state = [('past', zero, 'next')],
        output = [('next', 'full', 0, 1), ('next', 'last', 0, 1)], skip = 0, reset_every_turn = false,
        external_state = false);
    y = unsqueeze(all, axes = [1]);
    last = final;
}}
"""


def _entries(**tensors: tuple[int, float, bool]) -> str:
    """A `graph.quant`: zero point, scale and sign of codes of 8 bits, by the names of tensors."""
    return "".join(
        f'"{name}": zero_point_linear_quantize(zero_point = {zero}, scale = {scale}, bits = 8, '
        f"signed = {str(signed).lower()}, symmetric = false);\n"
        for name, (zero, scale, signed) in tensors.items()
    )


def _quantized(step: str, shape: Shape) -> str:
    """A document that computes `b` of `a`, both integers, between floats."""
    return (
        f"{_CORE}graph network(x) -> (y)\n{{\n    x = external<scalar>(shape = {list(shape)});\n"
        f"    a = tract_core_cast(x);\n    {step}\n    y = tract_core_cast(b, to = 'f32');\n}}\n"
    )


_GRU_VALUES = {"w": _real(9, 3), "r": _real(9, 3), "wb": _real(1, 9), "rb": _real(1, 9)}
_EPILOGUE = _gru(
    "b = add(tract_core_einsum([h, weight], expr = 'mk,nk->mn', acc = 'f32', output = ''), second);\n"
    "    c = tract_core_gru_epilogue(a, b, h, hidden = 3);"
)
_SYMBOLS = _CORE + "extension tract_symbol S;\n"
_STREAM = (
    _CORE
    + "extension tract_symbol B;\nextension tract_symbol T;\n"
    + "extension tract_assert B>=1;\nextension tract_assert T>=0;\n"
)

CASES: dict[str, Case] = {
    "autobatch-pulse-concat": Case(
        _STREAM
        + """graph network(a, b) -> (y)
{
    a = tract_core_external(shape = [B, 2, T], datum_type = 'f32');
    b = tract_core_external(shape = [B, 2, 5], datum_type = 'f32');
    y = concat([b, a], axis = 2);
}
""",
        _floats(a=("B", 2, "T"), b=("B", 2, 5)),
        sizes=({"B": 1, "T": 4}, {"B": 3, "T": 7}),
    ),
    "autobatch-pulse-conv": Case(
        _STREAM
        + """graph network(x) -> (y)
{
    x = tract_core_external(shape = [B, 1, T], datum_type = 'f32');
    p = pad(x, padding = [(0, 0), (0, 0), (3, 0)], border = 'constant', value = 0.0);
    k = [[[0.5, -1.0, 2.0, 0.25]]];
    y = conv(p, k, border = 'constant', padding = [(0, 0)]);
}
""",
        _floats(x=("B", 1, "T")),
        sizes=({"B": 1, "T": 4}, {"B": 2, "T": 9}),
    ),
    "batchify-dataflow": Case(
        _SYMBOLS
        + """graph network(x, s) -> (y)
{
    x = tract_core_external(shape = [S, 3], datum_type = 'f32');
    s = tract_core_external(shape = [1, 2], datum_type = 'f32');
    m = matmul(x, [[1.0, -0.5], [0.25, 2.0], [-1.0, 0.75]]);
    y = sum_reduce(tanh(mul(add(m, [[0.5, -0.25]]), s)), axes = [1]);
}
""",
        _floats(x=("S", 3), s=(1, 2)),
        sizes=({"S": 6}, {"S": 1}),
    ),
    "batchify-move-axis": Case(
        _STREAM
        + """graph network(x) -> (y)
{
    x = tract_core_external(shape = [T, B, 3], datum_type = 'f32');
    y = sum_reduce(matmul(x, [[[1.0, -0.5], [0.25, 2.0], [-1.0, 0.75]]]), axes = [2]);
}
""",
        _floats(x=("T", "B", 3)),
        sizes=({"B": 2, "T": 3}, {"B": 1, "T": 5}),
    ),
    "bin-chain-const-acc": Case(
        _CORE
        + """graph network(x) -> (y)
{
    x = external<scalar>(shape = [1, 100]);
    w = reshape(tract_core_cast(tract_core_range(0, 100, 1), to = 'f32'), shape = [1, 100]);
    y = sigmoid(add(mul(w, x), x));
}
""",
        _floats(x=(1, 100)),
    ),
    "binary-cross-broadcast-rank5": Case(
        _CORE
        + """graph network(a, b) -> (y)
{
    a = tract_core_external(shape = [1, 1, 1, 3, 1], datum_type = 'f32');
    b = tract_core_external(shape = [1, 1, 1, 1, 17], datum_type = 'f32');
    y = sub(a, b);
}
""",
        _floats(a=(1, 1, 1, 3, 1), b=(1, 1, 1, 1, 17)),
    ),
    "cmp-operators": Case(
        """graph network(x) -> (a, b, c, d, e, f)
{
    x = external<scalar>(shape = [5]);
    a = x < 0.25;
    b = x <= 0.25;
    c = x > 0.25;
    d = x >= 0.25;
    e = x == 0.25;
    f = x != 0.25;
}
""",
        _floats(x=(5,)),
    ),
    "conv-bias": Case(
        """graph network(x) -> (y)
{
    x = external<scalar>(shape = [1, 1, 4]);
    k = [[[0.5, 0.0, -1.0]], [[1.0, 2.0, 0.0]]];
    b = [[[1.0, -1.0]]];
    y = conv(x, k, b, padding = [(0, 0)], border = 'constant', stride = [1], dilation = [1]);
}
""",
        _floats(x=(1, 1, 4)),
    ),
    "conv-q40": Case(
        _CORE
        + """graph network(x) -> (y)
{
    x = tract_core_external(shape = [1, 32, 9], datum_type = 'f32');
    k = variable<scalar>(label = 'k', shape = [8, 32, 3]);
    y = conv(x, k, 0.0, dilation = [2], stride = [1], padding = [(0, 0)], border = 'constant', groups = 1);
}
""",
        _floats(x=(1, 32, 9)),
        {"k": _real(8, 32, 3)},
        blocks=frozenset({"k"}),
        tolerance=1e-3,
    ),
    "conv-then-shape-of-mask": Case(
        _SYMBOLS
        + """graph network(x) -> (y)
{
    x = external<scalar>(shape = [1, 1, S]);
    k = [[[0.25, 0.5, 0.25]]];
    p = pad(x, padding = [[0, 0], [0, 0], [2, 1]], value = 0.0);
    c = conv(p, k, dilation = [1], padding = [(0, 0)], stride = [2], groups = 1, border = 'constant');
    y = add(c, tract_core_broadcast(0.5, shape = [1, 1, S/2 + 1]));
}
""",
        _floats(x=(1, 1, "S")),
        sizes=({"S": 8}, {"S": 3}),
    ),
    "conv-with-batch": Case(
        """graph network(x) -> (y)
{
    x = external<scalar>(shape = [2, 1, 3]);
    w = [[[0.5, 0.0, 1.0], [0.0, -1.0, 0.0], [2.0, 0.0, 0.25]]];
    y = add(linear(x, w), x);
}
""",
        _floats(x=(2, 1, 3)),
    ),
    "copy-identity": Case(
        "graph network(x) -> (y)\n{\n    x = external<scalar>(shape = [2, 3]);\n    y = copy(x);\n}\n",
        _floats(x=(2, 3)),
    ),
    "copy-requant": Case(
        _quantized("b = copy(a);", (2, 3)),
        _floats(x=(2, 3)),
        quantization=_entries(a=(0, 0.25, False), b=(-128, 0.25, True)),
    ),
    "debox/debox_base": Case(
        _CORE
        + """graph network(x) -> (y)
{
    x = tract_core_external(shape = [1, 1, 3, 2], datum_type = 'f32');
    y = debox(x, size = [1, 1, 2, 2], stride = [1, 1, 2, 2], padding = [(0, 0), (0, 0), (0, 0), (0, 0)]);
}
""",
        _floats(x=(1, 1, 3, 2)),
    ),
    "debox/debox_high_dim": Case(
        _CORE
        + """graph network(x) -> (y)
{
    x = tract_core_external(shape = [2, 4, 3, 5], datum_type = 'f32');
    y = debox(x, size = [1, 1, 3, 3], stride = [1, 1, 2, 2], padding = [(0, 0), (0, 0), (0, 0), (0, 0)]);
}
""",
        _floats(x=(2, 4, 3, 5)),
    ),
    "dyn_slice": Case(
        "extension tract_pulse_streaming_symbol;\n"
        + _CORE
        + """extension KHR_enable_fragment_definitions;
extension KHR_enable_operator_expressions;
fragment cut(x: tensor<scalar>) -> (y: tensor<scalar>) { y = select(x < 0, ceil(x), floor(x)); }
graph network(x) -> (y)
{
    x = external<scalar>(shape = [2, 1, S]);
    size = squeeze(slice(tract_core_shape_of(x), axes = [0], begin = [2], end = [3], stride = [1]), axes = [0]);
    half = cut(div(size, 2));
    y = slice(x, axes = [2], begin = [0], end = [half], stride = [1]);
}
""",
        _floats(x=(2, 1, "S")),
        sizes=({"S": 7}, {"S": 10}),
    ),
    "export-scan-state": Case(
        _SYMBOLS
        + """fragment sums(element: tensor<scalar>, past: tensor<scalar>) -> (next: tensor<scalar>)
{
    next = add(element, past);
}
graph network(x) -> (y)
{
    x = external<scalar>(shape = [S, 3]);
    h = variable<scalar>(label = 'h', shape = [1, 3]);
    y = tract_core_scan(body = 'sums', scan = [('element', x, 0, 1)], full = [], state = [('past', h, 'next')],
        output = [('next', 'full', 0, 1)], skip = 0, reset_every_turn = false, external_state = false);
}
""",
        _floats(x=("S", 3)),
        {"h": _real(1, 3)},
        sizes=({"S": 4}, {"S": 1}),
    ),
    "fixed_roll": Case(
        _CORE
        + """graph network(x) -> (y)
{
    x = tract_core_external(shape = [1, 3, 4], datum_type = 'f32');
    a = slice(x, axes = [1], begin = [2], end = [3], stride = [1]);
    b = slice(x, axes = [1], begin = [0], end = [2], stride = [1]);
    c = concat([a, b], axis = 1);
    y = concat([slice(c, axes = [2], begin = [1], end = [4]), slice(c, axes = [2], begin = [0], end = [1])], axis = 2);
}
""",
        _floats(x=(1, 3, 4)),
    ),
    "gather-elements-last-axis": Case(
        _CORE
        + """graph network(x) -> (y, z)
{
    x = external<scalar>(shape = [2, 2, 6]);
    i = [[[0.0, 5.0, -1.0], [2.0, 2.0, -6.0]], [[1.0, -3.0, 4.0], [5.0, 0.0, -2.0]]];
    y = tract_core_gather_elements(x, i, axis = 2);
    t = tract_core_gather_elements(transpose(x, axes = [2, 1, 0]), transpose(i, axes = [2, 1, 0]), axis = 0);
    z = sum_reduce(abs(sub(y, transpose(t, axes = [2, 1, 0]))), axes = [0, 1, 2]);
}
""",
        _floats(x=(2, 2, 6)),
    ),
    "graph-name-escaped": Case(
        'graph i"the model"(x) -> (y)\n{\n    x = external<scalar>(shape = [1, 5]);\n    y = mul(x, 3.0);\n}\n',
        _floats(x=(1, 5)),
    ),
    "graph-name": Case(
        """fragment tract_core_properties() -> (properties: (string, tensor<scalar>)[])
{
    properties = [("tract.name", "front")];
}
graph encoder(x) -> (y) { x = external<scalar>(shape = [1, 5]); y = mul(x, 3.0); }
""",
        _floats(x=(1, 5)),
    ),
    "grid_sample/grid_sample_identity": Case(
        _CORE
        + """graph network(x) -> (y)
{
    x = tract_core_external(shape = [1, 2, 2, 2], datum_type = 'f32');
    grid = [[[[-1.0, -1.0], [0.5, -1.0]], [[-1.0, 1.0], [1.0, 0.25]]]];
    y = tract_core_grid_sample(x, grid, mode = 'bilinear', padding_mode = 'zeros', align_corners = true);
}
""",
        _floats(x=(1, 2, 2, 2)),
    ),
    "gru-cell": Case(
        _gru("c = tract_core_gru_cell(a, weight, squeeze(second, axes = [0]), h, hidden = 3);"),
        _floats(x=(5, 2, 3)),
        _GRU_VALUES,
        other_text=_EPILOGUE,
    ),
    "gru-epilogue": Case(_EPILOGUE, _floats(x=(5, 2, 3)), _GRU_VALUES),
    "gru-seq-projected": Case(
        _CORE
        + """graph network(x) -> (y, last)
{
    x = external(shape = [2, 5, 9]);
    r = variable<scalar>(label = 'r', shape = [9, 3]);
    b = variable<scalar>(label = 'b', shape = [1, 18]);
    h = [[[0.0, 0.0, 0.0]], [[0.0, 0.0, 0.0]]];
    (y, last) = tract_core_gru_seq(x = x, r = r, b = b, initial_h = h, hidden = 3, chunk = 1, has_bias = 1,
        reset_every_turn = 0, emit_y = 1, projected = 1);
}
""",
        _floats(x=(2, 5, 9)),
        {"r": _real(9, 3), "b": _real(1, 18)},
    ),
    "gru-seq": Case(
        _CORE
        + """graph network(x) -> (y, last)
{
    x = external(shape = [5, 2, 4]);
    w = variable<scalar>(label = 'w', shape = [9, 4]);
    r = variable<scalar>(label = 'r', shape = [9, 3]);
    b = variable<scalar>(label = 'b', shape = [1, 18]);
    h = [[[0.0, 0.0, 0.0]], [[0.0, 0.0, 0.0]]];
    (s, t) = tract_core_gru_seq(x = transpose(x, axes = [1, 0, 2]), w = w, r = r, b = b, initial_h = h, hidden = 3,
        chunk = 1, has_bias = 1, reset_every_turn = 0, emit_y = 1);
    y = unsqueeze(transpose(s, axes = [1, 0, 2]), axes = [1]);
    last = transpose(t, axes = [1, 0, 2]);
}
""",
        _floats(x=(5, 2, 4)),
        {"w": _real(9, 4), "r": _real(9, 3), "b": _real(1, 18)},
    ),
    "moe-ffn/qwen3-tiny": Case(
        _TRANSFORMERS
        + """graph network(x) -> (y)
{
    x = tract_core_external(shape = [1, 3, 8], datum_type = 'f32');
    g = variable<scalar>(label = 'g', shape = [4, 8]);
    a = variable<scalar>(label = 'a', shape = [4, 8, 16]);
    b = variable<scalar>(label = 'b', shape = [4, 16, 8]);
    c = variable<scalar>(label = 'c', shape = [4, 8, 16]);
    y = tract_moe_ffn(x, g, a, b, c, k = 2, activation = 'swiglu', gate = 'softmax_topk');
}
""",
        _floats(x=(1, 3, 8)),
        {
            "g": _real(4, 8),
            "a": _real(4, 8, 16, scale=0.3),
            "b": _real(4, 16, 8, scale=0.3),
            "c": _real(4, 8, 16, scale=0.3),
        },
    ),
    "mul_with_4dim_with_a_dim_upper_than_16": Case(
        _CORE
        + """graph network(x) -> (y)
{
    x = tract_core_external(shape = [2, 3, 19, 2], datum_type = 'f32');
    p = variable<scalar>(label = 'p', shape = [3, 1, 1]);
    y = mul(x, unsqueeze(p, axes = [0]));
}
""",
        _floats(x=(2, 3, 19, 2)),
        {"p": _real(3, 1, 1)},
    ),
    "nearest-upsample": Case(
        _CORE
        + "graph network(x) -> (y)\n{\n    x = external<scalar>(shape = [1, 2, 4, 3]);\n"
        + "    y = nearest_upsample(x, factor = [3, 2]);\n}\n",
        _floats(x=(1, 2, 4, 3)),
    ),
    "non_zero_two_nodes": Case(
        _CORE
        + """extension tract_registry tract_onnx;
extension tract_symbol a;
extension tract_symbol b;
graph network(x) -> (y, z)
{
    x = tract_core_external(shape = [3, 4], datum_type = 'i64');
    m = x > 1;
    y = tract_core_cast(tract_onnx_non_zero(x, count_symbol = 'a'), to = 'i32');
    z = tract_core_cast(tract_onnx_non_zero(m, count_symbol = 'b'), to = 'i32');
}
""",
        {"x": ("int64", (3, 4))},
    ),
    "override-source-fact": Case(
        "graph network(x) -> (y)\n{\n    x = external<scalar>(shape = [1, 1]);\n    y = mul(x, 4.0);\n}\n",
        _floats(x=(1, 1)),
    ),
    "parallel-bin": Case(
        """graph network(x) -> (y)
{
    x = external<scalar>(shape = [1, 24, 32]);
    row = sum_reduce(x, axes = [2]);
    column = sum_reduce(x, axes = [1]);
    a = mul(mul(add(x, row), column), tanh(x));
    b = reshape(a, shape = [1, 8, 96]);
    c = mul(add(b, sum_reduce(b, axes = [2])), sum_reduce(b, axes = [1]));
    y = reshape(c, shape = [1, 24, 32]);
}
""",
        _floats(x=(1, 24, 32)),
        tolerance=1e-4,
    ),
    "parallel-matmul": Case(
        """graph network(a, b, c, d) -> (y, z)
{
    a = external<scalar>(shape = [40, 96]);
    b = external<scalar>(shape = [96, 112]);
    c = external<scalar>(shape = [4, 48, 64]);
    d = external<scalar>(shape = [4, 64, 80]);
    y = matmul(a, b);
    z = matmul(c, d);
}
""",
        _floats(a=(40, 96), b=(96, 112), c=(4, 48, 64), d=(4, 64, 80)),
    ),
    "parallel-ops": Case(
        """graph network(x) -> (y)
{
    x = external<scalar>(shape = [1, 40, 64]);
    s = softmax(x, axes = [2]);
    p = mul(tanh(x), s);
    y = mul(add(p, sum_reduce(p, axes = [2])), s);
}
""",
        _floats(x=(1, 40, 64)),
    ),
    "pool-padding": Case(
        """graph network(x) -> (y)
{
    x = external<scalar>(shape = [1, 1, 3, 3]);
    m = max_pool(x, size = [1, 1, 3, 3], padding = [(0, 0), (0, 0), (1, 1), (1, 1)], border = 'ignore',
                 stride = [1, 1, 1, 1], dilation = [1, 1, 1, 1]);
    zero = [[[[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]]];
    y = add(m, zero);
}
""",
        _floats(x=(1, 1, 3, 3)),
    ),
    "pow-const": Case(
        "graph network(x) -> (y)\n{\n    x = external<scalar>(shape = [6]);\n    y = pow(abs(x), 1.75);\n}\n",
        _floats(x=(6,)),
    ),
    "pulse-sync-inputs-multi-delay": Case(
        _SYMBOLS
        + """graph network(x) -> (y)
{
    x = external<scalar>(shape = [1, 1, S]);
    a = conv(x, [[[0.5, 0.25]]], padding = [(0, 1)], border = 'constant', stride = [1], dilation = [1]);
    b = conv(x, [[[0.5, 0.25, 1.0]]], padding = [(0, 2)], border = 'constant', stride = [1], dilation = [1]);
    c = conv(x, [[[0.5, 0.25, 1.0, -1.0]]], padding = [(0, 3)], border = 'constant', stride = [1], dilation = [1]);
    y = select(gt(c, 0.0), a, b);
}
""",
        _floats(x=(1, 1, "S")),
        sizes=({"S": 9}, {"S": 4}),
    ),
    "q40_linear_followed_slice": Case(
        _CORE
        + """graph network(x) -> (y)
{
    x = tract_core_external(shape = [6, 64], datum_type = 'f32');
    w = variable(label = 'w', shape = [12, 64]);
    l = linear(x, w, 0.0);
    y = mul(slice(l, axes = [1], begin = [0], end = [6], stride = [1]),
            slice(l, axes = [1], begin = [6], end = [12], stride = [1]));
}
""",
        _floats(x=(6, 64)),
        {"w": _real(12, 64)},
        blocks=frozenset({"w"}),
        tolerance=1e-2,
    ),
    "qmul": Case(
        _CORE
        + """graph network(x) -> (y)
{
    x = external<scalar>(shape = [2, 5]);
    a = tract_core_cast(x);
    b = mul(a, a);
    y = tract_core_cast(b, to = 'f32');
}
""",
        _floats(x=(2, 5)),
        quantization=_entries(a=(10, 0.0625, True), b=(-20, 0.125, True)),
        tolerance=3e-2,
    ),
    "qsigmoid-lut": Case(
        _quantized("b = tract_core_cast(sigmoid(tract_core_cast(a, to = 'f32')));", (1, 9)),
        _floats(x=(1, 9)),
        quantization=_entries(a=(50, 0.0625, False), b=(0, 0.00390625, False)),
        tolerance=1e-2,
    ),
    "qwen35-recurrent/causal-conv1d-update": Case(
        _TRANSFORMERS
        + """graph network(x, w, s) -> (y, t)
{
    x = tract_core_external(shape = [1, 3, 2], datum_type = 'f16');
    w = tract_core_external(shape = [3, 4], datum_type = 'f16');
    s = tract_core_external(shape = [1, 3, 4], datum_type = 'f16');
    (y, t) = tract_transformers_causal_conv1d_update(x, w, s);
}
""",
        {"x": ("float16", (1, 3, 2)), "w": ("float16", (3, 4)), "s": ("float16", (1, 3, 4))},
        tolerance=1e-2,
    ),
    "qwen35-recurrent/gdn-recurrent": Case(
        _TRANSFORMERS
        + """graph network(q, k, v, d, b, s) -> (y, t)
{
    q = tract_core_external(shape = [1, 1, 1, 128], datum_type = 'f16');
    k = tract_core_external(shape = [1, 1, 1, 128], datum_type = 'f16');
    v = tract_core_external(shape = [1, 1, 1, 128], datum_type = 'f16');
    d = tract_core_external(shape = [1, 1, 1], datum_type = 'f32');
    b = tract_core_external(shape = [1, 1, 1], datum_type = 'f16');
    s = tract_core_external(shape = [1, 1, 128, 128], datum_type = 'f32');
    (y, t) = tract_transformers_gdn_recurrent(q, k, v, d, b, s);
}
""",
        {
            **dict.fromkeys("qkv", ("float16", (1, 1, 1, 128))),
            "d": ("float32", (1, 1, 1)),
            "b": ("float16", (1, 1, 1)),
            "s": ("float32", (1, 1, 128, 128)),
        },
        tolerance=1e-2,
    ),
    "range-slice-dyn-tile": Case(
        _SYMBOLS
        + """graph network(x) -> (y)
{
    x = external<scalar>(shape = [2, S]);
    n = squeeze(slice(tract_core_shape_of(x), axes = [0], begin = [1], end = [2]), axes = [0]);
    r = unsqueeze(slice(tract_core_range(0, 100, 1), axes = [0], begin = [0], end = [n]), axes = [0]);
    y = add(x, tract_core_cast(tile(r, repeats = [2, 1]), to = 'f32'));
}
""",
        _floats(x=(2, "S")),
        sizes=({"S": 5}, {"S": 11}),
    ),
    "relu_quant": Case(
        _quantized("b = relu(a);", (2, 1, 4)),
        _floats(x=(2, 1, 4)),
        quantization=_entries(a=(40, 0.03125, False), b=(40, 0.03125, False)),
    ),
    "reshape": Case(
        _CORE
        + """extension tract_pulse_streaming_symbol;
graph network(x) -> (y)
{
    x = external<integer>(shape = [3, 1, 4]);
    two = [2, 2];
    y = reshape(x, shape = [1, two, 3]);
}
""",
        {"x": ("int64", (3, 1, 4))},
    ),
    "reshape_with_bc": Case(
        _CORE
        + """graph network(x) -> (y)
{
    x = external<scalar>(shape = [4, 2]);
    y = reshape(reshape(x, shape = [2, 4]) * 3.0, shape = [4, 2]);
}
""",
        _floats(x=(4, 2)),
    ),
    "resize/core_resize_f16": Case(
        _CORE
        + """graph network(x) -> (y)
{
    x = tract_core_external(shape = [1, 1, 2, 3], datum_type = 'f32');
    r = tract_core_resize(tract_core_cast(x, to = 'f16'), scales = [1.0, 1.0, 2.0, 2.0], interpolator = 'nearest',
                          coord_transformer = 'asymmetric', nearest_mode = 'floor');
    y = tract_core_cast(r, to = 'f32');
}
""",
        _floats(x=(1, 1, 2, 3)),
    ),
    "resize/core_resize_linear": Case(
        _CORE
        + """graph network(x) -> (y)
{
    x = tract_core_external(shape = [1, 1, 5], datum_type = 'f32');
    s = [1.0, 1.0, 3.0];
    y = tract_core_resize(x, s, interpolator = 'linear', coord_transformer = 'half_pixel');
}
""",
        _floats(x=(1, 1, 5)),
    ),
    "resize/core_resize_nearest": Case(
        _CORE
        + """graph network(x) -> (y)
{
    x = tract_core_external(shape = [1, 1, 3, 2], datum_type = 'f32');
    s = [1.0, 1.0, 2.0, 3.0];
    y = tract_core_resize(x, s, interpolator = 'nearest', coord_transformer = 'asymmetric', nearest_mode = 'floor');
}
""",
        _floats(x=(1, 1, 3, 2)),
    ),
    "resize/core_resize_sizes": Case(
        _CORE
        + """graph network(x) -> (y)
{
    x = tract_core_external(shape = [1, 1, 3, 2], datum_type = 'f32');
    s = [1.0, 1.0, 6.0, 4.0];
    y = tract_core_resize(x, sizes = s, interpolator = 'nearest', coord_transformer = 'asymmetric',
                          nearest_mode = 'floor');
}
""",
        _floats(x=(1, 1, 3, 2)),
    ),
    "resize/nearest_upsample": Case(
        _CORE
        + "graph network(x) -> (y)\n{\n    x = tract_core_external(shape = [1, 1, 3, 2], datum_type = 'f32');\n"
        + "    y = nearest_upsample(x, factor = [2, 2]);\n}\n",
        _floats(x=(1, 1, 3, 2)),
    ),
    "scaled-masked-softmax-unit-axes": Case(
        _TRANSFORMERS
        + """graph network(x, m) -> (y)
{
    x = external<scalar>(shape = [1, 3, 1, 2, 4, 6]);
    m = external<scalar>(shape = [1, 1, 1, 2, 4, 6]);
    y = tract_transformers_scaled_masked_softmax(x, m, scale = 0.25, post_softmax_mask = false);
}
""",
        _floats(x=(1, 3, 1, 2, 4, 6), m=(1, 1, 1, 2, 4, 6)),
    ),
    "scan-body-stream-drift": Case(
        _SYMBOLS
        + """fragment body(element: tensor<scalar>, all: tensor<scalar>) -> (out: tensor<scalar>)
{
    out = add(element, slice(all, axes = [0], begin = [0], end = [1]));
}
graph network(x) -> (y)
{
    x = external<scalar>(shape = [S, 3]);
    twice = mul(x, 2.0);
    y = tract_core_scan(body = 'body', scan = [('element', x, 0, 1)], full = [('all', twice)], state = [],
                        output = [('out', 'full', 0, 1)]);
}
""",
        _floats(x=("S", 3)),
        sizes=({"S": 4}, {"S": 2}),
    ),
    "scatter-nd-block": Case(
        _CORE
        + """graph network(x, u) -> (y)
{
    x = external(shape = [2, 4, 3]);
    u = external(shape = [2, 2, 3]);
    i = variable<scalar>(label = 'i', shape = [2, 2, 3, 3]);
    y = tract_core_scatter_nd(x, i, u, reduction = 'none');
}
""",
        _floats(x=(2, 4, 3), u=(2, 2, 3)),
        {"i": np.stack(np.meshgrid(np.arange(2), np.arange(1, 3), np.arange(3), indexing="ij"), -1).astype(np.int64)},
    ),
    **{
        f"sdpa/{name}": Case(
            _TRANSFORMERS
            + "graph network(x) -> (y)\n{\n    x = tract_core_external(shape = [1, 4, 8], datum_type = 'f32');\n"
            + f"    y = tract_transformers_sdpa(x, x, x, datum_type = 'f32', acc_datum_type = 'f32', {how});\n}}\n",
            _floats(x=(1, 4, 8)),
        )
        for name, how in {
            "simple-causal-f32": "is_causal = true",
            "simple-non-causal-f32": "is_causal = false",
            "simple-scale-f32": "is_causal = false, scale = 0.7",
        }.items()
    },
    "sdpa/simple-f16": Case(
        _TRANSFORMERS
        + """graph network(x) -> (y)
{
    x = tract_core_external(shape = [1, 2, 3, 4], datum_type = 'f32');
    h = tract_core_cast(x, to = 'f16');
    r = tract_transformers_sdpa(h, h, h, datum_type = 'f16', acc_datum_type = 'f32', is_causal = false);
    y = tract_core_cast(r, to = 'f32');
}
""",
        _floats(x=(1, 2, 3, 4)),
        tolerance=1e-2,
    ),
    "sdpa/simple-grouped-query-att-f32": Case(
        _TRANSFORMERS
        + """graph network(q, k) -> (y)
{
    q = tract_core_external(shape = [1, 4, 3, 8], datum_type = 'f32');
    k = tract_core_external(shape = [1, 2, 5, 8], datum_type = 'f32');
    y = tract_transformers_sdpa(q, k, k, datum_type = 'f32', acc_datum_type = 'f32', is_causal = false);
}
""",
        _floats(q=(1, 4, 3, 8), k=(1, 2, 5, 8)),
    ),
    "sdpa/simple-mask-f32": Case(
        _TRANSFORMERS
        + """graph network(q, k, v) -> (y)
{
    q = tract_core_external(shape = [1, 3, 4], datum_type = 'f32');
    k = tract_core_external(shape = [1, 3, 4], datum_type = 'f32');
    v = tract_core_external(shape = [1, 3, 4], datum_type = 'f32');
    m = variable<scalar>(label = 'm', shape = [3, 3]);
    y = tract_transformers_sdpa(q, k, v, unsqueeze(m, axes = [0]), datum_type = 'f32', acc_datum_type = 'f32',
                                is_causal = false);
}
""",
        _floats(q=(1, 3, 4), k=(1, 3, 4), v=(1, 3, 4)),
        {"m": _real(3, 3)},
    ),
    "sign-abs-integers": Case(
        _CORE
        + """graph network(x) -> (a, b, c, d)
{
    x = tract_core_external(shape = [5], datum_type = 'i64');
    a = sign(x);
    b = abs(x);
    k = tract_core_cast([-7.0, 0.0, 100.0], to = 'i64');
    c = sign(k);
    d = abs(k);
}
""",
        {"x": ("int64", (5,))},
    ),
    "slice-of-static-with-streaming-size": Case(
        _SYMBOLS
        + """graph network(x) -> (y)
{
    x = external<scalar>(shape = [S, 1]);
    table = tract_core_broadcast(0.5, shape = [500, 1]);
    n = squeeze(slice(tract_core_shape_of(x), axes = [0], begin = [0], end = [1], stride = [1]), axes = [0]);
    y = add(x, slice(table, axes = [0], begin = [0], end = [n]));
}
""",
        _floats(x=("S", 1)),
        sizes=({"S": 5}, {"S": 30}),
    ),
    "slice-over-slice-optim-loop": Case(
        _CORE
        + """graph network(x) -> (a, b, c)
{
    x = tract_core_external(shape = [2, 3], datum_type = 'f32');
    r = slice(x, axes = [0], begin = [1], end = [2], stride = [1]);
    a = slice(r, axes = [1], begin = [0], end = [1], stride = [1]);
    b = slice(r, axes = [1], begin = [1], end = [3], stride = [1]);
    c = slice(slice(x, axes = [0], begin = [0], end = [1]), axes = [1], begin = [2], end = [3]);
}
""",
        _floats(x=(2, 3)),
    ),
    "softmax/softmax-change-axis": Case(
        """graph network(x) -> (y)
{
    x = external<scalar>(shape = [3, 1, 4]);
    y = unsqueeze(softmax(squeeze(x, axes = [1]), axes = [1]), axes = [1]);
}
""",
        _floats(x=(3, 1, 4)),
    ),
    "softmax/softmax-change-axis-1": Case(
        """graph network(x) -> (y)
{
    x = external<scalar>(shape = [3, 1, 4]);
    y = squeeze(softmax(unsqueeze(x, axes = [1]), axes = [3]), axes = [1]);
}
""",
        _floats(x=(3, 1, 4)),
    ),
    "softmax/softmax-quant": Case(
        _quantized("b = softmax(a, axes = [1]);", (2, 4)),
        _floats(x=(2, 4)),
        quantization=_entries(a=(30, 0.0625, False), b=(0, 0.00390625, False)),
        tolerance=3e-2,
    ),
    "stft-strided-axis": Case(
        _CORE
        + """graph network(x) -> (y, z)
{
    x = external<scalar>(shape = [2, 14, 2]);
    w = [0.5, 1.0, 0.75, 0.25];
    y = tract_core_stft(x, axis = 1, frame = 8, stride = 3, window = w);
    t = tract_core_stft(transpose(x, axes = [1, 0, 2]), axis = 0, frame = 8, stride = 3, window = w);
    z = sum_reduce(abs(sub(y, transpose(t, axes = [2, 0, 1, 3]))), axes = [0, 1, 2, 3]);
}
""",
        _floats(x=(2, 14, 2)),
        tolerance=1e-4,
    ),
    "stream-dim": Case(
        "extension tract_symbol S;\n"
        "graph network(x) -> (y)\n{\n    x = external<scalar>(shape = [1,S,7]);\n    y = x;\n}\n",
        _floats(x=(1, "S", 7)),
        sizes=({"S": 2}, {"S": 5}),
    ),
    "submodel": Case(
        _CORE
        + """graph network(x) -> (y)
{
    x = external<scalar>(shape = [1, 1, 5]);
    y = mul(tract_core_submodel(x, label = 'inner'), 2.0);
}
""",
        _floats(x=(1, 1, 5)),
        packed={
            "inner": Case(
                "graph inner(x) -> (y)\n{\n    x = external(shape = [1, 1, 5]);\n"
                "    y = conv(x, [[[1.0, 0.5, -1.0]]], [[0.25]], dilation = [1], stride = [1], border = 'constant', "
                "groups = 1, padding = [(0, 0)]);\n}\n",
                {},
            )
        },
    ),
    "tdim-cmp": Case(
        _CORE
        + """graph network(x) -> (y)
{
    x = external<integer>(shape = [1, 4]);
    r = tract_core_range(0, 4, step = 1);
    y = lt(r, add(r, 1));
}
""",
        {"x": ("int64", (1, 4))},
    ),
    "test_any_reduce": Case(
        _CORE
        + "graph network(x) -> (y)\n{\n    x = external<scalar>(shape = [3, 4]);\n"
        + "    y = squeeze(any_reduce(gt(x, 1.0), axes = [1]), axes = [1]);\n}\n",
        _floats(x=(3, 4)),
    ),
    "tile-with-tdim": Case(
        _CORE
        + """extension tract_symbol B;
extension tract_symbol S;
graph network(x) -> (y)
{
    x = external<scalar>(shape = [B, S, 3]);
    n = squeeze(slice(tract_core_shape_of(x), axes = [0], begin = [1], end = [2], stride = [1]), axes = [0]);
    mask = tile([[1.0]], repeats = [n, n]);
    r = tract_core_range(0, n, step = 1);
    below = lt(unsqueeze(r, axes = [0]), reshape(add(r, 1), shape = [n, 1]));
    y = select(below, tile([[0.0]], repeats = tract_core_shape_of(mask)), mask);
}
""",
        _floats(x=("B", "S", 3)),
        sizes=({"B": 1, "S": 4}, {"B": 2, "S": 6}),
    ),
    "uniform-mul": Case(
        """graph network(x) -> (y)
{
    x = external<scalar>(shape = [2, 2, 35]);
    a = [[[2.0], [-3.0]]];
    b = [[[2.0], [0.5]], [[-1.0], [3.0]]];
    y = mul(x, a) + mul(x, b);
}
""",
        _floats(x=(2, 2, 35)),
    ),
    "variable-in-fragment": Case(
        _CORE
        + """fragment weights(x: tensor<scalar>) -> (y: tensor<scalar>)
{
    y = mul(x, variable(label = 'w', shape = [1, 2, 3]));
}
graph network(x) -> (y) { x = external(shape = [1, 2, 3]); y = weights(x); }
""",
        _floats(x=(1, 2, 3)),
        {"w": _real(1, 2, 3)},
    ),
}
"""By the names of the harness. What it has of other things than reading models is not here: the lanes of its batches,
the layout of its memory, its threads, and the operators `load`, `store` and `force_eval`, which tract has no more."""
