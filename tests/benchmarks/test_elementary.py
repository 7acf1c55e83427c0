"""The page on errors of elementary functions: what counts as an error, and that functions have few."""

import numpy as np
import pytest

pytest.importorskip("scipy")

from elementary import Errors, measured


def test_errors_have_units_of_the_exact_result() -> None:
    errors = Errors()
    x = np.array([1, 2, 3, 4, 5, 6], np.float32)
    exact = np.array([1.0, 4.0 + 2.0**-22, 1e-44, np.inf, np.nan, np.inf])
    errors.add(x, np.array([1 + 2.0**-22, 4, 0, 5, 1, np.inf], np.float32), exact)
    assert (errors.largest, errors.at, errors.count, errors.rounded) == (2.0, 1.0, 2, 1)
    assert errors.total == 2.5
    assert errors.beyond == 2  # finite where the exact result is infinite, and where it is no number


def test_functions_err_in_the_last_positions() -> None:
    found = measured(("Exp", "Log", "Tanh", "Atanh"), every=1 << 12)
    assert all(errors.largest < 8 and not errors.beyond for errors in found.values())
