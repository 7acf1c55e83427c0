"""Marks reshapes as views: with dynamic dimensions TVM cannot prove from the indices that no element moves.

reshape(x, shape)     →      call_tir(reshape {same bytes}, (x,))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from tvm import relax

from nnefc.ir.attributes import SAME_BYTES
from nnefc.passes.graph.rewriter import is_call

__all__ = ["VIEWS"]

_Legalization: TypeAlias = "Callable[[relax.BlockBuilder, relax.Call], relax.Expr]"


def _view(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    made = call.op.get_attr("FLegalize")(builder, call)
    if is_call(made, "call_tir"):
        kernel = made.args[0]
        builder.update_func(kernel, builder.get()[kernel].with_attr(SAME_BYTES, True))
    return made


VIEWS: Mapping[str, _Legalization] = dict.fromkeys(
    ("relax.reshape", "relax.expand_dims", "relax.squeeze", "relax.flatten"), _view
)
"""The legalizations of these operators, for `relax.transform.LegalizeOps`."""
