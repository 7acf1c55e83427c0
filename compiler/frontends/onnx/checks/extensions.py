"""Schemas of operators outside of the standard: onnxruntime's own.

Its quantizer, its optimizer and the model builder of onnxruntime-genai write them, nearly all in a domain of its own,
and old exporters some in the standard's. Described in onnxruntime's docs/ContribOperators.md.
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
_FLOATS = ["tensor(float)", "tensor(float16)", "tensor(bfloat16)", "tensor(double)"]
_COUNTS = ["tensor(int32)", "tensor(int64)"]


def _schema(
    name: str,
    inputs: str,
    attributes: Mapping[str, Any] | None = None,
    required: str = "",
    optional: str = "",
    outputs: str = "",
    domain: str = DOMAIN,
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
        for key, kind in (element.split(":") for element in text.split())
    ]
    results = outputs or f"Y:{'T3' if 'T3' in inputs else 'T'}"
    kinds = {text.rstrip("?*").split(":")[1] for text in f"{inputs} {results}".split()}
    return OpSchema(
        name,
        domain,
        1,
        inputs=[_parameter(text) for text in inputs.split()],
        outputs=[_parameter(text) for text in results.split()],
        type_constraints=[(kind, types, "") for kind, types in _TYPES.items() if kind in kinds],
        attributes=[*with_default, *without],
    )


_TYPES = {
    "T": _NARROW,
    "T2": _NARROW,
    "T3": [*_NARROW, "tensor(float)"],
    "S": ["tensor(float)"],
    "C": ["tensor(int32)"],
    "V": [*_NARROW, "tensor(float)"],
    "F": _FLOATS,
    "F2": _FLOATS,
    "I": _COUNTS,
    "L": ["tensor(int64)"],
    "B": ["tensor(bool)"],
    "U": ["tensor(uint8)"],
    "N": [f"tensor({name})" for name in ("uint8", "int8", "uint16", "int16", "int32", "uint4", "int4")],
    "T4": _NARROW,
    "H": ["tensor(int16)", "tensor(uint16)"],
    "H2": ["tensor(int16)", "tensor(uint16)"],
    "W": ["tensor(int32)", "tensor(uint32)"],
    "M": [
        "tensor(int32)",
        "tensor(uint32)",
        "tensor(int64)",
        "tensor(uint64)",
        "tensor(float)",
        "tensor(double)",
        "tensor(string)",
    ],
    "A": [
        *_FLOATS,
        *(f"tensor({sign}int{bits})" for sign in ("", "u") for bits in (8, 16, 32, 64)),
        "tensor(bool)",
        "tensor(string)",
    ],
    "X": ["tensor(string)"],
    "Z": ["tensor(uint8)", *_FLOATS],
    "Q": ["tensor(uint8)", "tensor(int4)", "tensor(uint4)"],
    "K": [*_FLOATS, *_NARROW],
}


def _parameter(text: str) -> OpSchema.FormalParameter:
    name, kind = text.rstrip("?*").split(":")
    option = {"?": _Option.Optional, "*": _Option.Variadic}.get(text[-1], _Option.Single)
    return OpSchema.FormalParameter(name, kind, param_option=option, is_homogeneous=option != _Option.Variadic)


_ONE = "X:T X_scale:S X_zero_point:T? Y_scale:S Y_zero_point:T?"
_TWO = "A:T A_scale:S A_zero_point:T? B:T B_scale:S B_zero_point:T? C_scale:S C_zero_point:T?"
_POOL = {"auto_pad": "NOTSET", "ceil_mode": 0, "channels_last": 0, "count_include_pad": 0}
_PRODUCT = {"alpha": 1.0, "transA": 0, "transB": 0, "transBatchA": 0, "transBatchB": 0}
_FACTORS = "activation_alpha:FLOAT activation_beta:FLOAT activation_gamma:FLOAT"
_CONV = {"auto_pad": "NOTSET", "group": 1}
_WINDOW = "dilations:INTS kernel_shape:INTS pads:INTS strides:INTS"
_ACTIVATION = "activation:STRING activation_params:FLOATS"
_NORMALIZED = "output:F mean:S? inv_std_var:S? input_skip_bias_sum:F?"
_MASKED = {"mask_filter_value": -10000.0, "unidirectional": 0}
_ROTARY = "do_rotary:INT past_present_share_buffer:INT rotary_embedding_dim:INT"
_ATTENDED = "output:F present_key:F? present_value:F? qk:F?"

# fmt: off
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
    _schema("Tokenizer", "X:X", required="mark:INT mincharnum:INT pad_value:STRING",
            optional="separators:STRINGS tokenexp:STRING", outputs="Y:X"),
    _schema("MatMulIntegerToFloat", "A:T B:T2 a_scale:F b_scale:F a_zero_point:T? b_zero_point:T2? bias:F?",
            outputs="Y:F"),
    _schema("DynamicQuantizeMatMul", "A:S B:T2 b_scale:S b_zero_point:T2? bias:S?", outputs="Y:S"),
    _schema(
        "DynamicQuantizeLSTM",
        "X:S W:T R:T B:S? sequence_lens:C? initial_h:S? initial_c:S? P:S? "
        "W_scale:S W_zero_point:T R_scale:S R_zero_point:T",
        {"direction": "forward", "input_forget": 0},
        optional="activations:STRINGS activation_alpha:FLOATS activation_beta:FLOATS clip:FLOAT hidden_size:INT",
        outputs="Y:S? Y_h:S? Y_c:S?",
    ),
    _schema("QLinearReduceMean", _ONE, required="axes:INTS keepdims:INT"),
    _schema("QLinearWhere", "condition:B X:T x_scale:S x_zero_point:T Y:T y_scale:S y_zero_point:T z_scale:S "
            "z_zero_point:T", outputs="Z:T"),
    _schema("QLinearConv", "x:T x_scale:S x_zero_point:T w:T2 w_scale:S w_zero_point:T2 y_scale:S y_zero_point:T4 "
            "B:C?", {**_CONV, "channels_last": 0}, optional=_WINDOW, outputs="y:T4"),
    _schema("NhwcMaxPool", "x:T", {"auto_pad": "NOTSET", "ceil_mode": 0}, "kernel_shape:INTS",
            "dilations:INTS pads:INTS strides:INTS", outputs="y:T"),
    _schema("QuantizeLinear", "x:F y_scale:F y_zero_point:N?", optional="axis:INT", outputs="y:N"),
    _schema("DequantizeLinear", "x:N x_scale:F x_zero_point:N?", optional="axis:INT", outputs="y:F"),
    _schema("MulInteger", "A:T A_zero_point:T? B:T B_zero_point:T?", outputs="C:C"),
    _schema("ReduceSumInteger", "data:T", required="axes:INTS keepdims:INT", outputs="reduced:W"),
    _schema("MatMulInteger16", "A:H B:H2", outputs="Y:W"),
    _schema("FastGelu", "X:F bias:F?", outputs="Y:F"),
    _schema("Gelu", "X:F", outputs="Y:F"),
    _schema("QuickGelu", "X:F", {"alpha": 1.702}, outputs="Y:F"),
    _schema("BiasGelu", "A:F B:F", outputs="C:F"),
    _schema("BiasSplitGelu", "X:F bias:F", outputs="Y:F"),
    _schema("BiasAdd", "X:F bias:F skip:F", outputs="Y:F"),
    _schema("BiasSoftmax", "data:F bias:F", {"axis": 1}, required="is_inner_broadcast:INT", outputs="output:F"),
    _schema("BiasDropout", "data:F bias:F residual:F? ratio:F2? training_mode:B?", optional="seed:INT",
            outputs="output:F mask:B?"),
    _schema("FusedMatMul", "A:F B:F", _PRODUCT, outputs="Y:F"),
    _schema("TransposeMatMul", "A:F B:F", {"alpha": 1.0, "transA": 0, "transB": 0}, outputs="Y:F"),
    _schema("FusedMatMulActivation", "A:F B:F", _PRODUCT, "activation:STRING", f"activation_axis:INT {_FACTORS}",
            outputs="Y:F"),
    _schema("FusedGemm", "A:F B:F C:F?", {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0},
            optional=f"activation:STRING {_FACTORS}", outputs="Y:F"),
    _schema("GemmFastGelu", "X:F W:F bias:F?", outputs="Y:F"),
    _schema("FusedConv", "X:F W:F B:F? Z:F?", _CONV, optional=f"{_WINDOW} {_ACTIVATION}", outputs="Y:F"),
    _schema("NhwcFusedConv", "X:F W:F B:F? Z:F?", _CONV, optional=f"{_WINDOW} {_ACTIVATION}", outputs="Y:F"),
    _schema("NhwcConv", "X:F W:F B:F?", _CONV, optional=_WINDOW, outputs="Y:F"),
    _schema("SkipLayerNormalization", "input:F skip:F gamma:F beta:F? bias:F?", {"epsilon": 1e-12},
            outputs=_NORMALIZED),
    _schema("SkipSimplifiedLayerNormalization", "input:F skip:F gamma:F bias:F?", {"epsilon": 1e-12},
            outputs=_NORMALIZED),
    _schema("EmbedLayerNormalization", "input_ids:I segment_ids:I? word_embedding:F position_embedding:F "
            "segment_embedding:F? gamma:F beta:F mask:I? position_ids:I?", {"epsilon": 1e-12, "mask_index_type": 0},
            outputs="output:F mask_index:I? embedding_sum:F?"),
    _schema("QEmbedLayerNormalization", "input_ids:C segment_ids:C? word_embedding_quant:T position_embedding_quant:T "
            "segment_embedding_quant:T? gamma_quant:T beta_quant:T mask:C? word_embedding_scale:S "
            "position_embedding_scale:S segment_embedding_scale:S? gamma_scale:S beta_scale:S "
            "word_embedding_zero_point:T position_embedding_zero_point:T segment_embedding_zero_point:T? "
            "gamma_zero_point:T beta_zero_point:T", {"epsilon": 1e-12}, outputs="layernorm_out:S mask_index_out:C"),
    _schema("GroupNorm", "X:F gamma:F2 beta:F2", {"epsilon": 1e-5, "channels_last": 1}, "activation:INT groups:INT",
            outputs="Y:F"),
    _schema("SkipGroupNorm", "X:F gamma:F2 beta:F2 skip:F bias:F?", {"epsilon": 1e-5, "channels_last": 1},
            "activation:INT groups:INT", outputs="Y:F S:F?"),
    _schema("Attention", "input:F weights:F bias:F? mask_index:C? past:F? attention_bias:F? past_sequence_length:C?",
            _MASKED, "num_heads:INT", f"{_ROTARY} scale:FLOAT qkv_hidden_sizes:INTS", outputs="output:F present:F?"),
    _schema("QAttention", "input:T weight:T2 bias:S input_scale:S weight_scale:S mask_index:C? input_zero_point:T? "
            "weight_zero_point:T2? past:S?", _MASKED, "num_heads:INT", f"{_ROTARY} scale:FLOAT",
            outputs="output:S present:S?"),
    _schema("MultiHeadAttention", "query:F key:F? value:F? bias:F? key_padding_mask:C? attention_bias:F? past_key:F? "
            "past_value:F? past_sequence_length:C? cache_indirection:C?", _MASKED, "num_heads:INT", "scale:FLOAT",
            outputs=_ATTENDED),
    _schema("DecoderMaskedMultiHeadAttention", "query:F key:F? value:F? mask_index:C? attention_bias:F? past_key:F? "
            "past_value:F? past_sequence_length:C? beam_width:C? cache_indirection:C? bias:F?",
            {"mask_filter_value": -10000.0, "output_qk": 0, "past_present_share_buffer": 0}, "num_heads:INT",
            "scale:FLOAT", outputs=_ATTENDED),
    _schema("GroupQueryAttention", "query:F key:F? value:F? past_key:K? past_value:K? seqlens_k:C "
            "total_sequence_length:C cos_cache:F? sin_cache:F? position_ids:L? attention_bias:F? head_sink:F? "
            "k_scale:S? v_scale:S? q_norm_weight:F? k_norm_weight:F?",
            {"causal": 1, "do_rotary": 0, "local_window_size": -1, "qk_norm_epsilon": 1e-6, "qk_output": 0,
             "rotary_interleaved": 0, "sliding_window_cache": 0, "smooth_softmax": 0, "softcap": 0.0,
             "k_quant_type": "NONE", "v_quant_type": "NONE"}, "num_heads:INT kv_num_heads:INT",
            "scale:FLOAT kv_cache_bit_width:INT", outputs="output:F present_key:K? present_value:K? output_qk:F?"),
    _schema("PackedAttention", "input:F weights:F bias:F token_offset:C cumulative_sequence_length:C attention_bias:F?",
            required="num_heads:INT", optional="qkv_hidden_sizes:INTS scale:FLOAT", outputs="output:F"),
    _schema("PackedMultiHeadAttention", "query:F key:F? value:F? bias:F? token_offset:C cumulative_sequence_length:C "
            "attention_bias:F?", {"mask_filter_value": -10000.0}, "num_heads:INT", "scale:FLOAT", outputs="output:F"),
    _schema("RotaryEmbedding", "input:F position_ids:L cos_cache:F sin_cache:F",
            {"interleaved": 0, "is_packed_batching": 0, "num_heads": 0, "rotary_embedding_dim": 0, "scale": 1.0},
            outputs="output:F"),
    _schema("MatMulNBits", "A:F B:U scales:F zero_points:Z? g_idx:C? bias:F?",
            {"accuracy_level": 0, "bits": 4, "weight_prepacked": 0}, "K:INT N:INT block_size:INT", outputs="Y:F"),
    _schema("MatMulBnb4", "A:F B:U absmax:F", {"training_mode": 0, "transB": 1},
            "K:INT N:INT block_size:INT quant_type:INT", outputs="Y:F"),
    _schema("GatherBlockQuantized", "data:Q indices:I scales:F zero_points:Q?",
            {"bits": 4, "block_size": 128, "gather_axis": 0, "quantize_axis": 1}, outputs="output:F"),
    _schema("ExpandDims", "X:A axis:C", outputs="Y:A"),
    _schema("Pad", "data:F pads:L value:F?", {"mode": "constant"}, outputs="output:F"),
    _schema("Range", "start:A limit:A delta:A?", outputs="Y:A"),
    _schema("Unique", "x:F", outputs="y:F idx:L counts:L"),
    _schema("Trilu", "X:A k:L?", {"upper": 1}, outputs="Y:A"),
    _schema("GatherND", "data:A indices:I", outputs="output:A"),
    _schema("GridSample", "X:F Grid:F", {"align_corners": 0, "mode": "bilinear", "padding_mode": "zeros"},
            outputs="Y:F"),
    _schema("CropAndResize", "X:F rois:F batch_indices:C crop_size:C",
            {"extrapolation_value": 0.0, "mode": "bilinear"}, outputs="Y:F"),
    _schema("Inverse", "X:F", outputs="Y:F"),
    _schema("CDist", "A:F B:F", {"metric": "sqeuclidean"}, outputs="C:F"),
    _schema("ComplexMul", "A:F B:F", outputs="C:F"),
    _schema("ComplexMulConj", "A:F B:F", outputs="C:F"),
    _schema("Rfft", "X:F", {"normalized": 0, "onesided": 1, "signal_ndim": 1}, outputs="Y:F"),
    _schema("Irfft", "X:F", {"normalized": 0, "onesided": 1}, "signal_ndim:INT", outputs="Y:F"),
    _schema("MurmurHash3", "X:M", {"positive": 1, "seed": 0}, outputs="Y:W"),
    _schema("NGramRepeatBlock", "input_ids:L scores:S", required="ngram_size:INT", outputs="scores_out:S"),
    _schema("MoE", "input:F router_probs:F fc1_experts_weights:F fc1_experts_bias:F? fc2_experts_weights:F "
            "fc2_experts_bias:F? fc3_experts_weights:F? fc3_experts_bias:F?",
            {"activation_alpha": 1.0, "activation_beta": 0.0, "activation_type": "relu", "k": 1,
             "normalize_routing_weights": 0, "swiglu_fusion": 0, "use_sparse_mixer": 0}, optional="swiglu_limit:FLOAT",
            outputs="output:F"),
    _schema("Affine", "X:F", {"alpha": 1.0, "beta": 0.0}, outputs="Y:F", domain=""),
    _schema("Crop", "X:F", required="border:INTS", optional="scale:INTS", outputs="Y:F", domain=""),
    _schema("ImageScaler", "X:F", {"scale": 1.0}, optional="bias:FLOATS", outputs="Y:F", domain=""),
    _schema("MeanVarianceNormalization", "X:F", {"across_channels": 0, "normalize_variance": 1}, outputs="Y:F",
            domain=""),
    _schema("ParametricSoftplus", "X:F", {"alpha": 1.0, "beta": 1.0}, outputs="Y:F", domain=""),
    _schema("ScaledTanh", "X:F", {"alpha": 1.0, "beta": 1.0}, outputs="Y:F", domain=""),
    _schema("ThresholdedRelu", "X:F", {"alpha": 1.0}, outputs="Y:F", domain=""),
    _schema("SimplifiedLayerNormalization", "X:F scale:F2", {"axis": -1, "epsilon": 1e-5, "stash_type": 1},
            outputs="Y:F2 inv_std_var:S?", domain=""),
    _schema("LayerNormalization", "X:F Scale:F2 B:F2?", {"axis": -1, "epsilon": 1e-5, "stash_type": 1},
            outputs="Y:F2 Mean:S? InvStdDev:S?", domain=""),
)
# fmt: on

EXTENSIONS: Mapping[tuple[str, str], onnx.defs.OpSchema] = {(schema.domain, schema.name): schema for schema in _SCHEMAS}
"""Schemas by domain and name, all of version 1."""
