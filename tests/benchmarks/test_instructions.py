"""How loops are found among the blocks of code that an emulator executes."""

from __future__ import annotations

from instructions import _iterations

_ADD, _RET = 0x91000400, 0xD65F03C0
_BACK_BY_TWO, _BACK_BY_THREE, _ON = 0x54FFFFC1, 0xB5FFFFA0, 0x54000041  # b.ne -8, cbnz -12, b.ne +8


def code(*words: int) -> bytes:
    return b"".join(word.to_bytes(4, "little") for word in words)


def test_a_loop_is_what_ends_with_a_branch_to_its_beginning() -> None:
    body = code(_ADD, _ADD, _BACK_BY_TWO)
    blocks = {0x100: (code(_ADD) + body, 3), 0x104: (body, 40), 0x110: (code(_RET), 3), 0x200: (code(_ADD, _ON), 9)}
    assert dict(_iterations(blocks)) == {body: 43}  # three of them at once after what leads there


def test_a_loop_may_be_executed_in_several_blocks_as_at_the_end_of_a_page() -> None:
    first, second = code(_ADD, _ADD), code(_ADD, _BACK_BY_THREE)
    assert dict(_iterations({0x100: (first, 7), 0x108: (second, 8)})) == {first + second: 7}
    assert dict(_iterations({0xF8: (first + first, 2), 0x100: (first, 7), 0x108: (second, 9)})) == {first + second: 9}
    assert not _iterations({0x100: (first, 7), 0x108: (second, 5)})  # something else leads there
