"""The check of words: which it finds, which it allows, and that this repository has no more of them than before."""

from __future__ import annotations

import pytest
import words


def names(text: str) -> list[str]:
    return [use.word.name for use in words.found("file.py", text)]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("the items of a tensor", "item"),
        ("class RepeatItems:", "item"),
        ("_MOST_COLUMNS = 3", "least, most (bounds)"),
        ("MOST_ITEMS_OF = 3", "item"),
        ("# sizes in half\n# floats", "half float"),
        ("is_half_float", "half float"),
        ("What is no\nnumber stays", "what is no number"),
        ("with_added_roundings", "added roundings"),
        ("def own_sizes() -> None:", "own sizes"),
    ],
)
def test_words_are_found_in_names_and_prose(text: str, name: str) -> None:
    assert name in names(text)


@pytest.mark.parametrize(
    "text",
    [
        "for key, value in table.items():",
        "array.item()",
        "relax.TupleGetItem(value, 0)",
        "at least two and at most three elements",
        "known sizes, interfaces, replaced, misplaced",
        "rewritten in place",
        "from huggingface_hub import Hugging_Face",
        "the picture of a library  # words: allowed",
    ],
)
def test_ordinary_english_and_the_names_of_others_are_allowed(text: str) -> None:
    assert names(text) == []


def test_a_use_has_its_line() -> None:
    (use,) = words.found("page.md", "one\ntwo\nthree pictures\n")
    assert (use.file, use.line, use.text) == ("page.md", 3, "three pictures")


@pytest.mark.slow
def test_no_word_occurs_more_often_than_it_may() -> None:
    assert words.main([]) == 0, "write the field's terms; packaging/words.py has the table"


def test_the_glossary_has_the_table() -> None:
    assert words.glossary() in words.GLOSSARY.read_text(encoding="utf-8"), "run: python packaging/words.py --update"
