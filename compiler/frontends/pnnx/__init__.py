"""PNNX front end: translates PyTorch networks in ncnn's interchange format to networks."""

from __future__ import annotations

from nnefc.frontends.pnnx.expression import describe_expression
from nnefc.frontends.pnnx.frontend import expressions_of, load
from nnefc.frontends.pnnx.outline import outline

__all__ = ["describe_expression", "expressions_of", "load", "outline"]
