"""Every estimator and transformer of scikit-learn that skl2onnx converts, in both types of floats.

python tests/integrations/test_sklearn_all.py [NAME...]

writes the table of docs/sklearn.md, or its rows of these classes again.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("skl2onnx")

from sklearn_cases import TRAINED, classes, trained

import nnefc
import nnefc.sklearn

PAGE = Path(__file__).parents[2] / "docs" / "sklearn.md"
HEAD = "| class | float32 | float64 | |\n|---|---|---|---|\n"
TYPES = (np.float32, np.float64)


def cells(made: type) -> tuple[str, str, str]:
    """Returns what a library computes of an estimator in each type, and a note.

    Raises:
        AssertionError: a method gives something else than the original, on samples of training or on others.
    """
    computed, notes = [], []
    for dtype in TYPES:
        estimator, samples = trained(made, dtype)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compiled = nnefc.sklearn.compile(estimator, samples[:TRAINED], threads=1)
        except nnefc.CompileError as error:
            computed.append("refused")
            notes.append(_first_line(error))
            continue
        for method in compiled.methods:
            wanted, found = getattr(estimator, method)(samples), getattr(compiled, method)(samples)
            for one, other in zip(_parts(wanted), _parts(found), strict=True):
                _check(other, one)
        computed.append(", ".join(compiled.methods))
        if compiled.others:
            notes.append(f"{', '.join(compiled.others)} is the result of no method")
    return computed[0], computed[1], "; ".join(dict.fromkeys(notes))


def _first_line(error: nnefc.CompileError) -> str:
    words = " ".join(error.message.split())
    return re.sub(r"/\S*/", "", words)[:160].replace("|", "/")


def _parts(result: Any) -> list[np.ndarray]:
    parts = result if isinstance(result, list | tuple) else [result]
    return [np.asarray(part.toarray() if hasattr(part, "toarray") else part) for part in parts]


def _check(found: np.ndarray, wanted: np.ndarray) -> None:
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype)
    if wanted.dtype.kind in "OUS":
        np.testing.assert_array_equal(found, wanted)
    else:
        scale = float(np.max(np.abs(wanted), initial=1e-30))
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-3 * scale)


def rows() -> dict[str, tuple[str, str, str]]:
    """Returns the rows of the page's table by class."""
    lines = (line.split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| `"))
    return {one[0][3:-1]: (one[1], one[2], one[3].removesuffix("|").strip()) for one in lines}


def _lines(found: dict[str, tuple[str, str, str]]) -> Iterator[str]:
    for name, (single, double, note) in sorted(found.items()):
        yield f"| `{name}` | {single} | {double} | {note} |".replace("|  |", "| |")


def test_the_page_has_all_classes() -> None:
    assert sorted(rows()) == sorted(classes()), "python tests/integrations/test_sklearn_all.py writes it"


@pytest.mark.parametrize("name", classes())
@pytest.mark.sample(4)
def test_methods_are_those_of_the_page_and_give_what_the_original_gives(name: str) -> None:
    assert cells(classes()[name]) == rows()[name], f"python tests/integrations/test_sklearn_all.py {name} writes it"


if __name__ == "__main__":
    names = sys.argv[1:]
    found = rows() if names else {}
    for each in names or classes():
        found[each] = cells(classes()[each])
        print(each, *found[each], sep=" | ", flush=True)
    text = PAGE.read_text(encoding="utf-8")
    before, _, _ = text.partition(HEAD)
    PAGE.write_text(before + HEAD + "\n".join(_lines(found)) + "\n", encoding="utf-8")
