"""Recognizes files by their content: model formats, and files of other programs, with a hint how to export these.

File names are unreliable: an `.onnx` file may be an HTML error page, an ONNX model may be called `.pb` or `.bin`. Only
the beginning of a file is read; of protobuf messages, the field headers; of zip archives, the member names.
"""

from __future__ import annotations

import mmap
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from nnefc.frontends.file_names import NNEF_DOCUMENT
from nnefc.support.diagnostics import CompileError

__all__ = ["TFLITE_MAGIC", "check_known", "is_gguf", "is_hugging_face", "is_onnx", "is_pnnx", "is_tflite"]

_HEAD = 4096
_GZIP, _GGUF = b"\x1f\x8b", b"GGUF"
_PACKED, _UNPACKED = 1 << 16, 1 << 20
"""Bytes that are read of a compressed file, and maximum bytes that are unpacked of them."""

_TAR = slice(257, 262), b"ustar"
TFLITE_MAGIC = b"TFL3"
"""The bytes at offset 4 of a TFLite model."""

_EXPORT = "torch.onnx.export(model.eval(), (example,), 'model.onnx')"


class _Foreign(CompileError):
    """The error for a file of another program."""

    def __init__(self, path: Path, what: str, hint: str, found: Path | None = None) -> None:
        names = {"path": path, "stem": path.stem, "folder": path.parent, "found": found}
        super().__init__(f"'{path}' is {what}", hint=hint.format(**names))


def check_known(path: Path) -> None:
    """Check that a file or folder is not known to be something else than a model that can be compiled.

    Raises:
        CompileError: it is; the message says what, and how to make a model of it.
        OSError: it cannot be read.
    """
    if path.is_dir():
        _check_folder(path)
        return
    head = _head(path)
    if not head:
        raise CompileError(f"'{path}' is empty", hint="the download or the export was cut off: repeat it")
    if head[4:8] == TFLITE_MAGIC:
        return
    for mark, start, what, hint in _MARKS:
        if head.startswith(mark, start):
            raise _Foreign(path, what, hint)
    if head.startswith(b"PK\x03\x04"):
        _check_zip(path)
    elif head.startswith(_GZIP):
        _check_gzip(path)
    elif head.startswith(_GGUF):
        return
    elif head[8:10] == b'{"' and int.from_bytes(head[:8], "little") < 1 << 32:
        raise _Foreign(path, "a safetensors file, which holds the values without the network", _HUGGING_FACE)
    elif _is_text(head):
        _check_text(path, head.decode("utf-8", errors="ignore"))
    elif head[_TAR[0]] != _TAR[1]:
        _check_binary(path, head)


def is_onnx(path: Path) -> bool:
    """Return whether a file is an ONNX model, perhaps truncated or compressed with gzip: a protobuf message with the
    fields of `ModelProto`.
    """
    try:
        packed = _head(path).startswith(_GZIP)
        return _is_model(dict(_fields_of(_inside(path)) if packed else _fields(path)))
    except (OSError, zlib.error):
        return False


def _is_model(fields: dict[int, int]) -> bool:
    return fields.get(7) == 2 and all(_MODEL_PROTO.get(number) == wire for number, wire in fields.items())


def is_gguf(path: Path) -> bool:
    """Return whether a file is a GGUF file."""
    try:
        return _head(path).startswith(_GGUF)
    except OSError:
        return False


def is_hugging_face(path: Path) -> bool:
    """Return whether a folder has the configuration and the weights of a Hugging Face model, and no NNEF document."""
    if (path / NNEF_DOCUMENT).exists() or not (path / "config.json").is_file():
        return False
    return next(path.glob("*.safetensors"), None) is not None


def is_pnnx(path: Path) -> bool:
    """Return whether a file is a param file of PNNX; those of ncnn begin alike."""
    try:
        head = _head(path)
    except OSError:
        return False
    return head.startswith(b"7767517") and re.search(rb"^pnnx\.", head, re.MULTILINE) is not None


