"""A file or folder of another program in place of a model: what it is, and the command that makes a model of it."""

from __future__ import annotations

import bz2
import gzip
import lzma
import shutil
import sys
from pathlib import Path

import onnx
import pytest
from cli_mistakes import field, message, safetensors, write, zipped
from onnx import TensorProto, helper

from nnefc.driver.model_format import format_of

ROOT = Path(__file__).parents[2]
EXPORT = "torch.onnx.export(model.eval(), (example,), 'model.onnx')"
PADDLE = (
    "convert it to ONNX: paddle2onnx --model_dir . --model_filename {name} "
    "--params_filename m.pdiparams --save_file m.onnx"
)
AGAIN = "get the file itself: a site's download button, or its address with /resolve/ or /raw/ in place of /blob/"

FILES: list[tuple[str, bytes | str, str, str]] = [
    ("m.ort", b"\x1c\0\0\0ORTM" + bytes(64), "a model in onnxruntime's own format (.ort)",
     "compile the .onnx file that it was made from"),
    ("m.pte", b"\x1c\0\0\0ET12" + bytes(64), "a program of ExecuTorch's", f"export the network itself: {EXPORT}"),
    ("m.ggml", b"lmgg\3\0\0\0" + bytes(64), "a GGML file, which llama.cpp wrote before it had GGUF",
     "get the model as GGUF"),
    ("m.safetensors", safetensors(), "a safetensors file, which holds the values without the network",
     "give the folder, with the config.json of a language model: nnefc compile .; export other networks: "
     "optimum-cli export onnx --model . onnx"),
    ("m.h5", b"\x89HDF\r\n\x1a\n" + bytes(64), "an HDF5 file, as Keras writes them",
     "export it in Python: keras.models.load_model('m.h5').export('m.onnx', format='onnx')"),
    ("m.keras", zipped("metadata.json", "config.json", "model.weights.h5"), "a Keras model",
     "export it in Python: keras.models.load_model('m.keras').export('m.onnx', format='onnx')"),
    ("m.pt", zipped("m/data.pkl", "m/code/__torch__.py", "m/constants.pkl"), "a TorchScript module",
     "trace it to PNNX, with the shapes of its inputs: pnnx m.pt 'inputshape=[1,3,224,224]'; or export the network "
     f"that it was made from: {EXPORT}"),
    ("m.pth", zipped("archive/data.pkl", "archive/data/0", "archive/version"),
     "a PyTorch checkpoint, without the network",
     f"build the network in Python, load the values into it, and export it: {EXPORT}"),
    ("old.pth", b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M", "a PyTorch checkpoint, without the network",
     f"build the network in Python, load the values into it, and export it: {EXPORT}"),
    ("m.zip", zipped("m/archive_format", "m/models/model.json"), "a program of torch.export's",
     "torch.onnx.export(torch.export.load('m.zip'), f='m.onnx', dynamo=True)"),
    ("m.pkl", b"\x80\x04\x95\x10", "a Python pickle, not an exchange format",
     "of scikit-learn, convert the fitted model: onnx.save(skl2onnx.to_onnx(model, X[:1]), 'm.onnx'); of PyTorch, "
     f"{EXPORT}"),
    ("m.onnx", zipped("m.onnx"), "a zip archive", "unpack it first, and give the model inside: unzip m.onnx"),
    ("m.engine", b"ptrt\xee\0\0\0" + bytes(64), "a TensorRT engine, which only its GPU runs",
     "compile the model that it was made from, such as its ONNX file"),
    ("m.npy", b"\x93NUMPY\1\0", "a NumPy array, not a model",
     "arrays are inputs: nnefc run model.so --input NAME=m.npy"),
    ("m.npz", zipped("x.npy"), "a file of NumPy arrays, not a model",
     "arrays are inputs: nnefc run model.so --input m.npz"),
    ("m.so", b"\x7fELF\2\1\1" + bytes(64), "a compiled library or program, not a model",
     "nnefc run m.so runs it, nnefc inspect m.so describes it"),
    ("m.xml", '<?xml version="1.0"?>\n<net name="m" version="11"><layers>', "a model in OpenVINO's format (IR)",
     "there is no way back from it: compile the ONNX model that it was made from"),
    ("m.param", "7767517\n2 2\nInput data 0 1 data\nReLU r 1 1 data y\n", "a param file of ncnn's",
     "pnnx writes a .pnnx.param file next to it, give that; or run pnnx on the TorchScript module that it was made "
     "from"),
    ("m.onnx", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n",
     "a pointer of Git LFS's in place of the file", "fetch the file: git lfs pull"),
    ("m.onnx", "\n<!DOCTYPE html>\n<html><title>404</title>", "a web page, not a model", AGAIN),
    ("m.onnx", '{"error":"Repository not found"}', "an error message of a web server, not a model", AGAIN),
    ("m.onnx", '<?xml version="1.0" encoding="UTF-8"?><Error><Code>AccessDenied</Code>',
     "an error message of a web server, not a model", AGAIN),
    ("model.json", '{"format": "graph-model", "generatedBy": "2.4.0"', "a TensorFlow.js model",
     "convert it to ONNX: python -m tf2onnx.convert --tfjs model.json --output model.onnx"),
    ("m.json", '{"base_code": {"magic": "pir"}', "a PaddlePaddle model", PADDLE.format(name="m.json")),
    ("m.pdmodel", field(1, b"\x08\0\x10\x01" + bytes(300)) + field(4, b"\x08\0"), "a PaddlePaddle model",
     PADDLE.format(name="m.pdmodel")),
    ("m.pb", field(1, 1) + field(2, b"\x0a\x02ab"), "a SavedModel of TensorFlow's",
     "convert its folder: python -m tf2onnx.convert --saved-model . --output model.onnx"),
    ("graph.pb", field(1, b"\x0a\x01x\x12\x0bPlaceholder") + field(4, b"\x08\x1b"), "a graph of TensorFlow's",
     "convert it to ONNX, with the names of its tensors: python -m tf2onnx.convert --graphdef graph.pb --inputs x:0 "
     "--outputs y:0 --output graph.onnx"),
    ("m.mlmodel", field(1, 4) + field(2, b"\x0a\x05\x0a\x03img") + field(500, b"\x0a\0"), "a Core ML model",
     f"export the network that it was made from: {EXPORT}"),
    ("m.caffemodel", field(1, b"LeNet") + field(100, b"\x0a\x01a"), "a network of Caffe's with its values",
     "convert it: python -m nnef_tools.convert --input-format caffe --output-format nnef --input-model m.prototxt"),
    ("m.prototxt", 'name: "LeNet"\nlayer {\n', "a network of Caffe's",
     "convert it: python -m nnef_tools.convert --input-format caffe --output-format nnef --input-model m.prototxt"),
    ("yolo.cfg", "# a comment\n[net]\nbatch=1\n", "a network of Darknet's",
     f"load it in PyTorch and export it: {EXPORT}"),
    ("m.txt", "tree\nversion=v4\n", "a LightGBM model", "convert it to ONNX: onnxmltools.convert_lightgbm(model, "
     "initial_types=[('x', FloatTensorType([None, 10]))])"),
    ("xgb.json", '{"learner":{"attributes":{}', "an XGBoost model",
     "convert it to ONNX: onnxmltools.convert_xgboost(model, initial_types=[('x', FloatTensorType([None, 10]))])"),
    ("m.cbm", b"CBM1" + bytes(32), "a CatBoost model", "save it as ONNX: model.save_model('m.onnx', format='onnx')"),
    ("m.onnxtxt", '<\n  ir_version: 8,\n  opset_import: ["" : 17]\n>', "an ONNX model as text",
     "make it binary: onnx.save(onnx.parser.parse_model(open('m.onnxtxt').read()), 'm.onnx')"),
    ("m.py", "import torch\n", "a Python program, not a model", f"export the network in it: {EXPORT}"),
    ("m.nnef.gz", gzip.compress(b"version 1.0;" * 100),
     "compressed with gzip, and neither a tar archive nor an ONNX model inside",
     "unpack it first: gunzip -k m.nnef.gz"),
    ("m.tar.xz", lzma.compress(b"x"), "compressed with xz", "unpack it first: tar xf m.tar.xz, or unxz -k m.tar.xz"),
    ("m.tar.bz2", bz2.compress(b"x"), "compressed with bzip2",
     "unpack it first: tar xf m.tar.bz2, or bunzip2 -k m.tar.bz2"),
    ("cat.png", b"\x89PNG\r\n\x1a\n", "an image, not a model",
     "give the network's file; images are inputs, as .npy files: nnefc run model.so --input NAME=photo.npy"),
    ("m.zip", zipped("m.onnx")[:-12], "a damaged zip archive", "the download was cut off: repeat it"),
    ("m.bin", bytes(range(7, 200)), "no model of a format that is known", "models are of ONNX (.onnx), of TFLite "
     "(.tflite), of PNNX (.pnnx.param with its .bin), of GGUF (.gguf) or of NNEF (a folder, .tgz, .tar, or a "
     "document)"),
    ("m.onnx", b"", "empty", "the download or the export was cut off: repeat it"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "content", "what", "hint"), FILES, ids=[f"{i}-{f[0]}" for i, f in enumerate(FILES)])
