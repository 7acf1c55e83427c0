"""Matrices, normalizations, resizing, quantization and layers against NumPy, in both dialects."""

import math
from fractions import Fraction

import nnef_reference as reference
import numpy as np
import pytest
from nnef_cases import Case, check, check_expanded, load_text, run_network, with_share
from tvm import relax

from nnefc.frontends.nnef.files.tensor_file import write_tensor

RNG = np.random.default_rng(13)


def real(*shape, low=-2.0, high=2.0):
    return RNG.uniform(low, high, shape).astype(np.float32)


def matrix_cases(a, b):
    cases = []
    for lead in ((), (2,), (1, 3)):
        for flag_a in (False, True):
            for flag_b in (False, True):
                x, y = real(*lead, 3, 4), real(*(1 for _ in lead), 4, 5)
                want = np.matmul(x.astype(np.float64), y)
                x, y = (np.swapaxes(v, -1, -2).copy() if f else v for v, f in ((x, flag_a), (y, flag_b)))
                text = f"$z = matmul($x, $y, {a} = {str(flag_a).lower()}, {b} = {str(flag_b).lower()});"
                known = frozenset("y" if len(cases) % 2 else "")
                cases.append(Case(text, {"x": x, "y": y}, {"z": want}, known=known))
    x, w, bias = real(3, 4), real(5, 4), real(1, 5)
    return [
        *cases,
        Case("$z = linear($x, $w, $b);", {"x": x, "w": w, "b": bias}, {"z": x @ w.T + bias}, known=frozenset("wb")),
        Case("$z = linear($x, $w, $b);", {"x": x, "w": w, "b": bias}, {"z": x @ w.T + bias}),
        Case("$z = linear($x, $w);", {"x": x, "w": w}, {"z": x @ w.T}),
        Case("$z = linear($x, $w, 1.5);", {"x": x, "w": w}, {"z": x @ w.T + 1.5}),
    ]


def batch_normalization_cases():
    cases = []
    for rank in (2, 4, 5):
        x = real(2, 3, *range(2, rank))
        mean, variance, offset, scale = real(1, 3), real(1, 3, low=0.5), real(1, 3), real(1, 3)
        inputs = {"x": x, "m": mean, "v": variance, "o": offset, "s": scale}
        column = [value.reshape(1, 3, *[1] * (rank - 2)) for value in (mean, variance, offset, scale)]
        want = column[2] + column[3] * (x - column[0]) / np.sqrt(column[1] + 0.01)
        for known in (frozenset("mvos"), frozenset("mv"), frozenset()):
            cases.append(
                Case("$y = batch_normalization($x, $m, $v, $o, $s, epsilon = 0.01);", inputs, {"y": want}, 1e-4, known)
            )
        want = (x - column[0]) / np.sqrt(column[1] + 0.01)
        text = "$y = batch_normalization($x, $m, $v, offset = 0.0, scale = 1.0, epsilon = 0.01);"
        cases.append(Case(text, {"x": x, "m": mean, "v": variance}, {"y": want}, 1e-4, frozenset("mv")))
    return cases


def mean_box(x, size):
    return reference.box(x, size, normalize=True)


def common_normalization_cases():
    x, size = real(2, 5, 4, 3), [1, 3, 2, 1]
    lrn = x / (2.0 + 0.5 * mean_box(x**2, size)) ** 0.75
    return [
        Case(
            f"$y = local_response_normalization($x, size = {size}, alpha = 0.5, beta = 0.75, bias = 2.0);",
            {"x": x},
            {"y": lrn},
        ),
        Case(f"$y = local_mean_normalization($x, size = {size});", {"x": x}, {"y": x - mean_box(x, size)}),
    ]


