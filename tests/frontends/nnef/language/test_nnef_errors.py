"""Every rule of the language, broken: the error says what, and `«` marks where."""

from __future__ import annotations

import pytest
from nnef_language import FINAL, PROVISIONAL, check_error, final, flatten, graph, provisional

from nnefc.frontends.nnef.language.types import Dialect
from nnefc.support.diagnostics import CompileError

LEXIS = [
    ("version 1.0;\n «@", "unexpected character"),
    ("version 1.0;\ngraph g(x) -> (y) { x = external(shape = [1]); y = «& x; }", "unexpected character '&'"),
    ("version 1.0;\ngraph g(x) -> (y) { x = variable(shape = [1], label = «'abc); }", "the string is not closed"),
    ("version 1.0;\ngraph g(x) -> (y) { x = f(a = «.5); }", "a number starts with a digit"),
    (final(body="y = x * «1e400;"), "the number is too large"),
    (final(body="y = transpose(x, axes = [«99999999999999999999]);"), "the number is too large"),
    (final(body="y = x * «1e;"), "'1e' is neither a number nor an identifier"),
    (final(body="y = x * «15x;"), "'15x' is neither a number nor an identifier"),
]

GRAMMAR = [
    ("«", "the document ends here, expected 'version'"),
    ("«graph g(x) -> (y) { x = external(shape = [1]); }", "expected 'version'"),
    ("version «1;\n", "'1' is not a version"),
    ("version «2.0;\n", "version 2.0 of NNEF is not known"),
    ("version «1.0e1;\n", "is not a version"),
    ("version 1.0;«\n", "the document has no graph"),
    ("version 1.0«\nextension KHR_enable_fragment_definitions;\n" + graph("y = relu(x);"), "expected ';'"),
    (final(body="y = relu(x)«"), "expected ';'"),
    (final(body="y = relu(x)« z = relu(y);"), "expected ';'"),
    (final(body="y = relu(«);"), "unexpected ')'"),
    (final(body="y = relu(x, «);"), "unexpected ')'"),
    (final(body="y = «;"), "unexpected ';'"),
    (final(body="«3 = relu(x);"), "unexpected number 3"),
    (final(body="«relu(x) = y;").replace("«relu(x)", "relu«(x)"), "unexpected '('"),
    (final(body="y = [x, x«;"), "unexpected ';'"),
    (final(body="y = x[1:2«:3];"), "unexpected ':'"),
    (final(body="y = [for i in [1] «i];"), "unexpected identifier 'i'"),
    (final(body="y = x if true«;"), "unexpected ';', expected 'else'"),
    (FINAL + "graph g(«) -> (y) { y = relu(y); }", "unexpected ')'"),
    (FINAL + "graph g(x) -> (y) { «}", "unexpected '}'"),
    (
        FINAL + "fragment «f() -> (y: integer) { y = 1; }\n" + graph("y = relu(x);"),
        "the fragment 'f' has no parameters",
    ),
    (FINAL + "fragment f(x«) -> (y: integer) { y = 1; }\n" + graph("y = relu(x);"), "expected ':'"),
    (FINAL + "fragment f(x: «extent) -> (y: integer) { y = 1; }\n" + graph("y = relu(x);"), "identifier 'extent'"),
    (final("fragment f(x: «tensor) -> (y: integer) { y = 1; }"), "'tensor' without a content"),
    (final("fragment f(x: tensor<«string>) -> (y: integer) { y = 1; }"), "no tensors of strings"),
    (final("fragment f(x: integer = «1 + 1) -> (y: integer) { y = 1; }"), "must be a literal"),
    (final("fragment f(x: integer = «n) -> (y: integer) { y = 1; }"), "must be a literal"),
    (final("fragment f<? = «?>(x: tensor<?>) -> (y: tensor<?>) { y = x; }"), "the default of '?' cannot be '?'"),
    (final(body="y = concat(«[x for i in [1]], axis = 1);"), "a comprehension without 'yield'"),
    (final() + "fragment «late(x: integer) -> (y: integer) { y = 1; }", "fragments are defined before the graph"),
]