def test_what_a_file_is_and_the_way_to_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes | str, what: str, hint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path(name), content)
    assert message("compile", name, "-o", "out.so") == f"error: '{name}' is {what}\nhint: {hint}"


def test_a_program_of_pytorch_needs_pytorch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "torch", None)
    write(Path("m.pt2"), zipped("m/archive_format", "m/models/model.json"))
    what = "a program of torch.export's, which PyTorch alone reads"
    assert message("compile", "m.pt2", "-o", "out.so") == f"error: 'm.pt2' is {what}\nhint: pip install 'nnefc[torch]'"


FOLDERS = [
    (["net.onnx", "net.onnx.data"], "a folder with an ONNX model in it", "give the model: m/net.onnx"),
    (["net.pnnx.param", "net.pnnx.bin"], "a folder with a PNNX network in it", "give the param file: m/net.pnnx.param"),
    (["net.nnef"], "a folder with an NNEF document in it that is not called graph.nnef",
     "give the document: m/net.nnef"),
    (["saved_model.pb", "variables/variables.index"], "a SavedModel of TensorFlow's",
     "convert it to ONNX: python -m tf2onnx.convert --saved-model m --output m.onnx"),
    (["Manifest.json", "Data/x"], "a Core ML package", f"export the network that it was made from: {EXPORT}"),
    (["config.json", "pytorch_model.bin"], "a model of Hugging Face's without files of safetensors",
     "save it again: model.save_pretrained('m', safe_serialization=True)"),
]  # fmt: skip