def final_normalization_cases():
    x, size = real(2, 5, 4, 3), [1, 3, 2, 1]
    centred = x - mean_box(x, size)

    def by_variance(v):
        return v / np.maximum(np.sqrt(mean_box(v**2, size)) + 0.1, 0.5)

    total = np.abs(x).sum((1, 2), keepdims=True)
    root = np.sqrt((x**2).sum((1, 2), keepdims=True))
    options = "bias = 0.1, epsilon = 0.5"
    return [
        Case(f"$y = local_variance_normalization($x, size = {size}, {options});", {"x": x}, {"y": by_variance(x)}),
        Case(
            f"$y = local_contrast_normalization($x, size = {size}, {options});", {"x": x}, {"y": by_variance(centred)}
        ),
        Case(
            "$y = l1_normalization($x, axes = [1, 2], bias = 0.5, epsilon = 9.0);",
            {"x": x},
            {"y": x / np.maximum(total + 0.5, 9)},
        ),
        Case(
            "$y = l2_normalization($x, axes = [1, 2], bias = 0.5, epsilon = 3.0);",
            {"x": x},
            {"y": x / np.maximum(root + 0.5, 3)},
        ),
    ]


def provisional_normalization_cases():
    x, size = real(2, 5, 4, 3), [1, 3, 2, 1]
    centred = x - mean_box(x, size)

    def by_variance(v):
        return v / np.sqrt(mean_box(v**2, size) + 0.1)

    total = np.abs(x).sum((1, 2), keepdims=True)
    squares = (x**2).sum((1, 2), keepdims=True)
    mean, variance = x.mean((2, 3), keepdims=True), x.var((2, 3), keepdims=True)
    local = x - mean_box(x, [1, 1, 3, 3]).mean(1, keepdims=True)
    spread = mean_box(local**2, [1, 1, 3, 3]).mean(1, keepdims=True)
    return [
        Case(f"$y = local_variance_normalization($x, size = {size}, bias = 0.1)", {"x": x}, {"y": by_variance(x)}),
        Case(
            f"$y = local_contrast_normalization($x, size = {size}, bias = 0.1)", {"x": x}, {"y": by_variance(centred)}
        ),
        Case("$y = l1_normalization($x, axes = [1, 2], bias = 0.5)", {"x": x}, {"y": x / (total + 0.5)}),
        Case("$y = l2_normalization($x, axes = [1, 2], bias = 0.5)", {"x": x}, {"y": x / np.sqrt(squares + 0.5)}),
        Case(
            "$y = layer_normalization($x, axes = [2, 3], bias = 0.1)",
            {"x": x},
            {"y": (x - mean) / np.sqrt(variance + 0.1)},
        ),
        Case(
            "$y = divisive_normalization($x, size = [3, 3], bias = 0.1)", {"x": x}, {"y": local / np.sqrt(spread + 0.1)}
        ),
    ]


def interpolate(x, factors, method, border):
    """Every result from its position in the input, computed with exact fractions."""
    for axis, factor in enumerate(factors, 2):
        size = x.shape[axis]
        moved = np.moveaxis(x.astype(np.float64), axis, 0)
        rows = []
        for target in range(size * factor):
            position = {
                "symmetric": Fraction(2 * target + 1, 2 * factor) - Fraction(1, 2),
                "asymmetric": Fraction(target, factor),
                "aligned": Fraction(target * (size - 1), max(1, size * factor - 1)),
            }[method]
            lower = math.floor(position)
            row = 0.0
            for source, weight in ((lower, 1 - (position - lower)), (lower + 1, position - lower)):
                if border == "replicate":
                    source = min(max(source, 0), size - 1)
                if 0 <= source < size:
                    row = row + float(weight) * moved[source]
            rows.append(row)
        x = np.moveaxis(np.array(rows), 0, axis)
    return x


def resize_cases():
    x, t, s = real(2, 3, 4, 6), real(1, 2, 6), real(1, 2, 2, 3, 4)
    cases = []
    for v, factors in ((x, [2, 3]), (t, [3]), (s, [2, 1, 2])):
        up = v
        for axis, factor in enumerate(factors, 2):
            up = np.repeat(up, factor, axis)
        cases.append(Case(f"$y = nearest_upsample($x, factor = {factors});", {"x": v}, {"y": up}))
        down = v[(slice(None), slice(None), *(slice(None, None, f) for f in factors))]
        cases.append(Case(f"$y = nearest_downsample($x, factor = {factors});", {"x": v}, {"y": down}))
        area = reference.box(v, [1, 1, *factors], [(0, 0)] * v.ndim, [1, 1, *factors], normalize=True)
        cases.append(Case(f"$y = area_downsample($x, factor = {factors});", {"x": v}, {"y": area}))
        for method in ("symmetric", "asymmetric", "aligned"):
            for border in ("replicate", "constant"):
                text = f"$y = multilinear_upsample($x, factor = {factors}, method = '{method}', border = '{border}');"
                cases.append(Case(text, {"x": v}, {"y": interpolate(v, factors, method, border)}))
    return cases