def is_tflite(path: Path) -> bool:
    """Return whether a file is a TFLite model."""
    try:
        return _head(path)[4:8] == TFLITE_MAGIC
    except OSError:
        return False


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_HEAD)


# Files recognized by their first bytes: the bytes, their offset, the kind of file, how to get a model from it.

_HUGGING_FACE = (
    "give the folder, with the config.json of a language model: nnefc compile {folder}; export other networks: "
    "optimum-cli export onnx --model {folder} onnx"
)
_KERAS = "export it in Python: keras.models.load_model('{path}').export('{stem}.onnx', format='onnx')"
_PICKLE = (
    "of scikit-learn, convert the fitted model: onnx.save(skl2onnx.to_onnx(model, X[:1]), '{stem}.onnx'); of PyTorch, "
    f"{_EXPORT}"
)
_CHECKPOINT = f"build the network in Python, load the values into it, and export it: {_EXPORT}"
_MADE_FROM = "compile the model that it was made from, such as its ONNX file"
_LIBRARY = "nnefc run {path} runs it, nnefc inspect {path} describes it"
_UNPACK = "unpack it first"
_PADDLE = (
    "convert it to ONNX: paddle2onnx --model_dir {folder} --model_filename {path.name} --params_filename "
    "{stem}.pdiparams --save_file {stem}.onnx"
)
_CAFFE = "convert it: python -m nnef_tools.convert --input-format caffe --output-format nnef --input-model"
_KNOWN = (
    "models are of ONNX (.onnx), of TFLite (.tflite), of PNNX (.pnnx.param with its .bin), of GGUF (.gguf) or of NNEF "
    "(a folder, .tgz, .tar, or a document)"
)
_IMAGE = "give the network's file; images are inputs, as .npy files: nnefc run model.so --input NAME=photo.npy"

_MARKS = (
    (b"ORTM", 4, "a model in onnxruntime's own format (.ort)", "compile the .onnx file that it was made from"),
    (b"ET1", 4, "a program of ExecuTorch's", f"export the network itself: {_EXPORT}"),
    (b"lmgg", 0, "a GGML file, which llama.cpp wrote before it had GGUF", "get the model as GGUF"),
    (b"\x89HDF\r\n\x1a\n", 0, "an HDF5 file, as Keras writes them", _KERAS),
    (
        b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.",
        0,
        "a PyTorch checkpoint, without the network",
        _CHECKPOINT,
    ),
    *((bytes((0x80, version)), 0, "a Python pickle, not an exchange format", _PICKLE) for version in range(2, 6)),
    (b"ptrt", 0, "a TensorRT engine, which only its GPU runs", _MADE_FROM),
    (b"ftrt", 0, "a TensorRT engine, which only its GPU runs", _MADE_FROM),
    (b"RKNN", 0, "a model for Rockchip's processors (RKNN)", _MADE_FROM),
    (b"CBM1", 0, "a CatBoost model", "save it as ONNX: model.save_model('{stem}.onnx', format='onnx')"),
    (b"\x93NUMPY", 0, "a NumPy array, not a model", "arrays are inputs: nnefc run model.so --input NAME={path}"),
    (b"\x7fELF", 0, "a compiled library or program, not a model", _LIBRARY),
    (b"\xcf\xfa\xed\xfe", 0, "a compiled library or program, not a model", _LIBRARY),
    (b"MZ", 0, "a compiled library or program, not a model", _LIBRARY),
    (b"!<arch>\n", 0, "an archive of compiled objects, not a model", "nnefc inspect {path} describes it"),
    (b"\0asm", 0, "a WebAssembly module, not a model", "nnefc inspect {path} describes it"),
    (b"BZh", 0, "compressed with bzip2", f"{_UNPACK}: tar xf {{path}}, or bunzip2 -k {{path}}"),
    (b"\xfd7zXZ", 0, "compressed with xz", f"{_UNPACK}: tar xf {{path}}, or unxz -k {{path}}"),
    (b"(\xb5/\xfd", 0, "compressed with Zstandard", f"{_UNPACK}: tar xf {{path}}, or unzstd {{path}}"),
    (b"7z\xbc\xaf", 0, "a 7-Zip archive", f"{_UNPACK}: 7z x {{path}}"),
    (b"\x89PNG", 0, "an image, not a model", _IMAGE),
    (b"\xff\xd8\xff", 0, "an image, not a model", _IMAGE),
    (b"%PDF", 0, "a PDF document, not a model", "give the network's file"),
)


