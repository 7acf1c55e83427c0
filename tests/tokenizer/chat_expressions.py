"""Random chat templates of a grammar of what programs know."""

from __future__ import annotations

import random
from typing import Any

_VALUES: tuple[Any, ...] = (
    *(0, 1, -3, 7, 2.5, True, False, None, "", "a", "Hello World", " x ", "é🙂Σ", [], [1, 2, 3], ["b", "A", "c"]),
    *([[1], [2, 3]], {}, {"a": 1, "b": "x"}, {"name": "n", "items": [1]}),
    [{"r": "u", "n": 1}, {"r": "v", "n": 2}, {"r": "u"}],
)
_FILTERS = (
    *("trim", "length", "upper", "lower", "title", "capitalize", "first", "last", "list", "tojson", "string", "int"),
    *("float", "join", "join('-')", "join(', ', attribute='r')", "default('d')", "default('d', true)", "sort", "count"),
    *("unique | list", "reverse | list", "map('string') | list", "map(attribute='r') | list", "select | list", "abs"),
    *("selectattr('n') | list", "rejectattr('r', 'equalto', 'u') | list", "select('string') | list", "dictsort", "sum"),
    *("replace('a', 'zz')", "indent(2)", "items | list", "tojson(indent=2)"),  # words: allowed
)
_TESTS = (
    *(
        "defined",
        "none",
        "string",
        "mapping",
        "sequence",
        "iterable",
        "number",
        "boolean",
        "true",
        "false",
        "odd",
        "even",
    ),
    *("integer", "eq 1", "in [1, 'a']", "gt 1", "undefined", "float", "divisibleby 2"),
)
_METHODS = (
    *(
        "strip()",
        "lstrip()",
        "rstrip('x ')",
        "split()",
        "split('l')",
        "split(' ', 1)",
        "upper()",
        "lower()",
        "append(1)",
    ),
    *("startswith('a')", "endswith('')", "replace('l', 'L')", "find('o')", "items() | list"),  # words: allowed
    *(
        "keys() | list",
        "values() | list",
        "get('a')",
        "get('q', 3)",
        "capitalize()",
        "splitlines()",
        "count('l')",
        "rsplit('l', 1)",
    ),
)
_OPERATORS = ("+", "-", "*", "/", "//", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or")
_SLICES = (
    *("[0]", "[-1]", "[1:]", "[:-1]", "[::-1]", "['a']", "['nope']", "[::2]", "[5:1:-2]", "[:2]", ".a", ".n", ".name"),
)
_LOOP = ("index", "index0", "first", "last", "length", "revindex", "previtem", "nextitem", "cycle(1, 2)")
_STATEMENTS = ("out", "out", "text", "set", "ns", "if", "for", "for", "block", "call", "with")
_EXPRESSIONS = (
    *("leaf", "leaf", "name", "name", "binary", "filter", "filter", "test", "method", "slice", "if", "list", "not"),
)
_LEAVES = ("1", "'a b'", "[1, 'x']", "none", "{'a': 2}", "2.0", "true", "('x', 1)", "'l'")
_JUMPS = ("", "", "{% if loop.index == 2 %}{% break %}{% endif %}", "{% if loop.first %}{% continue %}{% endif %}")
_DEPTH = 3


class RandomTemplates:
    """Makes a template from a seed."""

    def __init__(self, seed: str) -> None:
        self._random = random.Random(seed)
        self._names = ["v0", "v1", "v2", "v3", "nope", "messages", "bos_token"]
        self._loops = 0

    def template(self) -> tuple[str, dict[str, Any]]:
        """Returns a template, and values for its variables."""
        variables = {f"v{number}": self._random.choice(_VALUES) for number in range(4)}
        head = "{% set ns = namespace(a=1) %}{% macro mac(p, q='d') %}<{{ p }}{{ q }}>{% endmacro %}"
        return head + self._body(_DEPTH), variables

    def _body(self, depth: int) -> str:
        return "".join(self._statement(depth) for _ in range(self._random.randint(1, 2)))

    def _statement(self, depth: int) -> str:
        choose, expression, body = self._random.choice, self._expression, self._body
        match choose(_STATEMENTS) if depth else "out":
            case "out":
                return "{{ " + expression(depth) + " }}"
            case "text":
                return choose((" x ", "\n", "  \n  ", "é"))
            case "set":
                return "{% set " + choose(self._names[:5]) + " = " + expression(depth) + " %}"
            case "ns":
                return "{% set ns." + choose("ab") + " = " + expression(depth) + " %}{{ ns.a }}{{ ns.b }}"
            case "if":
                last = "{% else %}" + body(depth - 1) if choose((True, False)) else ""
                middle = "{% elif " + expression(1) + " %}" + body(depth - 1) if choose((True, False)) else ""
                return "{% if " + expression(depth) + " %}" + body(depth - 1) + middle + last + "{%- endif %}"
            case "block":
                return "{% set " + choose(self._names[:4]) + " %}" + body(depth - 1) + "{% endset %}"
            case "call":
                return "{{ mac(" + expression(1) + ", q=" + expression(1) + ") }}"
            case "with":
                return "{% with v1 = " + expression(1) + " %}" + body(depth - 1) + "{% endwith %}"
        return self._for(depth)

    def _for(self, depth: int) -> str:
        name, choose = f"e{self._loops}", self._random.choice
        self._loops += 1
        over = choose((f"({self._expression(1)} | string)", "v0 or []", "[1, 2, v1]", "range(4)", "'abc'", "messages"))
        self._names.append(name)
        test = choose(("", f" if {name}", f" if {name} is string", f" if {name} is not none"))
        body = choose(_JUMPS) + "{{ loop." + choose(_LOOP) + " }}" + self._body(depth - 1)
        self._names.remove(name)
        last = choose(("", "{% else %}none"))
        return "{% for " + name + " in " + over + test + " %}" + body + last + "{% endfor %}"

    def _expression(self, depth: int) -> str:
        choose = self._random.choice
        kind = choose(_EXPRESSIONS)
        if depth == 0 or kind == "leaf":
            return choose(_LEAVES)
        inner = self._expression(depth - 1)
        match kind:
            case "name":
                return choose(self._names)
            case "binary":
                return f"({inner} {choose(_OPERATORS)} {self._expression(depth - 1)})"
            case "filter":
                return f"({inner} | {choose(_FILTERS)})"
            case "test":
                return f"({inner} is {choose(_TESTS)})"
            case "method":
                return f"({inner}).{choose(_METHODS)}"
            case "slice":
                return f"({inner} if v0 is defined else nope){choose(_SLICES)}"  # not of a constant: Jinja2 folds it
            case "if":
                return f"({inner} if {self._expression(depth - 1)} else {self._expression(depth - 1)})"
            case "list":
                return f"[{inner}, {self._expression(depth - 1)}]"
        return f"(not {inner})"