def rounded(x):
    return np.sign(x) * np.floor(np.abs(x) + 0.5)


def final_quantize_cases():
    x = real(2, 3, 4)
    low, high = real(1, 3, low=-1.5, high=-0.5), real(1, 3, low=0.5, high=1.5)
    a, b = low.reshape(1, 3, 1), high.reshape(1, 3, 1)
    z = np.clip(x, a, b)
    cases = []
    for signed in (False, True):
        for symmetric in (False, True):
            steps = 2.0**5 - 1 - (signed and symmetric)
            want = rounded((z - a) / (b - a) * np.float32(steps)) / steps * (b - a) + a
            flags = f"bits = 5, signed = {str(signed).lower()}, symmetric = {str(symmetric).lower()}"
            text = f"$y = min_max_linear_quantize($x, $a, $b, {flags});"
            cases.append(Case(text, {"x": x, "a": low, "b": high}, {"y": want}))
            top = 2.0**4 - 1 if signed else 2.0**5 - 1
            bottom = 0.0 if not signed else -top if symmetric else -top - 1
            point = np.array([[1, -2, 3]], np.int32)
            zero = point.reshape(1, 3, 1)
            want = (np.clip(rounded(x / np.float32(0.125)) + zero, bottom, top) - zero) * 0.125
            text = f"$y = zero_point_linear_quantize($x, $z, 0.125, {flags});"
            cases.append(Case(text, {"x": x, "z": point}, {"y": want}))
    steps = np.float32(2.0**4 - 1)
    want = rounded((z - a) / (b - a) * steps) / steps * (b - a) + a
    cases.append(Case("$y = linear_quantize($x, $a, $b, bits = 4);", {"x": x, "a": low, "b": high}, {"y": want}))
    exponent = np.clip(np.log2(np.abs(x)), math.ceil(math.log2(1.6)) - 7.0, math.ceil(math.log2(1.6)))
    want = np.sign(x) * 2.0 ** rounded(exponent)
    cases.append(Case("$y = logarithmic_quantize($x, 1.6, bits = 3);", {"x": x}, {"y": want}))
    return cases


def provisional_quantize_cases():
    x = real(2, 3, 4)
    scale = np.float32(15 / 2.5)
    z = np.clip(x, -1.0, 1.5)
    low = 2.0 ** (1 - 4)
    return [
        Case("$y = linear_quantize($x, -1.0, 1.5, bits = 4)", {"x": x}, {"y": rounded((z + 1) * scale) / scale - 1}),
        Case(
            "$y = logarithmic_quantize($x, 1.6, bits = 4)",
            {"x": x},
            {"y": 2.0 ** rounded(np.log2(np.clip(x, low, 2) / low))},
        ),
        Case("$y = binary_quantize($x)", {"x": x}, {"y": np.where(x < 0, np.float32(-1), np.float32(1))}),
        Case(
            "$y = binary_quantize($x, 0.5, negative_value = 0.25, positive_value = 4.0)",
            {"x": x},
            {"y": np.where(x < 0.5, np.float32(0.25), np.float32(4))},
        ),
        Case(
            "$y = ternary_quantize($x, -0.5, 0.75)",
            {"x": x},
            {"y": np.where(x < -0.5, np.float32(-1), np.where(x > 0.75, np.float32(1), np.float32(0)))},
        ),
    ]


def provisional(cases):
    """Cases of both dialects as the provisional one writes them."""
    return [case for case in cases if all(value.dtype == np.float32 for value in case.inputs.values())]


COMMON = [*batch_normalization_cases(), *common_normalization_cases(), *resize_cases()]
FINAL = [
    *COMMON,
    *matrix_cases("transposeA", "transposeB"),
    *final_normalization_cases(),
    *final_quantize_cases(),
]
PROVISIONAL = [
    *provisional(COMMON),
    *matrix_cases("trA", "trB"),
    *provisional_normalization_cases(),
    *provisional_quantize_cases(),
]


