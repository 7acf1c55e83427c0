"""ONNX front end: translates models of the Open Neural Network Exchange to networks."""

from nnefc.frontends.onnx.files.outline import outline
from nnefc.frontends.onnx.frontend import load
from nnefc.frontends.onnx.operators.table import operators_table

__all__ = ["load", "operators_table", "outline"]
