"""Builds selective state spaces (Dao, Gu, "Transformers are SSMs", 2024).

z, xbc, time = in (row);  x, enter, leave = silu(conv(xbc));  time = softplus(time + bias)
y = out (norm(silu(z) · (scan(x, time, …) + d x)))          `layout.py` has the parts of the first matrix apart
"""

from __future__ import annotations

import math

from nnefc.frontends.decoder.blocks import Parts, Positions, matrix_product, unit
from nnefc.frontends.decoder.description import StateSpace
from nnefc.frontends.decoder.document import Literal, Scope, Tensor
from nnefc.frontends.decoder.short_convolution import convolved_before

__all__ = ["scanned"]


def scanned(scope: Scope, x: Tensor, form: StateSpace, parts: Parts, at: Positions, size: int) -> Tensor:
    """Adds a state space of rows, whose states a session keeps."""
    inner, vectors = form.heads * form.width, form.groups * form.size
    channels = inner + 2 * vectors

    def build(body: Scope, x: Tensor) -> Tensor:
        gate = matrix_product(body, x, parts, "ssm_z", (inner, size), "z")
        mixed = matrix_product(body, x, parts, "ssm_xbc", (channels, size), "xbc")
        time = matrix_product(body, x, parts, "ssm_time", (form.heads, size), "time")
        mixed = body.call("silu", convolved_before(body, mixed, "ssm_conv1d", form.taps, channels, parts, at))

        def part(start: int, count: int, width: int) -> Tensor:
            found = body.call("slice", mixed, axes=[1], begin=[start], end=[start + count * width])
            return body.call("reshape", found, shape=[at.rows, Literal("S"), count, width])

        rows = part(0, form.heads, form.width)
        enter, leave = (part(inner + n * vectors, form.groups, form.size) for n in range(2))
        made = body.call("nnefc_state_space", rows, _steps(body, time, form, parts, at),
                         parts.matrix("ssm_a", (form.heads,), "a"), enter, leave, at.before, at.lengths)  # fmt: skip
        passed = body.call("reshape", parts.matrix("ssm_d", (form.heads,), "d"), shape=[1, 1, form.heads, 1])
        made = body.infix("+", made, body.infix("*", rows, passed))
        made = body.call("reshape", made, shape=[at.flat, inner])
        made = _normalized(body, body.infix("*", made, body.call("silu", gate)), form, parts, at, inner)
        return matrix_product(body, made, parts, "ssm_out", (size, inner), "out")

    return scope.block("state_space", build, x)


def _steps(body: Scope, time: Tensor, form: StateSpace, parts: Parts, at: Positions) -> Tensor:
    """Adds the steps of time, `[B, S, H]`."""
    made = body.infix("+", time, parts.matrix("ssm_dt.bias", (form.heads,), "time_bias"))
    made = body.call("softplus", made)
    low, high = form.limits
    made = made if low <= 0 else body.call("max", made, low)
    made = made if math.isinf(high) else body.call("min", made, high)
    return body.call("reshape", made, shape=[at.rows, Literal("S"), form.heads])


def _normalized(body: Scope, x: Tensor, form: StateSpace, parts: Parts, at: Positions, size: int) -> Tensor:
    """Adds the norm of rows, each part of them by itself."""
    weight = parts.matrix("ssm_norm.weight", (size,), "norm")
    if form.norm_groups == 1:
        return body.infix("*", unit(body, x, form.norm, 1), weight)
    apart = body.call("reshape", x, shape=[at.flat, form.norm_groups, size // form.norm_groups])
    made = body.call("reshape", unit(body, apart, form.norm, 2), shape=[at.flat, size])
    return body.infix("*", made, weight)
