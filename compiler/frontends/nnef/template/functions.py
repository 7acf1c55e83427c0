"""What templates can call: filters, tests and functions, as minijinja has them.

{{ config.sizes | map(attribute="width") | sum }}    {{ i is divisibleby 2 }}    {% for i in range(4) %}
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from nnefc.frontends.nnef.template.values import (
    MAX_ITEMS,
    UNDEFINED,
    Budget,
    Namespace,
    Refused,
    Undefined,
    equal,
    items_of,
    kind_of,
    order,
    truth,
    written,
)

__all__ = ["FUNCTIONS", "filtered", "item_of", "tested"]

_MOST_OF_RANGE = 100_000
"""What minijinja has as a limit, too."""


def filtered(name: str, value: Any, arguments: list[Any], named: Mapping[str, Any], budget: Budget) -> Any:
    """The value of a filter.

    Raises:
        Refused: there is no such filter, or it does not take such values.
    """
    if name in ("map", "select", "reject", "selectattr", "rejectattr"):
        return _each(name, value, arguments, named, budget)
    if name not in _FILTERS:
        raise Refused(
            f"there is no filter '{name}': there are {', '.join(sorted([*_FILTERS, 'map', 'select', 'reject']))}"
        )
    budget.weigh(value, *arguments, *named.values())
    return _checked(_called(_FILTERS[name], f"the filter '{name}'", value, *arguments, **named), budget)


def tested(name: str, value: Any, arguments: list[Any]) -> bool:
    """Whether a test holds, likewise."""
    if name not in _TESTS:
        raise Refused(f"there is no test '{name}': there are {', '.join(sorted(_TESTS))}")
    return bool(_called(_TESTS[name], f"the test '{name}'", value, *arguments))


def _called(function: Callable[..., Any], what: str, *arguments: Any, **named: Any) -> Any:
    try:
        return function(*arguments, **named)
    except (TypeError, ValueError, AttributeError, OverflowError, KeyError, ZeroDivisionError):
        raise Refused(f"{what} does not take these values") from None


def _checked(made: Any, budget: Budget) -> Any:
    if isinstance(made, str | list):
        if len(made) > MAX_ITEMS:
            raise Refused(f"{kind_of(made)} of more than {MAX_ITEMS} items")
        budget.spend(len(made) >> 4)
    return made


def item_of(value: Any, key: Any) -> Any:
    """`value[key]` or `value.key`; undefined if there is none.

    Raises:
        Refused: of what is undefined itself.
    """
    match value:
        case Undefined():
            raise Refused(f"'{written(key)}' of what is undefined")
        case dict():
            return value.get(key, UNDEFINED) if isinstance(key, str | int | float | bool | None) else UNDEFINED
        case Namespace():
            return value.items.get(key, UNDEFINED)
        case list() | str() if isinstance(key, int) and not isinstance(key, bool):
            return value[key] if -len(value) <= key < len(value) else UNDEFINED
    return UNDEFINED


def _path(value: Any, path: Any) -> Any:
    """What is at `a.b.0` of a value."""
    for part in path.split(".") if isinstance(path, str) else [path]:
        value = item_of(value, int(part) if isinstance(part, str) and part.isdigit() else part)
    return value


def _each(name: str, value: Any, arguments: list[Any], named: Mapping[str, Any], budget: Budget) -> list[Any]:
    """`map`, and what keeps some items of a list."""
    items = items_of(value, budget)
    rest = list(arguments)
    if name == "map":
        if "attribute" in named:
            default = named.get("default", UNDEFINED)
            found = (_path(item, named["attribute"]) for item in items)
            return [default if each is UNDEFINED else each for each in found]
        if not rest or not isinstance(rest[0], str):
            raise Refused("'map' needs the name of a filter or attribute=NAME")
        return [filtered(rest[0], item, rest[1:], named, budget) for item in items]
    key = rest.pop(0) if name.endswith("attr") and rest else None
    test = rest.pop(0) if rest else None
    wanted = name.startswith("select")

    def holds(item: Any) -> bool:
        seen = item if key is None else _path(item, key)
        return truth(seen) if test is None else tested(str(test), seen, rest)

    budget.weigh(items)
    return [item for item in items if holds(item) == wanted]


def _items(value: Any) -> list[Any]:
    return items_of(value, Budget(MAX_ITEMS, 0))


def _text(value: Any) -> str:
    return written(value)


def _integer(value: Any) -> int:
    made = float(value) if isinstance(value, str) and not value.strip().lstrip("+-").isdigit() else value
    return int(made)


def _rounded(value: float, precision: int = 0) -> float:
    """Halves are rounded away from zero; integers stay such."""
    if isinstance(value, int):
        return value
    scaled = value * 10.0**precision
    return math.copysign(math.floor(abs(scaled) + 0.5), scaled) / 10.0**precision


def _replaced(value: Any, old: Any, new: Any) -> str:
    text, one, other = _text(value), _text(old), _text(new)
    if len(text) + text.count(one) * len(other) > MAX_ITEMS:
        raise Refused("the text is too long")
    return text.replace(one, other)


def _indented(value: Any, width: int, first: bool = False, blank: bool = False) -> str:
    lines = _text(value).split("\n")
    if not 0 <= width * len(lines) <= MAX_ITEMS:
        raise Refused("the text is too long")
    return "\n".join(" " * width + line if (i or first) and (line or blank) else line for i, line in enumerate(lines))


def _joined(value: Any, between: str = "", attribute: Any = None) -> str:
    items = _items(value)
    texts = [_text(item if attribute is None else _path(item, attribute)) for item in items]
    if sum(map(len, texts)) + len(between) * len(texts) > MAX_ITEMS:
        raise Refused("the text is too long")
    return between.join(texts)


def _sorted(value: Any, reverse: bool = False, attribute: Any = None, case_sensitive: bool = False) -> list[Any]:
    def key(item: Any) -> Any:
        seen = item if attribute is None else _path(item, attribute)
        return order(seen.lower() if isinstance(seen, str) and not case_sensitive else seen)

    return sorted(_items(value), key=key, reverse=truth(reverse))


def _unique(value: Any, attribute: Any = None, case_sensitive: bool = False) -> list[Any]:
    found: dict[Any, Any] = {}
    for item in _items(value):
        seen = item if attribute is None else _path(item, attribute)
        found.setdefault(order(seen.lower() if isinstance(seen, str) and not case_sensitive else seen), item)
    return list(found.values())


def _grouped(value: Any, attribute: Any) -> list[Any]:
    items = sorted(_items(value), key=lambda item: order(_path(item, attribute)))
    groups = itertools.groupby(items, key=lambda item: order(_path(item, attribute)))
    return [[_path(own[0], attribute), own] for own in (list(group) for _, group in groups)]


def _batched(value: Any, count: int, fill: Any = UNDEFINED) -> list[Any]:
    items = _items(value)
    if not 1 <= count <= MAX_ITEMS:
        raise Refused("'batch' needs a count above 0")
    rows = [items[i : i + count] for i in range(0, len(items), count)]
    if rows and fill is not UNDEFINED:
        rows[-1] += [fill] * (count - len(rows[-1]))
    return rows


def _sliced(value: Any, count: int, fill: Any = UNDEFINED) -> list[Any]:
    items = _items(value)
    if not 1 <= count <= _MOST_OF_RANGE:
        raise Refused("'slice' needs a count above 0")
    least, more = divmod(len(items), count)
    begins = [i * least + min(i, more) for i in range(count + 1)]
    rows = [items[begin:end] for begin, end in itertools.pairwise(begins)]
    return rows if fill is UNDEFINED else [row + [fill] * (least + bool(more) - len(row)) for row in rows]


def _pairs(value: dict[Any, Any]) -> list[Any]:
    if not isinstance(value, dict):
        raise Refused(f"{kind_of(value)} has no pairs")
    return [[key, item] for key, item in value.items()]


def _by_keys(value: dict[Any, Any], by: str = "key", reverse: bool = False, case_sensitive: bool = False) -> list[Any]:
    place = {"key": 0, "value": 1}[by]
    found = _pairs(value)
    lowered = [
        pair[place].lower() if isinstance(pair[place], str) and not case_sensitive else pair[place] for pair in found
    ]
    ranked = sorted(range(len(found)), key=lambda i: order(lowered[i]), reverse=truth(reverse))
    return [found[i] for i in ranked]


def _summed(value: Any) -> Any:
    items = _items(value)
    if any(isinstance(item, bool) or not isinstance(item, int | float) for item in items):
        raise Refused("'sum' needs numbers")
    return sum(items)


def _extreme(function: Callable[..., Any], value: Any) -> Any:
    return function(_items(value), key=order, default=UNDEFINED)


def _default(value: Any, other: Any = "", boolean: bool = False) -> Any:
    return other if value is UNDEFINED or (truth(boolean) and not truth(value)) else value


def _reversed(value: Any) -> Any:
    return value[::-1] if isinstance(value, str) else _items(value)[::-1]


def _length(value: Any) -> int:
    if not isinstance(value, str | list | dict):
        raise Refused(f"{kind_of(value)} has no length")
    return len(value)


def _json(value: Any, indent: Any = None) -> str:
    return json.dumps(
        _plain(value), ensure_ascii=False, separators=(",", ":") if not indent else None, indent=indent or None
    )


def _plain(value: Any) -> Any:
    match value:
        case Undefined():
            return None
        case list():
            return [_plain(item) for item in value]
        case dict():
            return {str(key): _plain(item) for key, item in value.items()}
        case str() | int() | float() | None:
            return value
    raise Refused(f"{kind_of(value)} is not in JSON")


def _split(value: str, between: Any = None, most: int = -1) -> list[str]:
    return value.split(between, most) if between != "" else list(value)


_FILTERS: Mapping[str, Callable[..., Any]] = {
    "abs": lambda x: abs(x) if not isinstance(x, bool) else x,
    "attr": item_of,
    "batch": _batched,
    "bool": truth,
    "capitalize": lambda x: _text(x).capitalize(),
    "chain": lambda x, *more: [each for one in (x, *more) for each in _items(one)],
    "count": _length,
    "d": _default,
    "default": _default,
    "dictsort": _by_keys,
    "first": lambda x: next(iter(_items(x)), UNDEFINED),
    "float": float,
    "groupby": _grouped,
    "indent": _indented,
    "int": _integer,
    "items": _pairs,
    "join": _joined,
    "last": lambda x: next(reversed(_items(x)), UNDEFINED),
    "length": _length,
    "lines": lambda x: _text(x).splitlines(),
    "list": _items,
    "lower": lambda x: _text(x).lower(),
    "max": partial(_extreme, max),
    "min": partial(_extreme, min),
    "pprint": lambda x: written(x, inside=True),
    "replace": _replaced,
    "reverse": _reversed,
    "round": _rounded,
    "safe": lambda x: x,
    "slice": _sliced,
    "sort": _sorted,
    "split": _split,
    "string": _text,
    "sum": _summed,
    "title": lambda x: _text(x).title(),
    "tojson": _json,
    "trim": lambda x, signs=None: _text(x).strip(signs),
    "unique": _unique,
    "upper": lambda x: _text(x).upper(),
    "zip": lambda x, *more: [list(row) for row in zip(*map(_items, (x, *more)), strict=False)],
}


def _is_number(x: Any) -> bool:
    return isinstance(x, int | float) and not isinstance(x, bool)


def _is_integer(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool)


_TESTS: Mapping[str, Callable[..., bool]] = {
    "boolean": lambda x: isinstance(x, bool),
    "containing": lambda x, y: any(equal(y, item) for item in x) if not isinstance(x, str) else y in x,
    "defined": lambda x: x is not UNDEFINED,
    "divisibleby": lambda x, y: _is_integer(x) and x % y == 0,
    "endingwith": lambda x, y: x.endswith(y),
    "eq": equal,
    "equalto": equal,
    "==": equal,
    "even": lambda x: _is_integer(x) and x % 2 == 0,
    "false": lambda x: x is False,
    "float": lambda x: isinstance(x, float),
    "ge": lambda x, y: order(x) >= order(y),
    ">=": lambda x, y: order(x) >= order(y),
    "gt": lambda x, y: order(x) > order(y),
    "greaterthan": lambda x, y: order(x) > order(y),
    ">": lambda x, y: order(x) > order(y),
    "in": lambda x, y: x in y if isinstance(y, str) else any(equal(x, item) for item in y),
    "integer": _is_integer,
    "iterable": lambda x: isinstance(x, list | dict | str),
    "le": lambda x, y: order(x) <= order(y),
    "<=": lambda x, y: order(x) <= order(y),
    "lessthan": lambda x, y: order(x) < order(y),
    "lower": lambda x: isinstance(x, str) and x == x.lower(),
    "lt": lambda x, y: order(x) < order(y),
    "<": lambda x, y: order(x) < order(y),
    "mapping": lambda x: isinstance(x, dict),
    "ne": lambda x, y: not equal(x, y),
    "!=": lambda x, y: not equal(x, y),
    "none": lambda x: x is None,
    "number": _is_number,
    "odd": lambda x: _is_integer(x) and x % 2 == 1,
    "sameas": lambda x, y: x is y or (type(x) is type(y) and not isinstance(x, list | dict) and x == y),
    "sequence": lambda x: isinstance(x, list),
    "startingwith": lambda x, y: x.startswith(y),
    "string": lambda x: isinstance(x, str),
    "true": lambda x: x is True,
    "undefined": lambda x: x is UNDEFINED,
    "upper": lambda x: isinstance(x, str) and x == x.upper(),
}


def _range(*limits: int) -> list[int]:
    made = range(*limits)
    if len(made) > _MOST_OF_RANGE:
        raise Refused(f"a range of more than {_MOST_OF_RANGE} numbers")
    return list(made)


def _namespace(given: dict[str, Any] | None = None, **named: Any) -> Namespace:
    return Namespace({**(given or {}), **named})


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "dict": lambda given=None, **named: {**(given or {}), **named},
    "namespace": _namespace,
    "range": _range,
}
"""The names that are always there."""
