"""Which parts of a network become blocked, for vectors of 8: before, after, and the numbers."""

from __future__ import annotations

import numpy as np
import pytest
from relax_programs import Case, Graph, Value, check, program, summary, target
from tvm import relax

from nnefc.passes.graph.algorithms.fast_algorithms import FastAlgorithms
from nnefc.passes.graph.layout.assign_layouts import assign_layouts
from nnefc.passes.legalize.pack_matmul import pack_matmul

TARGET = target("llvm -mcpu=x86-64-v3")


def values(*shape: int) -> np.ndarray:
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(np.float32)


CONSTANTS = {
    "W8": values(8, 8, 3, 3),
    "C8": values(8, 1, 1),
    "W17": values(17, 8, 3, 3),
    "W16": values(8, 16, 1, 1),
    "W3": values(8, 3, 3, 3),
}
PROGRAMS = {
    "a region stays blocked from one convolution to the next": (
        """x[1, 8, 5, 5] -> d
        a = R.nn.conv2d(x, W8, padding=[1, 1, 1, 1])
        b = R.nn.relu(a)
        c = R.nn.conv2d(b, W8)
        d = R.reshape(c, R.shape([1, 72]))""",
        """lv[1, 1, 5, 5, 8] = block(x)
        lv1[1, 1, 7, 8, 8] = pad(lv)
        lv2[1, 1, 5, 5, 8] = convolution(lv1, const[1, 1, 3, 3, 8, 8])
        lv3[1, 1, 5, 5, 8] = nn.relu(lv2)
        lv4[1, 1, 3, 3, 8] = convolution1(lv3, const[1, 1, 3, 3, 8, 8])
        lv5[1, 8, 3, 3] = unblock(lv4)
        d[1, 72] = reshape(lv5, R.shape([1, 72]))
        -> d""",
    ),
    "factors for channels without the leading axis": (
        """x[1, 8, 5, 5]; y[8, 1, 1] -> c
        a = R.nn.conv2d(x, W8)
        b = R.multiply(C8, a)
        c = R.add(b, y)""",
        """lv[1, 1, 5, 5, 8] = block(x)
        lv1[1, 1, 3, 3, 8] = convolution(lv, const[1, 1, 3, 3, 8, 8])
        lv2[1, 1, 3, 3, 8] = multiply(const[1, 1, 1, 1, 8], lv1)
        lv3[1, 8, 1, 1] = view(y)
        lv4[1, 1, 1, 1, 8] = block1(lv3)
        lv5[1, 1, 3, 3, 8] = add(lv2, lv4)
        lv6[1, 8, 3, 3] = unblock(lv5)
        -> lv6""",
    ),
    "a function with no value at zero leaves a half-filled block": (
        """x[1, 8, 5, 5] -> c
        a = R.nn.conv2d(x, W17)
        b = R.log(a)
        c = R.nn.relu(b)""",
        """lv[1, 1, 5, 5, 8] = block(x)
        lv1[1, 3, 3, 3, 8] = convolution(lv, const[3, 1, 3, 3, 8, 8])
        lv2[1, 17, 3, 3] = unblock(lv1)
        b[1, 17, 3, 3] = log(lv2)
        c[1, 17, 3, 3] = nn.relu(b)
        -> c""",
    ),
    "a quotient by a number other than zero does not": (
        """x[1, 8, 5, 5] -> d
        a = R.nn.conv2d(x, W17)
        b = R.nn.relu(a)
        c = R.divide(b, R.const(6.0, "float32"))
        d = R.divide(c, R.const(0.0, "float32"))""",
        """lv[1, 1, 5, 5, 8] = block(x)
        lv1[1, 3, 3, 3, 8] = convolution(lv, const[3, 1, 3, 3, 8, 8])
        lv2[1, 3, 3, 3, 8] = nn.relu(lv1)
        lv3[1, 3, 3, 3, 8] = divide(lv2, 6.0)
        lv4[1, 17, 3, 3] = unblock(lv3)
        d[1, 17, 3, 3] = divide(lv4, 0.0)
        -> d""",
    ),
    "but not a full one": (
        """x[1, 8, 5, 5] -> c
        a = R.nn.conv2d(x, W8)
        b = R.log(a)
        c = R.nn.relu(b)""",
        """lv[1, 1, 5, 5, 8] = block(x)
        lv1[1, 1, 3, 3, 8] = convolution(lv, const[1, 1, 3, 3, 8, 8])
        lv2[1, 1, 3, 3, 8] = log(lv1)
        lv3[1, 1, 3, 3, 8] = nn.relu(lv2)
        lv4[1, 8, 3, 3] = unblock(lv3)
        -> lv4""",
    ),
    "a concatenation whose seam falls between blocks": (
        """x[1, 8, 5, 5] -> c
        a = R.nn.conv2d(x, W8)
        b = R.concat((a, a), axis=1)
        c = R.nn.conv2d(b, W16)""",
        """lv[1, 1, 5, 5, 8] = block(x)
        lv1[1, 1, 3, 3, 8] = convolution(lv, const[1, 1, 3, 3, 8, 8])
        lv2[1, 2, 3, 3, 8] = concatenate(lv1, lv1)
        lv3[1, 1, 3, 3, 8] = convolution1(lv2, const[1, 2, 1, 1, 8, 8])
        lv4[1, 8, 3, 3] = unblock(lv3)
        -> lv4""",
    ),
    "a concatenation whose seam falls inside a block": (
        """x[1, 8, 5, 5] -> c
        a = R.nn.conv2d(x, W17)
        b = R.concat((a, a), axis=1)
        c = R.nn.relu(b)""",
        """lv[1, 1, 5, 5, 8] = block(x)
        lv1[1, 3, 3, 3, 8] = convolution(lv, const[3, 1, 3, 3, 8, 8])
        lv2[1, 6, 3, 3, 8] = concatenate(lv1, lv1)
        lv3[1, 6, 3, 3, 8] = nn.relu(lv2)
        lv4[1, 34, 3, 3] = unarrange(lv3, const[34])
        -> lv4""",
    ),
    "few input channels are read as they are": (
        """x[1, 3, 5, 5] -> a
        a = R.nn.conv2d(x, W3)""",
        """lv[1, 1, 3, 3, 8] = convolution(x, const[1, 1, 3, 3, 3, 8])
        lv1[1, 8, 3, 3] = unblock(lv)
        -> lv1""",
    ),
    "a pooling alone is no reason to change the layout": (
        """x[1, 8, 4, 4] -> a
        a = R.nn.max_pool2d(x, pool_size=[2, 2], strides=[2, 2])""",
        """lv[1, 8, 2, 2] = max_pool(x)
        -> lv""",
    ),
    "one position of full blocks is a reshape": (
        """x[1, 8, 5, 5] -> c
        a = R.nn.conv2d(x, W8)
        b = R.mean(a, axis=[2, 3], keepdims=True)
        c = R.reshape(b, R.shape([1, 8]))""",
        """lv[1, 1, 5, 5, 8] = block(x)
        lv1[1, 1, 3, 3, 8] = convolution(lv, const[1, 1, 3, 3, 8, 8])
        lv2[1, 1, 1, 1, 8] = mean(lv1)
        lv3[1, 8, 1, 1] = reshape(lv2, R.shape([1, 8, 1, 1]))
        c[1, 8] = reshape(lv3, R.shape([1, 8]))
        -> c""",
    ),
}


