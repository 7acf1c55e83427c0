"""Changes documents of JSON by their structure: another value somewhere, or a part that is missing."""

from __future__ import annotations

import json
from random import Random
from typing import Any

__all__ = ["changed_document"]

_VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 1 << 31, 1 << 70, 0.5, float("nan"), float("inf"), "", "a", "\ud800", "(", "[^a]",
    "a{9}", r"\p{L}+", "x" * 300, [], [[]], {}, {"type": "Sequence"}, {"String": " "}, {"Regex": "a|b"}, [1, 2],
    ["a", "b"],
)  # fmt: skip


def changed_document(content: bytes, random: Random) -> bytes:
    """The document with up to three other values.

    Raises:
        ValueError: the content is no JSON.
    """
    document = json.loads(content)
    for _ in range(random.randint(1, 3)):
        document = _changed(document, random)
    return json.dumps(document).encode()


def _changed(value: Any, random: Random) -> Any:
    """The value with another one somewhere in it, or without a part."""
    keys: list[Any] = list(value) if isinstance(value, dict) else []
    keys = list(range(len(value))) if isinstance(value, list) else keys
    if not keys or random.random() < 0.1:
        return random.choice(_VALUES)
    key, own = random.choice(keys), value.copy()
    if random.random() < 0.05:
        del own[key]
    else:
        own[key] = _changed(own[key], random)
    return own
