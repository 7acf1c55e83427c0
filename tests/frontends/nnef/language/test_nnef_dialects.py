"""Which dialect a document is in, and what only one of them has."""

from __future__ import annotations

import logging
import random
from importlib.resources import files

import lark
import pytest
from nnef_grammar import made_tables, text_of
from nnef_language import final, flatten, graph, operations

from nnefc.frontends.nnef.language.lexer import tokenize
from nnefc.frontends.nnef.language.parser import parse
from nnefc.frontends.nnef.language.syntax import Source
from nnefc.frontends.nnef.language.tables import TABLES
from nnefc.frontends.nnef.language.types import Dialect
from nnefc.support.diagnostics import CompileError

BODY = "{ x = external(shape = [1,4])%s y = relu(x)%s }"

DOCUMENTS = [
    ("version 1.0 graph g(x) -> (y) " + BODY % ("", ""), Dialect.PROVISIONAL),
    ("version 1.0 graph g(x) -> (y) " + BODY % (";", ";"), Dialect.PROVISIONAL),
    ("version 1.0 graph g(x) -> (y) " + BODY % (";", ""), Dialect.PROVISIONAL),
    ("version 1.0; graph g(x) -> (y) " + BODY % (";", ";"), Dialect.FINAL),
    ("version 1.0; graph g(x) -> (y) " + BODY % ("", ""), Dialect.PROVISIONAL),
    ("version 1.0; fragment f(x: tensor) -> (y: tensor) { y = x; } " + graph("y = f(x);"), Dialect.PROVISIONAL),
    ("version 1.0; fragment f(x: extent[]) -> (y: extent) { y = x[0]; } " + graph("y = relu(x);"), Dialect.PROVISIONAL),
    ("version 1.0; " + graph("y = conv_layer(x, channels = 4, size = [3,3], scope = 'a');"), Dialect.PROVISIONAL),
    ("version 1.0; " + graph("y = transpose(x, perm = [1,0]);"), Dialect.PROVISIONAL),
    ("version 1.0; " + graph("y = variable(label = 'perm = conv_layer(', shape = [1]);"), Dialect.FINAL),
    ("version 1.0; # tensor extent\n" + graph("extent = relu(x); y = relu(extent);"), Dialect.FINAL),
]


@pytest.mark.parametrize(("text", "dialect"), DOCUMENTS)
def test_the_document_itself_shows_its_dialect(text: str, dialect: Dialect) -> None:
    document = parse(text, "test.nnef")
    assert document.dialect is dialect
    assert flatten(text).dialect is dialect


def test_a_dialect_may_be_asked_for() -> None:
    text = "version 1.0; " + graph("y = relu(x);")
    assert parse(text, "test.nnef", Dialect.PROVISIONAL).dialect is Dialect.PROVISIONAL
    with pytest.raises(CompileError, match="expected ';'"):
        parse("version 1.0 " + graph("y = relu(x);"), "test.nnef", Dialect.FINAL)


STATEMENTS = [
    "a = relu(x) [b, c] = split(a, axis = 1, ratios = [1,2]) y = concat([b, c], axis = 1)",
    "a = relu(x) (m, v) = moments(a, axes = [1]) y = sub(a, m)",
    "a = relu(x) m, v = moments(a, axes = [1]) y = sub(a, m)",
    "[b, c] = split(x, axis = 1, ratios = [1,2]) [d, e] = split(c, axis = 1, ratios = [1,1]) y = add(d, e)",
    "a = relu(x); (m, v) = moments(a, axes = [1]); y = sub(a, m);",
    "a = relu(x)\n\t(m, v) = moments(a, axes = [1]) # [u] = w\r\ny = a - m",
    "a = x (b) = relu(a) y = - b",
    "a, b = (x, x) c = [a, b] [y] = [c[0] + c[1]]".replace("c = [a, b] [y] = [c[0] + c[1]]", "y = a + b"),
]


@pytest.mark.parametrize("body", STATEMENTS)
def test_provisional_statements_need_no_separator(body: str) -> None:
    text = f"version 1.0\ngraph g(x) -> (y)\n{{ x = external(shape = [2,3,4])\n{body}\n}}"
    assert flatten(text).outputs[0].name == "y"


def test_keywords_of_one_dialect_are_names_in_the_other() -> None:
    text = "version 1.0 graph g(x) -> (yield) { x = external(shape = [4]) integer = relu(x) yield = relu(integer) }"
    assert [tensor.name for tensor in flatten(text).outputs] == ["yield"]
    assert operations(flatten(final(body="extent = relu(x); y = relu(extent);"))) == ["relu", "relu"]


def test_real_provisional_forms_are_accepted() -> None:
    text = """version 1.0

    fragment layer( input: tensor, channels: extent, scope: string ) -> ( output: tensor )
    {
        filter = variable(label = scope + '/filter', shape = [channels, shape_of(input)[1], 1, 1])
        output = conv(input, filter, 0.0, border = 'constant', padding = [(0,0)] * 2, stride = [1,1], dilation = [1,1])
    }

    fragment stack( input: tensor, layers: (extent, string)[] ) -> ( output: tensor )
    {
        output = stack(layer(input, channels = layers[0][0], scope = layers[0][1]), layers = layers[1:])
            if length_of(layers) > 0 else input
    }

    graph small( x ) -> ( y ) { x = external(shape = [1,3,4,4]) y = relu(x) }

    graph network( data ) -> ( prob )
    {
        data = external(shape = [1,3,4,4])
        prob = stack(data, layers = [(8,'a')] + [(4,'b')] * 2)
    }
    """
    with pytest.raises(CompileError, match="the variable 'b/filter' has the shape"):
        flatten(text, graph="network")
    flat = flatten(text.replace("[(8,'a')] + [(4,'b')] * 2", "[(4,'a')] + [(4,'b')] * 2"), graph="network")
    labels = [i.arguments["label"] for i in flat.invocations if i.operation.name == "variable"]
    assert labels == ["a/filter", "b/filter", "b/filter"]
    assert flat.outputs[0].shape == (1, 4, 4, 4)