@pytest.mark.parametrize(("before", "after"), PROGRAMS.values(), ids=PROGRAMS)
def test_layouts_are_chosen_by_region(before: str, after: str) -> None:
    changed = assign_layouts(program(before, **CONSTANTS), TARGET, FastAlgorithms())
    assert summary(changed) == "\n".join(line.strip() for line in after.splitlines())


PRODUCTS = {
    "a constant factor is packed": ("x[2, 19] -> a\na = R.matmul(x, W24)", "lv[2, 24] = matmul(x, const[3, 19, 8])"),
    "odd columns are filled up": ("x[2, 19] -> a\na = R.matmul(x, W17)", "lv[2, 17] = matmul(x, const[3, 19, 8])"),
    "a transposed constant is packed": (
        "x[2, 19] -> b\na = R.permute_dims(T24)\nb = R.matmul(x, a)",
        "lv[2, 24] = matmul(x, const[3, 19, 8])",
    ),
    "two inputs are not": ("x[2, 19]; y[19, 3] -> a\na = R.matmul(x, y)", "a[2, 3] = matmul(x, y)"),
    "integers are not": ("x: int32[2, 19] -> a\na = R.matmul(x, I)", "a[2, 8] = matmul(x, const[19, 8])"),
}


@pytest.mark.parametrize(("before", "after"), PRODUCTS.values(), ids=PRODUCTS)
def test_constant_factors_are_packed(before: str, after: str) -> None:
    constants = {"W24": values(19, 24), "W17": values(19, 17), "T24": values(24, 19), "I": np.ones((19, 8), np.int32)}
    assert summary(pack_matmul(program(before, **constants), TARGET, FastAlgorithms())).startswith(after)


def after_convolution(name: str, channels: int, function: object) -> Case:
    """A function of the result of a convolution, and then another convolution, to which padding would spread."""
    first, second = values(channels, 5, 1, 1) / 4, values(7, channels, 1, 1) / channels

    def make(graph: Graph, x: Value) -> list[Value]:
        inner = function(graph, graph.convolve(x, first))
        return [inner, graph.convolve(inner, second)]

    return Case([values(1, 5, 6, 4)], make, 1e-5, f"{name} of {channels} channels")


