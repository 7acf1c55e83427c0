"""Names that files of models have by their standard."""

from __future__ import annotations

__all__ = ["NNEF_DOCUMENT", "NNEF_QUANTIZATION"]

NNEF_DOCUMENT = "graph.nnef"
NNEF_QUANTIZATION = "graph.quant"
