"""Documents made to break a compiler: an error each, within seconds, and no traceback."""

from __future__ import annotations

import random

import pytest
from nnef_language import FINAL, final, flatten

from nnefc.support.diagnostics import CompileError


def fragment_chain(parameter: str, call: str, end: str, result: str = "integer") -> str:
    """Forty fragments, each calling the next: `{i}` is the number of the next one, `{n}` counts array levels."""
    links = [
        f"fragment f{i}({parameter.format(n='[]' * (i + 1))}) -> (y: {result}) {{ {call.format(i=i + 1)} }}\n"
        for i in range(40)
    ]
    return "".join(links) + f"fragment f40({parameter.format(n='[]' * 41)}) -> (y: {result}) {{ {end} }}\n"


def tuples(levels: int) -> str:
    return "t0 = (1, 2);" + "".join(f"t{i + 1} = (t{i}, t{i});" for i in range(levels))


HOSTILE = {
    "brackets": (final(body=f"y = x * {'(' * 100_000}1.0{')' * 100_000};"), "nested more than 256 deep"),
    "open brackets": ("[" * 100_000, "nested more than 256 deep"),
    "closing brackets": (FINAL + ")]}" * 10_000, "unexpected ')'"),
    "types": (final(f"fragment f(a: integer{'[]' * 100_000}) -> (y: integer) {{ y = 1; }}"), "nested too deeply"),
    "subscripts": (final(f"fragment f(a: integer[]) -> (y: integer) {{ y = a{'[0]' * 20_000}; }}"), "have elements"),
    "digits": (final(body=f"y = x * {'9' * 100_000};"), "the number is too large"),
    "digits of a scalar": (final(body=f"y = x * {'9' * 100_000}.0;"), "the number is too large"),
    "exponent": (final(body=f"y = x * 1e{'9' * 10_000};"), "the number is too large"),
    "repetition": (final(body="y = reshape(x, shape = [1] * 1000000000);"), "more than 4194304 elements"),
    "repeated repetition": (final(body="y = reshape(x, shape = [1] * 4000 * 4000);"), "more than 4194304 elements"),
    "repeated string": (
        final(body="y = x * variable(shape = [1], label = 'a' * 9999999999);"),
        "more than 4194304 elements",
    ),
    "power": (final(body="y = reshape(x, shape = [9 ^ 9 ^ 9 ^ 9]);"), "the integer is out of range"),
    "large power": (final(body="y = reshape(x, shape = [9 ^ 999999999999]);"), "the integer is out of range"),
    "large shape": (
        final(body=f"y = x + variable(shape = [{9 * 10**18}] * 2, label = 'w');"),
        "larger than any memory",
    ),
    "large rank": (final(body="y = x + variable(shape = [1] * 100000, label = 'w');"), "100000 dimensions"),
    "results": (final(body="z = variable(shape = [999999999], label = 'z'); [y] = unstack(z, axis = 0);"), "more than"),
    "copies": (final(body="[y] = copy_n(x, times = 999999999);"), "999999999"),
    "endless recursion": (
        final("fragment f(x: tensor<scalar>) -> (y: tensor<scalar>) { y = f(x); }", "y = f(x);"),
        "expanded more than 2000 deep",
    ),
    "doubling of operations": (
        final(
            fragment_chain("x: tensor<scalar>", "a = f{i}(x); y = f{i}(a);", "y = x + 1.0;", "tensor<scalar>"),
            "y = f0(x);",
        ),
        "more than 2000 operations",
    ),
    "doubling of time": (
        final(
            fragment_chain("x: integer", "y = f{i}(x = x) + f{i}(x = x);", "y = x;"),
            "y = softmax(x, axes = [f0(x = 1)]);",
        ),
        "more than 100000 steps",
    ),
    "doubling of arrays": (
        final(
            fragment_chain("x: integer[]", "y = f{i}(x = x + x);", "y = length_of(x);"),
            "y = softmax(x, axes = [f0(x = [1])]);",
        ),
        "more than 100000 steps",
    ),
    "doubling of depth": (
        final(
            fragment_chain(
                "x: integer{n}, z: integer{n}", "y = f{i}(x = [x, x], z = [z, z]);", "y = 1 if x == z else 2;"
            ),
            "y = softmax(x, axes = [f0(x = [1], z = [1])]);",
        ),
        "has more than 4194304 elements",
    ),
    "doubling of types": (
        final(f"fragment f(n: integer) -> (y: integer) {{ {tuples(60)} z = [t60]; y = 1; }}"),
        "a tuple has more than 4096 elements",
    ),
    "comparisons of long arrays": (
        final(
            "fragment f(a: integer[], b: integer[]) -> (y: integer) "
            f"{{ {''.join(f'c{i} = a == b; ' for i in range(100))} y = 1; }}",
            "y = softmax(x, axes = [f(a = [1] * 99999, b = [1] * 99999)]);",
        ),
        "more than 100000 steps",
    ),
    "looking for an element in long arrays": (
        final(
            f"fragment f(a: integer[]) -> (y: integer) {{ {''.join(f'c{i} = 2 in a; ' for i in range(100))} y = 1; }}",
            "y = softmax(x, axes = [f(a = [1] * 99999)]);",
        ),
        "more than 100000 steps",
    ),
    "levels of arrays": (
        final(
            "fragment f(n: integer) -> (y: integer) "
            f"{{ a0 = [n]; {''.join(f'a{i + 1} = [a{i}]; ' for i in range(5000))} y = 1; }}"
        ),
        "arrays and tuples are more than 256 inside each other",
    ),
    "axes": (final(body="y = sum_reduce(x, axes = [0] * 99999);"), "'axes'"),
    "loops": (
        final(body="y = reshape(x, shape = [for i in [1] * 999999 yield length_of([for j in [1] * 999999 yield j])]);"),
        "more than 100000 steps",
    ),
    "quotes": ("'" * 100_001, "the string is not closed"),
    "names": ("version 1.0\n" + "a " * 50_000, "unexpected identifier 'a'"),
    "assignments": ("version 1.0\ngraph g(x) -> (y) {" + "a = " * 10_000, "unexpected ';'"),
    "commas": ("version 1.0\ngraph g(x) -> (y) {" + "a, " * 10_000, "unexpected ';'"),
    "zeros": ("\0" * 1000, "unexpected character"),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name == "doubling of depth" else []) for name in HOSTILE]
)
@pytest.mark.sample(8)
def test_hostile_documents_are_refused(name: str) -> None:
    text, message = HOSTILE[name]
    limits = {"max_steps": 100_000, "max_operations": 2000}
    with pytest.raises(CompileError) as caught:
        flatten(text, **limits)  # type: ignore[arg-type]
    assert message in caught.value.message
    assert len(str(caught.value)) < 5000