DECLARATIONS = [
    (final("fragment «relu(x: tensor<scalar>) -> (y: tensor<scalar>) { y = x; }"), "operation of the standard"),
    (
        final("fragment f(x: integer) -> (y: integer) { y = 1; } fragment «f(x: integer) -> (y: integer) { y = 1; }"),
        "the fragment 'f' is defined twice",
    ),
    (final("fragment f(x: integer, «x: integer) -> (y: integer) { y = 1; }"), "second parameter or result called 'x'"),
    (final("fragment f(x: integer) -> (y: integer, «y: integer) { y = 1; }"), "second parameter or result called 'y'"),
    (final("fragment f(x: integer) -> («x: integer) { y = 1; }"), "second parameter or result called 'x'"),
    (final("fragment f(x: integer = «1.0) -> (y: integer) { y = 1; }"), "the default of 'x' is of type scalar"),
    (final("fragment f(x: scalar = «1) -> (y: integer) { y = 1; }"), "the default of 'x' is of type integer"),
    (final("fragment f(x: integer[] = «[1, 2.0]) -> (y: integer) { y = 1; }"), "must have a common type"),
    (final("fragment f(x: integer[] = «[[]]) -> (y: integer) { y = 1; }"), "the default of 'x' is of type [][]"),
    (final("fragment f(x: (integer,integer) = «(1,2,3)) -> (y: integer) { y = 1; }"), "the default of 'x'"),
    (final("fragment f(«x: tensor<?>) -> (y: integer) { y = 1; }"), "'x' is generic, 'f' is not"),
    (final("fragment «f<?>(x: integer) -> (y: integer) { y = 1; }"), "'f' is generic, but no parameter or result is"),
    (final("fragment f(x: tensor<scalar>) -> («y: tensor<>) { y = x; }"), "a result cannot be a tensor of any content"),
    (
        final("fragment f(n: integer, «x: tensor<scalar>) -> (y: tensor<scalar>) { y = x; }"),
        "comes after the attribute",
    ),
    (
        final("fragment f(x: tensor<scalar>) -> (y: tensor<scalar>, «n: integer) { y = x; n = 1; }"),
        "all tensors or none",
    ),
    (final("fragment f(«x: (integer, tensor<scalar>)) -> (y: integer) { y = 1; }"), "all tensors or none"),
    (final("fragment f(x: integer) -> (y: integer);", "y = f(x = 1) «* x;"), "does not take"),
    (final("fragment f(x: tensor<scalar>) -> (y: tensor<scalar>);", "y = «f(x);"), "declared but not defined"),
    ("version 1.0;\nextension «KHR_enable_fragment_definition;\n" + graph("y = relu(x);"), "is not known"),
    ("version 1.0;\nextension «KHR_enable_fragment_definitions now;\n" + graph("y = relu(x);"), "takes no options"),
    ("version 1.0;\nfragment «f(x: integer) -> (y: integer) { y = 1; }\n" + graph("y = relu(x);"), "are not enabled"),
]

INVOCATIONS = [
    (final(body="y = «rleu(x);"), "the operation 'rleu' is not known"),
    (final(body="y = add(x, «s = x);"), "'add' has no parameter 's'"),
    (final(body="y = relu(x, «x);"), "more arguments are given"),
    (final(body="y = add(x = x, «x);"), "by position come before arguments by name"),
    (final(body="y = leaky_relu(x, «0.1);"), "must be given by name"),
    (final(body="y = max_pool(x, «[1,1,2,2]);"), "must be given by name"),
    (final(body="y = add(x, «x = x);"), "the parameter 'x' is given twice"),
    (
        final(body="y = leaky_relu(x, alpha = 0.1, «alpha = 0.2);").replace(
            "x, alpha = 0.1, «a", "x = x, alpha = 0.1, «a"
        ),
        "more arguments are given",
    ),
    (final(body="y = softabs(epsilon = 0.1, «epsilon = 0.2);"), "the parameter 'epsilon' is given twice"),
    (final(body="y = «add(x);"), "the parameter 'y' of 'add' is not given"),
    (
        final(body="y = leaky_relu(x, alpha = «1);"),
        "the parameter 'alpha' is of type scalar, the argument of type integer",
    ),
    (final(body="y = add(x, «1);"), "the parameter 'y' is of type tensor<scalar>, the argument of type integer"),
    (final(body="y = add(x, «'1');"), "the argument of type string"),
    (final(body="y = add(x, «[x]);"), "the argument of type tensor<scalar>[]"),
    (final(body="y = add(x, «(x, x));"), "the argument of type (tensor<scalar>, tensor<scalar>)"),
    (final(body="y = select(«x, x, x);"), "the parameter 'condition' is of type tensor<logical>"),
    (final(body="y = add(x, «lt(x, x));"), "the argument of type tensor<logical>"),
    (
        final(body="y = softmax(x, axes = «1);"),
        "the parameter 'axes' is of type integer[], the argument of type integer",
    ),
    (final(body="y = softmax(x, axes = «[1.0]);"), "the argument of type scalar[]"),
    (final(body="y = «relu<scalar>(x);"), "'relu' is not generic"),
    (final(body="y = «copy<?>(x);"), "only in a generic fragment"),
    (final(body="y = select(lt(x, x), x, «true);"), "'?' of 'select' is scalar by 'true_value' and logical by"),
    (
        final("fragment f<?>(n: integer = 1) -> (y: ?[]) { y = []; }", "y = pad(x, padding = «f(n = 1));"),
        "cannot be deduced",
    ),
    (final(body="y = «copy('a');"), "no tensors of strings"),
    (final(body="c = constant(shape = [1], value = «[1]); y = x;"), "the parameter 'value' is of type scalar[]"),
    (
        final(
            "fragment f<?>(x: tensor<>, v: ? = 1) -> (y: tensor<?>) { y = constant<?>(shape = [1], value = [v]); }",
            "y = «f<scalar>(x);",
        ),
        "the default of 'v' is of type integer, which does not fit scalar",
    ),
]

