"""ONNX models with operators that cannot be compiled: which program wrote them, and what to do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from cli_mistakes import message
from onnx import NodeProto, TensorProto, helper, numpy_helper

NOT_SUPPORTED = "this operator of onnxruntime's own is not supported"
REGISTER = "or register what it computes with --operators FILE.py, see docs/how-to/custom-operator.md"
CUSTOM = "define it in the model, as a function of ONNX's own operators (onnx.helper.make_function)"
UNKNOWN_DOMAIN = "the domain '{}' is not the standard's, and the model has no function of this name"


def refused(
    folder: Path, node: NodeProto, *, dtype: int = TensorProto.FLOAT, constant: bool = False, producer: str = ""
) -> str:
    """What compiling a model of this one node says; its input x has the shape [1, 4]."""
    graph = helper.make_graph(
        [node],
        "net",
        [helper.make_tensor_value_info("x", dtype, [1, 4])],
        [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.ones(1, np.int64), "k")] if constant else [],
    )
    domains = {"": 17, "ai.onnx.ml": 3} | ({node.domain: 1} if node.domain not in ("", "ai.onnx.ml") else {})
    opsets = [helper.make_opsetid(domain, version) for domain, version in domains.items()]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name=producer)
    onnx.save(model, folder / "m.onnx")
    return message("compile", folder / "m.onnx", "-o", folder / "m.so")


NODES = [
    ("Foo", "my.ops", UNKNOWN_DOMAIN.format("my.ops"), CUSTOM),
    ("EfficientNMS_TRT", "trt.plugins", UNKNOWN_DOMAIN.format("trt.plugins"),
     "it is of a plugin of TensorRT's: export without it, up to the raw results of the network"),
    ("MMCVRoiAlign", "mmdeploy", UNKNOWN_DOMAIN.format("mmdeploy"), "MMDeploy wrote it for a plugin: deploy for the "
     "backend onnxruntime without its custom operators, or up to the raw results of the network"),
    ("ATen", "org.pytorch.aten", UNKNOWN_DOMAIN.format("org.pytorch.aten"), "PyTorch's exporter found no operator of "
     "ONNX for it: export with torch.onnx.export(…, dynamo=True), or with a newer opset_version"),
    ("BertTokenizer", "ai.onnx.contrib", UNKNOWN_DOMAIN.format("ai.onnx.contrib"), "it is of onnxruntime-extensions, "
     "which prepare text and images: let the program do that, and export the network alone"),
    ("Quant", "onnx.brevitas", UNKNOWN_DOMAIN.format("onnx.brevitas"), "it stands for quantized values: export them as "
     "QuantizeLinear and DequantizeLinear (in Brevitas export_onnx_qcdq, in NNCF the format QDQ)"),
    ("AttnLSTM", "com.microsoft", NOT_SUPPORTED, "onnxruntime's optimizer or quantizer wrote it: compile the model "
     "from before its optimization; quantize with quant_format=QuantFormat.QDQ"),
    ("BeamSearch", "com.microsoft", NOT_SUPPORTED, "onnxruntime's convert_generation wrote it: compile the decoder "
     "that is a graph in this node, and let the program search"),
    ("QMoE", "com.microsoft", NOT_SUPPORTED, "the model builder of onnxruntime-genai wrote it: build the model for "
     "CPUs, in the precision int4 or fp32: -e cpu -p int4"),
    ("QOrderedMatMul", "com.microsoft", NOT_SUPPORTED, "onnxruntime's quantizer wrote it: quantize with "
     "quant_format=QuantFormat.QDQ"),
    ("LongformerAttention", "com.microsoft", NOT_SUPPORTED, "onnxruntime's optimizer wrote it: compile the model from "
     "before its optimization"),
    ("EPContext", "com.microsoft", NOT_SUPPORTED, "an execution provider of onnxruntime wrote it: it is code for one "
     "machine: compile the model from before"),
    ("Conv", "com.microsoft.nchwc", UNKNOWN_DOMAIN.format("com.microsoft.nchwc"), "onnxruntime's optimizer wrote it "
     "for one processor: save with GraphOptimizationLevel.ORT_ENABLE_BASIC, or compile the model from before"),
    ("EfficientNMS_TRT", "", "the standard has no such operator",
     "it is of a plugin of TensorRT's: export without it, up to the raw results of the network"),
    ("Convv", "", "the standard has no such operator", "did you mean 'Conv'?"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "domain", "what", "hint"), NODES, ids=[f"{d}.{op}" for op, d, _, _ in NODES])
def test_operators_that_are_not_of_the_standard(tmp_path: Path, op: str, domain: str, what: str, hint: str) -> None:
    spelled = f"{domain}.{op}" if domain else op
    text = refused(tmp_path, helper.make_node(op, ["x"], ["y"], name="n", domain=domain))
    end = {CUSTOM: f", {REGISTER}"}.get(hint, f"; {REGISTER}") if not hint.startswith("did you mean") else ""
    assert text == f"error: node 'n' ({spelled}): {what}\nhint: {hint}{end}"


@pytest.mark.parametrize(
    ("producer", "tool"),
    [("onnx.quantize", "onnxruntime's quantizer"), ("onnxruntime-genai", "the model builder of onnxruntime-genai")],
)
def test_the_producer_says_which_tool_wrote_an_operator(tmp_path: Path, producer: str, tool: str) -> None:
    node = helper.make_node("SomethingNew", ["x"], ["y"], domain="com.microsoft")
    assert f"hint: {tool} wrote it: " in refused(tmp_path, node, producer=producer)


def test_operators_that_tf2onnx_left_as_they_were_are_reported_to_be_of_tensorflow(tmp_path: Path) -> None:
    found = refused(tmp_path, helper.make_node("Erfc", ["x"], ["y"]), producer="tf2onnx")
    assert "hint: it is TensorFlow's, and tf2onnx found none of ONNX for it: Keras's exact GELU becomes it" in found
    assert "did you mean" not in found
    assert found.endswith(REGISTER)


def test_operators_of_other_domains_are_not_attributed_to_tensorflow(tmp_path: Path) -> None:
    node = helper.make_node("BertTokenizer", ["x"], ["y"], domain="ai.onnx.contrib")
    assert "hint: it is of onnxruntime-extensions" in refused(tmp_path, node, producer="tf2onnx")


def test_maps_are_refused(tmp_path: Path) -> None:
    node = helper.make_node("DictVectorizer", ["x"], ["y"], domain="ai.onnx.ml", int64_vocabulary=[0, 1])
    kind = helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    graph = helper.make_graph(
        [node],
        "net",
        [helper.make_value_info("x", kind)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 3)]), tmp_path / "m.onnx")
    found = message("compile", tmp_path / "m.onnx", "-o", tmp_path / "m.so")
    assert "'x' is map(int64,tensor(float)), which a library cannot take" in found
    assert "values in a row, at the positions of their keys in the node DictVectorizer" in " ".join(found.split())


def test_an_input_that_shapes_depend_on_can_be_given(tmp_path: Path) -> None:
    node = helper.make_node("ReduceSum", ["x", "x"], ["y"], "n")
    found = refused(tmp_path, node, dtype=TensorProto.INT64, constant=True)
    assert found.endswith("hint: if it is always the same, give it to the compiler: --value x=…")
