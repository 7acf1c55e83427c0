"""ONNX front end: translates models of the Open Neural Network Exchange to networks."""

from nnefc.frontends.onnx.files.outline import outline
from nnefc.frontends.onnx.frontend import load

__all__ = ["load", "outline"]
