"""The page of mistakes has what the command line says to them now."""

from __future__ import annotations

import re

import common_errors


def messages(page: str) -> list[str]:
    """The page without what click says in words of its own, which differ from version to version."""
    return [line for line in page.splitlines() if not re.match("Usage: |Try |Error: |$", line)]


def test_the_page_of_mistakes_is_what_is_reported_of_them() -> None:
    assert sum(map(len, common_errors.MISTAKES.values())) >= 40
    assert messages(common_errors.PAGE.read_text()) == messages(common_errors.page()), (
        "run: python docs/common_errors.py"
    )
