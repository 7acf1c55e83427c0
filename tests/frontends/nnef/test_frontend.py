"""Whole models through the front door: weights, states, names, options, errors."""

import contextlib
import io
import re
import tarfile

import numpy as np
import pytest
import tvm
from nnef_cases import load_text, run_network
from tvm import relax

from nnefc.frontends.nnef import document_of, load, print_flat
from nnefc.frontends.nnef.files.tensor_file import write_tensor
from nnefc.passes.graph.fuse_local_response import fuse_local_response
from nnefc.support.diagnostics import CompileError

RNG = np.random.default_rng(18)

DOCUMENT = """version 1.0;

graph net(input) -> (output)
{
    input = external<scalar>(shape = [1, 2, 6, 6]);
    filter = variable<scalar>(shape = [3, 2, 3, 3], label = 'conv/filter');
    bias = variable<scalar>(shape = [1, 3], label = 'conv/bias');
    conv1 = conv(input, filter, bias, padding = [(1, 1), (1, 1)]);
    relu1 = relu(conv1);
    output = max_pool(relu1, size = [1, 1, 2, 2], stride = [1, 1, 2, 2]);
}
"""


def write_model(folder, text=DOCUMENT, **values):
    values = values or {
        "conv/filter": RNG.standard_normal((3, 2, 3, 3)).astype(np.float32),
        "conv/bias": RNG.standard_normal((1, 3)).astype(np.float32),
    }
    folder.mkdir(exist_ok=True)
    (folder / "graph.nnef").write_text(text)
    for label, value in values.items():
        (folder / f"{label}.dat").parent.mkdir(parents=True, exist_ok=True)
        write_tensor(folder / f"{label}.dat", value)
    return values


def constants(network):
    """The values of all different constants."""
    found = []

    def visit(node):
        if isinstance(node, tvm.ir.GenericConst) and not any(node.same_as(other) for other in found):
            found.append(node)

    relax.analysis.post_order_visit(network.module["main"], visit)
    return [node.value.numpy() for node in found]


def test_a_network_has_the_names_and_types_of_its_document(tmp_path):
    write_model(tmp_path / "m")
    network = load(tmp_path / "m")
    assert (network.name, network.inputs, network.outputs, network.states) == ("net", ("input",), ("output",), ())
    text = network.module.script()
    for name in (
        "input: R.Tensor((1, 2, 6, 6)",
        "conv1: R.Tensor((1, 3, 6, 6)",
        "relu1",
        "output: R.Tensor((1, 3, 3, 3)",
    ):
        assert name in text
    relax.analysis.well_formed(network.module)


def test_folders_archives_and_documents_give_the_same_network(tmp_path):
    write_model(tmp_path / "m")
    x = RNG.standard_normal((1, 2, 6, 6)).astype(np.float32)
    (expected,) = run_network(load(tmp_path / "m"), [x])
    for name, mode in (("m.tar", "w"), ("m.tgz", "w:gz")):
        with tarfile.open(tmp_path / name, mode) as packed:
            packed.add(tmp_path / "m", arcname=".")
        np.testing.assert_array_equal(run_network(load(tmp_path / name), [x])[0], expected)
    np.testing.assert_array_equal(run_network(load(tmp_path / "m" / "graph.nnef"), [x])[0], expected)


def test_a_variable_used_twice_is_one_constant(tmp_path):
    text = DOCUMENT.replace("relu1 = relu(conv1);", "conv2 = conv(input, filter, bias); relu1 = relu(conv2);").replace(
        "-> (output)", "-> (output, conv1)"
    )
    write_model(tmp_path / "m", text)
    shapes = [value.shape for value in constants(load(tmp_path / "m"))]
    assert shapes.count((3, 2, 3, 3)) == shapes.count((1, 3, 1, 1)) == 1


def test_missing_files_are_an_error_that_names_the_way_out(tmp_path):
    write_model(tmp_path / "m", **{"conv/bias": np.zeros((1, 3), np.float32)})
    with pytest.raises(CompileError) as caught:
        load(tmp_path / "m")
    assert "conv/filter.dat" in caught.value.message
    assert "--random-weights SEED" in caught.value.hint
    assert caught.value.location.line == 6


def test_random_weights_depend_on_seed_and_label_alone(tmp_path):
    (tmp_path / "graph.nnef").write_text(DOCUMENT)
    first, again, other = (constants(load(tmp_path, random_weights=seed)) for seed in (1, 1, 2))
    lines = DOCUMENT.splitlines()
    lines[5], lines[6] = lines[6], lines[5]
    (tmp_path / "graph.nnef").write_text("\n".join(lines))
    swapped = constants(load(tmp_path, random_weights=1))
    for a, b, c, d in zip(first, again, other, swapped, strict=True):
        np.testing.assert_array_equal(a, b)
        np.testing.assert_array_equal(a, d)
        assert (a != c).any()


