"""Documents that are templates, filled in with the model's files in JSON: the language, and what limits it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import nnefc
from nnefc.diagnostics import CompileError
from nnefc.formats import load_network, load_outline
from nnefc.frontends.nnef.template.rendering import rendered
from nnefc.frontends.nnef.template.text import is_template

CONFIG = {
    "name": "net",
    "sizes": [3, 1, 2],
    "layers": [{"width": 8, "act": "relu"}, {"width": 4, "act": "tanh"}],
    "deep": {"a": {"b": [10, 20]}},
    "flag": True,
    "rate": 0.5,
    "nothing": None,
}


def filled(text: str) -> str:
    return rendered(text, "graph.nnef", {"config": CONFIG}.get)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # values and how they are written
        ("{{ config.name }} {{ config['name'] }}", "net net"),
        ("{{ config.sizes }} {{ config.deep.a.b[1] }} {{ config.sizes[-1] }}", "[3, 1, 2] 20 2"),
        ("{{ config.flag }} {{ config.nothing }} {{ config.rate }} {{ 2.0 }} {{ 1e-5 }}", "true none 0.5 2.0 0.00001"),
        ("[{{ missing }}] [{{ config.missing }}]", "[] []"),
        ("{{ ['a', 1, none, 2.5] }} {{ {'k': [true]} }}", '["a", 1, none, 2.5] {"k": [true]}'),
        ("{{ (1, 2) }} {{ () }} {{ 0x10 + 1_000 }}", "[1, 2] [] 1016"),
        # operators
        ("{{ 7 // 2 }} {{ 7 / 2 }} {{ 8 / 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 10 }}", "3 3.5 4.0 -4 2 1024"),
        ("{{ 7 // -2 }} {{ 2 + 3 * 4 - 1 }} {{ (2 + 3) * 4 }} {{ 'a' ~ 1 ~ 'b' }}", "-3 13 20 a1b"),
        ("{{ 1 < 2 and not 2 == 3 }} {{ 2 in [1, 2] }} {{ 5 not in [1] }} {{ 'e' in 'net' }}", "true true true true"),
        ("{{ [1] + [2] }} {{ [0] * 3 }} {{ 'ab' * 2 }} {{ true == 1 }}", "[1, 2] [0, 0, 0] abab false"),
        ("{{ 'yes' if config.flag else 'no' }} {{ 'x' if not config.flag }}", "yes "),
        ("{{ config.nothing or 'other' }} {{ 0 and 1 }} {{ not not 1 }}", "other 0 true"),
        ("{{ [1, 2, 3, 4][1:3] }} {{ 'hello'[:-1] }} {{ [1, 2, 3][::2] }} {{ [1, 2][5:] }}", "[2, 3] hell [1, 3] []"),
        # filters and tests
        ("{{ config.sizes | sort }} {{ config.sizes | max }} {{ config.sizes | sum }}", "[1, 2, 3] 3 6"),
        ("{{ config.sizes | join(', ') }} {{ config.sizes | length }} {{ config.sizes | first }}", "3, 1, 2 3 3"),
        ("{{ config.layers | map(attribute='width') | list }} {{ ['a'] | map('upper') }}", '[8, 4] ["A"]'),
        ("{{ config.layers | selectattr('act', 'eq', 'tanh') | map(attribute='width') }}", "[4]"),
        ("{{ [1, 2, 3] | select('odd') }} {{ [1, 2, 3] | reject('odd') }}", "[1, 3] [2]"),
        ("{{ missing | default(4) }} {{ missing.x if false else 1 }} {{ '' | default('d', true) }}", "4 1 d"),
        ("{{ -3 | abs }} {{ 2.5 | round }} {{ 3.14159 | round(2) }} {{ '7' | int + 1 }}", "3 3.0 3.14 8"),
        ("{{ {'b': 1, 'a': 2} | dictsort }} {{ {'b': 1} | items }}", '[["a", 2], ["b", 1]] [["b", 1]]'),
        ("{{ [1, 2, 3] | batch(2) }} {{ [1, 1, 2] | unique }} {{ [1, 2] | reverse }}", "[[1, 2], [3]] [1, 2] [2, 1]"),
        ("{{ 'a-b' | replace('-', '_') | upper }} {{ ' x ' | trim }} {{ 'a b' | title }}", "A_B x A B"),
        ("{{ [1, 'a'] | tojson }} {{ 'a,b' | split(',') }} {{ [1] | zip([3]) }}", '[1,"a"] ["a", "b"] [[1, 3]]'),
        ("{{ 3 is odd }} {{ 4 is divisibleby 2 }} {{ no is defined }} {{ 1 is not none }}", "true true false true"),
        ("{{ config is mapping }} {{ [1] is sequence }} {{ 'a' is string and 1 is number }}", "true true true"),
        ("{{ 2 is in [1, 2] }} {{ 'net' is startingwith('n') }} {{ 1.0 is integer }}", "true true false"),
        # statements
        ("{% if config.rate > 1 %}a{% elif config.rate > 0.25 %}b{% else %}c{% endif %}", "b"),
        (
            "{% for l in config.layers %}{{ loop.index }}{{ l.act }}{{ ',' if not loop.last }}{% endfor %}",
            "1relu,2tanh",
        ),
        ("{% for x in [] %}a{% else %}none{% endfor %}", "none"),
        ("{% for x in range(6) if x is even %}{{ loop.index0 }}{{ x }} {% endfor %}", "00 12 24 "),
        ("{% for k, v in config.deep.a | items %}{{ k }}={{ v }}{% endfor %}", "b=[10, 20]"),
        ("{% for x in range(9) %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "01345678"),
        ("{% for x in range(9) %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}", "0123"),
        ("{% for x in [1, 2, 2] %}{{ loop.changed(x) }}{{ loop.cycle('a', 'b') }} {% endfor %}", "truea trueb falsea "),
        (
            "{% for x in [[1, [2]], [3]] recursive %}{% if x is sequence %}({{ loop(x) }}){% else %}{{ x }}{% endif %}"
            "{% endfor %}",
            "(1(2))(3)",
        ),
        ("{% set n = 1 %}{% for x in [5] %}{% set n = x %}{% endfor %}{{ n }}", "1"),
        ("{% set s = namespace(n=1) %}{% for x in [5] %}{% set s.n = s.n + x %}{% endfor %}{{ s.n }}", "6"),
        ("{% set a, b = [1, 2] %}{% set c %}{{ a }}-{{ b }}{% endset %}{{ c | length }}", "3"),
        ("{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}", "3"),
        ("{% filter upper | replace('A', 'b') %}abc{% endfilter %}", "bBC"),
        ("{% macro m(i, n=2) %}{{ i }}x{{ n }} {% endmacro %}{{ m(1) }}{{ m(n=3, i=0) }}", "1x2 0x3 "),
        ("{% raw %}{{ x }}{% endraw %}{# note #}{% block b %}{{ 1 }}{% endblock %}", "{{ x }}1"),
        # blanks
        ("a  {{- 1 -}}  b\n", "a1b"),
        ("{% if true -%}\n  a\n{%- endif %}|", "a|"),
        ("a\n\n", "a\n"),
    ],
)
def test_the_language(text: str, expected: str) -> None:
    assert filled(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{% include 'x' %}", "'include' needs another template"),
        ("{% extends 'x' %}", "'extends' needs another template"),
        ("{% import 'x' as y %}", "'import' needs another template"),
        ("{% from 'x' import y %}", "'from' needs another template"),
        ("{% call m() %}{% endcall %}", "'call' is not supported"),
        ("{% wat %}", "'wat' is no statement"),
        ("{{ config.sizes.append(1) }}", "a list has no methods"),
        ("{{ missing.x }}", "'x' of what is undefined"),
        ("{{ 1 | wat }}", "there is no filter 'wat'"),
        ("{{ 1 is wat }}", "there is no test 'wat'"),
        ("{{ 1 / 0 }}", "divided by 0"),
        ("{{ 'a' + 1 }}", "is no number"),
        ("{% for x in 3 %}{% endfor %}", "a number has no items"),
        ("{% for a, b in [[1]] %}{% endfor %}", "2 names are given to 1 items"),
        ("{% if 1 %}", "'endif' is missing"),
        ("{{ 1", "'{{' has no end"),
        ("{{ 1 + }}", "expected a value instead of the end"),
        ("{{ 1 2 }}", "expected nothing more instead of '2'"),
        ("{% break %}", "'break' is in no loop"),
        ("{# x", "the comment has no end"),
        ("{% raw %}", "'raw' has no 'endraw'"),
        ("{{ range(3)(1) }}", "a list cannot be called"),
        ("{{ range('a') }}", "other arguments than the function takes"),
    ],
)
def test_mistakes_have_a_place_and_a_reason(text: str, message: str) -> None:
    with pytest.raises(CompileError, match=re.escape(message)) as error:
        filled(f"first line\n  {text}")
    assert error.value.location is not None and error.value.location.line == 2


@pytest.mark.parametrize(
    "text",
    [
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{{ range(1000000000) }}",
        "{{ 'a' * 1000000000 }}",
        "{{ 10 ** 1000000 }}",
        "{% set x = 2 %}{% for i in range(200) %}{% set s = x * x %}{% endfor %}" + "{{ 2 ** 126 * 4 }}",
        "{% set s = namespace(x='aaaaaaaaaaaaaaaa') %}{% for i in range(60) %}{% set s.x = s.x ~ s.x %}{% endfor %}",
        "{% set s = namespace(x=[1]) %}{% for i in range(60) %}{% set s.x = [s.x, s.x] %}{% endfor %}{{ s.x }}",
        "{% set s = namespace(x=[1]) %}{% for i in range(9000) %}{% set s.x = [s.x] %}{% endfor %}{{ s.x }}",
        "{% set s = namespace() %}{% set s.s = s %}{{ s }}",
        "{% macro m(n) %}{{ m(n) }}{% endmacro %}{{ m(1) }}",
        "{% macro m(n) %}{{ m(n) }}{{ m(n) }}{% endmacro %}{{ m(1) }}",
        "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{% if 1 %}" * 5000,
        "{{ ('a' * 4000000) | replace('a', 'a' * 1000) }}",
        "{{ ('a' * 100000) | join('b' * 100000) }}",
        "{{ 'x\n' * 1000000 | indent(1000000) }}",
        "{% for i in range(90) %}{{ 'a' * 1000000 }}{% endfor %}",
    ],
)
def test_hostile_templates_are_refused_soon(text: str) -> None:
    with pytest.raises(CompileError):
        filled(text)


def test_long_chains_are_no_problem() -> None:
    assert filled("{{ " + " + ".join(["1"] * 2000) + " }}") == "2000"


def test_only_what_nnef_does_not_have_makes_a_template() -> None:
    assert is_template("graph g(x) -> (y) { {% if a %} }")
    assert is_template("x = external(shape = [{{ n }}]);")
    assert not is_template("# {{ a note }}\ngraph g(x) -> (y) {# another\n }")


TEMPLATE = """version 1.0;
extension tract_registry tract_core;

