"""Schemas of operators outside of the standard: those of onnxruntime's own domain.

onnxruntime's quantizer writes most of them, where it is asked for operators of quantized tensors instead of
`DequantizeLinear` and `QuantizeLinear` around ordinary ones; its optimizer writes the others. Described in
onnxruntime's docs/ContribOperators.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import onnx
from onnx import helper
from onnx.defs import OpSchema

__all__ = ["DOMAIN", "EXTENSIONS"]

DOMAIN = "com.microsoft"

_Option = OpSchema.FormalParameterOption
_NARROW = ["tensor(uint8)", "tensor(int8)"]


def _schema(
    name: str,
    inputs: str,
    attributes: Mapping[str, Any] | None = None,
    required: str = "",
    optional: str = "",
    outputs: str = "",
) -> OpSchema:
    """A schema; its output is `Y`, if none are named.

    Args:
        inputs: `name:type` each; `?` for an optional one, `*` for any number of them.
        attributes: those with a default.
        required, optional: those without, `name:TYPE` each.
        outputs: as inputs.
    """
    with_default = [
        OpSchema.Attribute(key, helper.make_attribute(key, value)) for key, value in (attributes or {}).items()
    ]
    without = [
        OpSchema.Attribute(key, OpSchema.AttrType.__members__[kind], required=needed)
        for text, needed in ((required, True), (optional, False))
        for key, kind in (item.split(":") for item in text.split())
    ]
    return OpSchema(
        name,
        DOMAIN,
        1,
        inputs=[_parameter(text) for text in inputs.split()],
        outputs=[_parameter(text) for text in (outputs or f"Y:{'T3' if 'T3' in inputs else 'T'}").split()],
        type_constraints=[(kind, types, "") for kind, types in _TYPES.items() if f":{kind}" in inputs],
        attributes=[*with_default, *without],
    )


_TYPES = {
    "T": _NARROW,
    "T2": _NARROW,
    "T3": [*_NARROW, "tensor(float)"],
    "S": ["tensor(float)"],
    "C": ["tensor(int32)"],
    "V": [*_NARROW, "tensor(float)"],
}


def _parameter(text: str) -> OpSchema.FormalParameter:
    name, kind = text.rstrip("?*").split(":")
    option = {"?": _Option.Optional, "*": _Option.Variadic}.get(text[-1], _Option.Single)
    return OpSchema.FormalParameter(name, kind, param_option=option, is_homogeneous=option != _Option.Variadic)


_ONE = "X:T X_scale:S X_zero_point:T? Y_scale:S Y_zero_point:T?"
_TWO = "A:T A_scale:S A_zero_point:T? B:T B_scale:S B_zero_point:T? C_scale:S C_zero_point:T?"
_POOL = {"auto_pad": "NOTSET", "ceil_mode": 0, "channels_last": 0, "count_include_pad": 0}

_SCHEMAS = (
    _schema("QLinearAdd", _TWO),
    _schema("QLinearMul", _TWO),
    _schema("QLinearSigmoid", _ONE),
    _schema("QLinearLeakyRelu", _ONE, {"alpha": 0.01}),
    _schema("QLinearSoftmax", _ONE, {"axis": -1}, "opset:INT"),
    _schema("QLinearGlobalAveragePool", _ONE, {"channels_last": 0}),
    _schema("QLinearAveragePool", _ONE, _POOL, "kernel_shape:INTS", "pads:INTS strides:INTS"),
    _schema("QLinearConcat", "Y_scale:S Y_zero_point:T inputs:V*", required="axis:INT"),
    _schema(
        "QGemm",
        "A:T A_scale:S A_zero_point:T B:T2 B_scale:S B_zero_point:T2 C:C? Y_scale:S? Y_zero_point:T3?",
        {"alpha": 1.0, "transA": 0, "transB": 0},
    ),
    _schema(
        "DynamicQuantizeLSTM",
        "X:S W:T R:T B:S? sequence_lens:C? initial_h:S? initial_c:S? P:S? "
        "W_scale:S W_zero_point:T R_scale:S R_zero_point:T",
        {"direction": "forward", "input_forget": 0},
        optional="activations:STRINGS activation_alpha:FLOATS activation_beta:FLOATS clip:FLOAT hidden_size:INT",
        outputs="Y:S? Y_h:S? Y_c:S?",
    ),
    _schema("FastGelu", "X:S bias:S?", outputs="Y:S"),
    _schema(
        "FusedMatMul",
        "A:S B:S",
        {"alpha": 1.0, "transA": 0, "transB": 0, "transBatchA": 0, "transBatchB": 0},
        outputs="Y:S",
    ),
    _schema(
        "SkipLayerNormalization",
        "input:S skip:S gamma:S beta:S? bias:S?",
        {"epsilon": 1e-12},
        outputs="output:S mean:S? inv_std_var:S? input_skip_bias_sum:S?",
    ),
)

EXTENSIONS: Mapping[tuple[str, str], onnx.defs.OpSchema] = {(DOMAIN, schema.name): schema for schema in _SCHEMAS}
"""Schemas by domain and name, all of version 1."""
