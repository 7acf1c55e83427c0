"""The language model example: small random models, compared with llama's definition written with NumPy."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from language_models import SIDE_BY_SIDE, WORDS, logits, write_model
from pass_runs import module_after
from runtime_samples import ZIG_CC

import nnefc
from nnefc.backends import backend_of
from nnefc.driver.artifact import Artifact
from nnefc.driver.formats import load_network
from nnefc.driver.options import ReadOptions
from nnefc.frontends.dynamic_shapes import dynamic_shape_context
from nnefc.loader.sampling import Sampler
from nnefc.targets.link.toolchain import RUNTIME
from nnefc.targets.machine.any_target import parse_any_target

EXAMPLE = Path(__file__).parents[2] / "examples" / "llm"
RNG = np.random.default_rng(7)


def convert(path: Path, folder: Path, context: int) -> None:
    nnefc.convert(path, folder, context=context, kv_cache="f32")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, np.ndarray], Artifact]:
    """The numbers of a model for 24 tokens, compiled."""
    folder = tmp_path_factory.mktemp("llm")
    values = write_model(folder / "m.gguf", tied=False, layers=1)
    convert(folder / "m.gguf", folder / "m", 24)
    artifact = nnefc.compile(folder / "m", strict=True)
    stored = sum(file.stat().st_size - 128 for file in (folder / "m").glob("*.dat"))
    assert artifact.description.constant_bytes < 1.2 * stored + 65536  # blocks stay blocks; the caches are zeros
    return values, artifact


TOKENS = np.random.default_rng(5).integers(0, WORDS, 20).tolist()


def likeliest(values: dict[str, np.ndarray], tokens: list[int], count: int) -> list[int]:
    """The tokens that follow, by the definition."""
    found: list[int] = []
    while len(found) < count:
        found.append(int(logits(values, [*tokens, *found]).argmax()))
    return found


def close(found: np.ndarray, wanted: np.ndarray, within: float = 1e-4) -> None:
    """That logits are the same. Where rows are rounded before products with blocks, that is within a thousandth."""
    np.testing.assert_allclose(found, wanted, rtol=0, atol=within * abs(wanted).max())


def check(model: nnefc.Model, values: dict[str, np.ndarray], seen: int, tokens: list[int]) -> None:
    """That a session which has read the first `seen` of some tokens finds the right logits after the others."""
    (found,) = np.asarray(model(np.array([tokens[seen:]])))
    wanted = logits(values, tokens)
    close(found, wanted)


def test_a_model_agrees_with_its_definition(compiled: tuple[dict[str, np.ndarray], Artifact]) -> None:
    """A prompt of some tokens, then one at a time, then a new conversation."""
    values, artifact = compiled
    with artifact.load() as model:
        for _ in range(2):
            seen = 0
            for count in (7, 1, 1, 3, 1):
                check(model, values, seen, TOKENS[: seen + count])
                seen += count
            model.reset()


SLOW = ("phi2", "qwen2", "qwen3", "gemma", "gemma2", "phi3")  # have little that no other one has
OTHERS = ["gemma3", *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]


@pytest.mark.parametrize("architecture", OTHERS)
def test_other_architectures_agree_with_their_definitions(architecture: str, tmp_path: Path) -> None:
    """Biases, norms of heads, wide heads, windows, soft caps, heads that are rotated in part, layers in parallel, …"""
    values = write_model(tmp_path / "m.gguf", architecture != "phi2", architecture=architecture, mixed=False)
    with nnefc.compile(tmp_path / "m.gguf", strict=True, context=12, kv_cache="f32", rewind=1).load() as model:
        for seen, end in ((0, 7), (7, 8), (8, 11)):
            (found,) = np.asarray(model(np.array([TOKENS[seen:end]])))
            wanted = logits(values, TOKENS[:end], architecture)
            close(found, wanted)


@pytest.fixture(scope="module")
def side_by_side(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, np.ndarray], Artifact]:
    """The numbers of a model for three sequences, compiled."""
    path = tmp_path_factory.mktemp("llm") / "m.gguf"
    values = write_model(path, tied=True, layers=1, mixed=False)
    return values, nnefc.compile(path, **SIDE_BY_SIDE)


def test_texts_are_scored_token_by_token(side_by_side: tuple[dict[str, np.ndarray], Artifact]) -> None:
    """By a network that returns only the last tokens' logits."""
    values, artifact = side_by_side
    with artifact.load(threads=1) as model:
        model(np.array([[7, 8]]), np.array([0]))
        found, likeliest = model.score(TOKENS[:6])
    rows = np.array([logits(values, TOKENS[: n + 1]) for n in range(5)], np.float64)
    rows -= np.log(np.exp(rows).sum(1, keepdims=True))
    close(found, rows[range(5), TOKENS[1:6]], 1e-3)
    assert likeliest.tolist() == rows.argmax(1).tolist()


