"""Operators that users register: what classes may say, and what errors say."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from emulated_networks import on_cuda
from onnx import TensorProto, helper
from onnx_models import graph, info, model, node, save, tensor
from tvm import relax

import nnefc
from nnefc import custom
from nnefc.cli import main
from nnefc.operators import custom_registry as registry
from nnefc.support.diagnostics import CompileError

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


@pytest.fixture(autouse=True)
def _registrations() -> Iterator[None]:
    before = dict(registry.REGISTERED)
    yield
    registry.REGISTERED.clear()
    registry.REGISTERED.update(before)


def of_mine(nodes: list[onnx.NodeProto], *parts: Any, **more: Any) -> onnx.ModelProto:
    return model(nodes, *parts, imports={"my": 1}, **more)


def compiled(proto: onnx.ModelProto, folder: Path, **options: Any) -> nnefc.Artifact:
    return nnefc.compile(save(proto, folder), **options)


def scale() -> None:
    @custom.register(onnx="my::Scale", nnef="scale", pnnx="my::scale")
    class Scale(custom.CustomOperator):
        by: float = 2.0

        def lower(self, ctx, x):
            return relax.op.multiply(ctx.expr(x), ctx.expr(ctx.number(self.by, x)))


def test_attributes_have_the_types_and_defaults_of_the_fields(tmp_path: Path) -> None:
    seen = []

    @custom.register(onnx="my::Op")
    class Op(custom.CustomOperator):
        a: int
        b: bool = True
        c: float | None = None
        d: tuple[int, ...] = (1,)
        e: str = "s"
        f: tuple[str, ...] = ()
        g: np.ndarray | None = None

        def lower(self, ctx, x):
            seen.append(self)
            return relax.op.negative(ctx.expr(x))

    attributes = {"a": 3, "b": 0, "c": 1.5, "d": [4, 5], "e": "t", "f": ["u", "v"], "g": tensor("", [1, 2])}
    made = compiled(of_mine([node("Op", ["x"], ["h"], domain="my", **attributes),
                             node("Op", ["h"], ["y"], domain="my", a=7)]), tmp_path)  # fmt: skip
    first, second = seen
    assert (first.a, first.b, first.c, first.d, first.e, first.f) == (3, False, 1.5, (4, 5), "t", ("u", "v"))
    np.testing.assert_array_equal(first.g, [1, 2])
    assert (second.a, second.b, second.c, second.d, second.g) == (7, True, None, (1,), None)
    np.testing.assert_array_equal(made.run({"x": X})["y"], X)
    for wrong, message in (({}, "the attribute 'a' is missing"), ({"a": 1.5}, "of type FLOAT, it must be INT"),
                           ({"a": 1, "z": 1}, "no attribute 'z'")):  # fmt: skip
        with pytest.raises(CompileError, match=message):
            compiled(of_mine([node("Op", ["x"], ["y"], domain="my", **wrong)]), tmp_path)


def test_inputs_may_be_optional_and_many_and_results_several(tmp_path: Path) -> None:
    @custom.register(onnx=["my::SumAndCount", "my::Sums"])
    class SumAndCount(custom.CustomOperator):
        def lower(self, ctx, x, start=None, *tail):
            total = ctx.expr(x)
            for other in (start, *tail):
                total = total if other is None else relax.op.add(total, ctx.expr(other))
            return total, np.array(1 + len(tail), np.int64)

    outputs = [info("y"), info("n", (), TensorProto.INT64)]
    proto = of_mine([node("Sums", ["x", "", "x", "x"], ["y", "n"], domain="my")], None, outputs)
    made = compiled(proto, tmp_path).run({"x": X})
    np.testing.assert_array_equal(made["y"], 3 * X)
    assert made["n"] == 3
    with pytest.raises(CompileError, match="input 'x' is missing"):
        compiled(of_mine([node("SumAndCount", ["", "x"], ["y"], domain="my")]), tmp_path)


def test_float16_come_as_float32_and_leave_as_what_they_were(tmp_path: Path) -> None:
    scale()
    half = TensorProto.FLOAT16
    proto = of_mine([node("Scale", ["x"], ["y"], domain="my")], [info("x", (2, 3), half)], [info("y", (2, 3), half)])
    made = compiled(proto, tmp_path).run({"x": X.astype(np.float16)})["y"]
    assert made.dtype == np.float16
    np.testing.assert_array_equal(made, 2 * X)


def test_a_registered_operator_replaces_functions_and_of_the_standard(tmp_path: Path) -> None:
    scale()
    body = helper.make_function("my", "Scale", ["x"], ["y"], [node("Neg", ["x"], ["y"])], [helper.make_opsetid("", 21)])
    proto = of_mine([node("Scale", ["x"], ["y"], domain="my")], functions=[body])
    np.testing.assert_array_equal(compiled(proto, tmp_path).run({"x": X})["y"], 2 * X)

    @custom.register(onnx="Relu")
    class Doubled(custom.CustomOperator):
        def lower(self, ctx, x):
            return relax.op.add(ctx.expr(x), ctx.expr(x))

    np.testing.assert_array_equal(compiled(model([node("Relu", ["x"], ["y"])]), tmp_path).run({"x": X})["y"], 2 * X)


def test_branches_and_dynamic_sizes_have_custom_operators(tmp_path: Path) -> None:
    @custom.register(onnx="my::Shift")
    class Shift(custom.CustomOperator):
        def shape(self, x):
            return x

        def lower(self, ctx, x):
            text = "int32_t shift(const float *x, float *y, int64_t n) { while (n--) y[n] = x[n] + 1; return 0; }"
            count = custom.shape_of(x)[0] * custom.shape_of(x)[1]
            return custom.call_c(ctx, custom.CSource(text), "shift", [x], [(custom.shape_of(x), "float32")], count)

    branches = {
        name: graph([node(kind, ["x"], [name], domain=domain)], [], [info(name, ("n", 3))])
        for name, kind, domain in (("then_branch", "Shift", "my"), ("else_branch", "Neg", ""))
    }
    inputs = [info("x", ("n", 3)), info("c", (), TensorProto.BOOL)]
    proto = of_mine([node("If", ["c"], ["y"], **branches)], inputs, [info("y", ("n", 3))])
    with compiled(proto, tmp_path).load() as library:
        for rows in (1, 4):
            x = np.arange(3 * rows, dtype=np.float32).reshape(rows, 3)
            np.testing.assert_array_equal(library.run({"x": x, "c": True})["y"], x + 1)
            np.testing.assert_array_equal(library.run({"x": x, "c": False})["y"], -x)


def failing(name: str, lower: Any, shape: Any = None) -> None:
    members = {"lower": lower} | ({"shape": shape} if shape is not None else {})
    custom.register(onnx=f"my::{name}")(type(name, (custom.CustomOperator,), members))


@pytest.mark.parametrize(
    ("lower", "shape", "message"),
    [
        (
            lambda self, ctx, x: x.no_such_thing,
            None,
            r"Bad failed: AttributeError: .*test_custom_operators.py, line \d+",
        ),
        (lambda self, ctx, x: "text", None, "returns str"),
        (
            lambda self, ctx, x: relax.op.negative(ctx.expr(x)),
            lambda self, x: (2, 2),
            r"makes \[2, 3\], .* says \[2, 2\]",
        ),
        (
            lambda self, ctx, x: relax.op.negative(ctx.expr(x)),
            lambda self, x: x[5],
            "no shape for these inputs: IndexErr",
        ),
        (lambda self, ctx, x: relax.op.negative(ctx.expr(x)), lambda self, x: "ab", "says 'ab', which is no shape"),
    ],
)
def test_failures_of_a_users_code_are_named(tmp_path: Path, lower: Any, shape: Any, message: str) -> None:
    failing("Bad", lower, shape)
    with pytest.raises(CompileError, match=message) as caught:
        compiled(of_mine([node("Bad", ["x"], ["y"], domain="my", name="n")]), tmp_path)
    assert "'n' (my.Bad)" in str(caught.value)


def called(text: str, *numbers: float, function: str = "f") -> Any:
    def lower(self: Any, ctx: Any, x: Any) -> Any:
        source = custom.CSource(text, "mine.c")
        return custom.call_c(ctx, source, function, [x], [(custom.shape_of(x), "float32")], *numbers)

    return lower


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\nint32_t f(const float *x, float *y) { return z; }", r"mine.c:2:\d+: error: .*'z'"),
        ("int32_t g(const float *x, float *y) { return 0; }", "function 'f'"),
        ("int32_t f(const double *x, float *y) { return 0; }", r"const float \*.*const double \*|incompatible"),
        ("int32_t f(const float *x, float *y, int64_t n) { return 0; }", "too few arguments"),
        ('#include "nowhere.h"', "'nowhere.h' file not found"),
    ],
)
def test_errors_of_c_are_those_of_the_compiler(tmp_path: Path, text: str, message: str) -> None:
    failing("Bad", called(text))
    with pytest.raises(CompileError, match=message) as caught:
        compiled(of_mine([node("Bad", ["x"], ["y"], domain="my")]), tmp_path)
    assert "the C of an operator, mine.c, does not compile" in caught.value.message
    assert "docs/how-to/custom-operator.md" in str(caught.value)


def test_results_of_c_are_not_reproducible(tmp_path: Path) -> None:
    failing("Bad", called("int32_t f(const float *x, float *y) { return 0; }"))
    with pytest.raises(CompileError, match=r"the network has an operator of mine\.c"):
        compiled(of_mine([node("Bad", ["x"], ["y"], domain="my")]), tmp_path, reproducible=True)


def test_a_function_in_c_can_let_the_run_fail(tmp_path: Path) -> None:
    failing("Bad", called("static int32_t f(const float *x, float *y) { *y = *x; return *x > 0; }"))
    proto = of_mine([node("Bad", ["x"], ["y"], domain="my")], [info("x", (1,))], [info("y", (1,))])
    with compiled(proto, tmp_path).load() as library:
        assert library.run({"x": np.float32([-1])})["y"] == -1
        with pytest.raises(nnefc.RunError, match="the operator's function 'f' failed"):
            library.run({"x": np.float32([1])})


def test_the_same_c_is_there_once_and_other_targets_have_it(tmp_path: Path) -> None:
    failing("Twice", called("int32_t f(const float *x, float *y, int64_t i) { y[i] = x[i]; return 0; }", 1))
    nodes = [node("Twice", ["x"], ["h"], domain="my"), node("Twice", ["h"], ["y"], domain="my")]
    for target in ("llvm", "cortex-a72"):
        artifact = compiled(of_mine(nodes), tmp_path, target=target)
        wrappers = [data for data in artifact.code.objects if b"nnefc_c_f_" in data and b"nnefc_kernel" not in data]
        assert len(wrappers) == 1
        artifact.export(tmp_path / "m.so")


def test_c_in_constant_parts_is_left_to_the_run(tmp_path: Path) -> None:
    failing("One", called("int32_t f(const float *x, float *y) { *y = *x + 1; return 0; }"))
    nodes = [node("One", ["w"], ["h"], domain="my"), node("Add", ["x", "h"], ["y"])]
    made = compiled(of_mine(nodes, None, None, [tensor("w", [4])]), tmp_path)
    np.testing.assert_array_equal(made.run({"x": X})["y"], X + 5)


def test_names_are_registered_once() -> None:
    scale()
    scale()  # of the same position: a notebook's cell that is run again

    class Other(custom.CustomOperator):
        def lower(self, ctx, x):
            return x

    with pytest.raises(CompileError, match="'my::Scale' is registered already"):
        custom.register(onnx="my::Scale")(Other)
    custom.forget(registry.REGISTERED["onnx", "my::Scale"].kind)
    custom.register(onnx="my::Scale")(Other)


def test_classes_are_checked_when_they_are_registered() -> None:
    def refused(message: str, members: dict[str, Any], **names: Any) -> None:
        with pytest.raises(CompileError, match=message):
            custom.register(**(names or {"onnx": "my::Op"}))(type("Op", (custom.CustomOperator,), members))

    lower = lambda self, ctx, x: x  # noqa: E731
    refused("no method 'lower'", {})
    refused("no name that models know it by", {"lower": lower}, onnx=())
    refused("has the type .*dict", {"lower": lower, "__annotations__": {"a": dict}})
    refused("mutable default", {"lower": lower, "a": [], "__annotations__": {"a": list}})
    refused("parameter 'k', which is no input", {"lower": lambda self, ctx, x, *, k=1: x})
    with pytest.raises(CompileError, match="'int' is no operator"):
        custom.register(onnx="my::Op")(int)


def test_fragments_without_a_body_are_registered_operators(tmp_path: Path) -> None:
    path = tmp_path / "m.nnef"
    head = "version 1.0;\nextension KHR_enable_fragment_definitions;\n"
    declared = "fragment scale(x: tensor<scalar>, by: scalar = 3.0) -> (y: tensor<scalar>);\n"
    body = "graph g(x) -> (y) { x = external<scalar>(shape = [2, 3]); y = scale(x); }"
    path.write_text(head + declared + body)
    with pytest.raises(CompileError, match="declared but not defined") as caught:
        nnefc.compile(path)
    assert "docs/how-to/custom-operator.md" in str(caught.value)
    scale()
    with pytest.raises(CompileError, match="Scale has no rule for shapes") as caught:
        nnefc.compile(path)
    assert caught.value.location is not None and caught.value.location.line == 4

    @custom.register(nnef="fragment thrice(x: tensor<scalar>, by: scalar = 3.0) -> (y: tensor<scalar>)")
    class Thrice(custom.CustomOperator):
        by: float

        def shape(self, x):
            return x

        def lower(self, ctx, x):
            return relax.op.multiply(ctx.expr(x), ctx.expr(ctx.number(self.by, x)))

    path.write_text("version 1.0;\n" + body.replace("scale(x)", "thrice(x)"))
    np.testing.assert_array_equal(nnefc.compile(path).run({"x": X})["y"], 3 * X)


def test_modules_of_pnnx_give_their_tensors_to_inputs_of_their_names(tmp_path: Path) -> None:
    @custom.register(pnnx="models.Bias")
    class Bias(custom.CustomOperator):
        times: int = 1

        def lower(self, ctx, x, bias):
            return relax.op.add(ctx.expr(x), ctx.expr(self.times * bias))

    path = tmp_path / "m.pnnx.param"
    path.write_text("7767517\n3 2\npnnx.Input x 0 1 0 #0=(2,3)f32\nmodels.Bias b 1 1 0 1 times=2 @bias=(3)f32 "
                    "#1=(2,3)f32\npnnx.Output y 1 0 1\n")  # fmt: skip
    with zipfile.ZipFile(path.with_suffix(".bin"), "w", zipfile.ZIP_STORED) as file:
        file.writestr("b.bias", np.float32([1, 2, 3]).tobytes())
        file.writestr("b.other", np.float32([1, 2, 3]).tobytes())
    (y,) = nnefc.compile(path).run({"x": X}).values()
    np.testing.assert_array_equal(y, X + np.float32([2, 4, 6]))
    path.write_text(path.read_text().replace(" times=2", ""))
    (y,) = nnefc.compile(path).run({"x": X}).values()
    np.testing.assert_array_equal(y, X + np.float32([1, 2, 3]))
    path.write_text(path.read_text().replace("@bias", "@other"))
    with pytest.raises(CompileError, match=r"'@other' of 'models\.Bias' is none of the inputs"):
        nnefc.compile(path)
    path.write_text(path.read_text().replace("models.Bias", "models.Nothing"))
    with pytest.raises(CompileError, match=r"no operator 'models.Nothing'\n.*\n.*\n.*custom-operator.md"):
        nnefc.compile(path)


FILE = """
from tvm import relax
from nnefc import custom

