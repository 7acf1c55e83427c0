"""`graph.quant` and quantized tensor files: the reals that stored integers stand for."""

from pathlib import Path

import nnef
import numpy as np
import pytest
from nnef_cases import load_text, run_network
from quantized_networks import integer_layers

from nnefc.frontends.nnef import operations  # noqa: F401  (declares the quantize operations)
from nnefc.frontends.nnef.files.quantization import dequantize, parse_algorithm, parse_quantization
from nnefc.frontends.nnef.files.tensor_file import ElementType, StoredTensor, write_tensor
from nnefc.frontends.nnef.language.types import Dialect
from nnefc.support.diagnostics import CompileError

RNG = np.random.default_rng(17)


def stored(values, kind=ElementType.QUANTIZED_UNSIGNED, bits=8):
    return StoredTensor(np.array(values), kind, bits)


def reals(text, values, dialect=Dialect.FINAL):
    entries = parse_quantization(f'"w": {text};', "graph.quant", dialect)
    return dequantize(stored(values), entries["w"], "w.dat")


def test_stored_integers_map_to_reals():
    codes = np.arange(0, 16)
    np.testing.assert_allclose(
        reals("linear_quantize(min = -1.0, max = 2.0, bits = 4)", codes), codes / 15 * 3 - 1, 1e-6, 1e-7
    )
    signed = np.arange(-8, 8)
    got = reals("min_max_linear_quantize(-1.0, 2.0, bits = 4, signed = true, symmetric = false)", signed)
    np.testing.assert_allclose(got, (signed + 8) / 15 * 3 - 1, 1e-6, 1e-7)
    got = reals("min_max_linear_quantize(-1.0, 1.0, bits = 4, signed = true, symmetric = true)", signed)
    np.testing.assert_allclose(got, signed / 7, 1e-6, 1e-7)
    got = reals("zero_point_linear_quantize(3, 0.5, bits = 4, signed = false, symmetric = false)", codes)
    np.testing.assert_allclose(got, (codes - 3) * 0.5)
    got = reals("logarithmic_quantize(max = 6.0, bits = 4)", codes)
    np.testing.assert_allclose(got, 2.0 ** (codes + 3 - 15))
    got = reals("binary_quantize(0.0, negative_value = -2.0)", [0, 1], Dialect.PROVISIONAL)
    np.testing.assert_allclose(got, [-2, 1])
    got = reals("ternary_quantize(-0.5, 0.5)", [-1, 0, 1], Dialect.PROVISIONAL)
    np.testing.assert_allclose(got, [-1, 0, 1])


@pytest.mark.parametrize(
    "text",
    [
        "linear_quantize(min = -1.0, max = 2.0, bits = 4)",
        "min_max_linear_quantize(-1.0, 2.0, bits = 4, signed = true, symmetric = false)",
        "min_max_linear_quantize(-1.0, 1.0, bits = 4, signed = true, symmetric = true)",
        "zero_point_linear_quantize(3, 0.5, bits = 4, signed = true, symmetric = false)",
    ],
)
def test_reals_of_codes_are_fixed_points_of_the_operation(tmp_path, text):
    """Quantizing what a code stands for changes nothing, so both follow one algorithm."""
    low = -8 if "signed = true" in text else 0
    codes = np.arange(low + ("symmetric = true" in text), low + 16).astype(np.int8)
    values = reals(text, codes)
    name, arguments = text.split("(", 1)
    document = f"""version 1.0;
        graph g(x) -> (y)
        {{
            x = external<scalar>(shape = [{len(codes)}]);
            y = {name}(x, {arguments};
        }}"""
    (again,) = run_network(load_text(document, tmp_path), [values])
    np.testing.assert_allclose(again, values, atol=1e-6)