def test_keys_and_values_of_all_sequences_are_read_where_they_lie(tmp_path: Path) -> None:
    write_model(tmp_path / "m.gguf", tied=True, layers=1, mixed=False)
    network = load_network(tmp_path / "m.gguf", ReadOptions(**SIDE_BY_SIDE))
    with dynamic_shape_context(network.dynamic_dimensions, network.input_shapes, network.all_data_dependent_sizes):
        joined = module_after(network, backend_of(parse_any_target("llvm")), "join attention")
    assert joined.script().count("R.take(") == 4  # of tokens, and of their positions


def test_sequences_side_by_side_are_those_alone(side_by_side: tuple[dict[str, np.ndarray], Artifact]) -> None:
    """In any order and of any length, some of them in a run, one instead of another."""
    values, artifact = side_by_side
    read: dict[int, list[int]] = {}
    with artifact.load(threads=1) as model:
        for parts in ({2: 5, 0: 3}, {0: 1, 2: 1}, {1: 7}, {1: 1, 2: 1, 0: 1}, {0: 2, 1: 4}):
            rows = np.full((len(parts), max(parts.values())), -1)
            for row, (sequence, count) in zip(rows, parts.items(), strict=True):
                own = read.setdefault(sequence, [])
                row[:count] = RNG.integers(0, WORDS, count)
                own.extend(row[:count].tolist())
            for found, sequence in zip(model(rows, np.array(list(parts))), parts, strict=True):
                wanted = logits(values, read[sequence])
                close(found, wanted, 1e-3)
            assert model.read_state("P").tolist() == [len(read.get(n, [])) for n in range(3)]
        model.write_state("P", np.array([0, 5, 9]))
        read = {0: [], 1: read[1][:5]}
        (found,) = model(np.array([[7, 8]]), np.array([0]))
        close(found, logits(values, [7, 8]), 1e-3)
        (found,) = model(np.array([[9]]), np.array([-2]))
        close(found, logits(values, [*read[1], 9]), 1e-3)
        for wrong in (3, -4):
            with pytest.raises(nnefc.RunError, match="index"):
                model(np.array([[9]]), np.array([wrong]))


def test_prompts_take_the_positions_of_those_that_have_ended(
    side_by_side: tuple[dict[str, np.ndarray], Artifact], compiled: tuple[dict[str, np.ndarray], Artifact]
) -> None:
    values, artifact = side_by_side
    prompts = [TOKENS[:4], TOKENS[3:9], TOKENS[:1], TOKENS[5:18], TOKENS[2:4]]
    alone = [likeliest(values, prompt, 5) for prompt in prompts]
    end = alone[1][1]
    with artifact.load(threads=1) as model:
        found: list[list[int]] = [[] for _ in prompts]
        for prompt, token in model.generate_all(prompts, most=5, end=end):
            found[prompt].append(token)
        for own, wanted in zip(found, alone, strict=True):
            assert own == wanted[: wanted.index(end) if end in wanted else 5]
        choice = {"temperature": 1.3, "top_k": 20, "top_p": 0.9}
        drawn: list[list[int]] = [[] for _ in prompts]
        for prompt, token in model.generate_all(prompts, most=5, seed=4, **choice):
            drawn[prompt].append(token)
        for n, prompt in enumerate(prompts):
            model.reset()
            assert list(model.generate(prompt, most=5, seed=4 + n, **choice)) == drawn[n]
        assert list(model.generate_all([], most=5)) == list(model.generate_all(prompts, most=0)) == []
    with compiled[1].load(threads=1) as model, pytest.raises(nnefc.RunError, match="remembers one sequence"):
        model.generate_all(prompts, most=1)


CHOICES = ({"temperature": 0.9}, {"temperature": 2.0, "top_k": 5}, {"temperature": 1.5, "top_p": 0.6})


def test_the_network_may_choose_the_tokens(tmp_path: Path) -> None:
    """As the sampler in Python does for the same random numbers."""
    values = write_model(tmp_path / "m.gguf", True, layers=1, mixed=False)
    with pytest.raises(nnefc.CompileError, match="leave out candidates or all_logits"):
        nnefc.compile(tmp_path / "m.gguf", candidates=8, all_logits=True)
    with nnefc.compile(tmp_path / "m.gguf", candidates=8, **SIDE_BY_SIDE).load(threads=1) as model:
        assert [tensor.name for tensor in model.outputs] == ["token"]
        assert list(model.generate(TOKENS[:5], most=4)) == likeliest(values, TOKENS[:5], 4)
        for seed, choice in enumerate(CHOICES):
            sampler = Sampler(**({"top_k": 8} | choice), seed=seed)
            wanted: list[int] = []
            while len(wanted) < 12:
                wanted.append(sampler(logits(values, [*TOKENS[:5], *wanted])))
            model.reset()
            assert list(model.generate(TOKENS[:5], most=12, seed=seed, **choice)) == wanted
        almost = np.nextafter(np.float32(1), 0), np.float32(1)  # as which a number below 1 may come
        for chance in almost:
            tokens = model(
                np.array([TOKENS[:5]] * 2), np.array([0, 1]), *(np.full(2, 1, np.float32), np.full(2, 8)),
                np.full(2, 0.7, np.float32), np.full(2, chance),
            )  # fmt: skip
            assert ((tokens >= 0) & (tokens < WORDS)).all()


