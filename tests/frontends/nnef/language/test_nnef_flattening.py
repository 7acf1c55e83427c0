"""The flattened graph: names, copies, expansion of fragments and compounds, variables, several results, printing."""

from __future__ import annotations

import keyword

import numpy as np
import pytest
from nnef_language import FINAL, as_lists, final, flatten, operations, provisional

from nnefc.frontends.nnef import operations as _operations  # noqa: F401  (fills STANDARD)
from nnefc.frontends.nnef.declarations import STANDARD, Dialect, Registry, operation
from nnefc.frontends.nnef.evaluation import evaluate
from nnefc.frontends.nnef.flat import print_flat
from nnefc.frontends.nnef.language.parser import parse
from nnefc.frontends.nnef.values import Arguments, shape_of
from nnefc.support.diagnostics import CompileError

DOUBLE = "fragment double(x: tensor<scalar>) -> (y: tensor<scalar>) { t = relu(x); y = t + exp(x); }\n"


def names(text: str) -> list[str]:
    return [tensor.name for invocation in flatten(text).invocations for tensor in invocation.tensors]


def test_names_of_the_graph_are_kept_and_those_inside_fragments_derived() -> None:
    assert names(final(DOUBLE, "a = double(x); y = double(double(a));")) == [
        *("x", "a_t", "a_exp", "a"),
        *("y_t", "y_exp", "y_y", "y_t_2", "y_exp_2", "y"),
    ]


def test_derived_names_keep_clear_of_the_documents_own() -> None:
    found = names(final(DOUBLE, "y_t = relu(x); y_exp = relu(y_t); y_t_2 = relu(x); y = double(x);"))
    assert len(set(found)) == len(found)
    assert found[:4] == ["x", "y_t", "y_exp", "y_t_2"]
    assert all(name.isidentifier() and not keyword.iskeyword(name) for name in found)


def test_a_second_name_for_a_tensor_is_a_copy() -> None:
    flat = flatten(final("fragment same(x: tensor<scalar>) -> (y: tensor<scalar>) { y = x; }", "a = same(x); y = a;"))
    assert operations(flat) == ["copy", "copy"]
    flat = flatten(provisional("fragment same(x: tensor) -> (y: tensor) { y = x }", "y = same(x)"))
    assert operations(flat) == ["copy_n"]
    assert flat.outputs[0].name == "y"


def test_a_constant_result_of_a_fragment_becomes_a_tensor() -> None:
    flat = flatten(final("fragment one(n: integer) -> (y: tensor<scalar>) { y = 1.0; }", "a = one(n = 1); y = x + a;"))
    assert operations(flat) == ["copy", "add"]
    assert flat.invocations[1].tensors[0].shape == ()


def test_primitive_values_stand_for_tensors() -> None:
    flat = flatten(final("fragment f(a: tensor<scalar>) -> (y: tensor<scalar>) { y = a + 2.0; }", "y = x * f(1.0);"))
    assert [as_lists(list(i.arguments.values())) for i in flat.invocations[1:]] == [[1.0, 2.0], ["x", "y_y"]]
    assert flat.invocations[1].tensors[0].shape == ()


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("x + x", "add"),
        ("x - 1.0", "sub"),
        ("2.0 * x", "mul"),
        ("x / x", "div"),
        ("x ^ 2.0", "pow"),
        ("-x", "neg"),
    ],
)
def test_operators_on_tensors_are_operations(expression: str, expected: str) -> None:
    assert operations(flatten(final(body=f"y = {expression};"))) == [expected]
    assert operations(flatten(provisional(body=f"y = {expression}"))) == [expected]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("x < 0.0", ["lt"]),
        ("x <= x", ["le"]),
        ("x > 0.0", ["gt"]),
        ("0.0 >= x", ["ge"]),
        ("x == x", ["eq"]),
        ("x != 0.0", ["ne"]),
        ("x < 0.0 && x > 1.0", ["lt", "gt", "and"]),
        ("x < 0.0 || true", ["lt", "or"]),
        ("!(x < 0.0)", ["lt", "not"]),
    ],
)
def test_comparisons_and_logic_on_tensors_give_logical_tensors(expression: str, expected: list[str]) -> None:
    for text in (
        final(body=f"c = {expression}; y = select(c, x, 0.0);"),
        provisional(body=f"c = {expression} y = select(c, x, 0.0)"),
    ):
        flat = flatten(text)
        assert operations(flat) == [*expected, "select"]
        assert flat.invocations[-2].tensors[0].content == "logical"


