"""Compiled networks that the tests of serving share."""

from __future__ import annotations

from pathlib import Path

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