def test_parameters_may_differ_by_channel():
    codes = np.array([[[0, 255]], [[51, 102]]])
    text = "min_max_linear_quantize(min = [-1.0, 0.0], max = [1.0, 5.0], bits = 8, signed = false, symmetric = false)"
    np.testing.assert_allclose(reals(text, codes), [[[-1, 1]], [[1, 2]]], rtol=1e-6)
    text = "zero_point_linear_quantize(zero_point = [[0, 1]], scale = 2.0, bits = 8, signed = false, symmetric = false)"
    np.testing.assert_allclose(reals(text, [[3, 3]]), [[6, 4]])


def test_entries_are_those_of_the_nnef_package():
    text = """# calibration
        "x": linear_quantize(min = -1.5, max = 2e0, bits = 8);
        "y": logarithmic_quantize(max=4.0,bits=3);"""
    document = "version 1.0; graph g(x) -> (y) { x = external(shape = [2]); y = relu(x); }"
    graph = nnef.parse_string(document, text)
    entries = parse_quantization(text, "graph.quant", Dialect.FINAL)
    assert set(entries) == {"x", "y"}
    for name, entry in entries.items():
        theirs = dict(graph.tensors[name].quantization)
        assert theirs.pop("op-name") == entry.operation.name
        assert theirs == dict(entry.arguments)


def load_text_with(folder, document, quantization):
    (folder / "graph.quant").write_text(quantization)
    return load_text(document, folder)


DOCUMENT = """version 1.0;
graph g(x) -> (y)
{
    x = external<scalar>(shape = [1, 4]);
    filter = variable<scalar>(shape = [3, 4], label = 'layer/filter');
    y = linear(x, filter);
}
"""


def test_quantized_variables_compute_with_their_reals(tmp_path):
    codes = RNG.integers(0, 255, (3, 4)).astype(np.uint8)
    (tmp_path / "layer").mkdir()
    write_tensor(tmp_path / "layer" / "filter.dat", codes, quantized=True)
    network = load_text_with(tmp_path, DOCUMENT, '"filter": linear_quantize(-1.0, 1.0, bits = 8);')
    x = RNG.standard_normal((1, 4)).astype(np.float32)
    np.testing.assert_allclose(run_network(network, [x])[0], x @ (codes / 255 * 2 - 1).T, rtol=1e-5, atol=1e-5)


ROUNDED = """version 1.0;
graph g(x) -> (y)
{{
    x = external{scalar}(shape = [2, 3, 5]);
    y = relu(x);
}}
"""


def rounded_by(entries: str, folder: Path, dialect: Dialect, x: np.ndarray) -> np.ndarray:
    document = ROUNDED.format(scalar="<scalar>" if dialect is Dialect.FINAL else "")
    (folder / "graph.quant").write_text(entries)
    return run_network(load_text(document, folder, dialect=dialect.value), [x])[0]


