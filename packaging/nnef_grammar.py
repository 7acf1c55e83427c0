"""Generates `grammar.json`, the tables of the LALR(1) parser, from `grammar.lark`.

    python packaging/nnef_grammar.py

writes them again, after a change of the grammar. It needs lark, which reading NNEF does not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import lark
from lark.grammar import Rule as LarkRule
from lark.grammar import Terminal
from lark.parsers.lalr_analysis import Shift

from nnefc.frontends.nnef.language.tables import TABLES, Production, Tables

__all__ = ["made_tables", "text_of"]

GRAMMAR = TABLES.with_name("grammar.lark")
STARTS = ("document", "fragment")


def made_tables() -> Tables:
    """The tables of the grammar, numbered in the order in which the machine can come to its states."""
    parser = lark.Lark(GRAMMAR.read_text(encoding="utf-8"), start=list(STARTS), parser="lalr", lexer="basic")
    table = parser.parser.parser._parse_table  # lark's own name: it has no public one
    numbers = _numbers(table.states, (table.start_states[name] for name in STARTS))
    rules: dict[Production, int] = {}
    states: list[dict[str, int]] = []
    for state in numbers:
        steps = sorted(table.states[state].items())
        states.append(
            {
                symbol: numbers[to] if action is Shift else ~rules.setdefault(_rule(to), len(rules))
                for symbol, (action, to) in steps
            }
        )
    return Tables(
        terminals={terminal.pattern.value: terminal.name for terminal in parser.terminals},
        start={name: (numbers[table.start_states[name]], numbers[table.end_states[name]]) for name in STARTS},
        rules=tuple(rules),
        states=tuple(states),
    )


def _numbers(states: dict[int, dict[str, Any]], first: Iterable[int]) -> dict[int, int]:
    """New numbers of the states, breadth first, by lark's."""
    numbers: dict[int, int] = {}
    waiting = list(first)
    for state in waiting:
        if state in numbers:
            continue
        numbers[state] = len(numbers)
        waiting += [to for _, (action, to) in sorted(states[state].items()) if action is Shift]
    return numbers


def _rule(rule: LarkRule) -> Production:
    """The rule with what lark's options say of its children: signs in quotes are none, brackets give a None."""
    name, right = str(rule.origin.name), rule.expansion
    left_out = rule.options.empty_indices or (False,) * len(right)
    indices = iter(range(len(right)))
    children: list[int | None] = []
    for empty in left_out:
        if empty:
            children.append(None)
            continue
        index = next(indices)
        symbol = right[index]
        if isinstance(symbol, Terminal):
            if not symbol.filter_out:
                children.append(index)
        else:
            children.append(~index if symbol.name.startswith("_") else index)
    if name.startswith("_"):
        return Production(name, len(right), "", tuple(children))
    if rule.options.expand1 and not rule.alias:
        assert len(children) == 1, f"a rule with ? has one child or another name: {rule}"
        return Production(name, len(right), None, tuple(children))
    return Production(name, len(right), str(rule.alias or name), tuple(children))


def text_of(tables: Tables) -> str:
    """The tables as JSON, a state or rule a line."""

    def lines(rows: Iterable[object]) -> str:
        return ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)

    return (
        f'{{"terminals": {json.dumps(tables.terminals)},\n"start": {json.dumps(tables.start)},\n'
        f'"rules": [\n{lines(tables.rules)}\n],\n"states": [\n{lines(tables.states)}\n]}}\n'
    )


if __name__ == "__main__":
    TABLES.write_text(text_of(made_tables()), encoding="utf-8")
