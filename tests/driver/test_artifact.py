"""What compiling returns: its description, and libraries that are whole and always the same."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from relax_programs import many_parts, network_of, program, target

import nnefc
from nnefc.driver.artifact import Artifact
from nnefc.driver.compile import compile_network
from nnefc.driver.library_description import _initial_bytes
from nnefc.ir.network import State
from nnefc.support.diagnostics import CompileError
from nnefc.targets.codegen.cpu.objects import MachineCode
from nnefc.targets.link.zig import zig

X = np.random.default_rng(0).standard_normal((1, 8, 9, 9)).astype(np.float32)


def artifact() -> Artifact:
    """Several kernels of several rules, constants of several sizes, and a state."""
    rng = np.random.default_rng(1)
    module = program(
        """x[1, 8, 9, 9]; s[1, 17] -> g, b, h
        a = R.nn.conv2d(x, W, padding=[1, 1, 1, 1])
        b = R.nn.relu(a)
        c = R.nn.max_pool2d(b, pool_size=[3, 3], strides=[2, 2])
        d = R.nn.conv2d(c, D, groups=17)
        e = R.mean(d, axis=[2, 3])
        f = R.matmul(e, M)
        g = R.nn.softmax(f)
        h = R.add(s, e)""",
        W=rng.standard_normal((17, 8, 3, 3)).astype(np.float32),
        D=rng.standard_normal((17, 1, 3, 3)).astype(np.float32),
        M=rng.standard_normal((17, 10)).astype(np.float32),
    )
    network = network_of(module, [State("s", np.ones((1, 17), np.float32))])
    return compile_network(network, target("llvm -mcpu=x86-64-v3"))


@pytest.fixture(scope="module")
def compiled() -> Artifact:
    return artifact()


def test_states_that_are_zero_at_first_are_not_stored() -> None:
    """Those after the last other one; each reset clears them."""
    module = program(
        """x[1]; a[1]; b[5000] -> y, c, d
        c = R.add(a, x)
        d = R.add(b, x)
        y = R.add(d, a)"""
    )
    states = [State("a", np.full(1, 7, np.float32)), State("b", np.zeros(5000, np.float32))]
    made = compile_network(network_of(module, states), target("llvm -mcpu=x86-64-v3"))
    assert made.description.state_bytes > 20000
    assert made.description.constant_bytes < 128
    with made.load() as model:
        for _ in range(2):
            for run in range(3):
                np.testing.assert_array_equal(model(np.ones(1, np.float32)), np.full(5000, 8 + 2 * run, np.float32))
            model.reset()


def test_the_description_has_names_types_shapes_and_memory(compiled: Artifact) -> None:
    description = compiled.description
    assert [(t.name, t.dtype, t.shape) for t in description.inputs] == [("x", "float32", (1, 8, 9, 9))]
    assert [(t.name, t.shape) for t in description.outputs] == [("y0", (1, 10)), ("y1", (1, 17, 9, 9))]
    assert [(t.name, t.shape) for t in description.states] == [("s", (1, 17))]
    assert description.target == "llvm -mcpu=x86-64-v3"
    assert description.state_bytes == 128
    assert description.constant_bytes == description.state_initial_offset + 4 * 17
    assert description.workspace_bytes >= compiled.lower_bound_bytes > 0
    assert {"avx2", "fma"} <= set(description.cpu_features)


def test_an_exported_library_gives_what_the_artifact_gives(compiled: Artifact, tmp_path: Path) -> None:
    compiled.export(tmp_path / "net.so")
    with nnefc.load(tmp_path / "net.so") as model:
        outputs = model.run({"x": X})
    for name, array in compiled.run({"x": X}).items():
        assert np.array_equal(outputs[name], array)


def test_exporting_replaces_an_older_library_and_leaves_nothing_else(compiled: Artifact, tmp_path: Path) -> None:
    path = tmp_path / "net.so"
    path.write_bytes(b"old")
    compiled.export(path)
    assert path.read_bytes()[:4] == b"\x7fELF"
    assert [p.name for p in tmp_path.iterdir()] == ["net.so"]


def test_a_library_that_cannot_be_written_is_an_error(compiled: Artifact, tmp_path: Path) -> None:
    with pytest.raises(CompileError):
        compiled.export(tmp_path / "missing" / "net.so")
    (tmp_path / "folder").mkdir()
    with pytest.raises(CompileError):
        compiled.export(tmp_path / "folder")
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_exporting_twice_gives_the_same_bytes(compiled: Artifact, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        compiled.export(tmp_path / name / "net.so")
    assert (tmp_path / "a" / "net.so").read_bytes() == (tmp_path / "b" / "net.so").read_bytes()


def written(made: Artifact, folder: Path) -> dict[str, str]:
    """Digests of the files that an artifact is written as."""
    folder.mkdir(exist_ok=True)
    made.export(folder / "net.so")
    made.export(folder / "net.a", name="net", weights="separate")
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


IN_A_PROCESS_OF_ITS_OWN = """
from nnefc.support.minimal_tvm import import_tvm
import_tvm()
import json, pathlib, sys
from test_artifact import written_by_two
print(json.dumps(written_by_two(pathlib.Path(sys.argv[1]))))
"""


def written_by_two(folder: Path) -> list[dict[str, str]]:
    """Of kernels of several rules, and of one that reads the parts of several tensors."""
    parts = compile_network(network_of(many_parts("add", 6, 3)), target("llvm -mcpu=x86-64-v3"))
    return [written(artifact(), folder), written(parts, folder)]


def test_a_process_with_other_hashes_writes_the_same_bytes(tmp_path: Path) -> None:
    here = written_by_two(tmp_path)
    assert sorted(here[0]) == ["net.a", "net.h", "net.so", "net.weights"]
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    environment = {
        **os.environ,
        "PYTHONHASHSEED": seed,
        "PYTHONPATH": os.pathsep.join((str(Path(__file__).parent), str(Path(__file__).parents[1] / "helpers"))),
    }
    command = [sys.executable, "-c", IN_A_PROCESS_OF_ITS_OWN, str(tmp_path / "there")]
    done = subprocess.run(command, check=True, env=environment, stdout=subprocess.PIPE)
    assert json.loads(done.stdout) == here


def test_code_for_other_machines_in_between_changes_nothing(compiled: Artifact, tmp_path: Path) -> None:
    """LLVM's options are those of the process: its WebAssembly sets one for all code that comes later."""
    before = written(compiled, tmp_path)
    network = network_of(many_parts("add", 40, 3))
    assert len(compile_network(network, target("wasm32-wasi")).code.objects) > 0
    assert written(artifact(), tmp_path) == before