@pytest.mark.parametrize(("names", "what", "hint"), FOLDERS, ids=[names[0] for names, _, _ in FOLDERS])
def test_what_a_folder_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], what: str, hint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in names:
        write(Path("m") / name, "x")
    assert message("inspect", "m") == f"error: 'm' is {what}\nhint: {hint}"


def test_an_empty_folder_holds_no_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m").mkdir()
    assert message("compile", "m", "-o", "m.so") == (
        "error: the folder 'm' holds no 'graph.nnef'\nhint: give the folder that holds the document"
    )


def test_a_name_that_is_nearly_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("resnet50.onnx"), "x")
    assert message("compile", "resnet5.onnx", "-o", "m.so") == (
        "error: there is no file or folder 'resnet5.onnx'\nhint: did you mean 'resnet50.onnx'?"
    )
    assert message("inspect", "gone/m.onnx") == "error: there is no file 'gone/m.onnx': its folder does not exist"


def test_the_values_of_a_pnnx_network_instead_of_its_param_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("m.pnnx.param"), "7767517\n")
    write(Path("m.pnnx.bin"), zipped("fc.weight"))
    assert message("inspect", "m.pnnx.bin") == (
        "error: 'm.pnnx.bin' is the file of values of a PNNX network\nhint: give the param file next to it: "
        "m.pnnx.param"
    )


def onnx_bytes() -> bytes:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])],
    )
    opset = [helper.make_opsetid("", 17)]
    content: bytes = helper.make_model(graph, ir_version=10, opset_imports=opset).SerializeToString()
    return content


@pytest.mark.parametrize("name", ["model", "model.pb", "model.bin", "model.nnef"])
def test_an_onnx_model_is_one_under_any_name(tmp_path: Path, name: str) -> None:
    assert format_of(write(tmp_path / name, onnx_bytes())).name == "ONNX"


def test_a_model_that_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path("m.onnx"), onnx_bytes()[:-20])
    assert message("compile", "m.onnx", "-o", "m.so") == (
        "error: m.onnx is not an ONNX model: it cannot be parsed as one\n"
        "hint: the file may be cut off or damaged: download or export it again"
    )


@pytest.mark.parametrize("text", ["# " * 2000, " " * 4000 + "x", "name: x\n" * 400, "#\n" * 2000, '{"a": ' * 600])
def test_long_beginnings_take_no_time(tmp_path: Path, text: str) -> None:
    """A pattern that tries every way to divide these would not come to an end."""
    path = write(tmp_path / "m.nnef", text)
    if text.startswith("{"):
        assert "a JSON document" in message("inspect", path)
    else:
        assert format_of(path).name == "NNEF"


def test_formats_that_are_read_are_reported_by_their_bytes_too(tmp_path: Path) -> None:
    shutil.copy(ROOT / "examples" / "digits" / "model.nnef" / "graph.nnef", tmp_path / "net")
    assert format_of(tmp_path / "net").name == "NNEF"
    assert format_of(write(tmp_path / "net.txt", "7767517\n1 1\npnnx.Input in 0 1 0\n")).name == "PNNX"
    assert format_of(ROOT / "examples" / "digits" / "model.nnef").name == "NNEF"


def test_real_models_are_no_foreign_files(tmp_path: Path) -> None:
    onnx.save(onnx.load_from_string(onnx_bytes()), tmp_path / "m.onnx")
    data = ROOT / "tests" / "data"
    for path in (*data.glob("nnef/**/*.nnef"), *data.glob("pnnx/**/*.param"), tmp_path / "m.onnx"):
        wanted = {".nnef": "NNEF", ".param": "PNNX", ".onnx": "ONNX"}[path.suffix]
        assert format_of(path).name == wanted, path