@custom.register(onnx="my::Cubed")
class Cubed(custom.CustomOperator):
    def lower(self, ctx, x):
        return relax.op.multiply(relax.op.multiply(ctx.expr(x), ctx.expr(x)), ctx.expr(x))
"""


def test_the_command_line_takes_files_of_operators(tmp_path: Path) -> None:
    path, file = save(of_mine([node("Cubed", ["x"], ["y"], domain="my")]), tmp_path), tmp_path / "mine.py"

    def run(*arguments: object) -> Any:
        return CliRunner().invoke(main, [str(argument) for argument in arguments])

    result = run("compile", path, "-o", tmp_path / "m.so")
    assert result.exit_code == 1 and "--operators FILE.py" in result.output
    file.write_text(FILE)
    result = run("compile", path, "-o", tmp_path / "m.so", "--operators", file)
    assert (result.exit_code, result.output) == (0, "")
    with nnefc.load(tmp_path / "m.so") as library:
        np.testing.assert_array_equal(library.run({"x": X})["y"], X**3)
    result = run("inspect", path, "--operators", file)
    assert result.exit_code == 0 and "my.Cubed" in result.output and "not supported" not in result.output


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1\n", "registers no operator"),
        ("x = 1\ny = 1 / 0\n", r"mine.py:2:1: error: the file with operators failed: ZeroDivisionError"),
        ("x = (\n", r"mine.py:1:1: error: .* SyntaxError"),
    ],
)
def test_files_of_operators_that_fail_are_named(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(CompileError) as caught:
        custom.load_operators(file)
    assert re.search(message, str(caught.value))
    with pytest.raises(CompileError, match="no Python file"):
        custom.load_operators(tmp_path / "none.py")


@pytest.mark.slow
def test_on_gpus_functions_in_c_run_on_the_host(tmp_path: Path) -> None:
    scale()
    failing(
        "Shift", called("int32_t f(const float *x, float *y, int64_t n) { while (n--) y[n] = x[n] + 1; return 0; }", 6)
    )
    nodes = [node("Scale", ["x"], ["h"], domain="my"), node("Shift", ["h"], ["y"], domain="my")]
    path = save(of_mine(nodes), tmp_path)
    with on_cuda(checks=True), nnefc.compile(path).load() as network:
        np.testing.assert_array_equal(network.run({"x": X})["y"], 2 * X + 1)


DYNAMIC = """version 1.0;
extension tract_registry tract_core;
extension tract_registry my_ops;
extension tract_symbol S;
graph network(x) -> (y)
{
    x = tract_core_external(shape = [S, 4], datum_type = 'f32');
    n = squeeze(slice(tract_core_shape_of(x), axes = [0], begin = [1], end = [2]), axes = [0]);
    y = my_scale(x + 1.0, by = n);
}
"""


def test_a_registry_of_a_file_is_one_of_tracts_dialect(tmp_path: Path) -> None:
    """An attribute may follow from sizes; and only documents that name the registry have its operators."""
    model, operators = tmp_path / "m.nnef", tmp_path / "my_ops.py"
    model.write_text(DYNAMIC)
    operators.write_text(
        """from tvm import relax
