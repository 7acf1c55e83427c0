"""Operators of tract's registries compared with NumPy and onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from nnef_cases import run_network
from nnef_tract import model, real
from onnx import TensorProto, helper, numpy_helper

import nnefc
from nnefc.frontends.nnef.frontend import load

Function = Callable[[np.ndarray], np.ndarray]


def by_onnx(op: str, *others: np.ndarray, **attributes: Any) -> Function:
    """What onnxruntime makes of a node of one operator."""

    def function(x: np.ndarray) -> np.ndarray:
        names = [f"i{n}" if other.size else "" for n, other in enumerate(others)]
        node = helper.make_node(op, ["x", *names], ["y"], **attributes)
        value = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
        result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        constants = [numpy_helper.from_array(o, n) for n, o in zip(names, others, strict=True) if n]
        graph = helper.make_graph([node], "g", [value], [result], constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
        return np.asarray(session.run(None, {"x": x})[0])

    return function


def unit_norm(x: np.ndarray, mean: np.ndarray, alpha: float) -> np.ndarray:
    rows = []
    for row in x:
        mean = alpha * mean + (1 - alpha) * np.maximum(np.abs(row), 1e-14)
        rows.append(row / np.sqrt(mean))
    return np.stack(rows)


FILTER = real(6, 2, 3, 2)
"""`[outputs, inputs / groups, …]` of two groups, as tract has it."""
GRID = real(2, 4, 5, 2) * 0.7
WINDOW = real(6)
GRU = {"u": real(9, 4), "r": real(9, 3), "b": real(1, 18), "i": real(1, 2, 3)}
NONE = np.zeros(0, np.float32)

CASES: dict[str, tuple[str, tuple[int, ...], Function]] = {
    "a transposed convolution in groups": (
        "y = deconv(x, f, 0.0, stride = [2, 1], padding = [(1, 0), (0, 0)], groups = 2);",
        (2, 4, 5, 7),
        by_onnx(
            "ConvTranspose",
            FILTER.reshape(2, 3, 2, 3, 2).transpose(0, 2, 1, 3, 4).reshape(4, 3, 3, 2),
            group=2,
            strides=[2, 1],
            pads=[1, 0, 0, 0],
        ),
    ),
    "a pooling of which the border does not count": (
        "y = max_pool(x, size = [1, 1, 3], padding = [(0, 0), (0, 0), (1, 1)], stride = [1, 1, 2]);",
        (1, 2, 9),
        by_onnx("MaxPool", kernel_shape=[3], pads=[1, 1], strides=[2]),
    ),
    **{
        f"resizing, {mode} and {coordinates}": (
            f"y = tract_core_resize(x, scales = [1.0, 1.0, 1.5, 0.6], interpolator = '{mode}', "
            f"coord_transformer = '{coordinates}', nearest_mode = 'floor');",
            (1, 2, 6, 10),
            by_onnx(
                "Resize",
                NONE,
                np.array([1, 1, 1.5, 0.6], np.float32),
                mode=mode,
                coordinate_transformation_mode=coordinates,
                nearest_mode="floor",
            ),
        )
        for mode, coordinates in [("linear", "half_pixel"), ("nearest", "asymmetric"), ("cubic", "align_corners")]
    },
    "resizing by less than an element": (
        "y = tract_core_resize(x, scales = [1.0, 1.0, 1.15, 2.0], interpolator = 'linear', "
        "coord_transformer = 'half_pixel', nearest_mode = 'floor');",
        (1, 1, 4, 3),
        by_onnx("Resize", NONE, np.array([1, 1, 1.15, 2], np.float32), mode="linear"),
    ),
    "resizing to sizes that follow from others": (
        """s = tract_core_shape_of(x);
        h = squeeze(slice(s, axes = [0], begin = [2], end = [3]), axes = [0]);
        y = tract_core_resize(x, sizes = [1, 2, h * 2, 7], interpolator = 'linear',
                              coord_transformer = 'align_corners');""",
        (1, 2, 3, 5),
        by_onnx(
            "Resize",
            NONE,
            NONE,
            np.array([1, 2, 6, 7]),
            mode="linear",
            coordinate_transformation_mode="align_corners",
        ),
    ),
    "sampling by a grid": (
        "y = tract_core_grid_sample(x, g, mode = 'bicubic', padding_mode = 'reflection', align_corners = true);",
        (2, 3, 6, 5),
        by_onnx("GridSample", GRID, mode="cubic", padding_mode="reflection", align_corners=1),
    ),
    "local response normalization": (
        "y = tract_onnx_lrn(x, alpha = 0.3, beta = 0.6, bias = 1.5, size = 5);",
        (2, 7, 3, 2),
        by_onnx("LRN", alpha=0.3, beta=0.6, bias=1.5, size=5),
    ),
    "a spectrum, and back without a factor": (
        "y = tract_core_fft(tract_core_fft(x, axis = 1), axis = 1, inverse = true);",
        (2, 9, 2),
        lambda x: 9 * x,
    ),
    "spectra of frames with a window in the middle": (
        "y = tract_core_stft(x, axis = 1, frame = 8, stride = 3, window = w);",
        (2, 20, 3, 2),
        lambda x: frames(x),
    ),
    "a running sum": ("y = tract_core_cumsum(x, axis = 1);", (3, 5), lambda x: np.cumsum(x, 1)),
    "a running mean of magnitudes": (
        "y = tract_extra_exp_unit_norm(x, [0.5, 1.0, 2.0], axis = 0, alpha = 0.75, stateless = true);",
        (6, 3),
        lambda x: unit_norm(x, np.array([0.5, 1, 2]), 0.75),
    ),
    "the cell of an LSTM": (
        "h, c = tract_core_lstm_epilogue(x, slice(x, axes = [1], begin = [0], end = [3]), hidden = 3);"
        "y = concat([h, c], axis = 1);",
        (2, 12),
        lambda x: lstm_cell(x, x[:, :3]),
    ),
    **{
        f"a layer of GRUs with a step of {step}": (
            "y, h = tract_core_gru_seq(x = x, w = u, r = r, b = b, initial_h = i, hidden = 3, "
            f"chunk = {step}, has_bias = 1);",
            (2, 5, 4),
            lambda x, step=step: gru(x, step),
        )
        for step in (1, -1)
    },
    "the border that repeats the last element": (
        "y = pad(x, padding = [[0, 0], [2, 1]], border = 'replicated');",
        (2, 3),
        lambda x: np.pad(x, ((0, 0), (2, 1)), "edge"),
    ),
    "scores with a mask": (
        "y = tract_transformers_scaled_masked_softmax(x, x > 0.0, scale = 0.5);",
        (4, 6),
        lambda x: masked(x),
    ),
}


def frames(x: np.ndarray) -> np.ndarray:
    """`[2, 20, 3, 2]` → `[2, frames, bins, 3, 2]`."""
    values = x[..., 0] + 1j * x[..., 1]
    window = np.pad(WINDOW, 1)
    spectra = np.stack(
        [np.fft.fft(values[:, start : start + 8] * window[None, :, None], axis=1) for start in range(0, 13, 3)], 1
    )
    return np.stack([spectra.real, spectra.imag], -1)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def lstm_cell(x: np.ndarray, cell: np.ndarray) -> np.ndarray:
    entry, exit_, forget, new = np.split(x, 4, 1)
    cell = sigmoid(forget) * cell + sigmoid(entry) * np.tanh(new)
    return np.concatenate([sigmoid(exit_) * np.tanh(cell), cell], 1)


def gru(x: np.ndarray, step: int) -> np.ndarray:
    """A layer as onnxruntime computes it."""
    gates = {"hidden_size": 3, "linear_before_reset": 1, "direction": "forward" if step > 0 else "reverse"}
    lengths, start = np.zeros(0, np.int32), GRU["i"]
    operands = (GRU["u"][None], GRU["r"][None], GRU["b"], lengths, start)
    layer = by_onnx("GRU", *operands, **gates)
    return layer(np.ascontiguousarray(x.transpose(1, 0, 2)))[:, 0].transpose(1, 0, 2)


def masked(x: np.ndarray) -> np.ndarray:
    powers = np.where(x > 0, np.exp(x * 0.5), 0)
    return powers / powers.sum(1, keepdims=True)


HEAD = (
    "extension tract_registry tract_onnx;\nextension tract_registry tract_extra;\nextension tract_registry tract_pulse;"
)


def document(folder: Path, body: str, shape: Sequence[int | str], values: Mapping[str, np.ndarray]) -> Path:
    variables = "".join(f"{n} = variable<scalar>(label = '{n}', shape = {list(v.shape)});" for n, v in values.items())
    sizes = str(list(shape)).replace("'", "")
    text = f"x = tract_core_external(shape = {sizes}, datum_type = 'f32');\n{variables}\n{body}"
    return model(folder, text, values, before=HEAD)


def compiled(folder: Path, body: str, shape: Sequence[int | str], values: Mapping[str, np.ndarray]) -> nnefc.Artifact:
    return nnefc.compile(document(folder, body, shape, values))


LOOPS = {"a running mean of magnitudes", *(f"a layer of GRUs with a step of {step}" for step in (1, -1))}
"""Cases that become loops, which the virtual machine does not run."""


@pytest.mark.parametrize("name", [name for name in CASES if name not in LOOPS])
@pytest.mark.sample(8)
def test_operators_of_registries_are_translated(name: str, tmp_path: Path) -> None:
    """Runs what the front end makes in TVM's virtual machine, which takes a fraction of the time of compiling."""
    body, shape, expected = CASES[name]
    x = np.abs(real(*shape)) + 0.1 if "mask" in name else real(*shape)
    network = load(document(tmp_path, body, shape, {"f": FILTER, "g": GRID, "w": WINDOW, **GRU}))
    np.testing.assert_allclose(run_network(network, [x])[0], expected(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in LOOPS else [pytest.mark.slow]) for name in CASES]
)
def test_operators_of_registries(name: str, tmp_path: Path) -> None:
    body, shape, expected = CASES[name]
    x = np.abs(real(*shape)) + 0.1 if "mask" in name else real(*shape)
    with compiled(tmp_path, body, shape, {"f": FILTER, "g": GRID, "w": WINDOW, **GRU}).load() as network:
        np.testing.assert_allclose(network(x), expected(x), rtol=1e-4, atol=1e-4)


