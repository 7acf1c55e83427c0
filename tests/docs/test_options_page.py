"""The page of options is made from their documentation in the code."""

from __future__ import annotations

import options


def test_the_page_of_options_is_what_the_code_says() -> None:
    assert options.PAGE.read_text() == options.page(), "run: python docs/options.py"
