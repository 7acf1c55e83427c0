"""The language model example for GPUs, executed without one: states, caches, packed weights, data-dependent lengths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import test_llm
import test_operators_block_quantized as blocks
from emulated_networks import on_cuda
from test_llm import TOKENS

import nnefc
from nnefc.driver.artifact import Artifact
from nnefc.targets.codegen.cuda.code import CudaCode

Compiled = tuple[dict[str, np.ndarray], Artifact]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """The numbers of a model for 24 tokens, compiled for a GPU."""
    folder = tmp_path_factory.mktemp("llm")
    values = test_llm.write_model(folder / "m.gguf", tied=False, layers=1)
    test_llm.convert(folder / "m.gguf", folder / "m", 24)
    with on_cuda():
        artifact = nnefc.compile(folder / "m")
    stored = sum(file.stat().st_size - 128 for file in (folder / "m").glob("*.dat"))
    assert artifact.description.constant_bytes < 1.2 * stored + 65536  # blocks stay blocks; the caches are zeros
    return values, artifact


@pytest.fixture
def driver() -> Iterator[None]:
    with on_cuda():
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("driver")
def test_a_language_model_agrees_with_its_definition(compiled: Compiled) -> None:
    test_llm.test_a_model_agrees_with_its_definition(compiled)


@pytest.mark.usefixtures("driver")
@pytest.mark.slow
def test_a_session_forgets_generates_and_forks(compiled: Compiled) -> None:
    values, artifact = compiled
    with artifact.load(threads=1) as model:
        after = test_llm.likeliest(values, TOKENS[:9], 4)
        assert list(model.generate(TOKENS[:9], most=4)) == after
        model.write_state("P", 6)
        with model.fork(threads=1) as other:
            test_llm.check(model, values, 6, [*TOKENS[:6], 5, 6])
            test_llm.check(other, values, 6, TOKENS[:9])
            model.write_state("P", 6)
            model.copy_sequence(0, 0, 5, to=other)
            test_llm.check(other, values, 5, [*TOKENS[:5], 7])
        for wrong in (-1, 24):
            model.write_state("P", wrong)
            with pytest.raises(nnefc.RunError):
                model(np.array([[1]]))
        model.reset()
        test_llm.check(model, values, 0, TOKENS[:3])


def test_nothing_of_a_language_model_is_left_to_the_processor(compiled: Compiled) -> None:
    _, artifact = compiled
    assert isinstance(artifact.code, CudaCode)
    assert "host_step" not in artifact.code.launches
    assert "block_matmul" in artifact.code.kernels.source


@pytest.mark.parametrize(
    ("depth", "bits", "precision"),
    [(96, 4, "fp32"), (90, 8, "fp32"), (96, 4, "fp16"), (104, 8, "bf16"), (90, 4, "tf32")],
)
def test_blocks_are_dequantized_where_they_are_fetched(depth: int, bits: int, precision: str, tmp_path: Path) -> None:
    """Of one row, as a vector, and of any number of rows; no access is wrong."""
    given = blocks.product((1,), depth, 41, 32, zeros="packed", bits=bits)
    proto = blocks.model_of([given], 21)
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "rows"
    for value in proto.graph.output:
        value.type.tensor_type.ClearField("shape")
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    rtol = {"fp32": 1e-5, "tf32": 2e-3, "fp16": 2e-3, "bf16": 2e-2}[precision]
    with on_cuda(checks=True, precision=precision) as made, nnefc.compile(path).load() as model:
        for rows in (1, 5, 70, 1):
            x = np.random.default_rng(rows).standard_normal((rows, depth)).astype(np.float32)
            wanted = blocks.exact_product(replace(given, inputs=(x, *given.inputs[1:])))
            np.testing.assert_allclose(model(x), wanted, rtol=rtol, atol=rtol * abs(wanted).max())
    code = made[0].code
    assert isinstance(code, CudaCode)
    assert "if (size0 == 1) return nnefc_kernel_block_matmul_of_one_row(" in code.launches
    assert "dequantize" not in code.kernels.source, "a kernel that writes the matrix to memory"
    assert ("nnefc_integer(" in code.kernels.source) == (depth % 8 == 0), "a vector's bytes at once"


@pytest.mark.parametrize("zeros", ["floats", None])
@pytest.mark.sample(1)
def test_blocks_beyond_half_precision_are_multiplied_in_float32(zeros: str | None, tmp_path: Path) -> None:
    """Some of their elements are beyond 65,504."""
    given = blocks.product((3,), 64, 40, 32, zeros=zeros)
    x, data, scales, *others = given.inputs
    given = replace(given, inputs=(x, data, scales * np.float32(2e5), *others))
    path = tmp_path / "model.onnx"
    path.write_bytes(blocks.model_of([given], 21).SerializeToString())
    wanted = blocks.exact_product(given)
    with on_cuda(precision="fp16") as made, nnefc.compile(path).load() as model:
        np.testing.assert_allclose(model(x), wanted, rtol=1e-5, atol=1e-5 * abs(wanted).max())
    code = made[0].code
    assert isinstance(code, CudaCode)
    assert "block_matmul" in code.kernels.source
    assert "half" not in code.kernels.source.partition("block_matmul")[2]
