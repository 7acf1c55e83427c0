"""Builds gated convolutions over a few positions.

y = out (c · conv(b · x)),  b, c, x = in (row)            `layout.py` has the three parts of the first matrix apart
"""

from __future__ import annotations

from typing import Any

from nnefc.frontends.decoder.blocks import Parts, Positions, matrix_product
from nnefc.frontends.decoder.description import ShortConvolution
from nnefc.frontends.decoder.document import Literal, Scope, Tensor

__all__ = ["convolved", "convolved_before"]


def convolved(scope: Scope, x: Tensor, form: ShortConvolution, parts: Parts, at: Positions, size: int) -> Tensor:
    """Adds a gated convolution of rows and of those before them, which a session keeps."""

    def build(body: Scope, x: Tensor) -> Tensor:
        before, behind, rows = (
            matrix_product(body, x, parts, f"shortconv.{part}", (size, size), part) for part in ("b", "c", "x")
        )
        gated = body.infix("*", before, rows)
        made = convolved_before(body, gated, "shortconv.conv", form.taps, size, parts, at)
        return matrix_product(body, body.infix("*", behind, made), parts, "shortconv.out_proj", (size, size), "out")

    return scope.block("short_convolution", build, x)


def convolved_before(body: Scope, x: Tensor, name: str, taps: int, size: int, parts: Parts, at: Positions) -> Tensor:
    """Adds a convolution of each channel of `[B · S, C]` over the last positions, with a bias if there is one."""
    weight = parts.matrix(f"{name}.weight", (size, taps), "taps")
    bias = parts.optional(f"{name}.bias", (size,), "taps_bias")
    options: dict[str, Any] = {} if bias is None else {"bias": bias}
    apart = body.call("reshape", x, shape=[at.rows, Literal("S"), size])
    made = body.call("nnefc_causal_convolution", apart, weight, at.before, at.lengths, **options)
    return body.call("reshape", made, shape=[at.flat, size])
