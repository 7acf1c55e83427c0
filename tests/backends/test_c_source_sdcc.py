"""Networks as C source on a processor of 8 bits: compiled by sdcc, whose int has 16 bits, for a simulated Z80."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import nnefc

pytestmark = pytest.mark.skipif(not (shutil.which("sdcc") and shutil.which("sz80")), reason="needs sdcc with ucsim")

RESULTS = 0xF000  # the address that the simulator prints from
MAIN = """
#include "small.h"
static const float x[] = {%s};
static const int16_t n[] = {%s};
static uint64_t arena[(SMALL_ARENA_BYTES + 7) / 8];
float __at(0xf000) y[3];
int32_t __at(0xf010) sums[4];
uint32_t __at(0xf020) bits[4];
int __at(0xf030) status;
void main(void) {
    status = 77 + small_run(x, n, y, sums, bits, arena);
    __asm__("halt");
}
"""


def small(path: Path, generator: np.random.Generator) -> None:
    """Writes a network of floats and of integers that are wider than 16 bits."""
    weights = {
        "k": (generator.standard_normal((2, 1, 3, 3)) * 0.3).astype(np.float32),
        "m": (generator.standard_normal((18, 3)) * 0.3).astype(np.float32),
        "wide": np.array([70000, -3, 41, 1 << 20], np.int32),
        "by": np.array([3, 17, 20, 31], np.uint32),
    }
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["a"]),
        helper.make_node("Tanh", ["a"], ["b"]),
        helper.make_node("Flatten", ["b"], ["c"]),
        helper.make_node("MatMul", ["c", "m"], ["d"]),
        helper.make_node("Softmax", ["d"], ["y"]),
        helper.make_node("Cast", ["n"], ["n32"], to=TensorProto.INT32),
        helper.make_node("Mul", ["n32", "wide"], ["products"]),
        helper.make_node("CumSum", ["products", "axis"], ["sums"]),
        helper.make_node("Cast", ["n32"], ["u"], to=TensorProto.UINT32),
        helper.make_node("BitShift", ["u", "by"], ["bits"], direction="LEFT"),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 1, 5, 5]),
            helper.make_tensor_value_info("n", TensorProto.INT16, [4]),
        ],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3]),
            helper.make_tensor_value_info("sums", TensorProto.INT32, [4]),
            helper.make_tensor_value_info("bits", TensorProto.UINT32, [4]),
        ],
        [numpy_helper.from_array(value, name) for name, value in {**weights, "axis": np.array(0)}.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def test_an_8_bit_processor_computes_what_libraries_do(tmp_path: Path) -> None:
    generator = np.random.default_rng(5)
    small(tmp_path / "small.onnx", generator)
    x, n = generator.standard_normal((1, 1, 5, 5)).astype(np.float32), np.array([-300, 299, 12345, -7], np.int16)
    nnefc.compile(tmp_path / "small.onnx", "generic-c").export(tmp_path / "small.c")
    (tmp_path / "main.c").write_text(MAIN % (", ".join(map(str, x.ravel())), ", ".join(map(str, n))))
    for options in (("-c", "small.c"), ("-c", "main.c"), ("--data-loc", "0x8000", "main.rel", "small.rel")):
        command = ["sdcc", "-mz80", "--std-c99", *options]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
    commands = f"run\ndump rom {RESULTS:#x} {RESULTS + 0x3F:#x}\nquit\n"
    command = ["sz80", "-tZ80", "main.ihx"]
    run = subprocess.run(command, cwd=tmp_path, input=commands.encode(), capture_output=True, timeout=60, check=True)
    rows = re.findall(r"^0xf0\w\w((?: +[0-9a-f]{2}){8})", run.stdout.decode("latin1"), re.MULTILINE)
    memory = bytes.fromhex("".join(rows))
    wanted = nnefc.compile(tmp_path / "small.onnx").run({"x": x, "n": n})
    assert np.frombuffer(memory, np.int16, 1, 0x30) == 77
    np.testing.assert_array_equal(np.frombuffer(memory, np.int32, 4, 0x10), wanted["sums"])
    np.testing.assert_array_equal(np.frombuffer(memory, np.uint32, 4, 0x20), wanted["bits"])
    np.testing.assert_allclose(np.frombuffer(memory, np.float32, 3).reshape(1, 3), wanted["y"], rtol=2e-5)
