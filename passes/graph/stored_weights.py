"""Finds the weights of convolutions and matrix products as the network stores them.

    W: float16 constant                      m = matmul(x, v)     # the weights of m are W transposed
    w = astype(W, "float32")
    v = permute_dims(w)

Packing reads such weights where they are, and writes them once in the order of its kernels. Computed at compile time
before that, each conversion and each transposition would be another copy in memory.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from tvm import relax

from nnefc.ir.dataflow import bindings_of, variables_read
from nnefc.passes.graph.rewriter import array_of, is_call, is_constant, shape_of

__all__ = ["CONVOLUTIONS", "TRANSPOSED_CONVOLUTIONS", "Definition", "stored_weights", "weights_of"]

TRANSPOSED_CONVOLUTIONS = ("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv3d", *TRANSPOSED_CONVOLUTIONS)

Definition = Callable[[relax.Expr], relax.Expr | None]


def weights_of(weights: relax.Expr, definition: Definition) -> np.ndarray | None:
    """Returns the constant that holds the weights of a contraction, as it is stored or in float32.

    Args:
        definition: the value that an expression is bound to.

    Returns:
        A view of the network's constant from its first element on, transposed as the weights are; None for what is
        computed, or converted to another type.
    """
    source = definition(weights)
    if is_constant(source):
        return array_of(source)
    if is_call(source, "astype") and str(source.ty.dtype) == "float32":
        return weights_of(source.args[0], definition)
    if is_call(source, "permute_dims"):
        found, axes = weights_of(source.args[0], definition), source.attrs.axes
        return None if found is None else found.transpose(None if axes is None else [int(axis) for axis in axes])
    return None


def stored_weights(func: relax.Function, conversions: bool = True) -> set[relax.Var]:
    """Returns the variables that only hold weights of contractions, for which packing reads the constants by
    :func:`weights_of`.

    They are bound to conversions of constants to float32, and transpositions of matrices for matrix products.

    Args:
        conversions: whether conversions are among them.
    """
    bindings = bindings_of(func)
    found: set[relax.Var] = set()
    for binding in bindings:
        if is_call(binding.value, "astype", "permute_dims") and _is_stored(binding.value, found, conversions):
            found.add(binding.var)
    if not found:
        return found
    found -= set(variables_read(func.body.body))
    for binding in reversed(bindings):  # a reader before what it reads
        call = binding.value
        weights = 1 if is_call(call, "matmul", *CONVOLUTIONS) else 0 if binding.var in found else None
        if weights is None:
            found.difference_update(variables_read(call))
            continue
        found.difference_update(arg for index, arg in enumerate(call.args) if index != weights and arg in found)
    return found


def _is_stored(call: relax.Call, stored: set[relax.Var], conversions: bool) -> bool:
    source = call.args[0]
    if not is_constant(source) and source not in stored:
        return False
    if is_call(call, "astype"):
        return conversions and str(call.ty.dtype) == "float32"
    return len(shape_of(source)) == 2