IDENTIFIERS = [
    (final(body="y = relu(«xx);"), "'xx' is not defined here"),
    (final(body="y = relu(«z); z = relu(x);"), "'z' is not defined here"),
    (final(body="y = relu(x); «y = relu(x);"), "'y' is already defined"),
    (final(body="y, «y = moments(x, axes = [1]);"), "'y' is already defined"),
    (final("fragment f(x: integer) -> (y: integer) { «x = 1; y = 1; }"), "'x' is already defined"),
    (final("fragment f(x: integer) -> (y: integer) { z = 1; «}"), "the result 'y' of 'f' is not assigned"),
    (final("fragment f(x: integer) -> (y: integer) { y = 1; «y = 2; }"), "'y' is already defined"),
    (final("fragment f(x: integer) -> (y: integer) { «y = 1.0; }"), "the result 'y' is of type integer"),
    (final("fragment f(x: integer) -> (y: tensor<scalar>) { «y = x; }"), "the result 'y' is of type tensor<scalar>"),
    (final("fragment f(x: integer[]) -> (y: integer[]) { y = [for «x in x yield 1]; }"), "'x' is already defined"),
    (final("fragment f(x: integer[]) -> (y: integer[]) { y = [for i in x yield 1] + [«i]; }"), "'i' is not defined"),
    (
        final("fragment f(x: integer[][]) -> (y: integer[]) { y = [for i in x, j in «i yield j]; }"),
        "'i' is not defined",
    ),
    (
        final("fragment f(x: tensor<scalar>) -> (y: tensor<scalar>) { y = «external(shape = [1]); }"),
        "not allowed in a frag",
    ),
    (
        final("fragment f(x: tensor<scalar>) -> (y: tensor<scalar>) { y = x + «variable(shape = [1], label = 'a'); }"),
        "not allowed in a fragment",
    ),
    (final("fragment f(x: tensor<scalar>) -> (y: tensor<scalar>) { y = «update(x, x); }"), "not allowed in a fragment"),
    (
        FINAL + "graph g(x) -> (y) { «x = variable(shape = [1], label = 'x'); y = relu(x); }",
        "must be defined by 'external'",
    ),
    (final(body="z = «external(shape = [1]); y = add(x, z);"), "'external' defines only inputs"),
    (final(body="y = relu(«external(shape = [1]));"), "'external' defines only inputs"),
    (
        FINAL + "graph g(x) -> («y) { x = external(shape = [1]); z = relu(x); }",
        "the output 'y' of the graph is not assigned",
    ),
    (
        FINAL + "graph g(«x) -> (y) { y = variable(shape = [1], label = 'y'); }",
        "the input 'x' of the graph is not assigned",
    ),
    (FINAL + "graph g(x) -> («x) { x = external(shape = [1]); }", "second input or output called 'x'"),
    (FINAL + "graph «relu(x) -> (y) { x = external(shape = [1]); y = exp(x); }", "the name of the operation 'relu'"),
    (final(body="«z = split(x, axis = 1, ratios = [1,2]); y = z[0];"), "'z' is of type tensor<scalar>[]"),
    (final(body="«z = moments(x, axes = [1]); y = z[0];"), "'z' is of type (tensor<scalar>, tensor<scalar>)"),
    (final(body="«n = 3; y = relu(x);"), "'n' is of type integer"),
    (final(body="«[a, y] = moments(x, axes = [1]);"), "cannot be unpacked as an array"),
    (final(body="«a, y = split(x, axis = 1, ratios = [1, 2]);"), "cannot be unpacked as a tuple"),
    (final(body="«a, b, y = moments(x, axes = [1]);"), "a tuple of 2 elements cannot be unpacked into 3"),
    (
        final(body="«[a, b, y] = split(x, axis = 1, ratios = [1, 2]);"),
        "an array of 2 elements cannot be unpacked into 3",
    ),
    (final(body="y = update(«x, relu(x));").replace("update(«x", "«update(x"), "must be a variable"),
]