def test_random_weights_keep_activations_near_one(tmp_path):
    layers = "".join(
        f"w{i} = variable<scalar>(shape = [32, 32, 3, 3], label = 'w{i}'); x{i + 1} = relu(conv(x{i}, w{i}));"
        f"v{i} = variable<scalar>(shape = [1, 32], label = 'v{i}');"
        for i in range(20)
    )
    text = f"""version 1.0; extension KHR_enable_operator_expressions;
        graph g(x0) -> (y) {{
            x0 = external<scalar>(shape = [1, 32, 12, 12]); {layers}
            y = batch_normalization(x20, mean = v0, variance = v1, offset = v2, scale = v3, epsilon = 0.0);
        }}"""
    network = load_text(text, tmp_path, random_weights=3)
    (y,) = run_network(network, [RNG.standard_normal((1, 32, 12, 12)).astype(np.float32)])
    assert np.isfinite(y).all()
    assert 0.05 < y.std() < 20


def test_files_of_another_shape_are_errors_with_both_shapes(tmp_path):
    write_model(tmp_path / "m")
    write_tensor(tmp_path / "m" / "conv" / "filter.dat", np.zeros((3, 2, 3, 1), np.float32))
    with pytest.raises(CompileError) as caught:
        load(tmp_path / "m")
    for part in ("filter.dat", "[3, 2, 3, 1]", "[3, 2, 3, 3]"):
        assert part in caught.value.message
    assert caught.value.location.line == 6


@pytest.mark.parametrize("dtype", ["f2", "f8", "i1", "u2", "i8"])
def test_scalars_of_any_width_become_float32(tmp_path, dtype):
    value = RNG.integers(0, 9, (1, 3)).astype(dtype)
    write_model(tmp_path / "m", **{"conv/filter": np.zeros((3, 2, 3, 3), dtype), "conv/bias": value})
    (result,) = run_network(load(tmp_path / "m"), [np.zeros((1, 2, 6, 6), np.float32)])
    np.testing.assert_array_equal(result[0, :, 1, 1], value[0].astype(np.float32))


def test_large_weights_of_float16_are_constants_as_the_file_has_them(tmp_path):
    text = """version 1.0; graph net(x) -> (y) {
        x = external<scalar>(shape = [3, 181]);
        w = variable<scalar>(shape = [191, 181], label = 'w');
        y = matmul(x, w, transposeB = true);
    }"""
    w = (RNG.standard_normal((191, 181)) / 13).astype(np.float16)
    write_model(tmp_path / "model", text, w=w)
    network = load(tmp_path / "model")
    assert [array.dtype for array in constants(network) if array.size > 1] == [np.float16]
    x = RNG.standard_normal((3, 181)).astype(np.float32)
    (y,) = run_network(network, [x])
    np.testing.assert_allclose(y, x.astype(np.float64) @ w.T.astype(np.float64), rtol=1e-4, atol=1e-4)


def test_integers_keep_64_bits_where_the_file_has_them(tmp_path):
    text = """version 1.0;
        graph g(x) -> (y, z)
        {
            x = external<integer>(shape = [2]);
            v = variable<integer>(shape = [2], label = 'v');
            y = concat([v, x], axis = 0);
            z = copy(x);
        }"""
    write_model(tmp_path / "m", text, v=np.array([2**40, -1]))
    y, z = run_network(load(tmp_path / "m"), [np.array([7, 8], np.int32)])
    assert (y.dtype, y.tolist()) == (np.int64, [2**40, -1, 7, 8])
    assert (z.dtype, z.tolist()) == (np.int32, [7, 8])


def test_elements_of_another_kind_are_errors(tmp_path):
    text = """version 1.0;
        graph g(x) -> (y)
        {
            x = external(shape = [2]);
            v = variable<{}>(shape = [2], label = 'v');
            y = copy(v);
        }"""
    for content, value in (
        ("integer", np.zeros(2, np.float32)),
        ("logical", np.zeros(2)),
        ("scalar", np.zeros(2, bool)),
    ):
        write_model(tmp_path / "m", text.replace("<{}>", f"<{content}>"), v=value)
        with pytest.raises(CompileError, match=f"tensor of {content} values"):
            load(tmp_path / "m")


