"""Documents of both dialects from the command line or `nnefc.compile` to a running library."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import nnefc
from nnefc.cli import main
from nnefc.frontends.nnef.files.tensor_file import write_tensor
from nnefc.loader import Model

PROVISIONAL = """version 1.0
fragment damped( x: tensor, by: scalar = 0.5 ) -> ( y: tensor )
{
    y = x * by + damped(x, by = by - 0.25) if by > 0.0 else x
}
fragment block( x: tensor, scope: string, sizes: (extent,extent)[] = [(3,3)] ) -> ( y: tensor, z: tensor[] )
{
    w = variable(shape = [4, shape_of(x)[1]] + [s[0] for s in sizes if length_of(sizes) > 0] * 2, label = scope + '/w')
    y = relu(conv(x, w, padding = [(1,1), (1,1)]))
    z = [damped(x, by = scalar(i)) for i in range_of(sizes)] + [y]
}
graph first( x ) -> ( y )
{
    x = external(shape = [1,3,0,0])
    (a, [b, c]) = block(x, scope = 'block')
    d = conv_layer(a, channels = 2, size = [3,3], scope = "conv") # a comment
    e = l2_normalization(max_pool_layer(d, size = [2,2], stride = [2,2]), axes = [1], bias = 0.5)
    y = softmax(e)
}
graph second( u ) -> ( v )
{
    u = external(shape = [2,3]); v = damped(u)
}
"""

FINAL = """version 1.0;
extension KHR_enable_fragment_definitions;
extension KHR_enable_operator_expressions;
fragment lag<? = scalar>(x: tensor<?>, v: tensor<?>, keep: logical = true) -> (y: tensor<?>, old: tensor<?>)
{
    old = copy(v);
    y = select(true, x, v) if keep else v;
}
graph g(x, i) -> (sum, old, picked)
{
    x = external<scalar>(shape = [2, 3]);
    i = external<integer>(shape = [2]);
    state = variable<scalar>(shape = [2, 3], label = 'memory/sum');
    now, old = lag(x + state, state);
    sum = update(state, now);
    rows = add_n([for k in range_of([1, 2, 3]) if k in [0, 2] yield sum * scalar(k)]);
    picked = gather(rows, i, axis = 1);
}
"""


def compiled(model: Path, folder: Path, **options: object) -> Path:
    folder.mkdir(exist_ok=True)
    nnefc.compile(model, **options).export(folder / "network.so")  # type: ignore[arg-type]
    return folder / "network.so"


def names(ports: object) -> list[str]:
    return [port.name for port in ports]  # type: ignore[attr-defined]


def without_names(assembly: Path) -> list[str]:
    """The lines of the code; what debuggers call the variables is left out."""
    return [line for line in assembly.read_text().splitlines() if not line.startswith("\t.asciz")]


@pytest.mark.parametrize(
    ("text", "options"),
    [(PROVISIONAL, ["--graph", "first", "--shape", "x=1,3,8,10"]), (FINAL, [])],
    ids=["provisional", "final"],
)
@pytest.mark.sample(1)
def test_a_flattened_document_compiles_to_the_same_code_and_values(
    text: str, options: list[str], tmp_path: Path
) -> None:
    (tmp_path / "net.nnef").write_text(text)
    printed = CliRunner().invoke(main, ["inspect", "--flat", *options, str(tmp_path / "net.nnef")])
    assert printed.exit_code == 0, printed.output
    assert "fragment" not in printed.stdout
    (tmp_path / "flat.nnef").write_text(printed.stdout)
    made = []
    for name, more in (("net", options), ("flat", [])):
        command = ["compile", str(tmp_path / f"{name}.nnef"), "--random-weights", "1", *more]
        library, code = tmp_path / f"{name}.so", tmp_path / name
        for output in (["-o", str(library), "--weights", "separate"], ["-o", str(code), "--emit", "asm"]):
            result = CliRunner().invoke(main, [*command, *output])
            assert result.exit_code == 0, result.output
        values = library.with_suffix(".weights").read_bytes()
        made.append((values, [without_names(file) for file in sorted(code.iterdir())]))
    assert made[0] == made[1]
    assert made[0][1]


def test_updated_variables_live_in_a_session_until_it_is_reset(tmp_path: Path) -> None:
    (tmp_path / "graph.nnef").write_text(FINAL)
    (tmp_path / "memory").mkdir()
    start = np.arange(6, dtype=np.float32).reshape(2, 3)
    write_tensor(tmp_path / "memory" / "sum.dat", start)
    library = compiled(tmp_path, tmp_path / "out")
    rng = np.random.default_rng(3)

    def run(model: Model, memory: np.ndarray) -> np.ndarray:
        x, i = rng.standard_normal((2, 3)).astype(np.float32), rng.integers(0, 3, 2).astype(np.int32)
        results = model.run({"x": x, "i": i})
        np.testing.assert_array_equal(results["old"], memory)
        np.testing.assert_allclose(results["sum"], memory + x, rtol=1e-6)
        np.testing.assert_allclose(results["picked"], (2 * (memory + x))[:, i], rtol=1e-6)
        return memory + x

    with nnefc.load(library) as model, nnefc.load(library) as other:
        assert (model.name, names(model.inputs), names(model.states)) == ("g", ["x", "i"], ["memory/sum"])
        assert names(model.outputs) == ["sum", "old", "picked"]
        memory = start
        for _ in range(3):
            memory = run(model, memory)
        run(other, start)
        run(model, memory)
        model.reset()
        run(model, start)


def test_labels_of_variables_survive_into_the_library(tmp_path: Path) -> None:
    (tmp_path / "graph.nnef").write_text(
        "version 1.0\ngraph g(x) -> (y)\n{\n"
        "x = external(shape = [1,4])\n"
        "w = variable(shape = [3,4], label = 'block/filter')\n"
        "b = variable(shape = [1,3], label = 'block/bias')\n"
        "y = linear(x, w, b)\n}\n"
    )
    with nnefc.load(compiled(tmp_path, tmp_path / "out", random_weights=0)) as model:
        assert model.variables == ("block/filter", "block/bias")


def test_graphs_shapes_and_tensors_are_chosen(tmp_path: Path) -> None:
    (tmp_path / "net.nnef").write_text(PROVISIONAL)
    model = tmp_path / "net.nnef"
    library = compiled(
        model,
        tmp_path / "out",
        graph="first",
        shape={"x": (1, 3, 6, 5)},
        output_tensors=("d", "a_w", "y"),
        random_weights=0,
    )
    with nnefc.load(library) as network:
        assert network.name == "first"
        assert [port.shape for port in network.inputs] == [(1, 3, 6, 5)]
        assert names(network.outputs) == ["d", "a_w", "y"]
        x = np.random.default_rng(0).standard_normal((1, 3, 6, 5)).astype(np.float32)
        results = network.run({"x": x})
    assert results["a_w"].shape == (4, 3, 3, 3)
    np.testing.assert_allclose(results["y"].sum(1), 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({}, "has several graphs: 'first', 'second'", "--graph first"),
        ({"graph": "secnd"}, "secnd", "second"),
        ({"graph": "first", "shape": {"y": (1,)}}, "no input 'y'", "x"),
        ({"graph": "first", "shape": {"x": (1, 3, 8)}}, "has 3 dimensions", "has 4"),
        ({"graph": "second", "dialect": "final"}, "expected ';'", "final dialect"),
        ({"graph": "second", "max_depth": 2}, "more than 2 deep", "--max-depth"),
        ({"graph": "second", "max_operations": 4}, "more than 4 operations", "--max-operations"),
        ({"graph": "second", "output_tensors": ("vv",)}, "no tensor 'vv'", "'v'"),
        ({"graph": "first", "shape": {"x": (1, 3, 8, 8)}}, "there is no file", "--random-weights"),
    ],
)
def test_what_cannot_be_compiled_is_explained(
    tmp_path: Path, options: dict[str, object], message: str, hint: str
) -> None:
    (tmp_path / "net.nnef").write_text(PROVISIONAL)
    with pytest.raises(nnefc.CompileError) as caught:
        nnefc.compile(tmp_path / "net.nnef", **options)  # type: ignore[arg-type]
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


def test_recursion_beyond_the_usual_limit_is_allowed_on_request(tmp_path: Path) -> None:
    path = tmp_path / "deep.nnef"
    path.write_text(
        "version 1.0; extension KHR_enable_fragment_definitions; extension KHR_enable_operator_expressions;\n"
        "fragment f(x: tensor<scalar>, n: integer) -> (y: tensor<scalar>)"
        "{ y = f(x = x, n = n - 1) if n > 0 else relu(x); }\n"
        "graph g(x) -> (y) { x = external(shape = [2]); y = f(x, n = 3000); }"
    )
    refused = CliRunner().invoke(main, ["inspect", "--flat", str(path)])
    assert refused.exit_code == 1
    assert "--max-depth" in refused.stderr
    allowed = CliRunner().invoke(main, ["inspect", "--flat", "--max-depth", "4000", str(path)])
    assert "y = relu(x);" in allowed.stdout


QUANTIZED = """version 1.0;
graph g(x) -> (y, z)
{
    x = external<scalar>(shape = [1, 4]);
    f = variable<scalar>(shape = [3, 4], label = 'f');
    h = variable<scalar>(shape = [3, 4], label = 'h');
    y = linear(x, f);
    w = linear(x, h);
    z = linear_quantize(w, min = -2.0, max = 2.0, bits = 4);
}
"""


def test_quantized_models_compute_with_the_reals_that_their_integers_stand_for(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    f, h = rng.integers(0, 256, (3, 4)).astype(np.uint8), rng.integers(0, 256, (3, 4)).astype(np.uint8)
    (tmp_path / "graph.nnef").write_text(QUANTIZED)
    (tmp_path / "graph.quant").write_text(
        '"f": zero_point_linear_quantize(100, scale = 0.02, bits = 8, signed = false, symmetric = false);\n'
        '"y": linear_quantize(min = -1.0, max = 1.0, bits = 8);\n'
    )
    write_tensor(tmp_path / "f.dat", f, quantized=True)
    text = b"linear_quantize(-1.0, 1.0, bits = 8)"  # the provisional header names the algorithm itself
    header = struct.pack("<2sBBIIII", b"\x4e\xef", 1, 0, 24 + len(text), 2, 3, 4) + struct.pack("<BBH", 1, 8, len(text))
    (tmp_path / "h.dat").write_bytes(header + text + h.tobytes())
    x = rng.standard_normal((1, 4)).astype(np.float32)
    with nnefc.load(compiled(tmp_path, tmp_path / "out")) as model:
        results = model.run({"x": x})
    y = np.clip(x @ ((f.astype(np.float64) - 100) * 0.02).T, -1, 1)
    np.testing.assert_allclose(results["y"], np.round((y + 1) / 2 * 255) / 255 * 2 - 1, atol=1e-5)
    w = np.clip(x @ (h / 255.0 * 2 - 1).T, -2, 2)
    np.testing.assert_allclose(results["z"], np.round((w + 2) / 4 * 15) / 15 * 4 - 2, atol=1e-5)
