"""Texts that end at a stop string."""

from __future__ import annotations

import random

from nnefc.chat.stopping import until_stopped


def test_parts_end_before_the_first_stop_string() -> None:
    choice = random.Random(1)
    for _ in range(500):
        text = "".join(choice.choice("ab\n") for _ in range(choice.randrange(20)))
        stop = [
            "".join(choice.choice("ab\n") for _ in range(choice.randrange(1, 4))) for _ in range(choice.randrange(3))
        ]
        cuts = sorted(choice.randrange(len(text) + 1) for _ in range(choice.randrange(5)))
        parts = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        end = min((at for each in stop if (at := text.find(each)) >= 0), default=len(text))
        assert "".join(until_stopped(parts, stop)) == text[:end], (parts, stop)


def test_what_cannot_be_a_stop_string_is_not_held_back() -> None:
    assert list(until_stopped(["ab", "c\n", "d"], ["\n\n"])) == ["ab", "c", "\nd"]
