"""Public module for files that register custom operators: see docs/how-to/custom-operator.md.

from nnefc import custom

@custom.register(onnx="com.example::Threshold")
class Threshold(custom.CustomOperator): ...
"""

from nnefc.ir.extern_c import CSource
from nnefc.operators.base import Emitter, Operand, Shape, dtype_of, rank_of, shape_of
from nnefc.operators.c_function import call_c
from nnefc.operators.custom import CustomOperator, forget, load_operators, register
from nnefc.symbolic.dims import Dimension, expression

__all__ = [
    "CSource",
    "CustomOperator",
    "Dimension",
    "Emitter",
    "Operand",
    "Shape",
    "call_c",
    "dtype_of",
    "expression",
    "forget",
    "load_operators",
    "rank_of",
    "register",
    "shape_of",
]