def test_a_delay_keeps_what_came_before(tmp_path: Path) -> None:
    """Each run gives the elements of the stream that are three behind, with two more before them."""
    body = "y = tract_pulse_delay(x, axis = 1, delay = 1, overlap = 2);"
    stream = real(2, 12)
    with compiled(tmp_path, body, (2, 4), {}).load() as network:
        for start in (0, 4, 8):
            before = np.concatenate([np.zeros((2, 3), np.float32), stream], 1)
            np.testing.assert_array_equal(network(stream[:, start : start + 4]), before[:, start : start + 6])
        network.reset()
        np.testing.assert_array_equal(network(stream[:, :4])[:, :3], np.zeros((2, 3)))


def test_a_running_mean_goes_on_in_the_next_run(tmp_path: Path) -> None:
    body = "y = tract_extra_exp_unit_norm(x, [0.5, 1.0], axis = 0, alpha = 0.9);"
    stream = real(9, 2)
    expected = unit_norm(stream, np.array([0.5, 1]), 0.9)
    with compiled(tmp_path, body, (3, 2), {}).load() as network:
        made = [network(stream[start : start + 3]) for start in (0, 3, 6)]
    np.testing.assert_allclose(np.concatenate(made), expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (
            "tract_core_scaled_rms_norm(x, [1.0, 2.0, 3.0], axis = 1, eps = 0.1)",
            lambda x: x / np.sqrt((x**2).mean(1, keepdims=True) + 0.1) * np.array([1, 2, 3]),
        ),
        (
            "tract_core_clamped_swiglu(x, x * 2.0, alpha = 1.7, limit = 0.5)",
            lambda x: np.minimum(x, 0.5) / (1 + np.exp(-1.7 * np.minimum(x, 0.5))) * (np.clip(2 * x, -0.5, 0.5) + 1),
        ),
        ("tract_onnx_non_zero(relu(x))", lambda x: np.array(np.nonzero(np.maximum(x, 0)))),
        ("tract_core_cumsum(x, axis = 1, exclusive = true)", lambda x: np.cumsum(x, 1) - x),
    ],
)
def test_operators_that_tract_wrote_when_asked(call: str, expected: Function, tmp_path: Path) -> None:
    """The first two as tract 0.23.9 computes them."""
    body = f"x = tract_core_external(shape = [S, 3], datum_type = 'f32'); y = {call};"
    folder = model(tmp_path, body, before="extension tract_symbol S;\nextension tract_registry tract_onnx;")
    with nnefc.compile(folder).load() as network:
        for size in (2, 5):
            x = real(size, 3)
            np.testing.assert_allclose(network(x), expected(x), rtol=1e-4, atol=1e-5)


