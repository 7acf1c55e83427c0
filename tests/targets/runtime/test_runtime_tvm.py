"""Code that TVM itself generates, linked, loaded and compared with NumPy."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

import elf
import numpy as np
import pytest
import tvm
from runtime_samples import folder, link

from nnefc.loader import Model, RunError, load
from nnefc.targets.link.toolchain import LibraryDescription, TensorDescription

# One entry with a C signature; kernels are private and take raw pointers. `softmax` launches a task a thread and
# has a buffer in scratch memory for each; `accumulate` adds to the state. Text is parsed by the fixture alone: the
# decorators of TVMScript take seconds of each process that imports them.

NETWORK = """
@I.ir_module
class Network:
    @T.prim_func(private=True)
    def scale(a: T.handle("float32"), w: T.handle("float32"), b: T.handle("float32")) -> T.int32:
        A = T.decl_buffer((37, 700), "float32", data=a, align=4)
        W = T.decl_buffer((700,), "float32", data=w)
        B = T.decl_buffer((37, 700), "float32", data=b, align=4)
        for i in T.parallel(37):
            for j in range(700):
                B[i, j] = A[i, j] * W[j]
        return T.int32(0)

    @T.prim_func(private=True)
    def softmax(a: T.handle("float32"), b: T.handle("float32")) -> T.int32:
        A = T.decl_buffer((37, 700), "float32", data=a, align=4)
        B = T.decl_buffer((37, 700), "float32", data=b, align=4)
        with T.attr("default", "device_id", 0), T.attr("default", "device_type", 1):
            for i in T.parallel(37):
                E = T.alloc_buffer((700,), "float32", scope="local")
                total = T.alloc_buffer((1,), "float32", scope="local")
                total[0] = T.float32(0)
                for j in range(700):
                    E[j] = T.exp(A[i, j])
                    total[0] = total[0] + E[j]
                for j in range(700):
                    B[i, j] = E[j] / total[0]
        return T.int32(0)

    @T.prim_func(private=True)
    def accumulate(a: T.handle("float32"), s: T.handle("float32"), b: T.handle("float32")) -> T.int32:
        A = T.decl_buffer((37, 700), "float32", data=a, align=4)
        S = T.decl_buffer((700,), "float32", data=s)
        B = T.decl_buffer((700,), "float32", data=b, align=4)
        for j in range(700):
            for i in range(37):
                S[j] = S[j] + A[i, j]
            B[j] = S[j]
        return T.int32(0)

    @T.prim_func
    def nnefc_network(
        x: T.handle("float32"),
        y: T.handle("float32"),
        sums: T.handle("float32"),
        state: T.handle("uint8"),
        workspace: T.handle("uint8"),
        constants: T.handle("uint8"),
    ) -> T.int32:
        T.func_attr({"global_symbol": "nnefc_network", "calling_conv": 1})
        T.evaluate(Network.scale(x, T.reinterpret("handle", constants), T.reinterpret("handle", workspace)))
        T.evaluate(Network.softmax(T.reinterpret("handle", workspace), y))
        T.evaluate(Network.accumulate(y, T.reinterpret("handle", state), sums))
        return T.int32(0)
"""

WEIGHTS = np.random.default_rng(1).standard_normal(700).astype(np.float32)
START = np.linspace(0, 1, 700, dtype=np.float32)
X = np.random.default_rng(2).standard_normal((37, 700)).astype(np.float32)


def expected() -> np.ndarray:
    e = np.exp(X.astype(np.float64) * WEIGHTS)
    return e / e.sum(axis=1, keepdims=True)


@pytest.fixture(scope="module")
def object_path() -> Path:
    # the plainest processor of this machine's kind, so that the test runs anywhere
    compiled = tvm.compile(
        tvm.script.from_source(NETWORK), target={"kind": "llvm", "mtriple": f"{platform.machine()}-linux-gnu"}
    )
    path = folder("tvm") / "network.o"
    compiled.mod.write_to_file(str(path))
    return path


def link_network(object_path: Path, scratch_bytes: int) -> Path:
    weights = WEIGHTS.tobytes() + bytes(-WEIGHTS.nbytes % 64)
    description = LibraryDescription(
        "tvm",
        "here",
        "nnefc test",
        (TensorDescription("x", "float32", (37, 700)),),
        (TensorDescription("y", "float32", (37, 700)), TensorDescription("sums", "float32", (700,))),
        (TensorDescription("total", "float32", (700,)),),
        workspace_bytes=37 * 700 * 4,
        scratch_bytes=scratch_bytes,
        constant_bytes=len(weights) + START.nbytes,
        state_bytes=START.nbytes,
        state_initial_offset=len(weights),
    )
    path = folder("tvm") / f"network{scratch_bytes}.so"
    return link([object_path], weights + START.tobytes(), description, path)


@pytest.fixture(scope="module")
def library(object_path: Path) -> Path:
    return link_network(object_path, 2880)  # a row of 700 float32 and a sum, each rounded up to 64 bytes


@pytest.fixture(params=[1, 2, 5], ids=lambda threads: f"{threads}-threads")
def model(library: Path, request: pytest.FixtureRequest) -> Iterator[Model]:
    with load(library, threads=request.param) as loaded:
        yield loaded


def test_results_agree_with_numpy(model: Model) -> None:
    y, sums = model(X)
    np.testing.assert_allclose(y, expected(), rtol=1e-5)
    np.testing.assert_allclose(sums, START + expected().sum(axis=0), rtol=1e-5)


def test_state_is_kept_and_reset(model: Model) -> None:
    for runs in (1, 2, 3):
        np.testing.assert_allclose(model(X)[1], START + runs * expected().sum(axis=0), rtol=1e-5)
    model.reset()
    np.testing.assert_allclose(model(X)[1], START + expected().sum(axis=0), rtol=1e-5)


def test_results_are_the_same_bits_on_any_number_of_threads(library: Path) -> None:
    results = []
    for threads in (1, 2, 3, 8):
        with load(library, threads=threads) as model:
            results.append(model(X)[0].tobytes())
    assert len(set(results)) == 1


@pytest.mark.parametrize("threads", [1, 3])
def test_too_little_scratch_memory_is_an_error_and_no_crash(object_path: Path, threads: int) -> None:
    with (
        load(link_network(object_path, 2816), threads=threads) as model,
        pytest.raises(RunError, match="more scratch memory than the library's description reserves"),
    ):
        model(X)


def test_nothing_of_tvm_is_left_in_the_library(library: Path) -> None:
    dynamic = elf.read(library)
    assert not [name for name in dynamic.imported | dynamic.exported if "tvm" in name.lower()]
    assert not [name for name in dynamic.needed if "tvm" in name]
