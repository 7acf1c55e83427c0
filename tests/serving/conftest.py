"""Compiled networks that the tests of serving share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    from served_networks import LOOKUP, MIXED, ROWS, TEXT, library, types_text

    folder = tmp_path_factory.mktemp("served")
    return {
        name: library(text, folder)
        for name, text in (
            ("rows", ROWS),
            ("mixed", MIXED),
            ("lookup", LOOKUP),
            ("text", TEXT),
            ("types", types_text()),
        )
    }


@pytest.fixture(scope="session")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray]]:
    """A library of a language model, and its numbers by name."""
    from served_texts import write_library

    folder = tmp_path_factory.mktemp("text")
    values = write_library(folder)
    return folder / "m.so", values


@pytest.fixture(scope="session")
def text_library(text_model: tuple[Path, dict[str, np.ndarray]]) -> Path:
    return text_model[0]
