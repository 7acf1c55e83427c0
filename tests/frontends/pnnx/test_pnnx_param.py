"""The text file: every kind of parameter, and what is refused, with its position."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from pnnx_files import run, write_network

from nnefc.frontends.pnnx import load
from nnefc.frontends.pnnx.param import ParamType, parse_param
from nnefc.support.diagnostics import CompileError

INPUT = "pnnx.Input in 0 1 0 #0=(1,3)f32"
OUTPUT = "pnnx.Output out 1 0 1"


def parsed(*lines: str, head: str | None = None) -> str:
    return "\n".join(["7767517", head or f"{len(lines)} {sum(int(line.split()[3]) for line in lines)}", *lines])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-3", -3),
        ("1.500000e-05", 1.5e-5),
        ("2.", 2.0),
        ("True", True),
        ("False", False),
        ("None", None),
        ("bilinear", "bilinear"),
        ("torch.float", "torch.float"),
        ("(1,2)", (1, 2)),
        ("(12)", (12,)),
        ("(1,)", (1,)),
        ("()", ()),
        ("[2.0,0.5]", (2.0, 0.5)),
        ("(None,3)", (None, 3)),
        ("(a,b)", ("a", "b")),
        ("1.0e+00+2.0e+00j", 1 + 2j),
        ("-1.5-2j", -1.5 - 2j),
        ("inf", math.inf),
        ("a=b", "a=b"),
        ("ijl,ilk->ijk", "ijl,ilk->ijk"),
    ],
)
def test_parameters_of_every_kind(text: str, value: object) -> None:
    graph = parse_param(parsed(INPUT, f"some.Operator op 1 1 0 1 key={text}", OUTPUT))
    found = graph.operators[1].parameters["key"]
    assert (found.value, type(found.value)) == (value, type(value))
    assert found.text == text


def test_types_attributes_and_names_of_inputs() -> None:
    line = "x.Y op 2 1 0 0 1 @weight=(8,3)f16 @scalar=()f64 $input=0 #0=(1,?)f32 #1=(2,%n,-1)null"
    graph = parse_param(parsed("pnnx.Input in 0 1 0 #0=(1,?)f32", line, OUTPUT))
    operator = graph.operators[1]
    assert operator.attributes == {"weight": ParamType((8, 3), "float16"), "scalar": ParamType((), "float64")}
    assert operator.names == {"input": 0}
    assert graph.types == {"0": ParamType((1, None), "float32"), "1": ParamType((2, None, None), None)}


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", None, "not a param file"),
        ("7767518\n1 1", 1, "not a param file"),
        ("7767517", 2, "second line"),
        ("7767517\n1", 2, "second line"),
        ("7767517\n-1 2", 2, "second line"),
        (parsed(INPUT, OUTPUT.replace(" 1 0 1", " 1 0 0"), head="3 1"), 2, "2 operators, but its second line says 3"),
        (parsed(INPUT, head="1 7"), 2, "the file has 1 operands, but its second line says 7"),
        (parsed("pnnx.Input in 0", head="1 0"), 3, "needs a type, a name"),
        (parsed("pnnx.Input in x 1 0", head="1 1"), 3, "not a number of operands"),
        (parsed("pnnx.Input in 0 999999999 0", head="1 1"), 3, "words for"),
        (parsed("pnnx.Input in 0 99999999999 0", head="1 1"), 3, "not a number of operands"),
        (parsed("pnnx.Output out 1 0 5"), 3, "no operator before this one produces"),
        (parsed(INPUT, INPUT), 4, "two operators 'in'"),
        (parsed(INPUT, INPUT.replace("in ", "in2 ")), 4, "produced twice"),
        (parsed(INPUT + " loose"), 3, "not of the form key=value"),
        (parsed(INPUT + " a=1 a=2"), 3, "given twice"),
        (parsed(INPUT + " @a=3"), 3, "not a type"),
        (parsed(INPUT + " @a=(1,x)f32"), 3, "not the size"),
        (parsed(INPUT + " @a=(99999999999999999999)f32"), 3, "not the size"),
        (parsed(INPUT + " @a=(1)f33"), 3, "not a type"),
        (parsed(INPUT + " @a=(" + "1," * 40 + "1)f32"), 3, "at most 16 dimensions"),
        (parsed(INPUT + " $x=7"), 3, "no input '7'"),
        (parsed(INPUT + " #7=(1)f32"), 3, "no operand '7'"),
    ],
)
def test_malformed_files_are_refused_with_the_line(text: str, line: int | None, message: str) -> None:
    with pytest.raises(CompileError, match=message) as caught:
        parse_param(text)
    assert (caught.value.location.line if caught.value.location else None) == line


def test_param_file_of_ncnn_is_recognized() -> None:
    with pytest.raises(CompileError) as caught:
        parse_param("7767516\n1 1\nInput in0 0 1 in0")
    assert "ncnn" in (caught.value.hint or "")


def test_what_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.param").write_bytes(b"7767517\n\xff\xfe")
    with pytest.raises(CompileError, match="line 2 is not UTF-8"):
        load(tmp_path / "x.param")
    with pytest.raises(CompileError, match="cannot read"):
        load(tmp_path / "missing.param")


def refused(folder: Path, *lines: str, **options: object) -> CompileError:
    with pytest.raises(CompileError) as caught:
        load(write_network(folder, lines), **options)  # type: ignore[arg-type]
    return caught.value


def test_an_output_has_no_outputs(tmp_path: Path) -> None:
    error = refused(tmp_path, INPUT, "pnnx.Output odd 0 1 1", OUTPUT)
    assert error.message == "an output of the network has no outputs of its own"


def test_a_tensor_is_no_number(tmp_path: Path) -> None:
    slope = ("torch.arange a 0 1 2 end=3", "F.leaky_relu w 2 1 0 2 1 $input=0 $negative_slope=2")
    assert refused(tmp_path, INPUT, *slope, OUTPUT).message == "the argument 'negative_slope' must be: real"


def test_unknown_sizes_stay_open_unless_they_are_given(tmp_path: Path) -> None:
    lines = ("pnnx.Input in 0 1 0 #0=(1,?,4)f32", "nn.ReLU r 1 1 0 1", OUTPUT)
    assert [dimension.name for dimension in load(write_network(tmp_path, lines)).dynamic_dimensions] == ["in_1"]
    for name in ("in", "0"):
        network = load(write_network(tmp_path, lines), shape={name: (1, 5, 4)})
        assert [int(e) for e in network.module["main"].params[0].ty.shape] == [1, 5, 4]
    assert "no input 'im'" in refused(tmp_path, *lines, shape={"in": (1, 5, 4), "im": (1,)}).message
    assert "has 3 dimensions" in refused(tmp_path, *lines, shape={"in": (1, 5)}).message


@pytest.mark.parametrize(
    ("line", "message", "hint"),
    [
        ("nn.RelU r 1 1 0 1", "no operator 'nn.RelU'", "nn.ReLU"),
        ("nn.ReLU r 1 1 0 1 inplase=True", "no argument 'inplase'", "inplace"),
        ("nn.LeakyReLU r 1 1 0 1 negative_slope=True", "must be: real", ""),
        ("nn.Softmax r 1 1 0 1 dim=5", "no dimension 5", ""),
        ("nn.ReLU r 2 1 0 0 1", "takes fewer operands than 2", ""),
        ("torch.matmul r 1 1 0 1", "needs the argument 'other'", ""),
        ("torch.matmul r 2 1 0 0 1", "do not fit", ""),
        ("nn.Linear r 1 1 0 1 in_features=3 out_features=2 bias=True", "no tensor '@weight'", ""),
        ("nn.ReLU r 1 1 0 1 @x=(0)f32", "no tensors of its own", ""),
        ("torch.chunk r 1 1 0 1 chunks=0", "cannot become 0 parts", ""),
        ("torch.zeros r 0 1 1 size=(99999999,99999999)", "a tensor may have 2,147,483,647", ""),
        ("Tensor.reshape r 1 1 0 1 shape=(-1,-1)", "cannot take the shape", ""),
        ("Tensor.repeat r 1 1 0 1 repeats=(2147483647,2147483647)", "a tensor may have 2,147,483,647", ""),
        ("pnnx.Expression r 1 1 0 1", "needs the parameter 'expr'", ""),
        ("torch.argmax r 1 1 b 1 dim=None keepdim=False", "the largest of booleans", ""),
        ("pnnx.Expression r 1 1 0 1 expr=99999999999999999999", "64 bits", ""),
        ("F.normalize r 1 1 n 1 dim=-1 p=1.0", "single number", ""),
        ("nn.ConstantPad1d r 1 1 b 1 padding=(1,1) value=inf", "none of bool", ""),
        ("nn.Softmax2d r 1 1 i 1", "softmax is for reals", ""),
        ("prim::TupleUnpack r 1 1 0 1", "nothing to unpack", ""),
    ],
)
def test_operators_that_do_not_fit_are_refused_with_their_line(
    line: str, message: str, hint: str, tmp_path: Path
) -> None:
    truth = "pnnx.Input truth 0 1 b #b=(2,3)bool"
    number = "pnnx.Input number 0 1 n #n=()f32"
    integers = "pnnx.Input integers 0 1 i #i=(1,2,3)i64"
    error = refused(tmp_path, INPUT, truth, number, integers, line, OUTPUT)
    assert message in error.message and hint in (error.hint or "")
    assert error.location is not None and error.location.line == 7


def test_activations_can_be_returned_instead_of_the_outputs(tmp_path: Path) -> None:
    lines = (INPUT, "nn.ReLU a 1 1 0 x", "nn.Tanh b 1 1 x 1", OUTPUT)
    path = write_network(tmp_path, lines)
    assert load(path, output_tensors=("x",)).outputs == ("x",)
    assert load(path, output_tensors=("x", "pnnx_output_0")).outputs == ("x", "pnnx_output_0")
    assert "no operand 'z'" in refused(tmp_path, *lines, output_tensors=("z",)).message


def test_padding_of_booleans_takes_a_boolean(tmp_path: Path) -> None:
    lines = ("pnnx.Input b 0 1 b #b=(2,3)bool", "nn.ConstantPad1d p 1 1 b 1 padding=(1,0) value=2.0", OUTPUT)
    result = run(load(write_network(tmp_path, lines)), [np.zeros((2, 3), bool)])[0]
    np.testing.assert_array_equal(result, [[True, False, False, False]] * 2)


def test_what_tvm_refuses_is_an_error_with_its_location(tmp_path: Path) -> None:
    lines = ("pnnx.Input a 0 1 a #a=(2,3)f32", "pnnx.Input b 0 1 b #b=(3)i64", "torch.outer o 2 1 v b 1", OUTPUT)
    lines = (*lines[:2], "Tensor.select v 1 1 a v dim=0 index=0", *lines[2:])
    assert load(write_network(tmp_path, lines)).outputs == ("pnnx_output_0",)  # types promote
    broken = (
        "pnnx.Input a 0 1 a #a=(2,3)bool",
        "nn.ReLU r 1 1 a x",
        "nn.LayerNorm n 1 1 x 1 normalized_shape=(3)",
        OUTPUT,
    )
    assert refused(tmp_path, *broken).location is not None
