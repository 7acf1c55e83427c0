"""tract's dialect of NNEF: documents without static types, with operators of registries, symbols and scans."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nnef_cases import run_network
from nnef_tract import HEAD, model, real

import nnefc
from nnefc.frontends.nnef.files.tensor_file import read_tensor
from nnefc.frontends.nnef.frontend import load
from nnefc.frontends.nnef.outline import outline
from nnefc.loader import RunError
from nnefc.operators.nn.block_quantization import BlockTensor
from nnefc.support.diagnostics import CompileError, ModelWarning

EXPORTS = Path(__file__).parents[3] / "data" / "torch_to_nnef"
RNG = np.random.default_rng(12)


def computed(folder: Path, x: np.ndarray, **options: Any) -> np.ndarray:
    with nnefc.compile(folder, **options).load() as network:
        return np.asarray(network(x))


def uncompiled(folder: Path, x: np.ndarray) -> np.ndarray:
    """Runs what the front end makes in TVM's virtual machine, which takes a fraction of the time of compiling."""
    return run_network(load(folder), [x])[0]


@pytest.mark.parametrize(
    "name", ["gather_scatter", "gru_stream", "q40_embed", pytest.param("llama_llm_q40", marks=pytest.mark.slow)]
)
@pytest.mark.sample(2)
def test_what_torch_to_nnef_exports_agrees_with_torch(name: str) -> None:
    """Of a language model the prompt, which has no past, a prompt with a past, and one token."""
    folder = EXPORTS / name
    with nnefc.compile(folder / "model.nnef.tgz").load() as network:
        for given in sorted(folder.glob("*inputs.npz")):
            inputs = dict(np.load(given))
            expected = np.load(given.with_name(given.name.replace("inputs", "outputs")))
            made = network.run(inputs)
            for output, value in expected.items():
                np.testing.assert_allclose(made[output], value, rtol=1e-4, atol=1e-5, err_msg=f"{given.name} {output}")


def _in_rows(x: np.ndarray) -> np.ndarray:
    return x.reshape(1, 3, 2)


