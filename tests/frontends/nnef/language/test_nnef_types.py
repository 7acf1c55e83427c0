"""Types of the NNEF language: spelling, implicit conversions, common types."""

from __future__ import annotations

import pytest

from nnefc.frontends.nnef.language.parser import parse_signature
from nnefc.frontends.nnef.language.types import (
    EMPTY_ARRAY,
    Dialect,
    Type,
    common_type,
    convertible,
    has_tensor,
    spell,
    substitute,
)


def type_of(text: str) -> Type:
    if text == "[]":
        return EMPTY_ARRAY
    generic = "<?>" if "?" in text else ""
    text = f"fragment f{generic}(a: {text}) -> (b: integer)"
    return parse_signature(text, Dialect.PROVISIONAL).parameters[0].type  # The final dialect mixes no tuples.


TYPES = ("integer", "scalar", "logical", "string", "tensor<scalar>", "tensor<integer>", "tensor<logical>", "tensor<>")

CONVERSIONS = {
    ("scalar", "tensor<scalar>"),
    ("integer", "tensor<integer>"),
    ("logical", "tensor<logical>"),
    *((source, "tensor<>") for source in TYPES if source != "string"),
}


@pytest.mark.parametrize("source", TYPES)
@pytest.mark.parametrize("target", TYPES)
def test_primitive_conversions_are_those_of_the_standard_and_no_others(source: str, target: str) -> None:
    assert convertible(type_of(source), type_of(target)) == (source == target or (source, target) in CONVERSIONS)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("scalar[]", "tensor<scalar>[]", True),
        ("scalar[][]", "tensor<scalar>[][]", True),
        ("scalar[]", "scalar[][]", False),
        ("scalar", "scalar[]", False),
        ("scalar[]", "tensor<scalar>", False),
        ("[]", "integer[]", True),
        ("[]", "(integer, integer)[][]", True),
        ("[]", "integer", False),
        ("integer[]", "[]", False),
        ("(scalar, integer)", "(tensor<scalar>, tensor<integer>)", True),
        ("(scalar, integer)", "(scalar, integer, integer)", False),
        ("(scalar, integer)[]", "(tensor<scalar>, integer)[]", True),
        ("(integer[], scalar)", "(integer[], tensor<logical>)", False),
        ("?", "tensor<?>", True),
        ("scalar", "?", False),
        ("tensor<?>", "tensor<scalar>", False),
        ("tensor<?>", "tensor<>", True),
    ],
)
def test_compound_conversions_go_element_by_element(source: str, target: str, expected: bool) -> None:
    assert convertible(type_of(source), type_of(target)) is expected


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (["integer"], "integer"),
        (["scalar", "tensor<scalar>", "scalar"], "tensor<scalar>"),
        (["integer", "scalar"], None),
        (["[]", "integer[]"], "integer[]"),
        (["integer[]", "[]"], "integer[]"),
        (["(scalar, tensor<scalar>)", "(tensor<scalar>, scalar)"], "(tensor<scalar>, tensor<scalar>)"),
        (["scalar[]", "tensor<scalar>[]"], "tensor<scalar>[]"),
        (["integer", "integer[]"], None),
        (["string", "tensor<>"], None),
    ],
)
def test_common_types(types: list[str], expected: str | None) -> None:
    found = common_type([type_of(text) for text in types])
    assert found == (None if expected is None else type_of(expected))


@pytest.mark.parametrize(
    ("text", "provisional"),
    [
        ("integer[]", "extent[]"),
        ("(integer, integer)[]", "(extent, extent)[]"),
        ("tensor<scalar>", "tensor"),
        ("tensor<scalar>[][]", "tensor[][]"),
        ("tensor<integer>", "tensor<extent>"),
        ("tensor<logical>", "tensor<logical>"),
        ("(integer[], (string, logical))", "(extent[], (string, logical))"),
    ],
)
def test_both_dialects_spell_and_read_every_type(text: str, provisional: str) -> None:
    assert spell(type_of(text), Dialect.FINAL) == text
    assert spell(type_of(text), Dialect.PROVISIONAL) == provisional
    read = parse_signature(f"fragment f(a: {provisional}) -> (b: extent)", Dialect.PROVISIONAL)
    assert read.parameters[0].type == type_of(text)


def test_substitution_reaches_every_part() -> None:
    assert substitute(type_of("(?, tensor<?>[])[]"), "logical") == type_of("(logical, tensor<logical>[])[]")
    assert substitute(type_of("tensor<?>"), "?") == type_of("tensor<?>")
    assert substitute(type_of("tensor<>"), "scalar") == type_of("tensor<>")


def test_which_types_hold_tensors() -> None:
    assert has_tensor(type_of("tensor<>"))
    assert has_tensor(type_of("(integer, tensor<scalar>)[]"))
    assert not has_tensor(type_of("(integer, scalar[])[]"))
    assert not has_tensor(type_of("[]"))


def test_signatures_keep_defaults_and_generics() -> None:
    text = 'fragment f<? = scalar>(x: tensor<?>, a: (integer, integer)[] = [(1, -2)], s: string = "it\'s") -> (y: ?[])'
    signature = parse_signature(text, Dialect.FINAL)
    assert (signature.generic, signature.generic_default) == (True, "scalar")
    assert signature.by_name["a"].default == [(1, -2)]
    assert f"fragment {signature.spell(Dialect.FINAL)}" == text