def test_inputs_need_the_alignment_of_their_elements_only(compiled: Artifact) -> None:
    raw = np.zeros(X.nbytes + 64, np.uint8)
    start = -raw.ctypes.data % 64 + 4
    shifted = raw[start : start + X.nbytes].view(np.float32).reshape(X.shape)
    shifted[:] = X
    with compiled.load() as model:
        expected = model.run({"x": X})
        model.reset()
        outputs = model.run({"x": shifted})
    assert all(np.array_equal(outputs[name], expected[name]) for name in expected)


@pytest.mark.parametrize(("kind", "suffix", "text"), [("llvm-ir", "ll", "define "), ("asm", "s", "nnefc_network:")])
def test_code_is_written_as_text(compiled: Artifact, kind: str, suffix: str, text: str, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "code"
    folder.mkdir(parents=True)
    (folder / f"kernels99.{suffix}").touch()  # of an earlier call
    (folder / f"other.{suffix}").touch()
    compiled.emit(kind, folder)
    names = sorted(os.listdir(folder))
    assert names[:2] == [f"entry.{suffix}", f"kernels0.{suffix}"]
    assert f"other.{suffix}" in names
    assert f"kernels99.{suffix}" not in names
    assert text in (folder / f"entry.{suffix}").read_text()


def test_emitted_assembly_is_that_of_the_library(compiled: Artifact, tmp_path: Path) -> None:
    """Its objects, linked as the compiler links its own, compute the same."""
    compiled.emit("asm", tmp_path / "code")
    objects = []
    for source in sorted((tmp_path / "code").iterdir()):
        objects.append(source.with_suffix(".o"))
        command = [*zig(), "cc", "-target", compiled.target.zig_target, "-mcpu=x86_64_v3"]
        subprocess.run([*command, "-c", str(source), "-o", str(objects[-1])], check=True)
    assert isinstance(compiled.code, MachineCode)
    code = replace(compiled.code, objects=tuple(path.read_bytes() for path in objects))
    again = replace(compiled, code=code)
    outputs = again.run({"x": X})
    for name, array in compiled.run({"x": X}).items():
        assert np.array_equal(outputs[name], array)


def test_other_texts_and_positions_are_refused(compiled: Artifact, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="choose one of llvm-ir, asm"):
        compiled.emit("pascal", tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(CompileError, match="cannot write"):
        compiled.emit("asm", tmp_path / "file")


def test_weights_are_in_the_library_or_next_to_it(compiled: Artifact, tmp_path: Path) -> None:
    compiled.export(tmp_path / "net.so", weights="separate")
    assert (tmp_path / "net.weights").stat().st_size >= 4096 + compiled.description.constant_bytes
    with nnefc.load(tmp_path / "net.so") as model:
        outputs = model.run({"x": X})
    for name, array in compiled.run({"x": X}).items():
        assert np.array_equal(outputs[name], array)
    with pytest.raises(CompileError, match="write 'embedded' or 'separate'"):
        compiled.export(tmp_path / "net.so", weights="elsewhere")


# --- an artifact as a value of Python's


def test_an_artifact_that_was_pickled_is_the_same_library(compiled: Artifact, tmp_path: Path) -> None:
    compiled.export(tmp_path / "net.so")
    again = pickle.loads(pickle.dumps(compiled))
    (tmp_path / "again").mkdir()
    again.export(tmp_path / "again" / "net.so")
    assert (tmp_path / "again" / "net.so").read_bytes() == (tmp_path / "net.so").read_bytes()
    with pytest.raises(CompileError, match=r"pickled artifact holds machine code only.*\n.*call emit before"):
        again.emit("asm", tmp_path / "code")


def test_copies_of_an_artifact_are_the_artifact(compiled: Artifact, tmp_path: Path) -> None:
    assert copy.copy(compiled) is compiled
    assert copy.deepcopy([compiled]) == [compiled]
    assert compiled in {compiled}


def test_an_artifact_is_shown_in_one_line(compiled: Artifact) -> None:
    interface = "x: float32[1, 8, 9, 9] -> y0: float32[1, 10], y1: float32[1, 17, 9, 9]"
    assert repr(compiled) == f"<Artifact test for llvm -mcpu=x86-64-v3: {interface}>"
    many = replace(compiled.description, inputs=compiled.inputs * 1000)
    assert len(repr(replace(compiled, description=many))) < 500


def test_states_of_negative_zeros_are_kept() -> None:
    states = [SimpleNamespace(initial=np.full(3, value, np.float32)) for value in (0.0, -0.0, 0.0)]
    network, plan = SimpleNamespace(states=states), SimpleNamespace(state_offsets=(0, 64, 128))
    assert _initial_bytes(network, plan) == 64 + 12  # type: ignore[arg-type]