graph {{ config.name }}(x) -> (y)
{
    x = external(shape = {{ [2, config.width] }});
    h0 = copy(x);
{%- for layer in config.layers %}
    h{{ loop.index }} = {{ layer.act }}(mul(h{{ loop.index0 }}, {{ layer.scale }}));
{%- endfor %}
    y = copy(h{{ config.layers | length }});
}
"""


def test_a_model_is_filled_in_with_its_values(tmp_path: Path) -> None:
    config = {"name": "n", "width": 5, "layers": [{"act": "tanh", "scale": 2.0}, {"act": "sigmoid", "scale": -1.5}]}
    (tmp_path / "graph.nnef").write_text(TEMPLATE)
    (tmp_path / "config.json").write_text(json.dumps(config))
    x = np.linspace(-2, 2, 10, dtype=np.float32).reshape(2, 5)
    (y,) = nnefc.compile(tmp_path).run({"x": x}).values()
    np.testing.assert_allclose(y, 1 / (1 + np.exp(1.5 * np.tanh(2 * x))), rtol=1e-5)
    assert load_outline(tmp_path).operations["tanh"] == 1


def test_mistakes_in_what_a_template_makes_are_shown_there(tmp_path: Path) -> None:
    (tmp_path / "graph.nnef").write_text(TEMPLATE.replace("copy(x)", "copy({{ 'wrong' }})"))
    (tmp_path / "config.json").write_text('{"name": "n", "width": 3, "layers": []}')
    with pytest.raises(CompileError, match="'wrong' has no value here") as error:
        load_network(tmp_path)
    assert "filled in" in str(error.value) and "copy(wrong)" in str(error.value)


def test_a_file_that_is_not_in_json_is_named(tmp_path: Path) -> None:
    (tmp_path / "graph.nnef").write_text(TEMPLATE)
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(CompileError, match=r"config\.json' is not in JSON"):
        load_network(tmp_path)


def test_names_do_not_lead_out_of_the_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[1]")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "graph.nnef").write_text("{{ config[0] }}")
    with pytest.raises(CompileError, match="of what is undefined"):
        load_network(folder)


def test_templates_are_no_nnef_to_the_pedantic(tmp_path: Path) -> None:
    (tmp_path / "graph.nnef").write_text(TEMPLATE)
    with pytest.raises(CompileError):
        load_network(tmp_path, pedantic=True)
