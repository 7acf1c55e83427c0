"""Standard operations, one family per file. Importing this package fills `declarations.STANDARD`."""

from nnefc.frontends.nnef.operations import (
    activation,
    composite,
    convolution,
    elementwise,
    layers,
    logic,
    matrix,
    normalization,
    quantize,
    reduce,
    resize,
    roi,
    shape,
    variables,
    window,
)

__all__ = [
    "activation",
    "composite",
    "convolution",
    "elementwise",
    "layers",
    "logic",
    "matrix",
    "normalization",
    "quantize",
    "reduce",
    "resize",
    "roi",
    "shape",
    "variables",
    "window",
]