from nnefc import custom

@custom.register(
    nnef="fragment my_scale(x: tensor<scalar>, by: scalar = 2.0) -> (y: tensor<scalar>)", registry="my_ops"
)
class MyScale(custom.CustomOperator):
    by: float = 2.0

    def shape(self, x):
        return x

    def lower(self, ctx, x):
        return relax.op.multiply(ctx.expr(x), ctx.expr(ctx.number(self.by, x)))
"""
    )
    with pytest.raises(CompileError, match="the registry 'my_ops' is not known") as caught:
        nnefc.compile(model)
    assert "--registry FILE.py" in str(caught.value.hint)
    result = CliRunner().invoke(main, ["inspect", str(model), "--registry", str(operators)])
    assert result.exit_code == 0 and "tract_core, my_ops" in result.output
    try:
        x = np.arange(12, dtype=np.float32).reshape(3, 4)
        with nnefc.compile(model, operators=[operators]).load() as network:
            np.testing.assert_allclose(network(x), 4 * (x + 1))
        model.write_text(DYNAMIC.replace("extension tract_registry my_ops;", ""))
        with pytest.raises(CompileError, match="no operation 'my_scale'"):
            nnefc.compile(model)
    finally:
        custom.forget(next(d.kind for (f, n), d in registry.REGISTERED.items() if n == "my_scale"))
