"""Command streams that Vela puts in a file (the custom operator ethos-u) are given to a function of the program."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest
from tflite_files import Graph, model_file

import nnefc
from nnefc.frontends.tflite import load
from nnefc.support.diagnostics import CompileError
from nnefc.targets.link.zig import zig

ARENA, CACHE, INPUT_AT, OUTPUT_AT = 64, 16, 16, 48
COMMANDS, WEIGHTS = np.arange(7, 39, dtype=np.uint8), np.array([3, 1, 4, 1, 5], np.uint8)
STUB = """
#include <stdint.h>
int32_t ethosu_run_commands(const void *commands, uint64_t bytes, void *const *addresses, const uint64_t *sizes,
                            int32_t count) {
    const uint8_t *command = commands, *weights = addresses[0];
    uint8_t *arena = addresses[1], *cache = addresses[2];
    if (count != 3 || bytes != 32 || sizes[0] != 5 || sizes[1] != 64 || command[31] != 38) return 1;
    if (sizes[2] != (cache == arena ? 64 : 16)) return 3;
    if ((uintptr_t)command % 16 || (uintptr_t)weights % 16 || (uintptr_t)arena % 16 || (uintptr_t)cache % 16) return 2;
    for (int i = 0; i < 16; i++) cache[i] = weights[i % 5];
    for (int i = 0; i < 6; i++) arena[48 + i] = arena[16 + i] ^ cache[i];
    return 0;
}
"""


def written(folder: Path, shared: bool = False, **offsets: int) -> Path:
    """Writes a file with a command stream, whose result goes through a RELU; if `shared`, the cache is the arena."""
    graph = Graph()
    lies = {"input": INPUT_AT, "output": OUTPUT_AT} | offsets
    words = np.array([0, 1, 7, -1, -1, -1, 0, 0, lies["input"], lies["output"]], np.int32)
    graph.tensor((words.size,), "int32", words)  # buffer 1, which the metadata names
    commands, weights = (graph.tensor(each.shape, "uint8", each) for each in (COMMANDS, WEIGHTS))
    memory = [graph.tensor((size,), "uint8") for size in (ARENA, CACHE)]
    x, y = graph.input((1, 6), "int8", scale=0.1), graph.tensor((1, 6), "int8", scale=0.1)
    memory = [memory[0]] * 2 if shared else memory
    graph.add("ethos-u", [commands, weights, *memory, x], [y], custom_options=np.array([1, 4, 1], np.uint8))
    graph.add("RELU", [y], [graph.output((1, 6), "int8", scale=0.1)])
    path = folder / "model_vela.tflite"
    path.write_bytes(model_file(graph, metadata=[{"name": "OfflineMemoryAllocation", "buffer": 1}]))
    return path


def test_the_program_s_function_runs_the_commands(tmp_path: Path) -> None:
    path = written(tmp_path)
    x = np.array([[1, -2, 30, 4, 127, -128]], np.int8)
    artifact = nnefc.compile(path)
    with pytest.raises(nnefc.RunError, match="'ethos_u' failed"):
        artifact.run({"t5": x})
    (tmp_path / "stub.c").write_text(STUB)
    subprocess.run([*zig(), "cc", "-shared", "-fPIC", "stub.c", "-o", "stub.so"], cwd=tmp_path, check=True)
    ctypes.CDLL(str(tmp_path / "stub.so"), ctypes.RTLD_GLOBAL)
    wanted = (x.view(np.uint8) ^ np.resize(WEIGHTS, 6)).view(np.int8)
    for made in (artifact, nnefc.compile(written(tmp_path, shared=True))):
        np.testing.assert_array_equal(next(iter(made.run({"t5": x}).values())), np.maximum(wanted, 0))


def test_static_libraries_leave_the_function_to_the_program(tmp_path: Path) -> None:
    nnefc.compile(written(tmp_path), "cortex-m55").export(tmp_path / "net.a")
    made = subprocess.run([*zig(), "ar", "p", "net.a"], cwd=tmp_path, capture_output=True, check=True).stdout
    assert b"ethosu_run_commands\0" in made


def test_tensors_outside_of_the_arena_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"\(ethos-u\): a tensor \[1, 6\] of int8 at 60 is not in 64 bytes"):
        load(written(tmp_path, output=60))
    with pytest.raises(CompileError, match="does not say where its tensors lie"):
        load(written(tmp_path, input=-1))