def test_boxes_that_overlap_less(tmp_path: Path) -> None:
    body = """x = tract_core_external(shape = [1, 3, 4], datum_type = 'f32'); s = [[[0.9, 0.8, 0.7]]];
    y = tract_onnx_non_max_suppression(x, s, 3, 0.5, 0.1);"""
    boxes = np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1.1], [2, 2, 3, 3]]], np.float32)
    folder = model(tmp_path, body, before="extension tract_registry tract_onnx;")
    with nnefc.compile(folder).load() as network:
        np.testing.assert_array_equal(network(boxes), [[0, 0, 0], [0, 0, 2]])


def routed(x: np.ndarray, gate: str, k: int, inner: Callable[[np.ndarray, int], np.ndarray]) -> np.ndarray:
    """The sum of `inner(row, expert)` of each row's `k` experts by the weights that a gate makes of their scores."""
    scores = x.astype(np.float64) @ EXPERTS["wg"].T + EXPERTS["b"]
    rows = []
    for row, own in zip(x, scores, strict=True):
        chosen = np.argsort(-own)[:k]
        powers = np.exp(own - own.max())
        weights = {
            "softmax_topk": powers / powers[chosen].sum(),
            "softmax_all": powers / powers.sum(),
            "sigmoid": 1 / (1 + np.exp(-own)),
            "raw": own,
        }[gate]
        rows.append(sum(weights[e] * inner(row, e) for e in chosen))
    return np.stack(rows)