STATEFUL = """version 1.0; extension KHR_enable_operator_expressions;
graph g(x) -> (y, old)
{
    x = external<scalar>(shape = [2]);
    sum = variable<scalar>(shape = [2], label = 'state/sum');
    new = update(sum, sum + x);
    y = new * 2.0;
    old = copy(sum);
}
"""


def test_updated_variables_are_states(tmp_path):
    write_model(tmp_path / "m", STATEFUL, **{"state/sum": np.array([1, 2], np.float32)})
    network = load(tmp_path / "m")
    (state,) = network.states
    assert state.name == "state/sum"
    assert state.initial.tolist() == [1, 2]
    assert network.outputs == ("y", "old")
    y, old, kept = run_network(network, [np.array([10, 20], np.float32), state.initial])
    assert (y.tolist(), old.tolist(), kept.tolist()) == ([22, 44], [1, 2], [11, 22])
    y, old, kept = run_network(network, [np.array([1, 1], np.float32), kept])
    assert (y.tolist(), old.tolist(), kept.tolist()) == ([24, 46], [11, 22], [12, 23])


def test_a_variable_is_updated_once(tmp_path):
    text = STATEFUL.replace("y = new", "other = update(sum, x); y = new")
    write_model(tmp_path / "m", text, **{"state/sum": np.zeros(2, np.float32)})
    with pytest.raises(CompileError, match="updated twice"):
        load(tmp_path / "m")


def test_activations_can_be_returned_instead_of_the_outputs(tmp_path):
    write_model(tmp_path / "m")
    x = RNG.standard_normal((1, 2, 6, 6)).astype(np.float32)
    network = load(tmp_path / "m", output_tensors=("conv1", "output", "relu1"))
    assert network.outputs == ("conv1", "output", "relu1")
    conv1, _, relu1 = run_network(network, [x])
    np.testing.assert_array_equal(np.maximum(conv1, 0), relu1)
    with pytest.raises(CompileError) as caught:
        load(tmp_path / "m", output_tensors=("cnv1",))
    assert "did you mean 'conv1'?" in str(caught.value)


def test_shapes_of_inputs_can_be_given(tmp_path):
    write_model(tmp_path / "m")
    network = load(tmp_path / "m", shape={"input": (2, 2, 8, 4)})
    (y,) = run_network(network, [np.zeros((2, 2, 8, 4), np.float32)])
    assert y.shape == (2, 3, 4, 2)


def test_every_output_is_a_value_of_its_own(tmp_path):
    text = """version 1.0;
        graph g(x) -> (y, x, a, b, c)
        {
            x = external<scalar>(shape = [2]);
            c = constant<scalar>(shape = [2], value = [1.0, 2.0]);
            a = exp(x);
            b = copy(a);
            y = copy(x);
        }"""
    network = load_text(text.replace("-> (y, x,", "-> (y,"), tmp_path)
    results = network.module["main"].body.blocks[0].bindings[-1].value.fields
    assert len({result.name for result in results}) == 4
    y, a, b, c = run_network(network, [np.array([0, 1], np.float32)])
    np.testing.assert_allclose(y, [0, 1])
    np.testing.assert_allclose(a, np.exp([0, 1]), rtol=1e-6)
    np.testing.assert_allclose(b, a)
    np.testing.assert_allclose(c, [1, 2])


def test_documents_are_flattened_without_weights(tmp_path):
    (tmp_path / "graph.nnef").write_text(DOCUMENT)
    flat = document_of(tmp_path)
    assert [invocation.operation.name for invocation in flat.invocations][-3:] == ["conv", "relu", "max_pool"]
    (tmp_path / "flat.nnef").write_text(print_flat(flat))
    assert print_flat(document_of(tmp_path / "flat.nnef")) == print_flat(flat)


def test_the_same_model_gives_the_same_module(tmp_path):
    write_model(tmp_path / "m")
    first, second = load(tmp_path / "m"), load(tmp_path / "m")
    tvm.ir.assert_structural_equal(first.module, second.module)
    assert first.module.script() == second.module.script()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dialect": "third"}, "there is no NNEF dialect 'third'"),
        ({"random_weights": -1}, "must not be negative"),
        ({"graph": "other"}, "other"),
        ({"shape": {"inptu": (1,)}}, "inptu"),
    ],
)
def test_wrong_options_are_errors(tmp_path, options, message):
    write_model(tmp_path / "m")
    with pytest.raises(CompileError) as caught:
        load(tmp_path / "m", **options)
    assert message in str(caught.value)


