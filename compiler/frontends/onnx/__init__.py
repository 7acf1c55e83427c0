"""The ONNX front end: models of the Open Neural Network Exchange as networks."""

from nnefc.frontends.onnx.files.outline import outline
from nnefc.frontends.onnx.frontend import load
from nnefc.frontends.onnx.operators.table import operators_table

__all__ = ["load", "operators_table", "outline"]