@pytest.mark.parametrize(
    "expression",
    [
        f"x * ({' + '.join(['1.0'] * 10_000)})",
        f"x * {'-' * 5_000}1.0",
        f"x if {'!' * 5_000}true else x",
        f"{'x if false else ' * 5_000}x",
        " + ".join(["x"] * 2_000),
    ],
)
@pytest.mark.sample(3)
def test_long_expressions_are_no_problem(expression: str) -> None:
    assert flatten(final(body=f"y = {expression};")).outputs[0].name == "y"


def test_garbage_is_refused_whatever_it_is() -> None:
    chance = random.Random(3)
    for length in (0, 1, 10, 1000, 10_000):
        garbage = chance.randbytes(length)
        for text in (garbage, garbage.decode("latin1"), b"version 1.0;" + garbage):
            with pytest.raises(CompileError):
                flatten(text)  # type: ignore[arg-type]


def test_long_lines_are_shown_in_part() -> None:
    text = final(body=" ".join(f"a{i} = relu(x);" for i in range(1000)) + " y = relux(x);")
    with pytest.raises(CompileError) as caught:
        flatten(text)
    _, line, caret, _ = str(caught.value).splitlines()
    assert len(line) < 200
    assert line[caret.index("^") :].startswith("relux(x);")


@pytest.mark.slow
def test_a_document_of_five_thousand_operations_is_no_problem() -> None:
    body = "".join(
        f"w{i} = variable(shape = [3,3,3,3], label = 'w{i}');\n"
        f"a{i} = relu(conv({f'a{i - 1}' if i else 'x'}, w{i}, padding = [(1,1), (1,1)], stride = [1,1]));\n"
        for i in range(1700)
    )
    assert len(flatten(final(body=body + "y = relu(a1699);")).invocations) == 5102
