"""PNNX operators by family. Importing this package fills `declaration.OPERATORS`."""

from __future__ import annotations

from nnefc.frontends.pnnx.operators import (  # noqa: F401
    activation,
    attention,
    convolution,
    creation,
    elementwise,
    embedding,
    folding,
    identity,
    indexing,
    matrix,
    normalization,
    padding,
    pooling,
    recurrent,
    reduction,
    resize,
    sampling,
    scattering,
    shape,
    softmax,
    vectors,
)
from nnefc.frontends.pnnx.operators.declaration import OPERATORS

__all__ = ["OPERATORS"]