def test_an_integer_literal_serves_as_a_scalar_argument_only_in_the_provisional_dialect() -> None:
    text = "version 1.0 graph g(x) -> (y) { x = external(shape = [4]) y = leaky_relu(x, alpha = 2) }"
    value = flatten(text).invocations[-1].arguments["alpha"]
    assert (value, type(value)) == (2.0, float)
    with pytest.raises(CompileError, match="of type scalar, the argument of type integer"):
        flatten(final(body="y = leaky_relu(x, alpha = 2);"))


def test_documents_are_read_from_bytes_with_any_line_ends() -> None:
    text = "\ufeffversion 1.0;\r\n# comment\rgraph g(x) -> (y)\f{\v x = external(shape = [1]);\n\ty = relux(x);\n}"
    with pytest.raises(CompileError) as caught:
        flatten(text.encode())  # type: ignore[arg-type]
    assert caught.value.location is not None
    assert (caught.value.location.line, caught.value.location.column) == (4, 6)


def test_the_grammar_is_lalr_without_conflicts(caplog: pytest.LogCaptureFixture) -> None:
    grammar = files("nnefc.frontends.nnef.language").joinpath("grammar.lark").read_text()
    caplog.set_level(logging.DEBUG, logger=lark.logger.name)
    lark.Lark(grammar, start=["document", "fragment"], parser="lalr", lexer="basic", debug=True)
    assert not [record.message for record in caplog.records if "onflict" in record.message]


def test_the_tables_are_those_of_the_grammar() -> None:
    made = text_of(made_tables())
    assert TABLES.read_text() == made, "after a change of the grammar: python packaging/nnef_grammar.py"


def test_mutated_provisional_documents_never_give_a_traceback() -> None:
    original = """version 1.0
    fragment layer( input: tensor, channels: extent, scope: string = 'a' ) -> ( output: tensor, rest: tensor[] )
    {
        filter = variable(label = scope + '/filter', shape = [channels, shape_of(input)[1], 1, 1])
        output = conv(input, filter, 0.0, padding = [(0,0)] * 2, stride = [1,1]); rest = [filter, -input ^ 2.0]
    }
    fragment total( elements: scalar[] ) -> ( sum: scalar )
    { sum = elements[0] + total(elements[1:]) if length_of(elements) > 0 else 0.0 }
    graph network( x ) -> ( y )
    {
        x = external(shape = [1,3,8,8])
        a, [b, c] = layer(x, channels = 3, scope = 'q' + string(2))
        [d, e] = split(a, axis = 1, ratios = [i for i in [1, 2, 3] if i < 3])
        y = select(d < 0.0 || !(d > 1.0), d, e) * total([1.0, scalar(extent(2.5))])
    }
    """
    assert operations(flatten(original))[-1] == "mul"
    chance = random.Random(5)
    tokens = tokenize(Source("", original))
    outcomes = set()
    for _ in range(500):
        token = chance.choice(tokens[2:])
        word = chance.choice(["", chance.choice(tokens).text, f"{token.text} {chance.choice(tokens).text}"])
        text = original[: token.at] + word + original[token.at + len(token.text) :]
        try:
            flatten(text, chance.choice([None, Dialect.PROVISIONAL]))
            outcomes.add("accepted")
        except CompileError as error:
            assert str(error)
            outcomes.add("refused")
    assert outcomes == {"accepted", "refused"}


def test_tuples_need_no_parentheses_in_the_provisional_dialect() -> None:
    fragment = """fragment f( x: tensor, a: (extent, extent, scalar) = 1, -2, 3.0, b: extent = 4 )
        -> ( y: tensor, n: extent )
    {
        p, q, r = a
        c = q, p
        y, n = x * r, c[0] + b
    }
    fragment g( x: tensor, n: extent ) -> ( y: tensor ) { y = x + scalar(n) }
    """
    text = f"version 1.0\n{fragment}graph n(x) -> (y) {{ x = external(shape = [4]) y = g(f(x)[0], n = f(x)[1]) }}"
    flat = flatten(text)
    assert operations(flat) == ["mul", "mul", "add"]
    assert flat.invocations[-1].arguments["y"] == 2.0
    with pytest.raises(CompileError, match="a tuple without parentheses as a default"):
        parse(final("fragment f(a: (integer, integer) = 1, 2) -> (y: integer) { y = 1; }"), "test.nnef")
    with pytest.raises(CompileError, match="expected a parameter"):
        parse("version 1.0 fragment f(a: extent, 2) -> (y: extent) { y = 1 }", "test.nnef")


def test_version_is_a_name_like_any_other_in_the_provisional_dialect() -> None:
    text = "version 1.0 graph version(x) -> (y) { x = external(shape = [4]) version = relu(x) y = exp(version) }"
    assert operations(flatten(text)) == ["relu", "exp"]
