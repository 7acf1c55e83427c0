"""Writes tensors created from known numbers alone, as variables with these values."""

from __future__ import annotations

from typing import Any

from nnefc.frontends.nnef.writing.document import Document, Unsayable
from nnefc.frontends.nnef.writing.rules import says
from nnefc.operators.tensor.creation import Arange, Eye, Linspace

__all__: list[str] = []


@says(Arange, Eye, Linspace)
def _written_out(document: Document, operator: Arange | Eye | Linspace) -> Any:
    known = operator.known()
    if known is None:
        raise Unsayable(f"NNEF has no operation for {type(operator).__name__} where sizes are open")
    return document.variable(known)