EXPRESSIONS = [
    ("1 «+ 1.0", "the operator '+' does not take integer and scalar"),
    ("1 «< 1.0", "the operator '<' does not take integer and scalar"),
    ("1 «== 1.0", "the operator '==' does not take integer and scalar"),
    ("'a' «- 'b'", "the operator '-' does not take string and string"),
    ("true «+ true", "does not take logical and logical"),
    ("1 «&& true", "does not take integer and logical"),
    ("true «< false", "does not take logical and logical"),
    ("«!1", "the operator '!' does not take a value of type integer"),
    ("«-true", "the operator '-' does not take a value of type logical"),
    ("«-'a'", "the operator '-' does not take a value of type string"),
    ("[1] «+ [1.0]", "does not take integer[] and scalar[]"),
    ("2 «* [1]", "does not take integer and integer[]"),
    ("[1] «* 2.0", "does not take integer[] and scalar"),
    ("[1, «1.0]", "the elements of an array need a common type, not integer and scalar"),
    ("1 «in [1.0]", "does not take integer and scalar[]"),
    ("1 «in 1", "does not take integer and integer"),
    ("«n[0]", "only arrays, tuples and strings have elements"),
    ("[1][«1.0]", "an index must be of type integer, not scalar"),
    ("(1, 2)[«n]", "the index of a tuple must be an integer literal"),
    ("(1, 2)[«2]", "the index 2 is outside a tuple of 2 elements"),
    ("«(1, 2)[0:1]", "only arrays and strings have ranges"),
    ("«[][0]", "the empty array has no elements"),
    ("1 if «1 else 2", "a condition must be of type logical, not integer"),
    ("1 if true else «2.0", "need a common type, not integer and scalar"),
    ("[for i in «3 yield i]", "only arrays are iterated over, not a value of type integer"),
    ("[for i in «'abc' yield i]", "only arrays are iterated over"),
    ("[for i in «[] yield i]", "only arrays are iterated over, not the empty array"),
    ("[for i in [1] if «i yield i]", "a condition must be of type logical, not integer"),
    ("[for «(a, b) in [1] yield a]", "cannot be unpacked as a tuple"),
    ("length_of(«n)", "length_of takes an array or a string"),
    ("length_of(«(1, 2))", "length_of takes an array or a string"),
    ("range_of(«n)", "range_of takes an array or a string"),
    ("shape_of(«[1])", "shape_of takes a tensor"),
    ("integer(«[1])", "integer takes a value of primitive type"),
]

VALUES = [
    ("[1, 2][«2]", "the index 2 is outside a sequence of 2 elements"),
    ("[1, 2][«n - 9]", "the index -6 is outside a sequence of 2 elements"),
    ("'abc'[«3]", "the index 3 is outside a sequence of 3 characters"),
    ("[1, 2][:«3]", "the bound 3 is outside a sequence of 2 elements"),
    ("[1, 2][«5:]", "the bound 5 is outside"),
    ("1 «/ 0", "division by zero"),
    ("1.0 «/ 0.0", "division by zero"),
    ("0 «^ (-1)", "zero to a negative power"),
    ("2 «^ 64", "the integer is out of range"),
    ("9223372036854775807 «+ 1", "the integer is out of range"),
    ("1e300 «* 1e300", "the scalar is out of range"),
    ("(-1.0) «^ 0.5", "a negative scalar to a fractional power"),
    ("[1] «* 1000000000", "the result has more than 4194304 elements"),
    ("'a' «* 1000000000", "the result has more than 4194304 elements"),
    ("[1] «* (-1)", "the number of repetitions is negative"),
    ("«integer('1.5')", "the string '1.5' is not an integer"),
    ("«integer('')", "is not an integer"),
    ("«scalar('x')", "the string 'x' is not a number"),
    ("«integer(1e30)", "the integer is out of range"),
    ("[for i in [1], j in «[1, 2] yield i]", "arrays of 1 and 2 elements cannot be iterated over together"),
]