def test_chains_of_invocations_and_nested_unpacking() -> None:
    body = "[a, b], (m, v) = (split(relu(x), axis = 1, ratios = [1, 2]), moments(x, axes = [1])); y = add(a, m);"
    flat = flatten(final(body=body))
    assert operations(flat) == ["relu", "split", "moments", "add"]
    assert [tensor.name for tensor in flat.invocations[2].tensors] == ["a", "b"]
    assert [tensor.shape for tensor in flat.invocations[2].tensors] == [(2, 1, 8, 8), (2, 2, 8, 8)]


def test_only_the_chosen_branch_is_evaluated() -> None:
    fragment = """fragment f(x: tensor<scalar>, n: integer) -> (y: tensor<scalar>)
    { y = relu(x) if n > 0 else softmax(x, axes = [1 / n]); }\n"""
    assert operations(flatten(final(fragment, "y = f(x, n = 1);"))) == ["relu"]
    with pytest.raises(CompileError, match="division by zero"):
        flatten(final(fragment, "y = f(x, n = 0);"))


def test_recursion_a_thousand_deep_works_and_without_end_is_an_error() -> None:
    fragment = """fragment down(x: tensor<scalar>, n: integer) -> (y: tensor<scalar>)
    { y = down(x + 1.0, n = n - 1) if n > 0 else x; }\n"""
    assert operations(flatten(final(fragment, "y = down(x, n = 1000);"))) == ["add"] * 1000
    text = final(fragment, "y = down(x, n = -1);".replace("-1", "100000"))
    with pytest.raises(CompileError, match="expanded more than 2000 deep"):
        flatten(text)
    with pytest.raises(CompileError, match="expanded more than 10 deep") as caught:
        flatten(text, max_depth=10)
    assert len(caught.value.notes) == 6
    assert operations(flatten(final(fragment, "y = down(x, n = 2500);"), max_depth=3000)) == ["add"] * 2500
    with pytest.raises(CompileError, match="more than 50 operations"):
        flatten(final(fragment, "y = down(x, n = 100);"), max_operations=50)


def test_mutual_recursion_may_refer_forward() -> None:
    fragments = """fragment even(x: tensor<scalar>, n: integer) -> (y: tensor<scalar>)
    { y = odd(relu(x), n = n - 1) if n > 0 else x; }
    fragment odd(x: tensor<scalar>, n: integer) -> (y: tensor<scalar>)
    { y = even(exp(x), n = n - 1) if n > 0 else x; }\n"""
    assert operations(flatten(final(fragments, "y = even(x, n = 3);"))) == ["relu", "exp", "relu"]


def test_generic_operations_take_their_content_from_the_text_the_default_or_the_arguments() -> None:
    body = """c = constant<integer>(shape = [1], value = [7]); d = constant(shape = [1], value = [7.0]);
    e = copy(c); f = select(x < 0.0, x, 1.0); g = select<logical>(x < 0.0, true, false); y = copy(x);"""
    flat = flatten(final(body=body))
    contents = {i.tensors[0].name: (i.content, i.tensors[0].content) for i in flat.invocations if i.content}
    assert {name: contents[name] for name in "cdefgy"} == {
        "c": ("integer", "integer"),
        "d": ("scalar", "scalar"),
        "e": ("integer", "integer"),
        "f": ("scalar", "scalar"),
        "g": ("logical", "logical"),
        "y": ("scalar", "scalar"),
    }


def test_a_generic_fragment_passes_its_content_on() -> None:
    fragment = """fragment filled<?>(like: tensor<?>, v: ?) -> (y: tensor<?>)
    { y = select(true, constant<?>(shape = [1], value = [v]), like); }\n"""
    body = "i = argmax_reduce(x, axes = [1]); j = filled(i, v = 3); y = filled(x, v = 2.0);"
    flat = flatten(final(fragment, body))
    assert [i.content for i in flat.invocations if i.operation.name == "constant"] == ["integer", "scalar"]
    with pytest.raises(CompileError, match="is scalar by 'like' and integer by 'v'"):
        flatten(final(fragment, "y = filled(x, v = 3);"))


def test_variables_share_labels_as_written() -> None:
    fragment = "fragment f(x: tensor, s: string) -> (y: tensor) { y = x * variable(shape = [1, 3], label = s + '/w') }"
    flat = flatten(provisional(fragment, "a = f(x, s = 'a') b = f(a, s = 'b') y = f(b, s = 'a')"))
    labels = [i.arguments["label"] for i in flat.invocations if i.operation.name == "variable"]
    assert labels == ["a/w", "b/w", "a/w"]


def test_update_takes_a_variable_first() -> None:
    flat = flatten(final(body="v = variable(shape = [2,3,8,8], label = 'v'); u = update(v, x); y = add(x, v);"))
    assert operations(flat) == ["update", "add"]


