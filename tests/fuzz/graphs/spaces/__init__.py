"""The attribute spaces of ONNX's operators: how a random node of each is made.

An entry takes a walk, chooses tensors, constants and attributes, and adds a node. What an entry chooses need not be
valid: the walk takes back what ONNX's reference refuses.
"""

from spaces import contractions, elementwise, indices, normalization, quantization, reductions, sequences, shapes
from spaces.declared import SPACES

__all__ = [
    "SPACES",
    "contractions",
    "elementwise",
    "indices",
    "normalization",
    "quantization",
    "reductions",
    "sequences",
    "shapes",
]