@pytest.mark.parametrize(("marked", "message"), LEXIS)
def test_lexical_errors(marked: str, message: str) -> None:
    check_error(marked, message)


@pytest.mark.parametrize(("marked", "message"), GRAMMAR)
def test_grammatical_errors(marked: str, message: str) -> None:
    check_error(marked, message)


@pytest.mark.parametrize(("marked", "message"), DECLARATIONS)
def test_errors_in_declarations(marked: str, message: str) -> None:
    check_error(marked, message)


@pytest.mark.parametrize(("marked", "message"), INVOCATIONS)
def test_errors_in_invocations(marked: str, message: str) -> None:
    check_error(marked, message)


@pytest.mark.parametrize(("marked", "message"), IDENTIFIERS)
def test_errors_in_the_use_of_identifiers(marked: str, message: str) -> None:
    check_error(marked, message)


@pytest.mark.parametrize(("expression", "message"), EXPRESSIONS)
def test_errors_in_types_of_expressions(expression: str, message: str) -> None:
    fragment = f"fragment f(n: integer) -> (y: integer) {{ z = {expression}; y = 1; }}"
    check_error(final(fragment), message)


@pytest.mark.parametrize(("expression", "message"), VALUES)
def test_errors_in_values_of_expressions(expression: str, message: str) -> None:
    fragment = f"fragment f(x: tensor<scalar>, n: integer) -> (y: tensor<scalar>) {{ z = {expression}; y = x; }}"
    error = check_error(final(fragment, "y = f(x, n = 3);"), message)
    assert error.notes[-1][0] == "in the expansion of 'f', invoked here"


HINTS = [
    (final(body="y = «rleu(x);"), "Did you mean 'relu'?"),
    (final(body="y = relu(«x1);"), "Did you mean 'x'?"),
    (final(body="y = max_pool(x, «sizes = [1,1,2,2]);"), "Did you mean 'size'?"),
    (final(body="y = add(x, «1);"), "Write a point: 1.0."),
    (final("fragment half(x: tensor<scalar>) -> (y: tensor<scalar>) { y = x * 0.5; }", "y = «haf(x);"), "'half'"),
    (final(body="y = «conv_layer(x, channels = 4, size = [3,3], scope = 'a');"), "--dialect provisional"),
    (
        FINAL + "fragment f(x: «extent) -> (y: integer) { y = 1; }\n" + graph("y = relu(x);"),
        "calls this type 'integer'",
    ),
    (final(body="y = x + «1;").replace("+ «1", "«+ 1"), "Write a point: 1.0."),
]


@pytest.mark.parametrize(("marked", "hint"), HINTS)
def test_errors_show_a_way_out(marked: str, hint: str) -> None:
    check_error(marked, "", hint=hint, dialect=Dialect.FINAL)


PROVISIONAL_ERRORS = [
    (provisional(body="y = concat([for i in [1] «yield x], axis = 1)"), "unexpected identifier 'yield'"),
    (provisional(body="y = f(x)").replace("y = f", "y = «f"), "the operation 'f' is not known"),
    (provisional("fragment f(x: «integer) -> (y: extent) { y = 1 }"), "unexpected identifier 'integer'"),
    (provisional("fragment f(x: «tensor<?>) -> (y: extent) { y = 1 }"), "a tensor of any content"),
    (provisional("fragment f(x: extent) -> (y: logical) { y = x «in [1] }"), "the operator 'in'"),
    (provisional(body="y = relu(x) + «lt(x, x)").replace("+ «", "«+ "), "does not take tensor and tensor<logical>"),
    (provisional("fragment f(x: tensor) -> (y: tensor) { «y = x > 0.0 }"), "the result 'y' is of type tensor"),
    (provisional("fragment f(x: tensor) -> (y: tensor) { y = «external(shape = [1]) }"), "not allowed in a fragment"),
    (provisional(body="y = leaky_relu(x, «0.1)"), "must be given by name"),
    (provisional(body="y = leaky_relu(x, alpha = «'a')"), "of type scalar, the argument of type string"),
    (provisional(body="y = leaky_relu(x, alpha = «1 + 1)"), "the argument of type extent"),
    (
        provisional(
            "fragment f(a: extent) -> (y: extent) { y = [1, 2][«0 - 1] }", "y = max_pool(x, size = [1, 1, 2, f(a = 1)])"
        ),
        "the index -1 is outside",
    ),
    (provisional("fragment «f<?>(x: tensor) -> (y: tensor) { y = x }").replace("«f<", "f«<"), "a generic fragment"),
]


