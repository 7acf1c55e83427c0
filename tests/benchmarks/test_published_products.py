"""Published measurements of products stand as their sources have them, and above what the models take for possible."""

from __future__ import annotations

import pytest
from published import MEASURED, Measured, compare


def of(library: str, *sizes: int) -> Measured:
    return next(
        each for each in MEASURED if each.source.library == library and (each.rows, each.columns, each.depth) == sizes
    )


def test_times_and_bandwidths_that_sources_give_too() -> None:
    assert of("CUTLASS", 3456, 4096, 8192).us == pytest.approx(986.47, rel=5e-4)
    assert of("cuBLAS", 8192, 8192, 8192).us == pytest.approx(1378, rel=1e-3)
    for sizes, gb_per_s in (((64, 7168, 16384), 2668), ((128, 4096, 7168), 2221), ((4096, 32768, 512), 1232)):
        rows, columns, depth = sizes
        moved = depth * (rows + columns) + 2 * rows * columns
        assert moved / of("DeepGEMM", *sizes).us / 1e3 == pytest.approx(gb_per_s, rel=5e-3)


def test_no_product_is_faster_than_memory_and_tensor_cores() -> None:
    for measured in MEASURED:
        found = compare(measured)
        assert 0 < found.roofline <= found.balanced < measured.us, measured
        assert found.roofline < found.tiled < 1.1 * measured.us, measured