CASES: dict[str, tuple[str, str, tuple[int, ...], Callable[[np.ndarray], np.ndarray]]] = {
    "a fragment of the document comes before the standard's operation": (
        "fragment elu( x: tensor<scalar> ) -> ( y: tensor<scalar> ) { y = x * 2.0; }",
        "y = elu(x);",
        (2, 3),
        lambda x: 2 * x,
    ),
    "a name has the value of its last assignment": ("", "a = x; a = a + 1.0; y = a;", (4,), lambda x: x + 1),
    "attributes by position, and one number for an array": ("", "y = softmax(x, 1);", (2, 5), lambda x: _softmax(x, 1)),
    "logarithms of a softmax over two axes, and over none": (
        "",
        "y = tract_core_log_softmax(x, axes = [1, 2]) + tract_core_log_softmax(x, axes = []);",
        (2, 3, 5),
        lambda x: x - np.log(np.exp(x).sum((1, 2), keepdims=True)),
    ),
    "an attribute that is a tensor": (
        "fragment cut( x: tensor<scalar>, first: tensor<scalar> ) -> ( y: tensor<scalar> )"
        "{ y = slice(x, axes = [1], begin = [first], end = [first + 2], stride = [1]); }",
        "y = cut(x, tract_core_cast(1.0 + 1.0, to = 'i64'));",
        (2, 6),
        lambda x: x[:, 2:4],
    ),
    "a shape that follows from another": (
        "",
        """s = tract_core_shape_of(x);
        rows = squeeze(slice(s, axes = [0], begin = [0], end = [1], stride = [1]), axes = [0]);
        half = tract_core_cast(div(tract_core_cast(slice(s, axes = [0], begin = [1], end = [2]), to = 'f32'), 2.0),
                               to = 'tdim');
        y = reshape(x, shape = [rows, squeeze(half, axes = [0]), -1]);""",
        (3, 8),
        lambda x: x.reshape(3, 4, 2),
    ),
    "positions beyond the end, from the end, and 0 for the end": (
        "",
        """a = slice(x, axes = [0], begin = [1], end = [100]);
        b = slice(x, axes = [0], begin = [-3], end = [-1]);
        c = slice(x, axes = [0], begin = [2], end = [0]);
        y = concat([a, b, c], axis = 0);""",
        (5, 2),
        lambda x: np.concatenate([x[1:], x[-3:-1], x[2:]]),
    ),
    "from 0 to 0 there is nothing, also of sizes": (
        "",
        """n = slice(x, axes = [0], begin = [0], end = [0]);
        s = tract_core_shape_of(x);
        r = concat([slice(s, axes = [0], begin = [0], end = [0]), slice(s, axes = [0], begin = [1], end = [0]), [-1]],
                   axis = 0);
        y = reshape(concat([n, x], axis = 0), shape = r);""",
        (5, 2),
        lambda x: x.reshape(2, 5),
    ),
    "a list of numbers and tensors is a tensor": (
        "",
        "m = sum_reduce(x, axes = [0]); y = x + [squeeze(m, axes = [0]), 2.0];",
        (2,),
        lambda x: x + np.array([x.sum(), 2]),
    ),
    "infinity": ("", "y = select(x > 0.0, x, -inf);", (7,), lambda x: np.where(x > 0, x, -np.inf)),
    "a name in quotes": ("", 'i"a.b/c" = x * 3.0; y = i"a.b/c" - 1.0;', (3,), lambda x: 3 * x - 1),
    "unknown arguments": ("", "y = sigmoid(x, axes = [1]);", (2, 2), lambda x: 1 / (1 + np.exp(-x))),
    "a linear layer of any rank": (
        "",
        "w = variable<scalar>(label = 'w', shape = [1, 1, 4]); y = linear(x, w);",
        (2, 3, 4),
        lambda x: x @ np.ones((4, 1), np.float32),
    ),
    "numbers in the element type of the tensor": (
        "",
        "i = tract_core_cast(x, to = 'i64'); y = tract_core_cast(i * 3 + 1, to = 'f32');",
        (6,),
        lambda x: np.trunc(x) * 3 + 1,
    ),
    "numbers beyond an integer type": (
        "",
        "i = tract_core_cast(x * 1e10, to = 'i32'); u = tract_core_cast(x * 300.0, to = 'u8');"
        "n = tract_core_cast((x - x) / (x - x), to = 'i8'); f = tract_core_cast(i, to = 'f32');"
        "y = f + tract_core_cast(u, to = 'f32') + tract_core_cast(n, to = 'f32');",
        (9,),
        lambda x: (
            np.clip(np.trunc(x.astype(np.float64) * 1e10), -(2**31), 2**31 - 1).astype(np.float32)
            + np.clip(np.trunc(x * np.float32(300)), 0, 255)
        ),
    ),
    "16-bit floats are rounded": (
        "",
        "h = tract_core_cast(x, to = 'f16'); y = tract_core_cast(h * h, to = 'f32');",
        (9,),
        lambda x: (x.astype(np.float16) ** 2).astype(np.float32),
    ),
    "the largest elements": (
        "",
        "y, i = tract_core_topk(x, k = 2, axis = 1, largest = true);",
        (3, 5),
        lambda x: -np.sort(-x)[:, :2],
    ),
    "every second element, from the end": (
        "",
        "y = tract_core_downsample(x, axis = 0, stride = -2, modulo = 1);",
        (7, 2),
        lambda x: x[::-1][1::2],
    ),
    "an einsum": ("", "y = tract_core_einsum([x, x], expr = 'ij,kj->ik');", (3, 4), lambda x: x @ x.T),
    "the old product with numbers of axes": (
        "",
        "y = tract_core_matmul(x, x, axes = [1, 0, 0, 1, 1, 0]);",
        (3, 3),
        lambda x: (x.T @ x).T,
    ),
    "the root mean square": (
        "",
        "y = tract_core_rms_norm(x, axis = 1, eps = 0.5);",
        (2, 6),
        lambda x: x / np.sqrt((x**2).mean(1, keepdims=True) + 0.5),
    ),
    "a shape with an array of sizes in it": ("", "s = [1, 3]; y = reshape(x, shape = [s, 2]);", (2, 3), _in_rows),
    "positions that are written with points": (
        "",
        "y = tract_core_gather_elements(x, [[0.0, 2.0], [-1.0, 1.0]], axis = 1);",
        (2, 3),
        lambda x: np.take_along_axis(x, np.array([[0, 2], [2, 1]]), 1),
    ),
    "attention under the older names of its attributes": (
        "",
        "y = tract_transformers_sdpa(x, x, x, d_type = 'f32', inner_dtype = 'f32', causal = true);",
        (1, 1, 4),
        lambda x: x,
    ),
    "rotary embedding": (
        "",
        "c = cos(x); y = tract_transformers_apply_rope(x, c, sin(x));",
        (2, 6),
        lambda x: x * np.cos(x) + np.concatenate([-x[:, 3:], x[:, :3]], 1) * np.sin(x),
    ),
}


