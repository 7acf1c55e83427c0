"""Where onnxruntime's products of bytes are exact: on x86-64 without VNNI some kernels saturate sums at 16 bits."""

from __future__ import annotations

from pathlib import Path

import pytest

__all__ = ["EXACT_PRODUCTS", "HAS_AVX512", "HAS_EXACT_PRODUCTS"]

_FLAGS = Path("/proc/cpuinfo").read_text().split() if Path("/proc/cpuinfo").exists() else []

HAS_AVX512 = "avx512f" in _FLAGS

HAS_EXACT_PRODUCTS = "avx2" not in _FLAGS or bool({"avx512_vnni", "avx_vnni"} & {*_FLAGS})

EXACT_PRODUCTS = pytest.mark.skipif(
    not HAS_EXACT_PRODUCTS,
    reason="needs: a processor on which onnxruntime's products of bytes are exact",
)