def test_labels_do_not_lead_out_of_the_model(tmp_path):
    write_tensor(tmp_path / "secret.dat", np.zeros((1, 3), np.float32))
    write_model(
        tmp_path / "m", DOCUMENT.replace("conv/bias", "../secret"), **{"conv/filter": np.zeros((3, 2, 3, 3), "f4")}
    )
    with pytest.raises(CompileError, match="leads out of the model"):
        load(tmp_path / "m")


def test_binary_garbage_is_an_error(tmp_path):
    for number, content in enumerate((b"\x1f\x8b", b"\0" * 600, bytes(range(256)) * 4, io.BytesIO().getvalue())):
        path = tmp_path / f"{number}.nnef"
        path.write_bytes(content)
        with pytest.raises(CompileError):
            load(path)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("y = tile(x, repeats = [1, 1, 1000000000])", "a tensor may have 2,147,483,647"),
        ("y = nearest_upsample(x, factor = [1000000000])", "more than 2147483647 elements"),
        ("y = multilinear_upsample(x, factor = [30000000])", "needs a table of 120000000 entries"),
        (
            "y = pad(x, padding = [(0,0), (0,0), (2147483647,0)], border = 'replicate')",
            "a tensor may have 2,147,483,647",
        ),
    ],
)
def test_sizes_that_no_network_needs_are_refused_before_memory_is_taken(tmp_path, statement, message):
    text = f"version 1.0;\ngraph g(x) -> (y)\n{{\nx = external<scalar>(shape = [1, 2, 4]);\n{statement};\n}}\n"
    with pytest.raises(CompileError) as caught:
        load_text(text, tmp_path)
    assert message in str(caught.value)
    assert caught.value.location.line == 5


TOKEN = re.compile(r"\d+\.\d+|\d+|'[a-z-]*'|true|false|\w+|[^\w\s]")
REPLACEMENTS = ["0", "1", "2", "3", "7", "-1", "1000000000", "9" * 20, "1.5", "1e308", "'ignore'", "'x'", "[]", "", "x"]


@pytest.mark.parametrize("count", [200, pytest.param(600, marks=pytest.mark.slow)])
def test_changed_documents_are_errors_or_networks_and_never_crash(tmp_path, count):
    statements = [
        "y = conv(x, x, 0.0, border = 'reflect', padding = [(1, 1), (0, 2)], stride = [1, 2], dilation = [1, 1])",
        "y = deconv(x, x, border = 'replicate', padding = [(1, 1), (0, 1)], stride = [2, 2], output_shape = [])",
        "y = max_pool(x, size = [1, 1, 2, 2], stride = [1, 1, 2, 2], border = 'ignore', padding = [])",
        "y = debox(x, size = [1, 2, 2], padding = [(0,0), (0,1), (1,0), (0,0)], border = 'reflect', normalize = true)",
        "y = slice(x, axes = [2, 3], begin = [3, 0], end = [0, 4], stride = [-1, 2])",
        "y = reshape(x, shape = [0, -1, 2], axis_start = 1, axis_count = 2)",
        "y = multilinear_upsample(x, factor = [2, 3], method = 'aligned', border = 'constant')",
        "y = local_response_normalization(x, size = [1, 3, 1, 1], alpha = 0.1, beta = 0.75, bias = 1.0)",
        "y = min_max_linear_quantize(x, 0.0, 1.0, bits = 8, signed = true, symmetric = false)",
        "y = pad(x, padding = [(0,0), (1,1), (2,0), (0,1)], border = 'reflect')",
    ]
    rng = np.random.default_rng(19)
    for number in range(count):
        body = f"x = external(shape = [2, 2, 4, 4]); {statements[number % len(statements)]}"
        for _ in range(1 + number % 3):
            match = rng.choice(list(TOKEN.finditer(body)))
            body = body[: match.start()] + str(rng.choice(REPLACEMENTS)) + body[match.end() :]
        with contextlib.suppress(CompileError):
            load_text(f"version 1.0; graph g(x) -> (y) {{ {body}; }}", tmp_path)


def test_local_response_normalization_is_found_in_the_steps_that_define_it(tmp_path):
    text = "y = local_response_normalization(x, size = [1, 5, 1, 1], alpha = 0.1, beta = 0.75, bias = 1.0);"
    made = load_text(f"version 1.0; graph g(x) -> (y) {{ x = external(shape = [1, 64, 8, 8]); {text} }}", tmp_path)
    functions = fuse_local_response(made.module).functions
    assert any("nnefc.local_response" in (function.attrs or {}) for function in functions.values())