def positive(graph: Graph, x: Value) -> Value:
    bound = np.full((1, x.shape[1], 1, 1), 0.25, np.float32)
    return graph.binary("add", graph.unary("abs", x), graph.constant(bound))


def in_integers(graph: Graph, x: Value, axis: int) -> Value:
    """Quantized and dequantized, with a scale and a zero point for each position of an axis."""
    size = x.shape[axis]
    along = [size if n == axis else 1 for n in range(4)]
    scales = (np.arange(size, dtype=np.float32) % 5 + 1) / 40
    zeros = np.arange(size).astype(np.int8) - 2
    codes = np.rint(x.array / scales.reshape(along)) + zeros.reshape(along)
    parameters = graph.constant(scales).expr, graph.constant(zeros).expr, axis
    narrow = graph.emit(relax.op.quantize(x.expr, *parameters, "int8"), np.clip(codes, -128, 127).astype(np.int8))
    wide = (narrow.array.astype(np.float64) - zeros.reshape(along)) * scales.reshape(along)
    return graph.emit(relax.op.dequantize(narrow.expr, *parameters, "float32"), wide)


FUNCTIONS = {
    "log": lambda g, x: g.unary("log", positive(g, x)),
    "rsqrt": lambda g, x: g.unary("rsqrt", positive(g, x)),
    "divide": lambda g, x: g.binary("divide", x, positive(g, x)),
    "reciprocal": lambda g, x: g.binary("divide", g.constant(np.float32(1)), positive(g, x)),
    "divide by a number": lambda g, x: g.binary("divide", g.unary("abs", x), g.constant(np.float32(6))),
    "power": lambda g, x: g.binary("power", positive(g, x), g.constant(np.float32(-1.5))),
    "cosh": lambda g, x: g.unary("cosh", x),
    "constant on the left": lambda g, x: g.binary("subtract", g.constant(np.float32(1)), x),
    "one value a row": lambda g, x: g.binary("multiply", x, g.constant(values(1, 1, 6, 1))),
    "one value a channel": lambda g, x: g.binary("maximum", g.constant(values(1, x.shape[1], 1, 1)), x),
    "fewer dimensions": lambda g, x: g.binary("add", x, g.constant(values(x.shape[1], 1, 1))),
    "more dimensions": lambda g, x: g.reshape(g.binary("add", x, g.constant(values(1, 1, 1, 1, 1))), x.shape),
    "its own mean": lambda g, x: g.binary("subtract", x, g.reduce("mean", x, [2, 3])),
    "its sum over channels": lambda g, x: g.binary("add", x, g.reduce("sum", x, [1])),
    "itself": lambda g, x: g.binary("multiply", x, x),
    "concatenation": lambda g, x: g.slice(g.concatenate([x, x, g.unary("relu", x)], 1), 1, 1, x.shape[1] + 1),
    "concatenation of rows": lambda g, x: g.concatenate([x, g.unary("exp", x)], 2),
    "smallest over space": lambda g, x: g.reduce("min", x, [-1, -2]),
    "local response": lambda g, x: g.local_response(g.unary("sigmoid", x), 2, 2, 1.0, 1.0, 0.5),
    "mean over no dimension": lambda g, x: g.reduce("mean", x, []),
    "softmax": lambda g, x: g.softmax(x, 1),
    "quantized by channel": lambda g, x: in_integers(g, x, 1),
    "quantized by column": lambda g, x: in_integers(g, x, 3),
}


@pytest.mark.parametrize("channels", [1, 17, *(pytest.param(channels, marks=pytest.mark.slow) for channels in (3, 16))])
@pytest.mark.sample(1)
def test_what_fills_up_a_block_is_never_seen(channels: int) -> None:
    check([after_convolution(name, channels, function) for name, function in FUNCTIONS.items()])


def test_results_may_be_inputs_constants_duplicates_and_reshaped() -> None:
    def make(graph: Graph, x: Value) -> list[Value]:
        y = graph.convolve(x, values(17, 5, 1, 1))
        return [x, y, y, graph.reshape(y, (17, 24)), graph.constant(values(3)), graph.reshape(x, (24, 5)), x]

    check([Case([values(1, 5, 6, 4)], make, 1e-5)])


def test_integers_and_doubles_stay_row_major() -> None:
    whole = np.arange(2 * 3 * 4 * 4, dtype=np.int32).reshape(2, 3, 4, 4)
    check(
        [
            Case([whole], lambda g, x: g.max_pool(x, 2, 2), name="pooled integers"),
            Case(
                [whole], lambda g, x: g.binary("maximum", g.binary("add", x, x), g.constant(whole[:, :, ::-1].copy()))
            ),
            Case([whole], lambda g, x: g.concatenate([x, x], 1)),
            Case([whole / 7], lambda g, x: g.convolve(x, values(5, 3, 3, 3).astype(np.float64)), 1e-12, "doubles"),
        ]
    )