def _softmax(x: np.ndarray, axis: int) -> np.ndarray:
    powers = np.exp(x - x.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


@pytest.mark.parametrize("run", [uncompiled, pytest.param(computed, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.sample(10)
def test_values_without_static_types(name: str, run: Callable[..., np.ndarray], tmp_path: Path) -> None:
    before, body, shape, expected = CASES[name]
    x = real(*shape)
    text = f"    x = tract_core_external(shape = {list(shape)}, datum_type = 'f32');\n    {body}"
    folder = model(tmp_path, text, {"w": np.ones((1, 1, 4), np.float32)}, before=before)
    np.testing.assert_allclose(run(folder, x), expected(x), rtol=1e-5, atol=1e-5)


def test_symbols_are_dynamic_dimensions_and_assertions_their_ranges(tmp_path: Path) -> None:
    folder = model(
        tmp_path,
        """    x = tract_core_external(shape = [1, S, 4], datum_type = 'f32');
        s = squeeze(slice(tract_core_shape_of(x), axes = [0], begin = [1], end = [2]), axes = [0]);
        p = tract_core_cast(tract_core_range(0, s, 1), to = 'f32');
        y = x + unsqueeze(p, axes = [0, 2]);""",
        before="extension tract_symbol S;\nextension tract_assert S >= 2;\nextension tract_assert 2*S < 21;",
    )
    artifact = nnefc.compile(folder)
    (dimension,) = artifact.description.dimensions
    assert (dimension.name, dimension.minimum, dimension.maximum) == ("S", 2, 10)
    with artifact.load() as network:
        for size in (2, 3, 10):
            x = real(1, size, 4)
            np.testing.assert_allclose(network(x), x + np.arange(size, dtype=np.float32)[None, :, None], rtol=1e-6)
    assert np.asarray(computed(folder, real(1, 5, 4), shape={"S": 5})).shape == (1, 5, 4)


@pytest.mark.parametrize(
    "declared", ["extension tract_pulse_streaming_symbol;", "extension tract_registry tract_core;"]
)
def test_the_size_of_a_stream_needs_no_name(declared: str, tmp_path: Path) -> None:
    """As older documents have it; and names of sizes that nothing gives a value are symbols."""
    body = "x = external(shape = [1, S]); y = pad(x, padding = [[0, 0], [S / 2, 0]]);"
    with nnefc.compile(model(tmp_path, body, before=declared)).load() as network:
        for size in (2, 5):
            x = real(1, size)
            np.testing.assert_array_equal(network(x), np.pad(x, ((0, 0), (size // 2, 0))))


def test_a_document_with_the_properties_of_the_dialect_is_of_it(tmp_path: Path) -> None:
    """Though it names no registry."""
    (tmp_path / "graph.nnef").write_text(
        "version 1.0;\nfragment tract_core_properties() -> (properties: (string, tensor<scalar>)[])\n{\n"
        '  properties = [("name", "network")];\n}\ngraph g(x) -> (y)\n{\n'
        "  x = external(shape = [2, 2]); y = x * [[1.0, 2.0]];\n}\n"
    )
    x = real(2, 2)
    np.testing.assert_array_equal(computed(tmp_path, x), x * np.array([1, 2], np.float32))


def test_strings_have_escapes(tmp_path: Path) -> None:
    """As those have that tract copies from the metadata of other formats; the standard's have none."""
    properties = r"""fragment tract_core_properties() -> (properties: (string, tensor<scalar>)[])
    { properties = [("characters", "a\n\"\\"), ("more", 'b\'')]; }"""
    folder = model(tmp_path, "x = external(shape = [2]); y = neg(x);", before=properties)
    np.testing.assert_array_equal(computed(folder, np.float32([1, -2])), [-1, 2])


def test_symbols_are_found_by_sums_of_them(tmp_path: Path) -> None:
    folder = model(
        tmp_path,
        """    x = tract_core_external(shape = [2*P+S], datum_type = 'f32');
        z = tract_core_external(shape = [S], datum_type = 'f32');
        s = squeeze(tract_core_shape_of(z), axes = [0]);
        y = concat([slice(x, axes = [0], begin = [s], end = [0]), z], axis = 0);""",
        before="extension tract_symbol P;\nextension tract_symbol S;\nextension tract_assert P <= 9;",
    )
    text = (folder / "graph.nnef").read_text()
    (folder / "graph.nnef").write_text(text.replace("network(x)", "network(x, z)"))
    with nnefc.compile(folder).load() as network:
        assert [str(tensor.shape[0]) for tensor in network.inputs] == ["(P * 2) + S", "S"]
        for past, new in ((1, 3), (9, 2)):
            x, z = real(2 * past + new), real(new)
            np.testing.assert_array_equal(network(x, z), np.concatenate([x[new:], z]))
        for size in (8, 23):
            with pytest.raises(RunError, match='takes 1 to 9 in multiples of 1 for "P"'):
                network(real(size), real(3))


def test_variables_without_a_file_are_random_with_a_seed(tmp_path: Path) -> None:
    body = "x = external(shape = [2, 4]); w = variable<scalar>(label = 'w', shape = [3, 4]); y = linear(x, w);"
    folder, x = model(tmp_path, body), real(2, 4)
    one, other, again = (computed(folder, x, random_weights=seed) for seed in (1, 2, 1))
    assert (one == again).all()
    assert (one != other).all()


def test_an_assertion_that_says_nothing_of_sizes_is_a_warning(tmp_path: Path) -> None:
    body = "x = tract_core_external(shape = [S], datum_type = 'f32'); y = x;"
    before = "extension tract_symbol S;\nextension tract_assert S % 2 == 0;"
    with pytest.warns(ModelWarning, match="the assertion 'S % 2 == 0' is not understood"):
        load(model(tmp_path, body, before=before))


SCAN = """
fragment step( element: tensor<scalar>, total: tensor<scalar>, w: tensor<scalar> )
-> ( next: tensor<scalar>, out: tensor<scalar> )
{ next = total * 0.5 + sum_reduce(element, axes = [1]) * w; out = next + element; }
"""


@pytest.mark.parametrize(
    ("size", "pace"),
    [("6", 1), ("6", -2), ("2", 2), ("2", -1), ("S", -1), ("S", 2)]
    + [pytest.param(*case, marks=pytest.mark.slow)
       for case in (("6", 2), ("6", -1), ("2", 1), ("2", -2), ("S", 1), ("S", -2))],
)  # fmt: skip
@pytest.mark.sample(3)
def test_a_scan_goes_over_chunks_forwards_and_backwards(size: str, pace: int, tmp_path: Path) -> None:
    body = f"""    x = tract_core_external(shape = [3, {size}], datum_type = 'f32');
        a, b = tract_core_scan(body = "step", scan = [("element", x, 1, {pace})], full = [("w", 2.0)],
            state = [("total", [[0.0], [1.0], [2.0]], "next")],
            output = [("out", "full", 1, {pace}), ("next", "last", 0, 1)], skip = 0);
        y = concat([a, b], axis = 1);"""
    folder = model(tmp_path, body, before=SCAN + ("\nextension tract_symbol S;" if size == "S" else ""))
    text = (folder / "graph.nnef").read_text()
    if size == "S":  # extensions come first
        text = text.replace("\nextension tract_symbol S;", "").replace(HEAD, f"{HEAD}extension tract_symbol S;\n")
        text = text.replace(HEAD, f"{HEAD}extension tract_assert S >= 2;\n")
        (folder / "graph.nnef").write_text(text)
    with nnefc.compile(folder).load() as network:
        for count in (2, 6, 8) if size == "S" else (int(size),):
            x = real(3, count)
            np.testing.assert_allclose(network(x), scanned(x, pace), rtol=1e-5, atol=1e-5)


def scanned(x: np.ndarray, pace: int) -> np.ndarray:
    total = np.array([[0.0], [1.0], [2.0]], np.float64)
    chunks = np.split(x, x.shape[1] // abs(pace), 1)
    outputs = {}
    for position in range(len(chunks))[:: 1 if pace > 0 else -1]:
        total = total * 0.5 + chunks[position].sum(1, keepdims=True) * 2
        outputs[position] = total + chunks[position]
    return np.concatenate([*(outputs[position] for position in range(len(chunks))), total], 1)


def q4_0(blocks: int, *, pairs: bool) -> tuple[bytes, np.ndarray]:
    """Blocks of 32 elements, and what they stand for."""
    scales, elements = RNG.random(blocks).astype("<f2"), RNG.integers(0, 16, (blocks, 32), np.uint8)
    low, high = (elements[:, ::2], elements[:, 1::2]) if pairs else (elements[:, :16], elements[:, 16:])
    data = np.concatenate([scales[:, None].view(np.uint8), low | high << 4], 1)
    return data.tobytes(), (elements.astype(np.float32) - 8) * scales.astype(np.float32)[:, None]


@pytest.mark.parametrize("pairs", [False, True])
def test_elements_in_blocks(pairs: bool, tmp_path: Path) -> None:
    data, values = q4_0(6, pairs=pairs)
    code = 0x54520000 | (0x2040 if pairs else 0x3040)
    header = struct.pack(
        "<2sBBII8III19I", b"\x4e\xef", 1, 0, len(data), 2, 3, 64, *[0] * 6, 0xFFFFFFFF, code, *[0] * 19
    )
    (tmp_path / "w.dat").write_bytes(header + data)
    found = read_tensor(tmp_path / "w.dat").array
    assert isinstance(found, BlockTensor)
    np.testing.assert_array_equal(found.values(), values.reshape(3, 64))
    for wrong in (header + data[:-1], header[:12] + struct.pack("<II", 3, 63) + header[20:] + data):
        (tmp_path / "w.dat").write_bytes(wrong)
        with pytest.raises(CompileError, match=r"w\.dat"):
            read_tensor(tmp_path / "w.dat")


def test_the_outline_needs_neither_weights_nor_sizes(tmp_path: Path) -> None:
    extensions = "extension tract_symbol S;\nextension tract_assert tg: S==1;"
    variable = "w = variable<scalar>(label = 'w', shape = [9, 2]);"
    body = f"x = tract_core_external(shape = [1, S], datum_type = 'i64');\n{variable}"
    found = outline(model(tmp_path, f"{body} y = tract_core_gather(w, x, axis = 0);", before=extensions))
    assert [(tensor.dtype, tensor.shape) for tensor in found.inputs] == [("int64", (1, "S"))]
    assert "tract_core, tract_transformers; scenarios tg: S = 1" in found.about
    assert found.parameters == 18


MISTAKES = {
    "an operation of no registry": ("y = tract_core_erff(x);", "did you mean 'tract_core_erf'"),
    "an argument that is missing": ("y = tract_core_topk(x);", "'tract_core_topk' needs an argument for 'k'"),
    "a name without a value": ("y = x + z;", "'z' has no value here"),
    "a number that only a run tells": ("y = reshape(x, shape = [x]);", "'shape' of 'reshape'"),
    "too many arguments": ("y = relu(x, x, x);", "'relu' has 1 parameters"),
    "an unknown element type": ("y = tract_core_cast(x, to = 'f3');", "the element type 'f3' is not supported"),
    "a variable without a label": ("y = variable<scalar>(shape = [2]);", "has no label"),
    "an input of too many elements": ("y = external(shape = [1e39, 1]);", "a tensor may have"),
    "an axis of a tensor that has none": ("y = concat(values = [0.0], axis = 1);", "there is no axis 1"),
    "no file of trained values": ("y = variable<scalar>(label = 'q', shape = [2]);", "no file"),
    "a cast to no type": ("y = cast(x);", "'cast' does not say to which type"),
    "a string for a number": ("y = softmax(x, axes = ['a']);", "'axes' of 'softmax': an integer is needed"),
    "another number of results": ("a, b = relu(x); y = a;", "2 names are given to 1 values"),
    "a scan of no fragment": (
        "y = tract_core_scan(body = 'step', scan = [('a', x, 0, 1)], output = [('b', 'full', 0, 1)]);",
        "no fragment 'step'",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_has_a_location_and_a_reason(name: str, tmp_path: Path) -> None:
    body, message = MISTAKES[name]
    folder = model(tmp_path, f"    x = tract_core_external(shape = [2, 4], datum_type = 'f32');\n    {body}")
    with pytest.raises(CompileError, match=r"graph\.nnef:8:") as caught:
        load(folder)
    assert message in str(caught.value)


@pytest.mark.parametrize("call", ["exp(n)", "1.0 / sqrt(n)", "gelu(n)", "leaky_relu(n, alpha = 0.1)", "elu(n)"])
@pytest.mark.parametrize("dtype", ["i8", "u8", "i64", "bool"])
def test_functions_of_real_numbers_take_no_others(call: str, dtype: str, tmp_path: Path) -> None:
    cast = f"x = tract_core_external(shape = [2], datum_type = 'f32'); n = tract_core_cast(x, to = '{dtype}');"
    with pytest.raises(CompileError, match=r"must be of floating-point numbers: cast it before") as caught:
        load(model(tmp_path, f"    {cast}\n    y = {call};"))
    assert "graph.nnef:8:" in str(caught.value)


@pytest.mark.parametrize("call", ["sign(n)", "-n", "relu(n)", "n - n", "prelu(n, n)"])
def test_booleans_are_no_numbers(call: str, tmp_path: Path) -> None:
    cast = "x = tract_core_external(shape = [2], datum_type = 'f32'); n = tract_core_cast(x, to = 'bool');"
    with pytest.raises(CompileError, match=r"of bool, but must be of integers"):
        load(model(tmp_path, f"    {cast}\n    y = {call};"))


def test_an_unknown_registry_is_an_error(tmp_path: Path) -> None:
    folder = model(tmp_path, "x = external(shape = [1]); y = x;", before="extension tract_registry tract_cor;")
    with pytest.raises(CompileError, match="the registry 'tract_cor' is not known") as caught:
        load(folder)
    assert "did you mean 'tract_core'" in str(caught.value)


@pytest.mark.slow
def test_work_grows_with_the_document(tmp_path: Path) -> None:
    """Chains of fragments are expanded no further than allowed, and a thousand statements are quick."""
    chain = "\n".join(f"a{i + 1} = a{i} * 1.001 + x;" for i in range(1000))
    text = f"    x = external(shape = [2]); a0 = x;\n{chain}\ny = a1000;"
    assert load(model(tmp_path, text)).outputs == ("y",)
    total = " + ".join(["x"] * 2000)
    assert load(model(tmp_path, f"x = external(shape = [2]); y = {total};")).outputs == ("y",)
    endless = "fragment f( x: tensor<scalar> ) -> ( y: tensor<scalar> ) { y = f(x); }"
    with pytest.raises(CompileError, match="expanded more than 2000 deep"):
        load(model(tmp_path, "x = external(shape = [2]); y = f(x);", before=endless))
    with pytest.raises(CompileError, match="expanded more than 50 deep"):
        load(model(tmp_path, "x = external(shape = [2]); y = f(x);", before=endless), max_depth=50)


QUANTIZED = """
"q": zero_point_linear_quantize(zero_point = 120, scale = 0.05, bits = 8, signed = false, symmetric = false);
"w": zero_point_linear_quantize(scale = [0.01, 0.02, 0.005], zero_point = [0, 0, 0], bits = 8, signed = true);
"c": linear_quantize(max = 6.3, min = -6.45, bits = 8);
"r": linear_quantize(max = 6.3, min = -6.45, bits = 8);
"""


def test_quantized_tensors_are_computed_with_in_integers(tmp_path: Path) -> None:
    """By zero points, limits, and with a scale for each channel; a bias of integers has the product of the scales."""
    x = RNG.uniform(-6, 6, (1, 4, 6, 6)).astype(np.float32)
    w = RNG.integers(-127, 128, (3, 4, 3, 3)).astype(np.int8)
    b = RNG.integers(-2000, 2000, (3,)).astype(np.int32)
    body = """x = tract_core_external(shape = [1, 4, 6, 6], datum_type = 'f32');
    q = tract_core_cast(x);
    w = variable<scalar>(label = 'w', shape = [3, 4, 3, 3]);
    b = variable<integer>(label = 'b', shape = [3]);
    c = conv(q, w, b, padding = [(0, 0), (0, 0)], stride = [1, 1], dilation = [1, 1]);
    r = relu(c);
    y = tract_core_cast(r, to = 'f32');"""
    folder = model(tmp_path, body, {"w": w, "b": b})
    (folder / "graph.quant").write_text(QUANTIZED)
    elements = np.clip(np.rint(x / np.float32(0.05)) + 120, 0, 255) - 120
    windows = np.lib.stride_tricks.sliding_window_view(elements, (3, 3), (2, 3))
    sums = np.einsum("nchwij,ocij->nohw", windows, w.astype(np.float64)) + b[:, None, None]
    reals = sums * (0.05 * np.array([0.01, 0.02, 0.005]))[:, None, None]
    expected = np.maximum(np.clip(np.rint(reals / 0.05) + 129, 0, 255) - 129, 0) * 0.05
    apart = np.abs(computed(folder, x) - expected)
    assert apart.max() <= 0.0501 and (apart > 0.001).mean() < 0.01  # halves may be rounded to either side


def test_an_entry_that_does_not_fit_its_tensor_is_refused(tmp_path: Path) -> None:
    folder = model(tmp_path, "x = external(shape = [2, 4]); y = tract_core_cast(x);")
    (folder / "graph.quant").write_text(
        '"y": zero_point_linear_quantize(scale = [0.1, 0.2, 0.3], zero_point = 0, bits = 8, signed = false);'
    )
    with pytest.raises(CompileError, match=r"'y' has the shape \[2, 4\], for which \[3\] scales"):
        nnefc.compile(folder)


ENTRIES = {
    "linear_quantize(min = 0.5, max = 1.5, bits = 8)": (1 / 255, -254, "int8"),
    "linear_quantize(min = -0.5, max = 1.5, bits = 8)": (2 / 255, -63, "int8"),
    "linear_quantize(min = -1.5, max = -0.5, bits = 8)": (1 / 255, 254, "int8"),
    "zero_point_linear_quantize(zero_point = -3, scale = 0.1, bits = 8, signed = false)": (0.1, -3, "uint8"),
    "zero_point_linear_quantize(zero_point = 300, scale = 0.1, bits = 8, signed = true)": (0.1, 300, "int8"),
}
"""Steps, zero points and integers that tract itself has for them."""


@pytest.mark.parametrize(
    "entry",
    [pytest.param(entry, marks=[pytest.mark.slow] if number % 3 else []) for number, entry in enumerate(ENTRIES)],
)
def test_zero_may_be_no_integer_of_a_quantized_tensor(entry: str, tmp_path: Path) -> None:
    scale, zero, dtype = ENTRIES[entry]
    body = "x = external(shape = [1, 7]); q = tract_core_cast(x); y = tract_core_cast(q, to = 'f32'); z = copy(y);"
    folder = model(tmp_path, body)
    (folder / "graph.quant").write_text(f'"q": {entry};')
    x = np.float32([[-40, -0.7, 0.2, 0.61, 1.2, 1.4, 33]])
    limits = np.iinfo(dtype)
    codes = np.clip(np.rint(x / scale) + zero, limits.min, limits.max)
    np.testing.assert_allclose(computed(folder, x), (codes - zero) * scale, rtol=1e-6)
    with nnefc.compile(folder, output_tensors=("q",)).load() as network:
        made = np.asarray(network(x))
    assert made.dtype == dtype
    np.testing.assert_array_equal(made, codes)


def test_scales_inside_arrays_say_their_dimension(tmp_path: Path) -> None:
    folder = model(
        tmp_path, "x = external(shape = [2, 2]); q = tract_core_cast(x); y = tract_core_cast(q, to = 'f32');"
    )
    (folder / "graph.quant").write_text(
        '"q": zero_point_linear_quantize(scale = [[0.5, 2.0]], zero_point = 0, bits = 8, signed = true);'
    )
    np.testing.assert_array_equal(computed(folder, np.float32([[0.6, 0.6], [1.4, 1.4]])), [[0.5, 0], [1.5, 2]])


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("linear_quantize(min = 1.0, max = 1.0, bits = 8)", "'y' in graph.quant.*a step must be a positive number"),
        ("zero_point_linear_quantize(scale = 1.0, zero_point = 20000000, bits = 8)", "'y' in graph.quant.*up to 167"),
        ("zero_point_linear_quantize(scale = [[1.0, 2.0], [3.0, 4.0]], zero_point = 0, bits = 8)", "more than one dim"),
    ],
)
def test_an_entry_that_says_nothing_is_refused(entry: str, message: str, tmp_path: Path) -> None:
    folder = model(tmp_path, "x = external(shape = [2, 2]); y = tract_core_cast(x);")
    (folder / "graph.quant").write_text(f'"y": {entry};')
    with pytest.raises(CompileError, match=message):
        load(folder)


def test_positions_have_64_bits(tmp_path: Path) -> None:
    """As in tract."""
    body = """x = external(shape = [1, 1, 4]); a = argmax_reduce(x, axes = [2]); b = argmin_reduce(x, axes = [2]);
    m, y = max_pool_with_index(x, size = [1, 1, 4], padding = [(0, 0), (0, 0), (0, 0)]);"""
    folder = model(tmp_path, body)
    with nnefc.compile(folder, output_tensors=("a", "b", "y")).load() as network:
        made = network.run({"x": np.float32([[[3, 1, 4, 1]]])})
    assert {name: (str(value.dtype), value.item()) for name, value in made.items()} == {
        "a": ("int64", 2),
        "b": ("int64", 1),
        "y": ("int64", 2),
    }


def test_positions_of_pools_are_numbered_in_the_channel(tmp_path: Path) -> None:
    """As in tract; the standard numbers them in the window."""
    body = """x = external(shape = [1, 2, 4]);
    m, y = max_pool_with_index(x, size = [1, 1, 2], padding = [(0, 0), (0, 0), (0, 0)], stride = [1, 1, 2]);"""
    with nnefc.compile(model(tmp_path, body), output_tensors=("m", "y")).load() as network:
        made = network.run({"x": np.float32([[[3, 1, 4, 1], [5, 9, 2, 6]]])})
    np.testing.assert_array_equal(made["m"], [[[3, 4], [9, 6]]])
    np.testing.assert_array_equal(made["y"], [[[0, 2], [1, 3]]])


def test_a_buffer_of_the_largest_size_limits_a_symbol(tmp_path: Path) -> None:
    body = """x = tract_core_external(shape = [1, S], datum_type = 'f32');
    s = squeeze(slice(tract_core_shape_of(x), axes = [0], begin = [1], end = [2]), axes = [0]);
    p = variable(label = 'p', shape = [1, 12]);
    own = slice(p, axes = [1], begin = [0], end = [s]);
    n = squeeze(slice(tract_core_shape_of(own), axes = [0], begin = [1], end = [2]), axes = [0]);
    upper = tile(own, repeats = [1, s / n]);
    y = concat([reshape(upper, shape = [1, s]) + x, x + own, slice(x, axes = [1], begin = [0], end = [1]),
                slice(x, axes = [0], begin = [1], end = [9])], axis = 1);"""
    p = real(1, 12)
    folder = model(tmp_path, body, {"p": p}, before="extension tract_symbol S;")
    with nnefc.compile(folder).load() as network:
        for size in (1, 7, 12):
            x = real(1, size)
            expected = np.concatenate([p[:, :size] + x, x + p[:, :size], x[:, :1]], 1)
            np.testing.assert_allclose(network(x), expected, rtol=1e-6)
        with pytest.raises(nnefc.RunError, match="12"):
            network(real(1, 13))


def test_a_number_that_a_file_has_in_double_precision_takes_the_type_of_tensors(tmp_path: Path) -> None:
    """But among integers it is a real, and tensors of several elements keep their type."""
    body = """x = tract_core_external(shape = [1, 3], datum_type = 'f32');
    e = variable<scalar>(label = 'e', shape = []); d = variable<scalar>(label = 'd', shape = [1, 3]);
    n = tract_core_cast(x, to = 'i64');
    y = rsqrt(x * x + unsqueeze(e, axes = [0, 1]));"""
    values = {"e": np.array(0.5), "d": np.array([[0.5, 1.5, 2.5]])}
    x = np.array([[1.0, -2.0, 3.0]], np.float32)
    made = computed(model(tmp_path, body, values), x)
    assert made.dtype == np.float32
    np.testing.assert_allclose(made, 1 / np.sqrt(x * x + 0.5), rtol=1e-5)
    for other in ("n * e", "x * d"):
        text = f"{body.replace('y =', 'w =')} y = {other};"
        assert computed(model(tmp_path, text, values), x).dtype == np.float64


@pytest.mark.parametrize("label", ["../secret", "a/../../secret", "/../secret", "a\\..\\secret"])
def test_labels_do_not_lead_out_of_the_model(label: str, tmp_path: Path) -> None:
    inside = tmp_path / "model"
    inside.mkdir()
    model(tmp_path, "", {"secret": real(2)})
    folder = model(
        inside, f"x = external(shape = [2]); w = variable<scalar>(label = '{label}', shape = [2]); y = x + w;"
    )
    with pytest.raises(CompileError):
        nnefc.compile(folder)


OVERFLOWING = [(1 << 31, 1 << 31, 4), (0xFFFFFFFF, 0xFFFFFFFF), (1 << 16, 1 << 16, 1 << 16, 1 << 16)]


@pytest.mark.parametrize("kind", [0, 0x54523040, 0x54522040, 0x54523081])
@pytest.mark.parametrize("extents", OVERFLOWING)
def test_shapes_that_overflow_are_refused(kind: int, extents: tuple[int, ...], tmp_path: Path) -> None:
    """Products of extents that are 0, or small, modulo 2^32 or 2^64; in uncompressed files and in files of blocks."""
    sizes = [*extents, *[0] * (8 - len(extents))]
    bits = 0xFFFFFFFF if kind else 32
    header = struct.pack("<4sII8III", b"N\xef\x01\x00", 64, len(extents), *sizes, bits, kind)
    (tmp_path / "w.dat").write_bytes(header.ljust(128, b"\0") + bytes(64))
    body = f"x = external(shape = [2]); w = variable<scalar>(label = 'w', shape = {list(extents)}); y = x;"
    with pytest.raises(CompileError, match=r"w\.dat"):
        nnefc.compile(model(tmp_path, body))


CACHE = """extension tract_symbol S;
extension tract_symbol P;
extension tract_assert P >= 0;
extension tract_assert S+P <= 64;
extension tract_assert tg: S==1;
extension tract_assert pp: P==0;
"""


def test_scenarios_are_programs_of_one_library(tmp_path: Path) -> None:
    """One word after any number of others, and any number of first words: what is not given stays open."""
    body = """x = external(shape = [S, 4]);
    past = external(shape = [P, 4]);
    w = variable<scalar>(label = 'w', shape = [4, 4]);
    all = concat([past, x], axis = 0);
    y = matmul(softmax(matmul(matmul(x, w), all, transposeB = true), axes = [1]), all);"""
    w = real(4, 4)
    text = (model(tmp_path, body, {"w": w}, before=CACHE) / "graph.nnef").read_text()
    (tmp_path / "graph.nnef").write_text(text.replace("network(x)", "network(x, past)"))
    general, both = nnefc.compile(tmp_path), nnefc.compile(tmp_path, specialize=["tg", "pp"])
    assert [part.sizes for part in both.description.specializations] == [(1, None), (None, 0)]
    assert both.description.constant_bytes == general.description.constant_bytes
    with both.load(threads=1) as network:
        for s, p in ((5, 0), (1, 5), (1, 6), (1, 63), (3, 7), (1, 0), (64, 0)):
            x, past = real(s, 4), real(p, 4)
            every = np.concatenate([past, x])
            scores = x @ w @ every.T
            weights = np.exp(scores - scores.max(1, keepdims=True))
            expected = weights / weights.sum(1, keepdims=True) @ every
            np.testing.assert_allclose(network(x=x, past=past), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(CompileError, match=r"no scenario 'tq'(.|\n)*there are tg, pp"):
        nnefc.compile(tmp_path, specialize=["tq"])


@pytest.mark.parametrize(
    ("elements", "message"),
    [
        ("[a{i}, a{i}]", "more than 1048576 elements"),
        pytest.param("(a{i}, a{i})", "more than 1048576 elements", marks=pytest.mark.slow),
        ("[a{i}]", "than 256"),
    ],
)
def test_arrays_of_arrays_are_limited(elements: str, message: str, tmp_path: Path) -> None:
    """Those that share their elements would be larger than all memory when an operation takes them apart."""
    lines = "".join(f"a{i + 1} = {elements.format(i=i)};\n" for i in range(300))
    with pytest.raises(CompileError, match=message):
        load(model(tmp_path, "x = external<scalar>(shape = [2]);\na0 = [1.0, 2.0];\n" + lines + "y = x + a300;"))