EXPERTS = {"wg": real(4, 6), "b": real(4), "w1": real(4, 6, 5), "w2": real(4, 5, 6), "w3": real(4, 6, 5)}
EXPERTS["b"][0] += 1


def swiglu(row: np.ndarray, e: int) -> np.ndarray:
    gate = row @ EXPERTS["w1"][e]
    return np.asarray((gate / (1 + np.exp(-gate)) * (row @ EXPERTS["w3"][e])) @ EXPERTS["w2"][e])


def clamped(row: np.ndarray, e: int) -> np.ndarray:
    gate = np.minimum(row @ EXPERTS["w1"][e], 0.5)
    return np.asarray(
        (gate / (1 + np.exp(-1.7 * gate)) * (np.clip(row @ EXPERTS["w3"][e], -0.5, 0.5) + 1)) @ EXPERTS["w2"][e]
    )


@pytest.mark.parametrize(
    ("gate", "more", "inner"),
    [
        ("softmax_topk", "", swiglu),
        pytest.param("softmax_all", "", swiglu, marks=pytest.mark.slow),
        ("sigmoid", "act_alpha = 1.7, act_limit = 0.5", clamped),
        ("raw", "expert_layout = 'linear'", swiglu),
    ],
)
@pytest.mark.sample(1)
def test_experts_that_a_router_chooses(
    gate: str, more: str, inner: Callable[[np.ndarray, int], np.ndarray], tmp_path: Path
) -> None:
    linear = "linear" in more
    values = {n: v.transpose(0, 2, 1).copy() if linear and n in ("w1", "w2", "w3") else v for n, v in EXPERTS.items()}
    names = "\n".join(f"{n} = variable(label = '{n}', shape = {list(v.shape)});" for n, v in values.items())
    body = f"""x = tract_core_external(shape = [1, S, 6], datum_type = 'f32');\n{names}
    y = tract_moe_ffn(x, wg, w1, w2, w3, wg_bias = b, k = 2, activation = 'swiglu', gate = '{gate}', {more});"""
    folder = model(tmp_path, body.replace(", )", ")"), values, before="extension tract_symbol S;")
    with nnefc.compile(folder).load() as network:
        for size in (1, 5):
            x = real(1, size, 6)
            np.testing.assert_allclose(network(x)[0], routed(x[0], gate, 2, inner), rtol=1e-4, atol=1e-5)
