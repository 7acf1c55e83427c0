"""The loader: what it takes, what it gives, and what it says when something does not fit."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import platform
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from runtime_samples import (
    CONSTANTS,
    INITIAL_COUNT,
    SAMPLE,
    WEIGHTS,
    ZIG_TARGET,
    link,
    object_file,
    object_of,
    sample_library,
    shared_library_of,
    thread_count,
)

import nnefc.loader
from nnefc.cli import main
from nnefc.loader import LoadError, Model, RunError, Tensor, load
from nnefc.loader.exports import missing_export
from nnefc.loader.tensors import check_names
from nnefc.targets.link.constants import Constants
from nnefc.targets.link.outputs import write_network
from nnefc.targets.link.toolchain import TensorDescription

X = np.random.default_rng(3).standard_normal(1024).astype(np.float32)
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "model.nnef"
X[0] = 1  # the sample network takes negative values there as orders


@pytest.fixture
def model() -> Iterator[Model]:
    with load(sample_library(), threads=2) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def pair_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """sum = a + b over float32[2, 3]; one output."""
    source = (
        "#include <stdint.h>\nint32_t nnefc_network(float *a, float *b, float *sum, uint8_t *s, uint8_t *w,"
        " const uint8_t *c) { for (int i = 0; i < 6; i++) sum[i] = a[i] + 2 * b[i]; return 0; }"
    )
    tensors = [TensorDescription(name, "float32", (2, 3)) for name in ("a", "b", "sum")]
    description = replace(
        SAMPLE,
        model="pair",
        inputs=tuple(tensors[:2]),
        outputs=(tensors[2],),
        states=(),
        state_bytes=0,
        constant_bytes=0,
        state_initial_offset=0,
    )
    return link([object_of(source, "pair")], b"", description, tmp_path_factory.mktemp("pair") / "pair.so")


@pytest.fixture
def pair(pair_library: Path) -> Iterator[Model]:
    with load(pair_library) as loaded:
        yield loaded


def copy_library(tmp_path: Path) -> Path:
    return Path(shutil.copy(sample_library(), tmp_path / "model.so"))


# --- what a model says of itself


def test_model_describes_itself(model: Model) -> None:
    assert (model.name, model.target, model.compiler) == ("sample", "here", "nnefc test")
    assert model.inputs == (Tensor("x", "float32", (1024,)),)
    assert model.outputs == (Tensor("y", "float32", (1024,)), Tensor("count", "int64", (1,)))
    assert model.states == (Tensor("runs", "int64", ()),)
    assert (model.workspace_bytes, model.constant_bytes, model.state_bytes) == (4096, 4104, 8)
    assert repr(model) == "<Model sample for here: x: float32[1024] -> y: float32[1024], count: int64[1]>"


# --- running


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_library_in_memory_is_loaded(kind: Any, model: Model) -> None:
    content = kind(sample_library().read_bytes())
    with load(content, threads=2) as loaded, load(content, threads=1) as other:
        for each in (loaded, other):
            np.testing.assert_array_equal(each.run({"x": X})["y"], model.run({"x": X})["y"])


def test_a_library_in_memory_needs_its_weights_by_name_and_has_no_signature(tmp_path: Path) -> None:
    path = tmp_path / "separate.so"
    network = [object_file("network.c")]
    write_network(network, Constants.of(CONSTANTS), SAMPLE, path, zig_target=ZIG_TARGET, weights="separate")
    content = path.read_bytes()
    with pytest.raises(LoadError, match=r"separate\.weights: name it, weights=PATH"):
        load(content)
    with load(content, weights=tmp_path / "separate.weights") as loaded:
        assert loaded.run({"x": X})["y"].shape == X.shape
    with pytest.raises(LoadError, match="load the library by its path"):
        load(content, key=tmp_path / "key")
    with pytest.raises(LoadError, match="library in memory is not a shared library"):
        load(b"abc")


def test_several_outputs_are_a_tuple_and_one_is_an_array(model: Model, pair: Model) -> None:
    y, count = model(X)
    assert np.array_equal(y, X * WEIGHTS)
    assert count.tolist() == [INITIAL_COUNT + 1]
    assert isinstance(pair(np.ones((2, 3), np.float32), np.ones((2, 3), np.float32)), np.ndarray)


def test_inputs_by_position_by_name_and_both(pair: Model) -> None:
    a, b = np.full((2, 3), 1, np.float32), np.full((2, 3), 10, np.float32)
    for result in (pair(a, b), pair(a=a, b=b), pair(b=b, a=a), pair(a, b=b), pair.run({"b": b, "a": a})["sum"]):
        assert result.tolist() == [[21] * 3] * 2


def test_outputs_by_name(model: Model) -> None:
    results = model.run({"x": X})
    assert list(results) == ["y", "count"]
    assert np.array_equal(results["y"], X * WEIGHTS)


def test_reset_and_further_sessions_have_their_own_states(model: Model) -> None:
    assert [int(model(X)[1][0]) for _ in range(3)] == [6, 7, 8]
    with model.session(threads=1) as other:
        assert int(other(X)[1][0]) == 6
    model.reset()
    assert int(model(X)[1][0]) == 6


def test_results_of_two_runs_do_not_share_memory(model: Model) -> None:
    first = model(X)[0]
    copy = first.copy()
    model(np.ones(1024, np.float32))
    assert np.array_equal(first, copy)


# --- what may be an input


class OnlyDlpack:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class OnlyArray:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return self.array


class RefusesDlpack:
    """Like a tensor on another device, or one that needs its gradient."""

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("not in the host's memory")

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


READ_ONLY = X.copy()
READ_ONLY.flags.writeable = False
UNALIGNED = np.zeros(4097, np.uint8)[1:].view(np.float32)
UNALIGNED[:] = X


@pytest.mark.parametrize(
    "value",
    [
        X,
        READ_ONLY,
        np.stack([X, X], axis=1)[:, 0],
        X[::-1].copy()[::-1],
        UNALIGNED,
        OnlyDlpack(X),
        OnlyArray(X),
        memoryview(X),
        np.ma.masked_array(X),
    ],
    ids=["array", "read-only", "strided", "reversed", "unaligned", "dlpack", "__array__", "buffer", "subclass"],
)
def test_anything_that_holds_the_elements_is_an_input(model: Model, value: Any) -> None:
    assert np.array_equal(model(value)[0], X * WEIGHTS)


@pytest.mark.parametrize("wrap", [lambda a: a, OnlyDlpack, memoryview], ids=["array", "dlpack", "buffer"])
def test_dense_input_is_not_copied(wrap: Any, tmp_path: Path) -> None:
    """The network tells the address that it got."""
    source = (
        "#include <stdint.h>\nint32_t nnefc_network(void *x, void *y, uint8_t *s, uint8_t *w, const uint8_t *c)"
        " { *(uint64_t *)y = (uint64_t)(uintptr_t)x; return 0; }"
    )
    x = np.tile(X, 2)  # the addresses of smaller ones are not worth finding out
    description = replace(
        SAMPLE,
        inputs=(TensorDescription("x", "float32", x.shape),),
        outputs=(TensorDescription("address", "uint64", ()),),
    )
    with load(link([object_of(source, "address")], CONSTANTS, description, tmp_path / "address.so")) as model:
        assert int(model(wrap(x))) == x.ctypes.data
        out = np.zeros((), np.uint64)
        assert model(x, out=out) is out
        assert int(out) == x.ctypes.data


@pytest.mark.parametrize(
    "dtype",
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64"],
)
@pytest.mark.sample(6)
def test_every_element_type_goes_in_and_out(dtype: str, tmp_path: Path) -> None:
    values = np.array([[0, 1, 1], [1, 0, 1]]).astype(dtype)
    with load(identity(dtype, values.nbytes, tmp_path)) as model:
        result = model(values)
    assert result.dtype == np.dtype(dtype)
    assert np.array_equal(result, values)


def identity(dtype: str, size: int, tmp_path: Path) -> Path:
    source = (
        "#include <stdint.h>\n#include <string.h>\nint32_t nnefc_network(void *x, void *y, uint8_t *s, uint8_t *w,"
        f" const uint8_t *c) {{ memcpy(y, x, {size}); return 0; }}"
    )
    description = replace(
        SAMPLE,
        inputs=(TensorDescription("x", dtype, (2, 3)),),
        outputs=(TensorDescription("y", dtype, (2, 3)),),
    )
    return link([object_of(source, f"identity{size}")], CONSTANTS, description, tmp_path / f"{dtype}.so")


def test_bfloat16_travels_as_bit_patterns(tmp_path: Path) -> None:
    bits = np.array([[0x3F80, 0x4000, 0xC000]] * 2, np.uint16)
    with load(identity("bfloat16", 12, tmp_path)) as model:
        assert model.inputs[0].dtype == "bfloat16"
        assert np.array_equal(model(bits), bits)
        with pytest.raises(RunError, match=r"float32, but the model has bfloat16.*view\(np.uint16\)"):
            model(bits.astype(np.float32))
        ml_dtypes = pytest.importorskip("ml_dtypes")
        out = np.zeros((2, 3), ml_dtypes.bfloat16)
        model(bits.view(ml_dtypes.bfloat16), out=out)
        assert out.astype(np.float32).tolist() == [[1, 2, -2]] * 2


# --- out


def test_out_is_written_and_returned(model: Model, pair: Model) -> None:
    y, count = np.zeros(1024, np.float32), np.zeros(1, np.int64)
    results = model(X, out=(y, count))
    assert results[0] is y
    assert results[1] is count
    assert np.array_equal(y, X * WEIGHTS)
    assert model.run({"x": X}, out={"count": count})["count"] is count
    assert count[0] == INITIAL_COUNT + 2
    ones, buffer = np.ones((2, 3), np.float32), np.zeros((2, 3), np.float32)
    assert pair(ones, ones, out=buffer) is buffer
    assert pair(ones, ones, out=[buffer]) is buffer


@pytest.mark.parametrize(
    ("out", "message"),
    [
        (
            np.zeros((2, 3)),
            r"out for \"sum\" is an array of float64, but the model has float32: make it with np\.empty\(\(2, 3\), np",
        ),
        (np.zeros((3, 2), np.float32), r"shape \[3, 2\], but the model has \[2, 3\]: make it with np\.empty\(\(2, 3\)"),
        (np.zeros((2, 6), np.float32)[:, ::2], "dense and row-major"),
        (np.zeros((3, 2), np.float32).T, "dense and row-major"),
        (np.broadcast_to(np.float32(0), (2, 3)), "writable"),
        ([[0.0]], "is a list, neither a NumPy array"),
        ([], "out has 0 arrays, but the model has 1 outputs"),
        ((None, None), "out has 2 arrays"),
    ],
)
def test_out_that_does_not_fit_is_refused(pair: Model, out: Any, message: str) -> None:
    ones = np.ones((2, 3), np.float32)
    with pytest.raises(RunError, match=message):
        pair(ones, ones, out=out)


def test_out_must_not_overlap_inputs_or_other_outputs(pair: Model, model: Model) -> None:
    ones = np.ones((2, 3), np.float32)
    with pytest.raises(RunError, match='out for "sum" overlaps "b"'):
        pair(ones, ones_b := np.ones((2, 3), np.float32), out=ones_b)
    memory = np.zeros(1026, np.float32)
    with pytest.raises(RunError, match='out for "count" overlaps "y"'):
        model(X, out=(memory[:1024], memory[1022:1024].view(np.int64)))


# --- inputs that do not fit


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            X.astype(np.float64),
            r'input "x" is an array of float64, but the model has float32: convert it with .astype\(np.float',
        ),
        (X.astype(">f4"), "array of >f4, but the model has float32"),
        (X[:1000], r'input "x" has the shape \[1000\], but the model has \[1024\]$'),
        (X.reshape(32, 32), r"shape \[32, 32\], but the model has \[1024\].*\.reshape\(\(1024,\)\)"),
        (np.float32(1), r"shape \[\]"),
        (X.tolist(), "array of float64, but the model has float32: convert it"),
        ("words", "array of <U5"),
        (None, "array of object"),
        (RefusesDlpack(), r'input "x" is a RefusesDlpack that NumPy cannot read \(not in the host'),
        ([[1], [1, 2]], 'input "x" is a list that NumPy cannot read'),
    ],
)
def test_input_that_does_not_fit_is_refused(model: Model, value: Any, message: str) -> None:
    with pytest.raises(RunError, match=message):
        model(value)


def test_names_and_numbers_of_inputs_are_checked(pair: Model) -> None:
    a = np.ones((2, 3), np.float32)
    listed = r"a: float32\[2, 3\], b: float32\[2, 3\]"
    with pytest.raises(RunError, match=f'input "b" is missing; the inputs are {listed}'):
        pair(a)
    with pytest.raises(RunError, match=f"3 inputs given, but the model has 2: {listed}"):
        pair(a, a, a)
    with pytest.raises(RunError, match='input "a" is given twice'):
        pair(a, a=a)
    with pytest.raises(RunError, match=f'the model has no input "c"; its inputs are {listed}'):
        pair(a, a, c=a)
    many = [
        Tensor(f"past_key_values.{layer}.{part}", "float32", (1,)) for layer in range(9) for part in ("key", "value")
    ]
    with pytest.raises(RunError, match=r': did you mean "past_key_values\.7\.value"\? Its inputs are .* and 10 more'):
        check_names("input", {t.name.replace("7.v", "7_v"): a for t in many}, tuple(many), complete=True)
    with pytest.raises(RunError, match='the model has no output "product"; its outputs are sum'):
        pair.run({"a": a, "b": a}, out={"product": a})
    long = Tensor("a" * 1_000_000, "float32", (1,))
    with pytest.raises(RunError, match='did you mean "aaa'):
        check_names("input", {"b" + "a" * 1_000_000: 0}, (long,), complete=True)


@pytest.mark.parametrize("threads", [0, -1, 1025, 1.5, "2", True])
def test_number_of_threads_is_checked(threads: Any) -> None:
    with pytest.raises(LoadError, match="not a number from 1 to 1024"):
        load(sample_library(), threads=threads)


def test_failure_of_the_network_is_an_error_and_the_model_lives_on(model: Model) -> None:
    bad = X.copy()
    bad[0] = -1
    with pytest.raises(RunError, match="kernel error: the network's code failed: RuntimeError: bad luck"):
        model(bad)
    assert np.array_equal(model(X)[0], X * WEIGHTS)


# --- files that cannot be loaded


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"none\.so does not exist"):
        load(tmp_path / "none.so")


def test_folder(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="cannot be read: Is a directory"):
        load(tmp_path)


@pytest.mark.parametrize("path", [None, 3, ["net.so"]])
def test_what_is_no_path(path: Any) -> None:
    with pytest.raises(LoadError, match="from the path of its library or the bytes of it, not from "):
        nnefc.load(path)


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"graph G(x) -> (y)", b"\0" * 4096, b"MZ" + b"\0" * 100])
def test_file_that_is_no_library(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    path.write_bytes(content)
    with pytest.raises(LoadError, match="is not a shared library"):
        load(path)


def test_object_file() -> None:
    with pytest.raises(
        LoadError,
        match=r"is an object file, to be linked .*: write a shared library, nnefc compile MODEL -o network\.c\.so",
    ):
        load(object_file("network.c"))


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of somebody else, which uses a network and writes a file when it is opened."""
    text = """#include <stdio.h>
        extern void *nnefc_describe(void); void *used(void) { return nnefc_describe(); }
        __attribute__((constructor)) static void opened(void) { fclose(fopen("opened", "w")); }"""
    return shared_library_of(text, tmp_path_factory.mktemp("foreign") / "x.so")


