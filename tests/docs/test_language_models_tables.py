"""The tables of the page on language models are those of the code."""

from __future__ import annotations

import language_models_page


def test_the_tables_of_types_and_architectures_are_those_of_the_code() -> None:
    assert language_models_page.PAGE.read_text() == language_models_page.page(), (
        "run: python docs/language_models_page.py"
    )