@pytest.mark.slow
def test_the_network_may_give_the_likeliest_token(tmp_path: Path, program: Path) -> None:
    """In Python and in C."""
    values = write_model(tmp_path / "m.gguf", True, layers=1)
    artifact = nnefc.compile(tmp_path / "m.gguf", context=24, candidates=1, kv_cache="f32")
    wanted = likeliest(values, TOKENS[:5], 4)
    with artifact.load(threads=1) as model:
        assert list(model.generate(TOKENS[:5], most=4)) == wanted
        with pytest.raises(nnefc.RunError, match="temperature must be 0"):
            next(model.generate([1], most=1, temperature=1.0))
    shutil.copy(program, tmp_path / "main")
    artifact.export(tmp_path / "m.so")
    assert written(tmp_path / "main", 4, -1, TOKENS[:5]) == wanted


def test_what_lies_beyond_the_tokens_so_far_is_not_looked_at(
    compiled: tuple[dict[str, np.ndarray], Artifact], side_by_side: tuple[dict[str, np.ndarray], Artifact]
) -> None:
    """A product with NaN would be none: so much of the caches is read as there are tokens."""
    for (values, artifact), numbers in (compiled, []), (side_by_side, [np.array([1])]):
        with artifact.load(threads=1) as model:
            for state in model.states:
                if len(state.shape) > 1:
                    model.write_state(state.name, np.full(state.shape, np.nan, np.float32))
            for seen, end in ((0, 6), (6, 7), (7, 8)):
                (found,) = np.atleast_2d(model(np.array([TOKENS[seen:end]]), *numbers))
                wanted = logits(values, TOKENS[:end])
                close(found, wanted, 1e-3)


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux for its threads")
def test_threads_sleep_when_nothing_is_asked(compiled: tuple[dict[str, np.ndarray], Artifact]) -> None:
    """Between two tokens they take no processor."""
    others = set(os.listdir("/proc/self/task"))
    with compiled[1].load(threads=2) as model:
        own = set(os.listdir("/proc/self/task")) - others
        assert len(own) == 1
        for _ in range(3):
            model(np.array([TOKENS[:3]]))
            model(np.array([[5]]))
            files = [Path(f"/proc/self/task/{thread}/stat") for thread in own]
            while any(file.read_text().rpartition(")")[2].split()[0] != "S" for file in files):
                pass  # for ever, if they spun
            before = [used(file) for file in files]
            time.sleep(0.05)
            assert [used(file) for file in files] == before


def used(file: Path) -> list[str]:
    """Of the processor, by a thread: in the program, and in the system."""
    return file.read_text().rpartition(")")[2].split()[11:13]


def test_a_session_forgets_and_two_go_on_apart(compiled: tuple[dict[str, np.ndarray], Artifact]) -> None:
    values, artifact = compiled
    with artifact.load(threads=1) as model:
        after = likeliest(values, TOKENS[:9], 4)
        assert list(model.generate(TOKENS[:9], most=4)) == after
        model.write_state("P", 6)  # forgets what came after six tokens
        with model.fork(threads=1) as other:
            check(model, values, 6, [*TOKENS[:6], 5, 6])
            check(other, values, 6, TOKENS[:9])
            assert list(other.generate(after[:1], most=3, end=after[2])) == after[1:2]
        for wrong in (-1, 24):
            model.write_state("P", wrong)
            with pytest.raises(nnefc.RunError):
                model(np.array([[1]]))


@pytest.fixture(scope="module")
def program(compiled: tuple[dict[str, np.ndarray], Artifact], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example in C, next to the library that it runs."""
    folder = tmp_path_factory.mktemp("program")
    compiled[1].export(folder / "m.so")
    command = [*ZIG_CC, "-Werror", "-Wall", "-Wextra", f"-I{RUNTIME}", EXAMPLE / "main.c", folder / "m.so"]
    subprocess.run([*command, "-Wl,-rpath,$ORIGIN", "-o", folder / "main"], check=True)
    return folder / "main"


def written(program: Path, maximum: int, end: int, tokens: list[int]) -> list[int]:
    """By the program."""
    command = [str(program), str(maximum), str(end), *map(str, tokens)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return list(map(int, done.stdout.split()))


def test_a_program_in_c_writes_the_same_tokens(compiled: tuple[dict[str, np.ndarray], Artifact], program: Path) -> None:
    after = likeliest(compiled[0], TOKENS[:9], 4)
    for end, wanted in (-1, after), (after[3], after[: after.index(after[3])]):
        assert written(program, 4, end, TOKENS[:9]) == wanted
    refused = subprocess.run([program, "4", "-1", "300"], check=False, capture_output=True, text=True)
    assert refused.returncode == 1
    assert "index" in refused.stderr