@pytest.mark.parametrize(("marked", "message"), PROVISIONAL_ERRORS)
def test_errors_in_the_provisional_dialect(marked: str, message: str) -> None:
    check_error(marked, message, dialect=Dialect.PROVISIONAL)


def test_operator_expressions_need_their_extension() -> None:
    header = "version 1.0;\n"
    check_error(header + graph("y = relu(«x + x);"), "operator expressions are not enabled")
    check_error(header + graph("y = reshape(x, shape = «[1] * 4);"), "operator expressions are not enabled")
    check_error(header + graph("y = «x;"), "the right side must be an invocation")
    assert flatten(header + graph("y = leaky_relu(relu(x), alpha = -0.5);")).outputs


def test_a_shape_error_tells_where_the_tensors_come_from() -> None:
    body = "z = relu(x); w = variable(shape = [5], label = 'w'); y = matmul(z, «w);"
    error = check_error(final(body=body), "'matmul'")
    assert [note for note, _ in error.notes] == ["'A' has the shape [2, 3, 8, 8]", "'B' has the shape [5]"]
    assert [location.column for _, location in error.notes] == [
        final(body=body).splitlines()[-1].index(text) + 1 for text in ("relu(x)", "variable(")
    ]


def test_a_shape_error_points_at_the_argument_it_is_about() -> None:
    check_error(final(body="y = softmax(x, axes = «[7]);"), "'softmax'")


def test_an_error_tells_the_fragments_it_is_inside_of() -> None:
    fragments = """fragment inner(n: integer) -> (m: integer) { m = 1 / n; }
fragment outer(n: integer) -> (m: integer) { m = inner(n = n - 1); }
"""
    with pytest.raises(CompileError) as caught:
        flatten(final(fragments, "y = softmax(x, axes = [outer(n = 1)]);"))
    assert [note for note, _ in caught.value.notes] == [
        "in the expansion of 'inner', invoked here",
        "in the expansion of 'outer', invoked here",
    ]
    assert [location.line for _, location in caught.value.notes] == [5, 7]


def test_variables_of_one_label_have_one_shape() -> None:
    body = "a = variable(shape = [1], label = 'w'); b = «variable(shape = [2], label = 'w'); y = relu(x);"
    error = check_error(final(body=body), "the variable 'w' has the shape [2] here, [1] before")
    assert error.notes[0][0] == "the first variable of that label"


def test_several_graphs_are_listed_when_none_is_named() -> None:
    text = PROVISIONAL + "".join(
        f"graph {name}(x) -> (y) {{ x = external(shape = [{n}]) y = relu(x) }}\n" for n, name in enumerate("ab", 1)
    )
    with pytest.raises(CompileError, match="several graphs: 'a', 'b'"):
        flatten(text)
    with pytest.raises(CompileError, match="no graph 'c'"):
        flatten(text, graph="c")
    assert flatten(text, graph="b").inputs[0].shape == (2,)
    with pytest.raises(CompileError, match="the graph 'a' is defined twice"):
        flatten(text.replace("graph b", "graph a"))


def test_unknown_sizes_of_inputs_must_be_given() -> None:
    text = FINAL + graph("y = relu(x);", "[0,3,0,8]")
    marked = text.replace("external", "«external")
    check_error(marked, "the shape of the input 'x' is not known: [0, 3, 0, 8]", hint="--shape x=1,3,128,8")
    flat = flatten(text, shapes={"x": (2, 3, 4, 8)})
    assert flat.outputs[0].shape == (2, 3, 4, 8)
    assert flat.invocations[0].arguments["shape"] == [2, 3, 4, 8]
    check_error(marked, "has 3 dimensions", shapes={"x": (2, 3, 4)})
    with pytest.raises(CompileError, match="no input 'X'"):
        flatten(text, shapes={"X": (1, 3, 1, 8)})
    with pytest.raises(CompileError, match="not positive"):
        flatten(text, shapes={"x": (0, 3, 1, 8)})
