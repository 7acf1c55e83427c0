"""The expression language stage by stage, its errors, and its numbers against NumPy and by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pass_runs import lower
from pnnx_files import load, run_expression, write_network

import nnefc
from nnefc.backends import backend_of
from nnefc.frontends.pnnx.expression import TokenKind, describe_expression, infix, parse, to_rpn, tokenize
from nnefc.support.diagnostics import CompileError
from nnefc.targets.machine.cpu.parsing import parse_target

SIX = "add(add(mul(@0,@1),mul(@2,add(add(add(@0,@2),@3),@4))),@5)"


def rpn(text: str) -> str:
    return " ".join(map(str, to_rpn(parse(text))))


def test_tokens_have_kinds_and_positions() -> None:
    tokens = tokenize("add(@0, mul(@1,-2.5e-1))")
    assert [token.text for token in tokens] == ["add", "(", "@0", ",", "mul", "(", "@1", ",", "-2.5e-1", ")", ")", ""]
    assert [(token.start, token.end) for token in tokens[:5]] == [(0, 3), (3, 4), (4, 6), (6, 7), (8, 11)]
    assert tokens[8].kind is TokenKind.NUMBER and tokens[2].kind is TokenKind.OPERAND


def test_tree_of_nested_calls() -> None:
    tree = parse("add(mul(@0,@1),@2)")
    assert [(node.value, node.arguments) for node in tree.nodes] == [
        ("add", (1, 4)), ("mul", (2, 3)), (0, ()), (1, ()), (2, ()),
    ]  # fmt: skip
    assert tree.operands == (0, 1, 2)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("add(@0,mul(@1,@2))", "@0 @1 @2 mul add"),
        ("add(mul(@0,@1),@2)", "@0 @1 mul @2 add"),
        ("mul(add(@0,@1),@2)", "@0 @1 add @2 mul"),
        (SIX, "@0 @1 mul @2 @0 @2 add @3 add @4 add mul add @5 add"),
        ("[1,int(size(@0,2))]", "1 @0 2 size int list/2"),
        ("(@0,)", None),
        ("@3", "@3"),
    ],
)
def test_reverse_polish_order(text: str, expected: str | None) -> None:
    if expected is None:
        with pytest.raises(CompileError):
            parse(text)
    else:
        assert rpn(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mul(add(@0,@1),@2)", "(@0 + @1) * @2"),
        ("sub(@0,sub(@1,@2))", "@0 - (@1 - @2)"),
        ("sub(sub(@0,@1),@2)", "@0 - @1 - @2"),
        ("pow(pow(@0,2),neg(@1))", "(@0 ** 2) ** (-@1)"),
        ("pow(@0,pow(@1,-2))", "@0 ** @1 ** (-2)"),
        ("sqrt(add(abs(@0),0.001))", "sqrt(abs(@0) + 0.001)"),
        ("[and(lt(@0,1),not(@1)),size(@0)]", "[(@0 < 1) & ~@1, size(@0)]"),
        ("neg(neg(@0))", "-(-@0)"),
    ],
)
def test_infix_has_the_brackets_that_it_needs(text: str, expected: str) -> None:
    assert infix(parse(text)) == expected


def test_description_shows_infix_and_tree() -> None:
    assert describe_expression("add(mul(@0,2),@1)").split("\n") == [
        "@0 * 2 + @1", "add", "├─ mul", "│  ├─ @0", "│  └─ 2", "└─ @1",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("", 1, "empty"),
        ("  ", 1, "empty"),
        ("add(@0,@1", 10, "where ',' or ')' should be"),
        ("add(@0 @1)", 8, "where ',' or ')' should be"),
        ("add(@0,)", 8, "where a number"),
        ("add(,@0)", 5, "where a number"),
        ("add", 4, "must be followed by '('"),
        ("plus(@0,@1)", 1, "no function 'plus'"),
        ("add(@0)", 1, "takes 2 arguments, here it has 1"),
        ("sqrt(@0,@1)", 1, "takes 1 argument, here it has 2"),
        ("size(@0,1,2)", 1, "takes 1 or 2 arguments, here it has 3"),
        ("add(@,1)", 5, "'@' must be followed"),
        ("add(@x,1)", 5, "'@' must be followed"),
        ("add(@0,@7)", 8, "no operand '@7'"),
        ("@99999999999999999999", 1, "no operand"),
        ("@0 @1", 4, "ends before '@1'"),
        ("add(@0,@1))", 11, "ends before ')'"),
        ("[@0)", 4, "where ']' should be"),
        ("add(@0,1.2.3)", 8, "'1.2.3' is not a number"),
        ("add(@0,2x)", 8, "'2x' is not a number"),
        ("add(@0,--1)", 8, "'--1' is not a number"),
        ("add(@0;@1)", 7, "';' has no meaning"),
        ("add(@0,{)", 8, "'{' has no meaning"),
        ("expm1,@0", 6, "must be followed by '('"),
        ("add(@0,\N{FULLWIDTH DIGIT ONE})", 8, "has no meaning"),
        ("1" * 500, 1, "too long"),
    ],
)
def test_malformed_expressions_are_refused_with_their_location(text: str, column: int, message: str) -> None:
    with pytest.raises(CompileError) as caught:
        parse(text, operands=2)
    assert message in caught.value.message
    assert caught.value.location is not None and caught.value.location.column == column


def test_numbers_of_every_form() -> None:
    values = [node.value for node in parse("[1,-2,+3,1.5,.5,2.,-1e3,1E-2,inf,-inf,True,false,None]").nodes[1:]]
    assert values == [1, -2, 3, 1.5, 0.5, 2.0, -1000.0, 0.01, float("inf"), float("-inf"), True, False, None]
    assert [type(value) for value in values[:4]] == [int, int, int, float]
    assert np.isnan(parse("nan").nodes[0].value)


def test_six_operands_of_the_tutorial(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    a, b, c, d, e, f = (rng.normal(size=(2, 3)).astype(np.float32) for _ in range(6))
    result = run_expression(tmp_path, SIX, a, b, c, d, e, f)
    np.testing.assert_allclose(result, a * b + c * (a + c + d + e) + f, rtol=1e-5)


@pytest.mark.parametrize("text", ["add(@0,mul(@1,@2))", "mul(add(@0,@1),@2)"])
def test_examples_of_the_tutorial(text: str, tmp_path: Path) -> None:
    values = [np.full((3, 4, 5), value, np.float32) for value in (1.0, 2.0, 3.0)]
    assert run_expression(tmp_path, text, *values)[0, 0, 0] == (7 if text.startswith("add") else 9)


def test_operands_broadcast_at_the_last_dimension(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    a, b, c = (rng.normal(size=shape).astype(np.float32) for shape in ((2, 1, 5), (3, 1), ()))
    np.testing.assert_allclose(run_expression(tmp_path, "sub(mul(@0,@1),@2)", a, b, c), a * b - c, rtol=1e-6)


INTEGERS = np.array([-7, -1, 0, 1, 5, 2**31 - 1, -(2**31)], np.int32)
DIVISORS = np.array([2, -2, 3, -3, -1, 7, -5], np.int32)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("div(@0,@1)", (INTEGERS.astype(np.float32) / DIVISORS.astype(np.float32))),
        ("floor_divide(@0,@1)", np.floor_divide(INTEGERS, DIVISORS)),
        ("remainder(@0,@1)", np.remainder(INTEGERS, DIVISORS)),
        ("fmod(@0,@1)", np.fmod(INTEGERS, DIVISORS)),
        ("mul(@0,@0)", INTEGERS * INTEGERS),
        ("add(@0,2147483647)", INTEGERS + np.int32(2**31 - 1)),
        ("sub(@0,@1)", INTEGERS - DIVISORS),
        ("neg(@0)", -INTEGERS),
        ("abs(@0)", np.abs(INTEGERS)),
        ("floor_divide(neg(@0),2)", np.floor_divide(-INTEGERS, 2)),
        ("lt(neg(@0),0)", -INTEGERS < 0),
        ("pow(@0,3)", INTEGERS * INTEGERS * INTEGERS),
        ("and(@0,@1)", INTEGERS & DIVISORS),
        ("or(@0,@1)", INTEGERS | DIVISORS),
        ("xor(@0,@1)", INTEGERS ^ DIVISORS),
        ("not(@0)", ~INTEGERS),
        ("lshift(@0,3)", INTEGERS << 3),
        ("rshift(@0,3)", INTEGERS >> 3),
        ("max(@0,@1)", np.maximum(INTEGERS, DIVISORS)),
        ("sign(@0)", np.sign(INTEGERS)),
        ("ge(@0,@1)", INTEGERS >= DIVISORS),
        ("mul(@0,0.5)", INTEGERS.astype(np.float32) * np.float32(0.5)),
        ("mul(@0,0)", INTEGERS * 0),
        ("sub(@0,@0)", INTEGERS * 0),
    ],
)
@pytest.mark.sample(5)
def test_integers_follow_pytorch(text: str, expected: np.ndarray, tmp_path: Path) -> None:
    inputs = (INTEGERS, DIVISORS) if "@1" in text else (INTEGERS,)
    with np.errstate(over="ignore"):
        result = run_expression(tmp_path, text, *inputs)
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)


REALS = np.array([-3.7, -2.5, -0.5, -0.0, 0.3, 1.5, 2.5, np.inf, np.nan], np.float32)
STEPS = np.array([0.7, -0.7, 2.0, 1.0, -0.1, 0.5, np.nan, 2.0, 1.0], np.float32)
FUNCTIONS = {
    "remainder(@0,@1)": np.remainder,
    "fmod(@0,@1)": np.fmod,
    "floor_divide(@0,@1)": np.floor_divide,
    "maximum(@0,@1)": np.maximum,
    "minimum(@0,@1)": np.minimum,
    "atan2(@0,@1)": np.arctan2,
    "logaddexp(@0,@1)": np.logaddexp,
    "pow(@0,3)": lambda a, b: a**3,
    "pow(@0,-2)": lambda a, b: 1 / (a * a),
    "round(@0)": lambda a, b: np.round(a),
    "trunc(@0)": lambda a, b: np.trunc(a),
    "expm1(@0)": lambda a, b: np.expm1(a),
    "log1p(abs(@0))": lambda a, b: np.log1p(abs(a)),
    "sigmoid(@0)": lambda a, b: 1 / (1 + np.exp(-a)),
    "rsqrt(abs(@0))": lambda a, b: 1 / np.sqrt(abs(a)),
    "log2(abs(@0))": lambda a, b: np.log2(abs(a)),
    "log10(abs(@0))": lambda a, b: np.log10(abs(a)),
    "asinh(@0)": lambda a, b: np.arcsinh(a),
    "reciprocal(@0)": lambda a, b: 1 / a,
    "square(@0)": lambda a, b: a * a,
}


@pytest.mark.parametrize("text", FUNCTIONS)
def test_reals_follow_pytorch(text: str, tmp_path: Path) -> None:
    with np.errstate(all="ignore"):
        expected = FUNCTIONS[text](REALS, STEPS)
    result = run_expression(tmp_path, text, *((REALS, STEPS) if "@1" in text else (REALS,)))
    # NumPy's floor_divide says nan where the dividend is infinite, as PyTorch does.
    np.testing.assert_allclose(result, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("text", "types", "expected"),
    [
        ("add(@0,1.5)", ("int64",), "float32"),
        ("add(@0,1)", ("uint8",), "uint8"),
        ("add(@0,@1)", ("uint8", "int8"), "int16"),
        ("add(@0,@1)", ("float16", "int64"), "float16"),
        ("div(@0,@1)", ("int64", "int64"), "float32"),
        ("add(@0,@1)", ("float32", "float64"), "float64"),
        ("eq(@0,1)", ("float32",), "bool"),
        ("int(@0)", ("float32",), "int64"),
        ("add(@0,@1)", ("bool", "bool"), "bool"),
        ("sqrt(@0)", ("int32",), "float32"),
        ("int(eq(@0,1))", ("float16",), "int64"),
        ("add(ne(@0,1),@0)", ("float16",), "float16"),
        ("logical_xor(@0,@1)", ("float16", "bool"), "bool"),
    ],
)
def test_types_promote_as_in_pytorch(text: str, types: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    inputs = [np.ones((2,), dtype) for dtype in types]
    assert run_expression(tmp_path, text, *inputs).dtype == expected


def test_tensors_without_dimensions_do_not_promote_within_a_category(tmp_path: Path) -> None:
    result = run_expression(tmp_path, "add(@0,@1)", np.ones(2, np.float32), np.array(1.0, np.float64))
    assert result.dtype == np.float32


def test_sizes_and_numbers_are_computed_at_compile_time(tmp_path: Path) -> None:
    x = np.zeros((2, 3, 8), np.float32)
    assert run_expression(tmp_path, "add(@0,int(div(size(@0,-1),3)))", x)[0, 0, 0] == 2
    whole = "add(floor(div(size(@1,-1),3)),ceil(div(size(@1,-1),3)))"
    made = run_expression(tmp_path, f"add(@0,{whole})", np.zeros(2, np.int64), x)
    assert made.dtype == np.int64 and made.tolist() == [5, 5]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("floor_divide(1,0)", "divides by zero"),
        ("pow(10,1000000000)", "no value"),
        ("mul(9223372036854775807,2)", "64 bits"),
        ("size(@0,5)", "no dimension 5"),
        ("size(1,0)", "for tensors"),
        ("add(@0,[1,2])", "takes no lists"),
        ("add(@0,@1)", "do not broadcast"),
        ("and(@0,1)", "for integers"),
        ("sqrt(-1)", "no value"),
        ("add(int(@0),9223372036854775808)", "does not fit"),
    ],
)
def test_impossible_computations_are_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=message) as caught:
        run_expression(tmp_path, text, np.zeros((2, 3), np.float32), np.zeros((2, 4), np.float32))
    assert caught.value.location is not None and caught.value.location.line > 2


def network_of(folder: Path, text: str, count: int) -> Path:
    lines = [f"pnnx.Input in{i} 0 1 {i} #{i}=(3,32)f32" for i in range(count)]
    operands = " ".join(map(str, range(count)))
    lines.append(f"pnnx.Expression e {count} 1 {operands} y expr={text}")
    return write_network(folder, [*lines, "pnnx.Output out 1 0 y"])


DEPTHS = {"left": 10_000, "right": 10_000, "mixed": 10_000, "squares": 2_500}
"""How deep functions are nested at most; LLVM's time for squares of squares grows faster than they do."""


