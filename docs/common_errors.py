"""Write docs/mistakes.md: mistakes that people make, and what the command line says to them.

    python docs/common_errors.py

Every command is run; what it prints is on the page as it is.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import onnx
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper

from nnefc.cli import main

__all__ = ["MISTAKES", "PAGE", "page"]

PAGE = Path(__file__).with_name("mistakes.md")
_DIGITS = Path(__file__).parents[1] / "examples" / "digits"
_BEGIN = """# Mistakes and their messages

`python docs/common_errors.py` writes this page: it makes each mistake in a folder of its own and notes the answer. An
answer
says where, what, and what to do; the status is 2 for wrong usage and 1 for all else. Nothing is left half written.
"""

MISTAKES = {
    "Files": (
        "compile none.onnx -o a.so",
        "compile photo.png -o a.so",
        "compile empty.onnx -o a.so",
        "compile cut.onnx -o a.so",
        "compile folder -o a.so",
        "compile text.nnef -o a.so",
        "compile digits.nnef -o digits.txt",
        "compile digits.nnef -o nowhere/digits.so",
        "compile no_weights.nnef -o a.so",
        "compile short_weights.nnef -o a.so",
        "compile alone.pnnx.param -o a.so",
    ),
    "Models": (
        "compile syntax.nnef -o a.so",
        "compile unknown.nnef -o a.so",
        "compile types.nnef -o a.so",
        "compile custom.onnx -o a.so",
        "compile dangling.onnx -o a.so",
        "compile mismatch.onnx -o a.so",
        "compile missing_data.onnx -o a.so",
        "compile outside.onnx -o a.so",
        "compile cycle.onnx -o a.so",
        "view digits.nnef -o a.html --after fold",
    ),
    "Options": (
        "complie digits.nnef",
        "compile digits.nnef",
        "compile digits.nnef --taget cuda -o a.so",
        "compile digits.nnef --target i386 -o a.so",
        "compile digits.nnef --target 'llvm -mcpu=zen9' -o a.so",
        "compile open.onnx --shape bach=1 -o a.so",
        "compile open.onnx --shape batch=0 -o a.so",
        "compile open.onnx --shape batch=9..3 -o a.so",
        "compile digits.nnef --shape image=3,8,8 -o a.so",
        "compile digits.nnef --precision fp8 -o a.so",
        "compile digits.nnef --precision int8 -o a.so",
        "compile digits.nnef --precision int8 --calibrate none.npz -o a.so",
        "compile digits.nnef --precision int8 --calibrate wrong.npz -o a.so",
        "compile digits.nnef --max-error 0.1 -o a.so",
    ),
    "Libraries": (
        "run none.so",
        "run photo.png",
        "run text.so --random 0",
        "run digits.so",
        "run digits.so --input photo=image.npy",
        "run digits.so --input image=none.npy",
        "run digits.so --input image=wide.npy",
        "run digits.so --input image=words.npy",
        "bench digits.so --threads 0",
        "run digits.so --random 0 --select probabilty",
    ),
}
"""The commands, without `nnefc`, by what they are about."""


def page() -> str:
    """The page's text."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        _write_files(Path(folder))
        return "\n".join([_BEGIN, *_sections()])


def _sections() -> Iterator[str]:
    for about, commands in MISTAKES.items():
        yield f"## {about}\n"
        for command in commands:
            result = CliRunner().invoke(main, shlex.split(command), prog_name="nnefc")
            if result.exit_code not in (1, 2) or result.stdout:
                raise SystemExit(f"nnefc {command}: status {result.exit_code}\n{result.output}")
            printed = result.stderr.replace(os.getcwd() + "/", "").rstrip()
            yield f"```text\n$ nnefc {command}\n{printed}\n```\n"


def _model(nodes: Sequence[onnx.NodeProto], shape: Sequence[int | str], **constants: np.ndarray) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.example", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def _stored_outside(location: str) -> onnx.ModelProto:
    model = _model([helper.make_node("MatMul", ["x", "w"], ["y"])], [1, 4], w=np.ones((4, 3), np.float32))
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", location
    return model


def _write_files(folder: Path) -> None:
    """What the commands find."""
    relu = [helper.make_node("Relu", ["x"], ["y"])]
    models = {
        "open": _model(relu, ["batch", 4]),
        "custom": _model([helper.make_node("Swirl", ["x"], ["y"], name="swirl", domain="com.example")], [1, 4]),
        "dangling": _model([helper.make_node("Add", ["x", "z"], ["y"])], [1, 4]),
        "mismatch": _model([helper.make_node("MatMul", ["x", "w"], ["y"])], [1, 4], w=np.ones((5, 3), np.float32)),
        "cycle": _model(
            [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"]), *relu], [1, 4]
        ),
        "missing_data": _stored_outside("weights.bin"),
        "outside": _stored_outside("../../weights.bin"),
    }
    for name, model in models.items():
        (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    whole = models["mismatch"].SerializeToString()
    (folder / "cut.onnx").write_bytes(whole[: len(whole) // 2])
    (folder / "empty.onnx").write_bytes(b"")
    (folder / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(64))
    (folder / "folder").mkdir()
    (folder / "alone.pnnx.param").write_text("7767517\n2 1\npnnx.Input in 0 1 0 #0=(1,4)f32\n")
    (folder / "text.nnef").write_text("this is no document\n")
    head = "version 1.0;\ngraph net(x) -> (y)\n{\n    x = external<scalar>(shape = [1, 4]);\n"
    documents = {
        "syntax": "    y = relu(x;\n",
        "unknown": "    y = rleu(x);\n",
        "types": "    y = softmax(x, axes = 'all');\n",
        "no_weights": "    w = variable<scalar>(shape = [4, 3], label = 'w');\n    y = matmul(x, w);\n",
        "short_weights": "    w = variable<scalar>(shape = [4, 3], label = 'w');\n    y = matmul(x, w);\n",
    }
    for name, body in documents.items():
        (folder / f"{name}.nnef").mkdir()
        (folder / f"{name}.nnef" / "graph.nnef").write_text(f"{head}{body}}}\n")
    (folder / "short_weights.nnef" / "w.dat").write_bytes(b"N\xef\x01\x00" + bytes(20))
    np.savez(folder / "wrong.npz", image=np.zeros((5, 3, 3), np.float32))
    np.save(folder / "wide.npy", np.zeros((1, 1, 9, 9), np.float32))
    np.save(folder / "words.npy", np.array([["a"]]))
    (folder / "digits.nnef").symlink_to(_DIGITS / "model.nnef")
    made = CliRunner().invoke(main, ["compile", "digits.nnef", "-o", "digits.so", "--target", "x86-64"])
    if made.exit_code:
        raise SystemExit(made.output)
    (folder / "text.so").write_text("not a library")


if __name__ == "__main__":
    PAGE.write_text(page())