# Zip archives, by the names inside.


def _check_zip(path: Path) -> None:
    import zipfile

    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, ValueError, EOFError, NotImplementedError, struct.error, zipfile.BadZipFile) as error:
        raise _Foreign(path, "a damaged zip archive", "the download was cut off: repeat it") from error
    text = "\n".join(names)
    for pattern, what, hint in _MEMBERS:
        if re.search(pattern, text, re.MULTILINE):
            raise _Foreign(path, what, hint)
    param = path.with_suffix(".param")
    if param.is_file():
        raise _Foreign(path, "the file of values of a PNNX network", "give the param file next to it: {found}", param)
    raise _Foreign(path, "a zip archive", f"{_UNPACK}, and give the model inside: unzip {{path}}")


_MEMBERS = (
    (r"^(.*/)?constants\.pkl$|^[^/]*/code/", "a TorchScript module", "trace it to PNNX, with the shapes of its inputs: "
     "pnnx {path} 'inputshape=[1,3,224,224]'; or export the network that it was made from: " + _EXPORT),
    (r"^(.*/)?(archive_format|models/model\.json|serialized_exported_program\.json)$", "a program of torch.export's",
     "torch.onnx.export(torch.export.load('{path}'), f='{stem}.onnx', dynamo=True)"),
    (r"^(.*/)?data\.pkl$", "a PyTorch checkpoint, without the network", _CHECKPOINT),
    (r"^model\.weights\.h5$", "a Keras model", _KERAS),
    (r"\.mlmodel$", "a Core ML model", f"export the network that it was made from: {_EXPORT}"),
    (r"\.npy$", "a file of NumPy arrays, not a model", "arrays are inputs: nnefc run model.so --input {path}"),
)  # fmt: skip


def _check_gzip(path: Path) -> None:
    """Check the content of a gzip file: NNEF is a tar archive in it, ONNX a message; other files have to be unpacked
    first.

    Raises:
        CompileError: it is neither.
    """
    try:
        inside = _inside(path)
    except zlib.error as error:
        raise CompileError(f"'{path}' is not valid gzip data: {error}", hint="repeat the download") from error
    if len(inside) >= 512 and inside[_TAR[0]] != _TAR[1] and not _is_model(dict(_fields_of(inside))):
        what = "compressed with gzip, and neither a tar archive nor an ONNX model inside"
        raise _Foreign(path, what, f"{_UNPACK}: gunzip -k {{path}}")


def _inside(path: Path) -> bytes:
    """Return the first bytes of the content of a gzip file."""
    with path.open("rb") as file:
        return zlib.decompressobj(wbits=31).decompress(file.read(_PACKED), _UNPACKED)


# Texts.


_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")  # no text has these; terminals' escapes are let pass


def _is_text(head: bytes) -> bool:
    try:
        head.decode("utf-8")
    except UnicodeDecodeError as error:
        if error.start < len(head) - 3 or len(head) < _HEAD:  # a character may be cut off at the end
            return False
    return not _CONTROL.search(head)


