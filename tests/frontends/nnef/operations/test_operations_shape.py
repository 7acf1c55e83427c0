"""Operations that move elements, and reductions, against NumPy, at run time and folded at compile time."""

import dataclasses

import numpy as np
import pytest
from nnef_cases import Case, check, check_expanded, load_text, with_share

from nnefc.support.diagnostics import CompileError

RNG = np.random.default_rng(12)


def real(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def whole(*shape):
    return RNG.integers(-9, 9, shape).astype(np.int32)


def one(text, x, y):
    return Case(f"$y = {text};", {"x": x}, {"y": y})


def reshape_cases():
    x = real(2, 3, 4)
    return [
        one("reshape($x, shape = [0, -1])", x, x.reshape(2, 12)),
        one("reshape($x, shape = [4, 0, 2])", x, x.reshape(4, 3, 2)),
        one("reshape($x, shape = [24])", x, x.reshape(24)),
    ]


def final_reshape_cases():
    x, b = real(2, 3, 4), RNG.random((2, 1, 3, 1)) < 0.5
    return [
        one("reshape($x, shape = [6, -1, 2], axis_start = 1, axis_count = 2)", x, x.reshape(2, 6, 1, 2)),
        one("reshape($x, shape = [0, 1, 1], axis_start = 1, axis_count = 1)", x, x.reshape(2, 3, 1, 1, 4)),
        one("reshape($x, shape = [1], axis_start = 3)", x, x.reshape(2, 3, 4, 1)),
        one("squeeze($x, axes = [3, 1])", b, b.reshape(2, 3)),
        one("squeeze($x, axes = [])", x, x),
        one("unsqueeze($x, axes = [0, 4, 2])", x, x.reshape(1, 2, 1, 3, 1, 4)),
        one("tile($x, repeats = [2, 1, 3])", x, np.tile(x, [2, 1, 3])),
        one("tile($x, repeats = [1, 1, 1])", x, x),
    ]


def transpose_cases(name):
    x = real(2, 3, 4, 5)
    return [
        one(f"transpose($x, {name} = [3, 1, 0, 2])", x, x.transpose(3, 1, 0, 2)),
        one(f"transpose($x, {name} = [1, 0])", x, x.transpose(1, 0, 2, 3)),
        one(f"transpose($x, {name} = [0, 1])", x, x),
    ]


def joining_cases():
    x, y = real(2, 3, 4), real(2, 5, 4)
    a, b, c = np.split(x, [1, 3], 2)
    return [
        Case("$z = concat([$x, $y, $x], axis = 1);", {"x": x, "y": y}, {"z": np.concatenate([x, y, x], 1)}),
        Case("$z = concat([$x], axis = 0);", {"x": x}, {"z": x}),
        Case("[$a, $b, $c] = split($x, axis = 2, ratios = [1, 2, 1]);", {"x": x}, {"a": a, "b": b, "c": c}),
        Case("[$a] = split($x, axis = 2, ratios = [3]);", {"x": real(2, 2, 3)}, {}),
        Case("[$a, $b] = split($x, axis = 1, ratios = [1, 1]);", {"x": y[:, :4]}, {"b": y[:, 2:4], "a": y[:, :2]}),
        Case("[$a, $b, $c] = copy_n($x, times = 3);", {"x": x}, {"a": x, "b": x, "c": x}),
        Case("$z = add_n([$x, $y, $x]);", {"x": x, "y": x[::-1].copy()}, {"z": x + x[::-1] + x}),
        Case("$z = add_n([$x]);", {"x": x}, {"z": x}),
    ]


def final_joining_cases():
    x, y, n = real(2, 3), real(2, 3), whole(3, 2)
    return [
        Case("$z = stack([$x, $y], axis = 0);", {"x": x, "y": y}, {"z": np.stack([x, y])}),
        Case("$z = stack([$x, $y], axis = 2);", {"x": x, "y": y}, {"z": np.stack([x, y], 2)}),
        Case("[$a, $b, $c] = unstack($n, axis = 0);", {"n": n}, {"a": n[0], "b": n[1], "c": n[2]}),
        Case("[$a, $b] = unstack($x, axis = 0);", {"x": x}, {"a": x[0], "b": x[1]}),
        Case("$z = concat([$n, $n], axis = 1);", {"n": n}, {"z": np.concatenate([n, n], 1)}),
    ]


def slice_cases():
    x = real(6, 5, 4)
    table = [
        ("axes = [0], begin = [1], end = [4]", x[1:4]),
        ("axes = [1, 0], begin = [1, -3], end = [-1, 0]", x[-3:, 1:-1]),
        ("axes = [0], begin = [2], end = [0]", x[2:]),
        ("axes = [0, 2], begin = [0, 1], end = [6, 4], stride = [2, 2]", x[::2, :, 1::2]),
        ("axes = [0], begin = [4], end = [0], stride = [-1]", x[4:0:-1]),
        ("axes = [0], begin = [-1], end = [-7], stride = [-2]", x[::-2]),
        ("axes = [1, 2], begin = [-1, 1], end = [-6, 4], stride = [-1, 2]", x[:, ::-1, 1::2]),
        ("axes = [0], begin = [0], end = [100]", x),
        ("axes = [2], begin = [-100], end = [2]", x[:, :, :2]),
    ]
    return [one(f"slice($x, {text})", x, y) for text, y in table]


def pad_cases():
    x = real(3, 4, 2)
    pads = [(1, 2), (0, 3), (1, 0)]
    modes = {"replicate": "edge", "reflect": "reflect", "reflect-even": "symmetric"}
    cases = [one(f"pad($x, padding = {pads}, border = '{b}')", x, np.pad(x, pads, mode=m)) for b, m in modes.items()]
    return [
        *cases,
        one(f"pad($x, padding = {pads}, value = 1.5)", x, np.pad(x, pads, constant_values=1.5)),
        one("pad($x, padding = [(0,0), (0,0), (0,0)])", x, x),
    ]


def gather_cases():
    x, i, j = real(4, 3, 2), RNG.integers(0, 3, (2, 2)).astype(np.int32), np.array([-1, 0, -4, 3], np.int32)
    return [
        Case("$y = gather($x, $i, axis = 1);", {"x": x, "i": i}, {"y": np.take(x, i, 1)}),
        Case("$y = gather($x, $i);", {"x": x, "i": j}, {"y": np.take(x, j, 0)}),
        Case("$y = gather($x, $i, axis = 2);", {"x": whole(2, 2, 3), "i": i}, {}),
        Case("$y = gather($x, 2, axis = 1);", {"x": x}, {"y": x[:, 2]}),
        Case("$y = gather($x, 0);", {"x": x}, {"y": x[0]}),
    ]


def cast_cases():
    x = np.array([-2.7, -0.5, 0.0, 0.5, 2.7], np.float32)
    n, b = whole(5), np.array([True, False, True])
    return [
        one("cast<integer>($x)", x, np.trunc(x).astype(np.int32)),
        one("cast<logical>($x)", x, x != 0),
        one("cast<scalar>($x)", n, n.astype(np.float32)),
        one("cast<scalar>($x)", b, b.astype(np.float32)),
        one("cast<integer>($x)", b, b.astype(np.int32)),
        one("cast<logical>($x)", n, n != 0),
        one("cast<scalar>($x)", x, x),
    ]


AXES = [[0], [1, 2], [2, 0], [0, 1, 2], []]


def reduce_cases():
    x, cases = real(2, 3, 4), []
    for axes in AXES:
        at = tuple(axes)
        mean = x.mean(at, keepdims=True) if axes else x
        variance = ((x - mean) ** 2).mean(at, keepdims=True) if axes else np.zeros_like(x)
        cases += [
            one(f"sum_reduce($x, axes = {axes})", x, x.sum(at, keepdims=True)),
            one(f"sum_reduce($x, axes = {axes}, normalize = true)", x, mean),
            one(f"mean_reduce($x, axes = {axes})", x, mean),
            one(f"max_reduce($x, axes = {axes})", x, x.max(at, keepdims=True)),
            one(f"min_reduce($x, axes = {axes})", x, x.min(at, keepdims=True)),
            Case(f"$m, $v = moments($x, axes = {axes});", {"x": x}, {"m": mean, "v": variance}),
        ]
    return cases


def arg(x, axes, function):
    """The first position, row-major over the sorted axes."""
    axes = sorted(axes)
    others = [axis for axis in range(x.ndim) if axis not in axes]
    moved = x.transpose(*others, *axes).reshape(*(x.shape[axis] for axis in others), -1)
    return function(moved, -1).reshape([1 if a in axes else e for a, e in enumerate(x.shape)]).astype(np.int32)


def final_reduce_cases():
    b, cases = RNG.random((2, 3, 4)) < 0.7, []
    x = RNG.integers(-2, 3, (2, 3, 4)).astype(np.float32)  # with ties
    low = np.full((2, 3), -np.inf, np.float32)
    for axes in AXES:
        cases += [
            one(f"argmax_reduce($x, axes = {axes})", x, arg(x, axes, np.argmax)),
            one(f"argmin_reduce($x, axes = {axes})", x, arg(x, axes, np.argmin)),
            one(f"any_reduce($x, axes = {axes})", b, b.any(tuple(axes), keepdims=True)),
            one(f"all_reduce($x, axes = {axes})", b, b.all(tuple(axes), keepdims=True)),
        ]
    return [*cases, one("argmin_reduce($x, axes = [1])", low, np.zeros((2, 1), np.int32))]


FINAL = [
    *reshape_cases(),
    *final_reshape_cases(),
    *transpose_cases("axes"),
    *joining_cases(),
    *final_joining_cases(),
    *slice_cases(),
    *pad_cases(),
    *gather_cases(),
    *cast_cases(),
    *reduce_cases(),
    *final_reduce_cases(),
]
PROVISIONAL = [*reshape_cases(), *transpose_cases("perm"), *joining_cases(), *reduce_cases()]


def test_final_operations_agree_with_numpy(tmp_path):
    check(FINAL, tmp_path)


@with_share
def test_provisional_operations_agree_with_numpy(tmp_path, share):
    check(share(PROVISIONAL), tmp_path, "provisional")


@with_share
def test_operations_on_known_values_agree_with_numpy(tmp_path, share):
    written = [case for case in share(FINAL) if all(np.isfinite(value).all() for value in case.inputs.values())]
    check([dataclasses.replace(case, known=frozenset(case.inputs)) for case in written], tmp_path)


@pytest.mark.parametrize(("dialect", "cases"), [("final", FINAL), ("provisional", PROVISIONAL)])
@with_share
@pytest.mark.sample(1)
def test_definitions_agree_with_the_direct_lowering(dialect, cases, share):
    # add_n's own definition ends with a constant of shape [1]: the shapes of a sum of tensors of other ranks still fit.
    check_expanded(share(cases), dialect)


def test_indices_outside_a_tensor_read_nothing_outside_it(tmp_path):
    x, i = real(4, 3), np.array([7, -9, 2**30, -(2**31)], np.int32)
    check([Case("$y = gather($x, $i);", {"x": x, "i": i}, {"y": np.take(x, i, 0, mode="wrap")})], tmp_path)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("y = reshape(x, shape = [5, -1])", "[2, 3, 4] cannot take the shape [5, -1]"),
        ("y = reshape(x, shape = [2, 3])", "[2, 3, 4] cannot take the shape [2, 3]"),
        ("y = reshape(x, shape = [-1, -1])", "one -1"),
        ("y = reshape(x, shape = [0], axis_start = 4)", "'axis_start' 4 is out of range"),
        ("y = transpose(x, axes = [0, 0])", "not a permutation"),
        ("y = squeeze(x, axes = [0])", "only dimensions of size 1"),
        ("y = unsqueeze(x, axes = [5])", "out of range"),
        ("y = concat([x, z], axis = 0)", "[2, 3, 4], [2, 3, 5] must agree"),
        ("y = stack([x, z], axis = 0)", "[2, 3, 4], [2, 3, 5]"),
        ("[y] = split(x, axis = 1, ratios = [2])", "does not divide"),
        ("y = slice(x, axes = [0], begin = [2], end = [1])", "takes nothing"),
        ("y = slice(x, axes = [0], begin = [0, 1], end = [1])", "equally long"),
        ("y = slice(x, axes = [0], begin = [0], end = [1], stride = [0])", "must not be 0"),
        ("y = tile(x, repeats = [1])", "'repeats'"),
        ("y = pad(x, padding = [(1, 1)])", "needs 3 pairs"),
        ("y = pad(x, padding = [(0,0), (0,0), (-1,0)])", "must not be negative"),
        ("y = pad(x, padding = [(0,0), (0,0), (1,0)], border = 'ignore')", "border 'ignore'"),
        ("y = sum_reduce(x, axes = [3])", "'axes' [3]"),
        ("y = max_reduce(x, axes = [1, 1])", "different dimensions"),
        ("y = add(x, z)", "[2, 3, 4] and [2, 3, 5] do not fit each other: dimension 2"),
        ("y = add_n([x, z])", "[2, 3, 4], [2, 3, 5]"),
        ("y = matmul(x, z)", "4 columns of the first meet 3 rows"),
        ("y = conv(x, w)", "in 1 group does not fit the input"),
        ("y = conv(x, x, 0.0, stride = [1, 1])", "'stride' has 2 elements"),
        ("y = max_pool(x, size = [1, 1, 9], padding = [(0,0), (0,0), (0,0)])", "the window covers 9 positions"),
        ("y = max_pool(x, size = [1, 1, 2], border = 'wrong')", "unknown border 'wrong'"),
        ("y = box(x, size = [1, 1, 0])", "must be positive"),
        ("y = constant(shape = [2, 2], value = [1.0, 2.0, 3.0])", "holds 4 elements, 'value' has 3"),
        ("y = batch_normalization(x, z, z, z, z, epsilon = 0.1)", "'mean' cannot be broadcast to [2, 3, 4]"),
        ("y = multilinear_upsample(x, factor = [2], method = 'cubic')", "unknown method 'cubic'"),
        ("y = nearest_downsample(x, factor = [3])", "does not divide"),
        ("y = linear_quantize(x, 0.0, 1.0, bits = 0)", "'bits'"),
        ("v = variable<scalar>(shape = [2], label = 'v'); y = update(v, z)", "the shape [2], its new value [2, 3, 5]"),
        ("y = gather(x, 0, axis = 3)", "out of range"),
    ],
)
def test_shapes_that_do_not_fit_are_errors_with_a_location(tmp_path, statement, message):
    text = (
        "version 1.0;\nextension KHR_enable_operator_expressions;\ngraph g(x, z, w) -> (y)\n{\n"
        "x = external<scalar>(shape = [2, 3, 4]);\nz = external<scalar>(shape = [2, 3, 5]);\n"
        f"w = external<scalar>(shape = [2, 7, 1]);\n    {statement};\n}}\n"
    )
    with pytest.raises(CompileError) as caught:
        load_text(text, tmp_path)
    assert message in str(caught.value)
    assert caught.value.location is not None
    assert caught.value.location.line == 8
