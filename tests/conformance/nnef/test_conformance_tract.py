"""Small models of the kinds that tract's own harness has, compared with tract."""

from __future__ import annotations

import nnef_exchange
import pytest
from models.tract_cases import CASES

QUICK = ("conv-then-shape-of-mask", "gru-seq-projected", "tile-with-tdim", "submodel")
"""Of symbols, sizes that are calculated with, a recurrent layer, and a model inside another one."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK)) for name in CASES])
@pytest.mark.sample(2)
def test_small_models_compute_what_tract_computes(name: str) -> None:
    assert nnef_exchange.case(CASES[name]) == nnef_exchange.AGREES