def _check_text(path: Path, text: str) -> None:
    if path.suffix.lower() == ".py":
        raise _Foreign(path, "a Python program, not a model", f"export the network in it: {_EXPORT}")
    for pattern, what, hint in _TEXTS:
        if re.match(pattern, text, re.IGNORECASE):
            raise _Foreign(path, what, hint)
    if text.startswith("7767517") and not re.search(r"^pnnx\.", text, re.MULTILINE):
        raise _Foreign(path, "a param file of ncnn's", "pnnx writes a .pnnx.param file next to it, give that; or run "
                       "pnnx on the TorchScript module that it was made from")  # fmt: skip


_AGAIN = "get the file itself: a site's download button, or its address with /resolve/ or /raw/ in place of /blob/"

_TEXTS = (
    (r"version https://git-lfs", "a pointer of Git LFS's in place of the file", "fetch the file: git lfs pull"),
    (r"\s*(<!doctype html|<html)", "a web page, not a model", _AGAIN),
    (r"\s*<\?xml[^>]*>\s*<net\b|\s*<net\b", "a model in OpenVINO's format (IR)",
     "there is no way back from it: compile the ONNX model that it was made from"),
    (r"\s*(<\?xml[^>]*>\s*)?<Error>", "an error message of a web server, not a model", _AGAIN),
    (r"\s*<\?xml", "an XML document, not a model", "give the network's file"),
    (r"\s*<\s*ir_version", "an ONNX model as text", "make it binary: onnx.save(onnx.parser.parse_model("
     "open('{path}').read()), '{stem}.onnx')"),
    (r"\s*ir_version\s*:", "an ONNX model as text of protobuf's", "make it binary: onnx.save(onnx.load('{path}', "
     "format='textproto'), '{stem}.onnx')"),
    (r"\s*\{[^}]*\"(format|modelTopology)\"\s*:\s*(\"(graph|layers)-model\"|\{)", "a TensorFlow.js model",
     "convert it to ONNX: python -m tf2onnx.convert --tfjs {path} --output {stem}.onnx"),
    (r"\s*\{\s*\"base_code\"|\s*\{\s*\"program\"", "a PaddlePaddle model", _PADDLE),
    (r"\s*\{\s*\"learner\"", "an XGBoost model", "convert it to ONNX: onnxmltools.convert_xgboost(model, "
     "initial_types=[('x', FloatTensorType([None, 10]))])"),
    (r"tree\nversion=", "a LightGBM model", "convert it to ONNX: onnxmltools.convert_lightgbm(model, "
     "initial_types=[('x', FloatTensorType([None, 10]))])"),
    (r"\s*\{\s*\"(error|message)\"", "an error message of a web server, not a model", _AGAIN),
    (r"\s*\{\s*\"nodes\"", "a network of MXNet's", "export it to ONNX with mxnet.onnx.export_model"),
    (r"\s*\{", "a JSON document, not a model", "give the network's file"),
    (r"(?:\s|#[^\n]*\n|(?:input|input_dim|name)\s*:[^\n]*\n)*(layers?|input_shape)\s*\{", "a network of "
     "Caffe's", _CAFFE + " {path}"),
    (r"(?:\s|#[^\n]*\n)*\[(net|network)\]", "a network of Darknet's", f"load it in PyTorch and export it: {_EXPORT}"),
)  # fmt: skip


# Protobuf messages, by their fields' numbers and kinds: 0 is a number, 2 text or a message of its own.

_MODEL_PROTO = {1: 0, 2: 2, 3: 2, 4: 2, 5: 0, 6: 2, 7: 2, 8: 2, 14: 2, 20: 2, 25: 2, 26: 2}
_MAX_FIELDS = 10_000


