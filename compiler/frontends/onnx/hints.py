"""Hints for nodes that cannot be compiled, by operator and by the program that writes such nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from nnefc.frontends.onnx.checks.extensions import DOMAIN

__all__ = ["advice_on_data", "advice_on_leftover", "advice_on_operator", "made_by"]

_TEXT = "let the program prepare the text, and export the part of the pipeline that takes numbers"
_OPERATORS: Mapping[tuple[str, str], str] = {
    **{("", name): _TEXT for name in ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit")},
}
"""Hints by domain and operator."""

_DOMAINS: Sequence[tuple[str, str]] = (
    (
        r"com\.microsoft\.nchwc",
        "onnxruntime's optimizer wrote it for one processor: save with GraphOptimizationLevel.ORT_ENABLE_BASIC, or "
        "compile the model from before",
    ),
    (
        r"ai\.onnx\.contrib",
        "it is of onnxruntime-extensions, which prepare text and images: let the program do that, and export the "
        "network alone",
    ),
    (
        r"(org\.pytorch\.)?aten|prim|org\.pytorch\._caffe2",
        "PyTorch's exporter found no operator of ONNX for it: export with torch.onnx.export(…, dynamo=True), or with a "
        "newer opset_version",
    ),
    (
        r"mmdeploy|mmcv|custom_domain",
        "MMDeploy wrote it for a plugin: deploy for the backend onnxruntime without its custom operators, or up to the "
        "raw results of the network",
    ),
    (
        r"trt(\.plugins)?|trt_.*|.*tensorrt.*|TRT.*",
        "it is of a plugin of TensorRT's: export without it, up to the raw results of the network",
    ),
    (
        r"onnx\.brevitas|qonnx.*|finn.*|org\.openvinotoolkit|openvino.*",
        "it stands for quantized values: export them as QuantizeLinear and DequantizeLinear (in Brevitas "
        "export_onnx_qcdq, in NNCF the format QDQ)",
    ),
)
"""Hints by a pattern that the whole domain matches."""

_TOOLS: Mapping[str, tuple[str, str]] = {
    "search": (
        "onnxruntime's convert_generation",
        "compile the decoder that is a graph in this node, and let the program search",
    ),
    "quantizer": ("onnxruntime's quantizer", "quantize with quant_format=QuantFormat.QDQ"),
    "optimizer": ("onnxruntime's optimizer", "compile the model from before its optimization"),
    "genai": (
        "the model builder of onnxruntime-genai",
        "build the model for CPUs, in the precision int4 or fp32: -e cpu -p int4",
    ),
    "provider": ("an execution provider of onnxruntime", "it is code for one machine: compile the model from before"),
    "training": ("onnxruntime's training", "export the model for inference"),
}
"""Programs that write operators of onnxruntime's domain, and what to do."""

_WRITERS: Sequence[tuple[str, str]] = (
    (r".*(Search|Sampling)|BifurcationDetector", "search"),
    (
        r"QMoE|MatMulNBits(Mlp|Qkv)|MatMulBlockQuantized.*|(Paged|Sparse|Linear)Attention.*|.*CausalConvWithState|Gated.*|"
        r".*NGramHashMapping|EngramGate|MRotaryEmbedding|GemmaRotaryEmbedding",
        "genai",
    ),
    (r"QOrdered.*|(Quantize|Dequantize)(WithOrder|BFP)|Q[A-Z].*|MatMulFpQ4|GemmFloat8", "quantizer"),
    (r"EPContext|Snpe", "provider"),
    (r"Bitmask.*|.*Grad|.*Gradient|YieldOp|Record|Wait", "training"),
    (r"(Longformer|Decoder.*)Attention|Decoder.*|(Remove|Restore)Padding|Packed.*|.*RelativePositionBias", "optimizer"),
)
"""Which of them writes what, by a pattern for the whole name; the first that fits."""

_PRODUCERS: Sequence[tuple[str, str]] = (
    (r"onnx\.quantize|.*quantiz.*", "quantizer"),
    (r".*genai.*", "genai"),
    (r"onnxruntime\.transformers.*", "optimizer"),
)
"""The same by the name of the program that a model says made it."""

_MADE_BY: ContextVar[str] = ContextVar("nnefc.onnx.producer", default="")


@contextmanager
def made_by(producer: str) -> Iterator[None]:
    """Sets the program that wrote the models read inside the context."""
    token = _MADE_BY.set(producer)
    try:
        yield
    finally:
        _MADE_BY.reset(token)


def _advice_on_onnxruntime(op_type: str) -> str:
    """Returns which tool wrote an operator of onnxruntime's domain, and the way out."""
    named = [(pattern, op_type) for pattern in _WRITERS] + [(pattern, _MADE_BY.get()) for pattern in _PRODUCERS]
    found = next((tool for (pattern, tool), name in named if re.fullmatch(pattern, name)), None)
    if found is not None:
        return "{} wrote it: {}".format(*_TOOLS[found])
    ways = "; ".join(_TOOLS[tool][1] for tool in ("optimizer", "quantizer"))
    return f"onnxruntime's optimizer or quantizer wrote it: {ways}"


_REGISTER = "or register what it computes with --operators FILE.py, see docs/how-to/custom-operator.md"

_CUSTOM = f"define it in the model, as a function of ONNX's own operators (onnx.helper.make_function), {_REGISTER}"

_PLUGINS = re.compile(r"(EfficientNMS|BatchedNMS|.*_TRT|TRT.*)")


def advice_on_operator(domain: str, op_type: str) -> str | None:
    """A way out for an operator that is not known or not supported; None if there is nothing to say."""
    if not isinstance(domain, str) or not isinstance(op_type, str):
        return None  # of a damaged file, whose names are no text
    known = _OPERATORS.get((domain, op_type))
    if known is not None:
        return known
    if _PLUGINS.fullmatch(op_type):
        domain = "trt"
    if domain == DOMAIN:
        return f"{_advice_on_onnxruntime(op_type)}; {_REGISTER}"
    for pattern, text in _DOMAINS:
        if re.fullmatch(pattern, domain):
            return f"{text}; {_REGISTER}"
    return _CUSTOM


_INSTEAD: Mapping[str, str] = {
    "Erfc": "Keras's exact GELU becomes it: take keras.activations.gelu(x, approximate=True), or "
    "0.5 * x * (1 + tf.math.erf(x / 2**0.5))",
}
"""Replacements for operators of TensorFlow that converters leave in models."""


def advice_on_leftover(op_type: str) -> str | None:
    """A way out for an operator that a converter left as it was; None if the model is by no such converter."""
    if _MADE_BY.get() != "tf2onnx" or not isinstance(op_type, str):
        return None
    instead = _INSTEAD.get(op_type, "compute it by other operators in the network")
    return f"it is TensorFlow's, and tf2onnx found none of ONNX for it: {instead}; {_REGISTER}"


def advice_on_data(names: Sequence[str], index: int, is_input: bool) -> str | None:
    """A way out for a node that needs a value at compile time which it does not have.

    Args:
        names: the operands' names.
        index: which of the operands it is.
        is_input: whether that is an input of the network.
    """
    name = names[index] if index < len(names) else ""
    return f"if it is always the same, give it to the compiler: --value {name}=…" if is_input and name else None