def test_library_of_somebody_else(foreign: Path) -> None:
    with pytest.raises(LoadError, match=r"is a shared library, but not a network compiled by nnefc: it has no nnefc_d"):
        load(foreign)


@pytest.mark.parametrize("command", ["run", "bench", "profile", "serve", "inspect", "view", "verify", "compare"])
def test_no_command_runs_code_of_a_library_of_somebody_else(
    command: str, foreign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = {
        "view": [str(foreign), "-o", "x.html"],
        "verify": [str(foreign), "--key", str(foreign)],
        "compare": [str(DIGITS), "--library", str(foreign), "--reference", "plain"],
    }.get(command, [str(foreign)])
    assert CliRunner().invoke(main, [command, *arguments]).exit_code != 0
    assert not list(tmp_path.iterdir())


def test_tables_of_symbols_that_are_wrong_are_refused(tmp_path: Path) -> None:
    """Every word of the tables set to large numbers: nothing but refusals, or the same answer."""
    content = copy_library(tmp_path).read_bytes()
    for at in [*range(0, 600, 4), *range(len(content) - 3000, len(content) - 3, 44)]:
        for value in (0, 0xFFFFFFFF, 0x7FFFFFF0):
            changed = content[:at] + struct.pack("<I", value) + content[at + 4 :]
            with suppress(ValueError):
                missing_export(changed, ["nnefc_run", "nnefc_describe"])


@pytest.mark.parametrize(
    ("machine", "name"), [(183, "for aarch64"), (62, "for x86_64"), (243, "for riscv64"), (4711, "for machine 4711")]
)
def test_library_for_another_machine(machine: int, name: str, tmp_path: Path) -> None:
    path = copy_library(tmp_path)
    image = bytearray(path.read_bytes())
    if struct.unpack_from("<H", image, 18)[0] == machine:
        pytest.skip(f"this is {name}")
    struct.pack_into("<H", image, 18, machine)
    path.write_bytes(image)
    with pytest.raises(LoadError, match=name):
        load(path)


def test_library_for_a_machine_of_32_bits(tmp_path: Path) -> None:
    path = copy_library(tmp_path)
    image = bytearray(path.read_bytes())
    image[4] = 1
    struct.pack_into("<H", image, 18, 40)
    path.write_bytes(image)
    with pytest.raises(LoadError, match="was compiled for armv7l, but this is"):
        load(path)


def test_library_that_is_cut_off_at_any_byte(tmp_path: Path) -> None:
    """Without the check, the system's loader ends the process with a bus error."""
    path = copy_library(tmp_path)
    image = path.read_bytes()
    for size in [*range(0, 64, 7), 64, 500, *range(1000, len(image) - 3000, 997)]:
        path.write_bytes(image[:size])
        with pytest.raises(LoadError, match=r"cut off|not a shared library"):
            load(path)


def test_library_with_program_headers_beyond_the_end(tmp_path: Path) -> None:
    path = copy_library(tmp_path)
    image = bytearray(path.read_bytes())
    struct.pack_into("<Q", image, 32, 1 << 62)
    path.write_bytes(image)
    with pytest.raises(LoadError, match="cut off"):
        load(path)


def test_wrong_version_of_the_interface(tmp_path: Path) -> None:
    names = ["create", "destroy", "run", "reset", "last_error", "status_name"]
    source = (
        "static const unsigned description[40] = {2};\nconst void *nnefc_describe(void) { return description; }\n"
        + "\n".join(f"int nnefc_{name}(void) {{ return 1; }}" for name in names)
    )
    path = shared_library_of(source, tmp_path / "old.so")
    with pytest.raises(LoadError, match="version 2 of nnefc's interface, but this loader knows version 1: compile the"):
        load(path)


def test_unsupported_processor(tmp_path: Path) -> None:
    description = replace(SAMPLE, cpu_features=("avx4096",), target="tomorrow")
    path = link([object_file("network.c")], CONSTANTS, description, tmp_path / "model.so")
    with pytest.raises(LoadError, match="for tomorrow, but this processor lacks avx4096; compile the model for this"):
        load(path)


# --- closing, reloading


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copying_a_model_is_refused_for_both_would_free_its_session(model: Model, copied: Any) -> None:
    with pytest.raises(TypeError, match=r"cannot be copied or pickled: model\.session\(\) makes a further session"):
        copied(model)
    assert np.array_equal(model(X)[0], X * WEIGHTS)


def test_closed_model_says_so(model: Model) -> None:
    closed = load(sample_library())
    closed.close()
    closed.close()
    for use in (lambda: closed(X), closed.reset, closed.session):
        with pytest.raises(RunError, match="the model sample is closed: load it again"):
            use()


def test_sessions_outlive_the_model_they_came_from() -> None:
    first = load(sample_library())
    second = first.session(threads=1)
    first.close()
    assert np.array_equal(second(X)[0], X * WEIGHTS)
    second.close()


def test_forgotten_models_are_freed() -> None:
    gc.collect()
    before = thread_count()
    for _ in range(10):
        load(sample_library(), threads=3)
    gc.collect()
    assert thread_count() == before


def test_library_is_unloaded_when_its_last_session_closes(tmp_path: Path) -> None:
    path = copy_library(tmp_path)

    def mapped() -> bool:
        return str(path) in Path("/proc/self/maps").read_text()

    first = load(path)
    second, third = first.session(), load(path)
    for open_model in (first, second, third):
        assert mapped()
        open_model.close()
    assert not mapped()


def test_new_library_at_the_path_of_an_open_one(tmp_path: Path) -> None:
    path = tmp_path / "model.so"
    models = []
    for scale in (1, 2, 3):
        other = shutil.copy(sample_library(f"scaled{scale}", float(scale)), tmp_path / "new.so")
        os.replace(other, path)
        models.append(load(path))
    again = load(path)
    assert again.name == "scaled3"
    for scale, open_model in enumerate(models, start=1):
        assert open_model.name == f"scaled{scale}"
        assert np.array_equal(open_model(X)[0], X * (WEIGHTS * np.float32(scale)))
        open_model.close()
    again.close()


def test_relative_path_and_string(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy_library(tmp_path)
    monkeypatch.chdir(tmp_path)
    with load("model.so") as model:
        assert np.array_equal(model(X)[0], X * WEIGHTS)


# --- processes


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new Python, so that a hang or a crash cannot take the tests along."""
    preamble = f"""
import os, sys, threading, time
import numpy as np
from nnefc.loader import RunError, load
library = {str(sample_library())!r}
x = np.ones(1024, np.float32)
"""
    return subprocess.run(
        [sys.executable, "-c", preamble + code], capture_output=True, text=True, timeout=60, check=False
    )


def test_models_that_are_never_closed_are_no_trouble_at_exit() -> None:
    done = python("""
kept = [load(library, threads=3) for _ in range(5)]
kept[0](x)
cycle = [load(library)]
cycle.append(cycle)
""")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_model_works_in_a_forked_child() -> None:
    done = python("""
model = load(library, threads=3)
expected = model(x)[0]
if os.fork() == 0:
    good = np.array_equal(model(x)[0], expected) and np.array_equal(load(library, threads=2)(x)[0], expected)
    sys.exit(0 if good else 1)
assert os.wait()[1] == 0
assert np.array_equal(model(x)[0], expected)
""")
    assert (done.returncode, done.stderr) == (0, "")


def test_fork_during_a_run_of_another_thread_leaves_no_lock_held() -> None:
    done = python("""
model = load(library, threads=2)
slow = x.copy()
slow[0] = -5  # 0.3 s
thread = threading.Thread(target=model, args=(slow,))
thread.start()
while not model._session._lock.locked():
    pass
time.sleep(0.1)
if os.fork() == 0:
    try:
        model(x)
    except RunError as error:
        sys.exit("was running when the process forked" not in str(error))
    sys.exit(2)
assert os.wait()[1] == 0
thread.join()
model(x)
""")
    assert (done.returncode, done.stderr) == (0, "")


# --- the folder itself


def test_loader_works_as_a_copied_folder(tmp_path: Path) -> None:
    shutil.copytree(Path(nnefc.loader.__file__).parent, tmp_path / "other_name")
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", X * WEIGHTS)
    code = f"""
import sys
import numpy as np
import other_name
with other_name.load({str(sample_library())!r}) as model:
    assert np.array_equal(model(np.load("x.npy"))[0], np.load("y.npy"))
assert not [name for name in sys.modules if name.split(".")[0] in ("nnefc", "tvm", "onnx")]
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_subnormal_numbers_are_flushed_unless_the_caller_wants_them() -> None:
    x = np.full(1024, 1e-39, np.float32)
    with load(sample_library()) as flushing, load(sample_library(), flush_subnormals=False) as keeping:
        assert np.count_nonzero(keeping.run({"x": x})["y"]) == 1024
        assert np.count_nonzero(keeping.session().run({"x": x})["y"]) == 1024
        if platform.machine() in ("x86_64", "AMD64", "aarch64", "arm64"):
            assert np.count_nonzero(flushing.run({"x": x})["y"]) == 0
