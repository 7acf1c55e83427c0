"""Element types of trained values in files of language models: floats, and blocks of integers with scales."""

from nnefc.frontends.tensor_types.table import GGML_TYPES, type_numbered
from nnefc.frontends.tensor_types.tensor_type import TensorType

__all__ = ["GGML_TYPES", "TensorType", "type_numbered"]
