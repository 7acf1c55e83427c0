"""The ONNX front end: models of the Open Neural Network Exchange as networks."""

from nnefc.frontends.onnx.frontend import load
from nnefc.frontends.onnx.operators.table import operators_table
from nnefc.frontends.onnx.outline import outline

__all__ = ["load", "operators_table", "outline"]