def test_compounds_are_kept_whole_unless_asked() -> None:
    text = final(body="y = leaky_relu(x, alpha = 0.5);")
    assert operations(flatten(text)) == ["leaky_relu"]
    expanded = flatten(text, expand=lambda operation_: operation_.kind == "compound")
    assert "leaky_relu" not in operations(expanded)
    assert len(operations(expanded)) > 1
    assert all(i.operation.kind == "primitive" for i in expanded.invocations)
    assert expanded.outputs[0].name == "y"


@pytest.mark.parametrize("dialect", list(Dialect))
def test_every_definition_of_the_standard_parses_and_checks(dialect: Dialect) -> None:
    from nnefc.frontends.nnef.environment import Environment, UserFragment
    from nnefc.frontends.nnef.language.checking import check_definition
    from nnefc.frontends.nnef.language.inference import Annotations

    environment = Environment(dialect, STANDARD, {})
    count = 0
    for known in STANDARD:
        if dialect in known.dialects and known.definition is not None:
            fragment = UserFragment(known.defined(dialect), known.signature)
            check_definition(fragment, environment, Annotations())
            count += 1
    assert count > 20


def test_a_registry_refuses_a_second_operation_of_a_name_and_dialect() -> None:
    registry = Registry()

    def shape(args: Arguments) -> tuple[int, ...]:
        return shape_of(args.x)

    declare = operation(
        "fragment f(x: tensor) -> (y: tensor)", shape=shape, dialects={Dialect.FINAL}, registry=registry
    )
    assert declare(test_a_registry_refuses_a_second_operation_of_a_name_and_dialect) is not None
    with pytest.raises(ValueError, match="declared twice"):
        declare(shape)
    found = registry.lookup("f", Dialect.FINAL)
    assert found is not None
    assert found.signature.spell(Dialect.FINAL) == "f(x: tensor<scalar>) -> (y: tensor<scalar>)"
    assert registry.lookup("f", Dialect.PROVISIONAL) is None
    assert registry.nearest("ff", Dialect.FINAL) == "f"
    assert [known.name for known in registry] == ["f"]


def test_the_printed_graph_reads_back_as_the_same_graph() -> None:
    fragment = """fragment f(x: tensor<scalar>) -> (y: tensor<scalar>) {
        c = constant<logical>(shape = [1], value = [true]);
        m, v = moments(x, axes = [1, 2]);
        y = select(c, m, concat(split(v, axis = 0, ratios = [1, 1]), axis = 0)) * 1e-8 + 0.1;
    }\n"""
    for text in (
        final(fragment, "a = pad(f(x), padding = [(1, 1)] * 4, border = 'reflect'); y = leaky_relu(a, alpha = 3e30);"),
        provisional(
            body="[a, b] = split(x, axis = 1, ratios = [1, 2]) y = max_pool(b, size = [1,1,3,3], padding = [])"
        ),
        final(body="""y = x + variable(shape = [1], label = 'a"' + "'b''");"""),
        provisional(body="""y = x + variable(shape = [1], label = 'a"' + "'b''")"""),
    ):
        flat = flatten(text)
        printed = print_flat(flat)
        again = evaluate(parse(printed, "printed.nnef"), registry=STANDARD)
        assert print_flat(again) == printed
        assert again.dialect is flat.dialect
        for mine, other in zip(flat.invocations, again.invocations, strict=True):
            assert as_lists(dict(mine.arguments)) == as_lists(dict(other.arguments))
            assert [(t.name, t.shape, t.content) for t in mine.tensors] == [
                (t.name, t.shape, t.content) for t in other.tensors
            ]


def test_every_tensor_is_made_before_it_is_used() -> None:
    flat = flatten(final(DOUBLE, "[a, b, c] = split(double(x), axis = 1, ratios = [1, 1, 1]); y = double(b) * a;"))
    made: set[object] = set()
    for invocation in flat.invocations:
        used = [v for v in np.array(list(invocation.arguments.values()), dtype=object).ravel() if hasattr(v, "shape")]
        assert all(tensor in made for tensor in used)
        made.update(invocation.tensors)
    assert set(flat.outputs) <= made


def test_the_graph_of_a_document_may_have_several_outputs_in_their_order() -> None:
    text = (
        FINAL
        + "graph g(b, a) -> (v, m) { a = external(shape = [2]); b = external(shape = [3]); v, m = (relu(a), exp(b)); }"
    )
    flat = flatten(text)
    assert [tensor.name for tensor in flat.inputs] == ["b", "a"]
    assert [(tensor.name, tensor.shape) for tensor in flat.outputs] == [("v", (2,)), ("m", (3,))]
