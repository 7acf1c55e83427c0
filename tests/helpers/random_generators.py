"""Random generators of test modules, which give each test the same numbers whatever runs before it."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

_TESTS = Path(__file__).parents[1]


class ModuleGenerators:
    """The generators that are globals of imported test modules, with the states that they have after collection."""

    def __init__(self) -> None:
        """There are none before the tests are collected."""
        self._states: list[tuple[Any, Any]] = []

    def find(self) -> None:
        """Looks for generators in the modules that are imported, and keeps their states."""
        modules = [vars(module) for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
        of_tests = [found for found in modules if _TESTS in Path(found.get("__file__") or "/").parents]
        made = [each for found in of_tests for each in found.values() if isinstance(each, np.random.Generator)]
        self._states = [(each.bit_generator, each.bit_generator.state) for each in made]

    def restore(self) -> None:
        """Sets their states back."""
        for generator, state in self._states:
            generator.state = state
