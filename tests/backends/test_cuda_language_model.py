"""The language model example for GPUs, executed without one: states, caches, packed weights, counted lengths."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import test_llm
from emulated_networks import on_cuda
from test_llm import TOKENS

import nnefc
from nnefc.artifact import Artifact
from nnefc.targets.codegen.cuda.code import CudaCode

Compiled = tuple[dict[str, np.ndarray], Artifact]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """The numbers of a model for 24 tokens, compiled for a GPU."""
    folder = tmp_path_factory.mktemp("llm")
    values = test_llm.write_model(folder / "m.gguf", tied=False)
    test_llm.convert(folder / "m.gguf", folder / "m", 24)
    with on_cuda():
        return values, nnefc.compile(folder / "m")


@pytest.fixture(autouse=True)
def driver() -> Iterator[None]:
    with on_cuda():
        yield


def test_a_language_model_agrees_with_its_definition(compiled: Compiled) -> None:
    test_llm.test_a_model_agrees_with_its_definition(compiled)


def test_a_session_forgets_generates_and_forks(compiled: Compiled) -> None:
    values, artifact = compiled
    with artifact.load(threads=1) as model:
        after = test_llm.likeliest(values, TOKENS[:9], 4)
        assert list(model.generate(TOKENS[:9], most=4)) == after
        model.write_state("P", 6)
        with model.fork(threads=1) as other:
            test_llm.check(model, values, 6, [*TOKENS[:6], 5, 6])
            test_llm.check(other, values, 6, TOKENS[:9])
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
    alone = {launch.kernel for launch in artifact.code.kernels.launches if launch.threads == 1}
    assert alone <= {"count_kernel", "sizes_kernel"}  # which have one item