def _check_binary(path: Path, head: bytes) -> None:
    fields = dict(_fields(path))
    if fields.get(7) == 2 and all(_MODEL_PROTO.get(number) == wire for number, wire in fields.items()):
        return
    what = hint = ""
    if fields == {1: 0, 2: 2}:
        what = "a SavedModel of TensorFlow's"
        hint = "convert its folder: python -m tf2onnx.convert --saved-model {folder} --output model.onnx"
    elif fields.get(1) == 0 and fields.get(2) == 2 and any(number >= 200 for number in fields):
        what, hint = "a Core ML model", f"export the network that it was made from: {_EXPORT}"
    elif fields.get(1) == 2 and head[:1] == b"\n":
        what, hint = _message(head, fields)
    if what:
        raise _Foreign(path, what, hint)
    if path.suffix.lower() not in (".onnx", ".param", ".tflite"):
        raise _Foreign(path, "no model of a format that is known", _KNOWN)


def _message(head: bytes, fields: dict[int, int]) -> tuple[str, str]:
    """Return the kind and the hint of a protobuf message that begins with a field 1 of bytes, by the content of that
    field.
    """
    at = 1
    while at < len(head) and head[at] & 0x80:
        at += 1
    inside = head[at + 1 : at + 3]
    if inside.startswith(b"\n"):
        return (
            "a graph of TensorFlow's",
            "convert it to ONNX, with the names of its tensors: python -m tf2onnx.convert --graphdef {path} "
            "--inputs x:0 --outputs y:0 --output {stem}.onnx",
        )
    if inside.startswith(b"\x08"):
        return "a PaddlePaddle model", _PADDLE
    if 100 in fields or 2 in fields:
        return "a network of Caffe's with its values", f"{_CAFFE} {{stem}}.prototxt"
    return "", ""


def _fields(path: Path) -> Iterator[tuple[int, int]]:
    """Yield the number and the wire type of each field of a protobuf message, without reading the contents.

    A file that is not a message yields a pair that no message has.
    """
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        yield from _fields_of(data)


def _fields_of(data: mmap.mmap | bytes) -> Iterator[tuple[int, int]]:
    at, size = 0, len(data)
    for _ in range(_MAX_FIELDS):
        if at >= size:
            return
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if not number or number > 5000 or wire not in (0, 1, 2, 5):
            yield 0, wire
            return
        yield number, wire
        length, at = _varint(data, at) if wire in (0, 2) else (0, at)
        at += {0: 0, 1: 8, 2: length, 5: 4}[wire]


def _varint(data: mmap.mmap | bytes, at: int) -> tuple[int, int]:
    """Return the base-128 varint at an offset, which may be truncated, and the offset of its end."""
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if not byte & 0x80:
            break
    return value, at


# Folders.


def _check_folder(path: Path) -> None:
    """Check a folder without an NNEF document by the files in it.

    Raises:
        CompileError: always; the message says what the folder is, if it is known.
    """
    if (path / NNEF_DOCUMENT).exists() or is_hugging_face(path):
        return
    for name, what, hint in _FOLDERS:
        found = next(iter(sorted(path.glob(name))), None)
        if found is not None:
            raise _Foreign(path, what, hint, found)


_FOLDERS = (
    ("*.onnx", "a folder with an ONNX model in it", "give the model: {found}"),
    ("*.tflite", "a folder with a TFLite model in it", "give the model: {found}"),
    ("*.pnnx.param", "a folder with a PNNX network in it", "give the param file: {found}"),
    ("*.nnef", "a folder with an NNEF document in it that is not called graph.nnef", "give the document: {found}"),
    ("*.nnef.tgz", "a folder with an NNEF archive in it", "give the archive: {found}"),
    ("saved_model.pb", "a SavedModel of TensorFlow's",
     "convert it to ONNX: python -m tf2onnx.convert --saved-model {path} --output {stem}.onnx"),
    ("Manifest.json", "a Core ML package", f"export the network that it was made from: {_EXPORT}"),
    ("*.pdmodel", "a PaddlePaddle model", "convert it to ONNX: paddle2onnx --model_dir {path} --model_filename {found} "
     "--save_file {stem}.onnx"),
    ("config.json", "a model of Hugging Face's without files of safetensors",
     "save it again: model.save_pretrained('{path}', safe_serialization=True)"),
)  # fmt: skip