def nearest_code(x: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Of the reals that there are codes for, the nearest one."""
    return codes[np.abs(x[..., None] - codes).argmin(-1)]


@pytest.mark.parametrize(
    ("entry", "dialect"),
    [
        ("zero_point_linear_quantize(zero_point = 3, scale = 0.03, bits = 8, signed = false, symmetric = false)", 1),
        ("zero_point_linear_quantize(zero_point = -5, scale = 0.03, bits = 8, signed = true, symmetric = false)", 1),
        ("zero_point_linear_quantize(zero_point = 0, scale = 0.01, bits = 8, signed = true, symmetric = true)", 1),
        ("zero_point_linear_quantize(zero_point = 7, scale = 0.2, bits = 4, signed = false, symmetric = false)", 1),
        ("linear_quantize(min = -0.5, max = 2.05, bits = 8)", 1),
        ("linear_quantize(min = -0.503, max = 2.0, bits = 8)", 1),  # zero is no code
        ("linear_quantize(min = -0.503, max = 2.0, bits = 8)", 0),
        ("linear_quantize(min = -0.5, max = 2.0, bits = 3)", 0),
        ("min_max_linear_quantize(-1.27, 1.27, bits = 8, signed = true, symmetric = true)", 1),
        ("min_max_linear_quantize(-0.9, 1.0, bits = 5, signed = true, symmetric = false)", 1),
    ],
)
@pytest.mark.sample(5)
def test_tensors_with_an_entry_are_rounded_to_its_codes(tmp_path: Path, entry: str, dialect: int) -> None:
    kind = Dialect.FINAL if dialect else Dialect.PROVISIONAL
    signed, bits = "signed = true" in entry, int(entry.partition("bits = ")[2][0])
    minimum = -(2 ** (bits - 1)) + ("symmetric = true" in entry) if signed else 0
    codes = np.arange(minimum, 2 ** (bits - signed))
    known = reals(entry, codes, kind).astype(np.float64)
    x = RNG.uniform(-3, 3, (2, 3, 5)).astype(np.float32)
    for entries, exact in (
        (f'"y": {entry};', nearest_code(np.maximum(x, 0), known)),
        (f'"x": {entry}; "y": {entry};', nearest_code(np.maximum(nearest_code(x, known), 0), known)),
    ):
        np.testing.assert_allclose(rounded_by(entries, tmp_path, kind, x), exact, atol=2e-6)


def test_other_quantizations_of_tensors_follow_their_definition(tmp_path: Path) -> None:
    x = RNG.uniform(0.1, 3, (2, 3, 5)).astype(np.float32)
    found = rounded_by('"x": logarithmic_quantize(max = 4.0, bits = 3);', tmp_path, Dialect.FINAL, x)
    np.testing.assert_allclose(found, 2.0 ** np.rint(np.log2(x)))
    found = rounded_by('"x": binary_quantize(threshold = 1.0);', tmp_path, Dialect.PROVISIONAL, x)
    np.testing.assert_array_equal(found, np.where(x < 1, 0, 1))


@pytest.mark.parametrize("signed", ["true", "false"])
def test_entries_with_scales_for_channels(tmp_path: Path, signed: str) -> None:
    scales = np.array([0.01, 0.02, 0.04])
    entry = f"zero_point_linear_quantize(0, [[0.01, 0.02, 0.04]], bits = 8, signed = {signed}, symmetric = {signed})"
    x = RNG.uniform(-3, 3, (2, 3, 5)).astype(np.float32)
    found = rounded_by(f'"x": {entry};', tmp_path, Dialect.FINAL, x)
    steps = np.clip(np.rint(x / scales[:, None]), 0, 127 if signed == "true" else 255)
    np.testing.assert_allclose(found, steps * scales[:, None], atol=1e-6)


def test_layers_of_tensors_with_entries_are_computed_in_integers(tmp_path: Path) -> None:
    codes = RNG.integers(-127, 128, (8, 4)).astype(np.int8)
    (tmp_path / "w").mkdir()
    write_tensor(tmp_path / "w" / "filter.dat", codes, quantized=True)
    document = """version 1.0;
    graph g(x) -> (y)
    {
        x = external<scalar>(shape = [3, 4]);
        filter = variable<scalar>(shape = [8, 4], label = 'w/filter');
        h = linear(x, filter);
        y = relu(h);
    }
    """
    step = "zero_point_linear_quantize(zero_point = {}, scale = {}, bits = 8, signed = {}, symmetric = {})"
    entries = {
        "x": step.format(100, 0.02, "false", "false"),
        "filter": step.format(0, 0.01, "true", "true"),
        "y": step.format(0, 0.05, "false", "false"),
    }
    network = load_text_with(tmp_path, document, "".join(f'"{name}": {entry};' for name, entry in entries.items()))
    assert integer_layers(network) == 1
    x = RNG.standard_normal((3, 4)).astype(np.float32)
    read = (np.clip(np.rint(x / np.float32(0.02)) + 100, 0, 255) - 100) * 0.02
    exact = np.clip(np.rint(np.maximum(read @ (codes * 0.01).T, 0) / 0.05), 0, 255) * 0.05
    np.testing.assert_allclose(run_network(network, [x])[0], exact, atol=1e-5)


def test_quantized_variables_without_an_algorithm_are_errors(tmp_path):
    (tmp_path / "layer").mkdir()
    write_tensor(tmp_path / "layer" / "filter.dat", np.zeros((3, 4), np.uint8), quantized=True)
    with pytest.raises(CompileError) as caught:
        load_text(DOCUMENT, tmp_path)
    assert "nothing says how" in str(caught.value)
    assert 'needs a line for "filter"' in str(caught.value)
    assert caught.value.location.line == 5


def test_the_header_of_a_provisional_file_names_the_algorithm():
    by = parse_algorithm("linear_quantize(-1.0, 1.0, bits = 8)", "x.dat")
    np.testing.assert_allclose(dequantize(stored([0, 255]), by, "x.dat"), [-1, 1])


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        ("x: linear_quantize();", "expected the name of a tensor in quotes", 1, 1),
        ('"x" linear_quantize();', "expected ':' instead of 'linear_quantize'", 1, 5),
        ('"x": linear_quantise(0.0, 1.0, bits = 8);', "'linear_quantise' is not a quantize operation", 1, 6),
        ('"x": relu();', "'relu' is not a quantize operation", 1, 6),
        ('\n"x": linear_quantize(0.0, 1.0);', "lacks a value for 'bits'", 2, 6),
        ('"x": linear_quantize(0.0, 1.0, bits = 8)', "expected ';' instead of the end of the file", 1, 41),
        ('"x": linear_quantize(0.0, 1.0, bits = 8.0);', "'bits' must be of type integer", 1, 32),
        ('"x": linear_quantize(0.0, 1.0, bits = 99);', "'bits' must be between 1 and 64", 1, 32),
        ('"x": linear_quantize(true, 1.0, bits = 8);', "'min' must be of type", 1, 22),
        ('"x": linear_quantize([1.0, [2.0]], 1.0, bits = 8);', "rows of equal length", 1, 22),
        ('"x": linear_quantize([], 1.0, bits = 8);', "finite numbers", 1, 22),
        ('"x": linear_quantize(1e999, 1.0, bits = 8);', "finite numbers", 1, 22),
        ('"x": linear_quantize(0.0, min = 1.0, bits = 8);', "already has a value for 'min'", 1, 27),
        ('"x": linear_quantize(0.0, 1.0, 8, 9);', "no further parameter for '9'", 1, 35),
        ('"x": linear_quantize(0.0, 1.0, step = 9);', "no further parameter for 'step'", 1, 32),
        ('"x": linear_quantize(0.0, 1.0, 8);"x": linear_quantize(0.0, 1.0, 8);', 'two entries for "x"', 1, 35),
        ('"x": linear_quantize(' + "[" * 10**5, "nested too deep", 1, 38),
        ('"x": linear_quantize(' + "9" * 10**5 + ");", "too many digits", 1, 22),
        ('"x": @', "unexpected character '@'", 1, 6),
        ('"x', "unexpected character", 1, 1),
        ('"x": linear_quantize(0.0 1.0, 8);', "expected ',' instead of '1.0'", 1, 26),
        ('"x": linear_quantize(-, 1.0, 8);', "expected a value", 1, 22),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)
def test_malformed_entries_are_errors_with_a_location(text, message, line, column):
    with pytest.raises(CompileError) as caught:
        parse_quantization(text, "graph.quant", Dialect.FINAL)
    assert message in str(caught.value)
    assert (caught.value.location.line, caught.value.location.column) == (line, column)


def test_parameters_that_do_not_fit_are_errors():
    with pytest.raises(CompileError, match="do not broadcast"):
        reals("linear_quantize([0.0, 0.0, 0.0], 1.0, bits = 8)", [[1, 2]])
    with pytest.raises(CompileError, match="not finite"):
        reals("logarithmic_quantize(-1.0, bits = 8)", [1, 2])