@pytest.mark.parametrize(("dialect", "cases"), [("final", FINAL), ("provisional", PROVISIONAL)])
@with_share
@pytest.mark.sample(1)
def test_operations_agree_with_numpy(tmp_path, dialect, cases, share):
    check(share(cases), tmp_path, dialect)


@pytest.mark.parametrize(("dialect", "cases"), [("final", FINAL), ("provisional", PROVISIONAL)])
@with_share
@pytest.mark.sample(1)
def test_definitions_agree_with_the_direct_lowering(dialect, cases, share):
    check_expanded(share(cases), dialect)


def test_known_batch_normalization_is_one_product_and_one_sum(tmp_path):
    text = """
        version 1.0;
        graph g(x) -> (y)
        {
            x = external<scalar>(shape = [1, 2, 3, 3]);
            m = constant<scalar>(shape = [1, 2], value = [1.0, 2.0]);
            v = constant<scalar>(shape = [1, 2], value = [4.0, 9.0]);
            y = batch_normalization(x, m, v, offset = 0.0, scale = 1.0, epsilon = 0.0);
        }
    """
    network = load_text(text, tmp_path)
    operations = []
    relax.analysis.post_order_visit(
        network.module["main"], lambda node: operations.append(node.op.name) if isinstance(node, relax.Call) else None
    )
    assert operations == ["relax.multiply", "relax.add"]


def layer_values():
    return {
        "a/filter": real(4, 3, 3, 3),
        "a/bias": real(1, 4),
        "b/filter": real(4, 2, 2, 2),
        "c/gamma": real(1, 4),
        "c/beta": real(1, 4),
        "c/mean": real(1, 4),
        "c/variance": real(1, 4, low=0.5),
        "d/filter": real(5, 16),
        "d/bias": real(1, 5),
        "f/filter": real(8, 1, 3, 3),
    }


def test_layers_declare_their_own_variables(tmp_path):
    values = layer_values()
    for label, value in values.items():
        (tmp_path / label).parent.mkdir(exist_ok=True)
        write_tensor(tmp_path / f"{label}.dat", value)
    text = """
        version 1.0
        graph g(x) -> (a, b, c, p, q, d, e, f)
        {
            x = external(shape = [2, 3, 6, 6])
            a = conv_layer(x, channels = 4, size = [3, 3], padding = [(0,0), (0,0)], stride = [1, 1], scope = 'a')
            b = deconv_layer(a, channels = 4, size = [2, 2], groups = 2, use_bias = false, stride = [2, 2], scope = 'b')
            c = batch_normalization_layer(a, epsilon = 0.01, scope = 'c')
            p = max_pool_layer(c, size = [2, 2], padding = [(0,0), (0,0)], stride = [2, 2])
            q = avg_pool_layer(c, size = [3, 3], border = 'ignore', padding = [(1,1), (1,1)])
            r = reshape(p, shape = [2, 16])
            d = linear_layer(r, channels = 5, scope = 'd')
            e = max_pool_layer(c, size = [3, 3], border = 'ignore')
            f = conv_layer(c, channels = 8, size = [3, 3], groups = 0, use_bias = false, scope = 'f')
        }
    """
    x = real(2, 3, 6, 6)
    results = run_network(load_text(text, tmp_path, dialect="provisional"), [x])
    pads = [(0, 0), (0, 0)]
    a = reference.conv(x, values["a/filter"], values["a/bias"], padding=pads)
    b = reference.deconv(a, values["b/filter"], groups=2, stride=[2, 2])
    gamma, beta, mean, variance = (values[f"c/{n}"].reshape(1, 4, 1, 1) for n in ("gamma", "beta", "mean", "variance"))
    c = beta + gamma * (a - mean) / np.sqrt(variance + 0.01)
    p = reference.max_pool(c, [1, 1, 2, 2], pads * 2, [1, 1, 2, 2])
    q = reference.box(c, [1, 1, 3, 3], [*pads, (1, 1), (1, 1)], border="ignore", normalize=True)
    d = p.reshape(2, 16) @ values["d/filter"].T + values["d/bias"]
    e = reference.max_pool(c, [1, 1, 3, 3], border="ignore")
    f = reference.conv(c, values["f/filter"], groups=0)
    for got, want in zip(results, (a, b, c, p, q, d, e, f), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