def deep(kind: str, depth: int) -> str:
    text = "@0"
    for number in range(depth):
        match kind:
            case "left":
                text = f"add({text},@1)"
            case "right":
                text = f"add(@1,{text})"
            case "mixed":
                text = f"sin({text})" if number % 2 else f"mul(@1,{text})"
            case "squares":
                text = f"square({text})"
    return text


@pytest.mark.parametrize(
    ("kind", "depth"),
    [(kind, depth // 5) for kind, depth in DEPTHS.items()]
    + [pytest.param(kind, depth, marks=pytest.mark.slow) for kind, depth in DEPTHS.items()],
)
@pytest.mark.sample(1)
def test_thousands_of_nested_functions_become_one_kernel(kind: str, depth: int, tmp_path: Path) -> None:
    path = network_of(tmp_path, deep(kind, depth), 1 if kind == "squares" else 2)
    compiled = nnefc.compile(path)
    assert len(compiled.code.module.functions) == 2, "the kernel, and the entry that calls it"
    rng = np.random.default_rng(2)
    a, b = rng.uniform(0.5, 0.9, (2, 3, 32)).astype(np.float32)
    expected = a
    for number in range(depth):
        match kind:
            case "left" | "right":
                expected = expected + b
            case "mixed":
                expected = np.sin(expected) if number % 2 else b * expected
            case "squares":
                expected = expected * expected
    model = compiled.load(threads=1)
    result = model(a) if kind == "squares" else model(a, b)
    minimum = np.finfo(np.float32).smallest_normal  # smaller results are zero
    np.testing.assert_allclose(np.asarray(result).reshape(expected.shape), expected, rtol=1e-4, atol=minimum)


@pytest.mark.slow
def test_a_wide_balanced_tree_becomes_one_kernel(tmp_path: Path) -> None:
    text = "@0"
    for _ in range(10):
        text = f"sub(mul({text},@1),{text})"
    path = network_of(tmp_path, text, 2)
    assert len(lower(load(path), backend_of(parse_target("llvm"))).program.steps) == 1
    a, b = np.random.default_rng(3).uniform(0.5, 0.9, (2, 3, 32)).astype(np.float32)
    expected = a
    for _ in range(10):
        expected = expected * b - expected
    result = np.asarray(nnefc.compile(path).load(threads=1)(a, b)).reshape(3, 32)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-9)


def test_tens_of_thousands_of_brackets_are_read_and_described() -> None:
    """Far more than Python's stack has room for."""
    text = "neg(" * 20_000 + "@0" + ")" * 20_000
    assert len(to_rpn(parse(text))) == 20_001
    assert "20001 nodes" in describe_expression(text)
