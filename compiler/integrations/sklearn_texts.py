"""Finds RE2 expressions that split texts as scikit-learn's vectorizers do.

scikit-learn's token patterns are regular expressions of Python, whose `\\w` and `\\b` include letters of all languages.
ONNX's tokenizer uses RE2, in which they are ASCII; and skl2onnx writes `[a-zA-Z0-9_]+` for the default pattern, which
also matches words of one letter.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from nnefc.support.diagnostics import CompileError, warn

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import CountVectorizer

__all__ = ["token_expression"]

_LETTER = r"[\p{L}\p{N}_]"

_KNOWN = {
    r"\b\w\w+\b": _LETTER + "{2,}",
    r"\w\w+": _LETTER + "{2,}",
    r"\b\w+\b": _LETTER + "+",
    r"\w+": _LETTER + "+",
}
"""Patterns of Python without their flag for Unicode, which is on anyway, and RE2's that match the same."""

_DEPENDS = re.compile(r"\\[bBdDsSwW]")


def token_expression(vectorizer: CountVectorizer) -> str:
    """Return RE2's expression for the tokens of a vectorizer.

    Raises:
        CompileError: the vectorizer does something that ONNX's operators cannot express.
    """
    name = type(vectorizer).__name__
    if vectorizer.analyzer == "char":
        warn(f"{name} with analyzer='char': a run of white space counts as one space in scikit-learn, and not here")
        return "(?s)."
    if vectorizer.analyzer != "word":
        raise CompileError(
            f"{name} with analyzer={vectorizer.analyzer!r} cannot be converted to ONNX",
            hint="analyzer='word' can, and 'char'",
        )
    if vectorizer.stop_words and vectorizer.ngram_range[1] > 1:
        raise CompileError(
            f"{name} with stop_words and ngram_range={vectorizer.ngram_range} cannot be converted to ONNX: no operator "
            "leaves out words of a text",
            hint="train it without stop_words; max_df leaves out frequent words",
        )
    if vectorizer.tokenizer is not None or vectorizer.preprocessor is not None:
        what = "tokenizer" if vectorizer.tokenizer is not None else "preprocessor"
        raise CompileError(
            f"{name} with a {what} of its own cannot be converted to ONNX",
            hint="token_pattern says as a regular expression what a token is",
        )
    pattern = vectorizer.token_pattern
    if (known := _KNOWN.get(pattern.removeprefix("(?u)"))) is not None:
        return known
    if _DEPENDS.search(pattern):
        warn(
            f"{name}: the token_pattern {pattern!r} is matched by RE2's rules, whose classes and \\\\b know ASCII alone"
        )
    return str(pattern)
