"""The attribute spaces of ONNX's operators: how a random node of each is made.

An entry takes a walk, chooses tensors, constants and attributes, and adds a node. What an entry chooses need not be
valid: the walk takes back what ONNX's reference refuses.
"""

from spaces import (
    attention_space,
    classical_space,
    contractions_space,
    contributed_space,
    control_space,
    elementwise_space,
    fused_attention_space,
    fused_space,
    indices_space,
    linear_space,
    normalization_space,
    quantization_space,
    reductions_space,
    regions_space,
    sequences_space,
    shapes_space,
    signal_space,
    strings_space,
    training_space,
    values_space,
)
from spaces.declared import SPACES

__all__ = [
    "SPACES",
    "attention_space",
    "classical_space",
    "contractions_space",
    "contributed_space",
    "control_space",
    "elementwise_space",
    "fused_attention_space",
    "fused_space",
    "indices_space",
    "linear_space",
    "normalization_space",
    "quantization_space",
    "reductions_space",
    "regions_space",
    "sequences_space",
    "shapes_space",
    "signal_space",
    "strings_space",
    "training_space",
    "values_space",
]
