"""Documents that are templates, filled in with the model's files in JSON: the language, and what limits it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

import nnefc
from nnefc.driver.formats import load_network, load_outline
from nnefc.driver.options import ReadOptions
from nnefc.frontends.nnef.files import template
from nnefc.frontends.nnef.files.template import is_template, rendered
from nnefc.support.diagnostics import CompileError

CONFIG = {
    "name": "net",
    "sizes": [3, 1, 2],
    "layers": [{"width": 8, "act": "relu"}, {"width": 4, "act": "tanh"}],
    "deep": {"a": {"b": [10, 20]}},
    "flag": True,
    "rate": 0.5,
    "odd": {"a b": 1, "text": '{{ "x" }}\n%}'},
    "nothing": None,
}


def filled(text: str) -> str:
    return rendered(text, "graph.nnef", {"config": CONFIG}.get)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{{ config.name }} {{ config['name'] }} {{ config.deep.a.b[1] }} {{ config.sizes }}", "net net 20 [3, 1, 2]"),
        ("{{ config.flag }} {{ config.nothing }} {{ config.rate }} {{ 2.0 }}", "true none 0.5 2.0"),
        ("[{{ missing }}] [{{ config.missing }}] {{ missing | default(4) }} {{ config is defined }}", "[] [] 4 true"),
        ("{{ config.odd['a b'] }} {{ config.odd.text }}", '1 {{ "x" }}\n%}'),
        ("{{ 7 // 2 }} {{ 8 / 2 }} {{ -7 // 2 }} {{ 2 ** 10 }} {{ 'a' ~ 1 }}", "3 4.0 -4 1024 a1"),
        ("{{ config.layers | map(attribute='width') | list }} {{ config.sizes | sort | join(' ') }}", "[8, 4] 1 2 3"),
        ("{% if config.rate > 1 %}a{% elif config.rate > 0.25 %}b{% else %}c{% endif %}", "b"),
        (
            "{% for l in config.layers %}{{ loop.index }}{{ l.act }}{{ ',' if not loop.last }}{% endfor %}",
            "1relu,2tanh",
        ),
        ("{% for x in range(9) %}{% if x == 4 %}{% break %}{% endif %}{{ x }}{% endfor %}", "0123"),
        ("{% set s = namespace(n=1) %}{% for x in [5] %}{% set s.n = s.n + x %}{% endfor %}{{ s.n }}", "6"),
        (
            "{% macro m(i, n=2) %}{{ i }}x{{ n }}{{ config.name }} {% endmacro %}{{ m(1) }}{{ m(n=3, i=0) }}",
            "1x2net 0x3net ",
        ),
        ("{% set config = 3 %}{{ config }} {% raw %}{{ x }}{% endraw %}{# note #}", "3 {{ x }}"),
        ("é  {{- 1 -}}  b\n", "é1b"),
    ],
)
def test_the_language(text: str, expected: str) -> None:
    assert filled(text) == expected


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("{% include 'x' %}", 4, 'non-existing template "x"'),
        ("{% wat %}", 4, "unknown statement wat"),
        ("é {{ missing.x }}", 6, "not defined"),
        ("{{ config.name | wat }}", 18, "filter wat is unknown"),
        ("{% for x in config.rate %}{% endfor %}", 13, "number is not iterable"),
        ("{{ 1 + }}", 8, "unexpected end of variable block"),
        ("{% if 1 %}", 9, "expected end of block"),
    ],
)
def test_mistakes_have_a_location_and_a_reason(text: str, column: int, message: str) -> None:
    with pytest.raises(CompileError, match=re.escape(message)) as error:
        filled(f"first line\n{text}")
    position = error.value.location
    assert position is not None
    assert (position.line, position.column) == (2, column)


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
def test_hostile_templates_are_refused_soon(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(template, "_SECONDS", 0.2)
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
    with pytest.raises(CompileError, match="not defined"):
        load_network(folder)


def test_templates_are_no_nnef_to_the_pedantic(tmp_path: Path) -> None:
    (tmp_path / "graph.nnef").write_text(TEMPLATE)
    with pytest.raises(CompileError):
        load_network(tmp_path, ReadOptions(pedantic=True))
