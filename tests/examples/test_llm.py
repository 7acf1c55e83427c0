"""The language model example: small random models, beside llama's definition written with NumPy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import gguf
import numpy as np
import pytest

import nnefc
from nnefc.artifact import Artifact
from nnefc.targets.link.toolchain import RUNTIME
from nnefc.targets.link.zig import zig

EXAMPLE = Path(__file__).parents[2] / "examples" / "llm"
RNG = np.random.default_rng(3)
WORDS, SIZE, HEADS, KEY_HEADS, WIDTH, INNER, LAYERS = 300, 64, 4, 2, 16, 96, 2
EPSILON, BASE = 1e-5, 10000.0
TEMPLATE = "{% for m in messages %}<|s|>{{ m['role'] }}\n{{ m['content'] }}<|e|>{% endfor %}<|s|>assistant\n"


def quantized(rows: np.ndarray, kind: gguf.GGMLQuantizationType) -> tuple[np.ndarray, np.ndarray]:
    """Bytes of a matrix, and the numbers that they are."""
    if kind is gguf.GGMLQuantizationType.F32:
        return rows, rows
    data = gguf.quants.quantize(rows, kind)
    return data, gguf.quants.dequantize(data, kind)


def write_model(path: Path, tied: bool, other: str = "", architecture: str = "llama") -> dict[str, np.ndarray]:
    """A random model in a file of GGUF; its numbers by name."""
    kinds = gguf.GGMLQuantizationType
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(SIZE)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KEY_HEADS)
    width = WIDTH
    match architecture:
        case "llama":
            writer.add_rope_dimension_count(WIDTH)
        case "qwen3":
            width = 2 * WIDTH
            writer.add_key_length(width)
            writer.add_value_length(width)
    writer.add_rope_freq_base(BASE)
    writer.add_layer_norm_rms_eps(EPSILON)
    letters = [chr(code) for code in (*range(33, 127), *range(161, 173), *range(174, 256), *range(256, 324))]
    tokens = [*letters, *(f"word{n}" for n in range(WORDS - 4 - len(letters))), "he", "<|s|>", "<|e|>", "llo"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types([3 if token.startswith("<|") else 1 for token in tokens])
    writer.add_token_merges(["h e"])
    writer.add_eos_token_id(tokens.index("<|e|>"))
    writer.add_chat_template(TEMPLATE)
    shapes = {"token_embd": (WORDS, SIZE), "output_norm": (SIZE,)} | ({} if tied else {"output": (WORDS, SIZE)})
    shapes |= {other: (SIZE,)} if other else {}
    for n in range(LAYERS):
        shapes |= {
            f"blk.{n}.{name}": shape
            for name, shape in {
                "attn_norm": (SIZE,), "attn_q": (HEADS * width, SIZE), "attn_k": (KEY_HEADS * width, SIZE),
                "attn_v": (KEY_HEADS * width, SIZE), "attn_output": (SIZE, HEADS * width), "ffn_norm": (SIZE,),
                "ffn_gate": (INNER, SIZE), "ffn_up": (INNER, SIZE), "ffn_down": (SIZE, INNER),
            }.items()
        }  # fmt: skip
        if architecture == "qwen2":
            shapes |= {f"blk.{n}.attn_q.bias": (SIZE,)}
            shapes |= {f"blk.{n}.attn_{part}.bias": (KEY_HEADS * width,) for part in "kv"}
        if architecture == "qwen3":
            shapes |= {f"blk.{n}.attn_{part}_norm": (width,) for part in "qk"}
    values = {}
    for place, (name, shape) in enumerate(shapes.items()):
        given = (RNG.standard_normal(shape) * (0.3 if len(shape) > 1 else 1)).astype(np.float32)
        kind = kinds.F32 if len(shape) == 1 else (kinds.Q4_1, kinds.Q8_0, kinds.Q4_0, kinds.F32)[place % 4]
        data, values[name] = quantized(given, kind)
        writer.add_tensor(name if name.endswith(".bias") else f"{name}.weight", data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return values


def normed(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + EPSILON) * weight


def turned(x: np.ndarray, halves: bool) -> np.ndarray:
    """Neighbouring items of each head, or those of its halves, turned by an angle that grows with the position."""
    width = x.shape[-1]
    angles = np.arange(x.shape[1])[:, None] * BASE ** -(np.arange(0, width, 2) / width)
    first, second = (slice(width // 2), slice(width // 2, None)) if halves else (slice(0, None, 2), slice(1, None, 2))
    made = np.empty_like(x)
    made[..., first] = x[..., first] * np.cos(angles) - x[..., second] * np.sin(angles)
    made[..., second] = x[..., first] * np.sin(angles) + x[..., second] * np.cos(angles)
    return made


def logits(values: dict[str, np.ndarray], tokens: list[int], architecture: str = "llama") -> np.ndarray:
    """Of the last position, in double precision."""
    wide = {name: value.astype(np.float64) for name, value in values.items()}
    x, count = wide["token_embd"][tokens], len(tokens)
    for n in range(LAYERS):
        w = {name.removeprefix(f"blk.{n}."): value for name, value in wide.items() if name.startswith(f"blk.{n}.")}
        y = normed(x, w["attn_norm"])
        width = len(w["attn_q"]) // HEADS
        q, k, v = (
            (y @ w[f"attn_{name}"].T + w.get(f"attn_{name}.bias", 0)).reshape(count, -1, width).swapaxes(0, 1)
            for name in "qkv"
        )
        q, k = (
            turned(normed(part, w[name]) if name in w else part, architecture != "llama")
            for part, name in ((q, "attn_q_norm"), (k, "attn_k_norm"))
        )
        k, v = k.repeat(HEADS // KEY_HEADS, 0), v.repeat(HEADS // KEY_HEADS, 0)
        scores = np.where(np.tri(count, dtype=bool), q @ k.swapaxes(1, 2) / np.sqrt(width), -np.inf)
        chances = np.exp(scores - scores.max(-1, keepdims=True))
        found = chances / chances.sum(-1, keepdims=True) @ v
        x = x + found.swapaxes(0, 1).reshape(count, -1) @ w["attn_output"].T
        y = normed(x, w["ffn_norm"])
        gate = y @ w["ffn_gate"].T
        x = x + (gate / (1 + np.exp(-gate)) * (y @ w["ffn_up"].T)) @ w["ffn_down"].T
    return normed(x[-1], wide["output_norm"]) @ wide.get("output", wide["token_embd"]).T


def convert(path: Path, folder: Path, context: int) -> None:
    command = [sys.executable, EXAMPLE / "to_nnef.py", path, folder, "--context", str(context)]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    """The example's `chat.py`."""
    sys.path.insert(0, str(EXAMPLE))
    try:
        import chat

        yield chat
    finally:
        sys.path.remove(str(EXAMPLE))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, np.ndarray], Artifact]:
    """The numbers of a model for 24 tokens, compiled."""
    folder = tmp_path_factory.mktemp("llm")
    values = write_model(folder / "m.gguf", tied=False)
    convert(folder / "m.gguf", folder / "m", 24)
    artifact = nnefc.compile(folder / "m")
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


def check(model: nnefc.Model, values: dict[str, np.ndarray], seen: int, tokens: list[int]) -> None:
    """That a session which has read the first `seen` of some tokens finds the right logits after the others."""
    (found,) = np.asarray(model(np.array([tokens[seen:]])))
    wanted = logits(values, tokens)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * abs(wanted).max())


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


@pytest.mark.parametrize("architecture", ["qwen2", "qwen3"])
def test_other_architectures_agree_with_their_definitions(architecture: str, tmp_path: Path) -> None:
    """Biases and norms of heads; heads that are wider than their share of the embedding."""
    values = write_model(tmp_path / "m.gguf", True, architecture=architecture)
    convert(tmp_path / "m.gguf", tmp_path / "m", 12)
    with nnefc.compile(tmp_path / "m").load() as model:
        for seen, end in ((0, 5), (5, 6), (6, 9)):
            (found,) = np.asarray(model(np.array([TOKENS[seen:end]])))
            wanted = logits(values, TOKENS[:end], architecture)
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * abs(wanted).max())


def test_a_session_forgets_and_two_go_on_apart(
    compiled: tuple[dict[str, np.ndarray], Artifact], example: ModuleType
) -> None:
    values, artifact = compiled
    with artifact.load(threads=1) as model:
        after = likeliest(values, TOKENS[:9], 4)
        assert list(model.generate(TOKENS[:9], most=4)) == after
        model.write_state("P", 6)  # forgets what came after six tokens
        with model.fork(threads=1) as other:
            check(model, values, 6, [*TOKENS[:6], 5, 6])
            check(other, values, 6, TOKENS[:9])
            assert list(other.generate(after[:1], most=3, end=after[2])) == after[1:2]
        read = [*TOKENS[:6], 5, 6]
        for tokens, known in ([*read, 7], 8), (TOKENS[:9], 6), (TOKENS[:4], 3), ([299], 0):
            assert example.forget_all_but(model, read, tokens) == known
            check(model, values, known, tokens)
            read = tokens
        for wrong in (-1, 24):
            model.write_state("P", wrong)
            with pytest.raises(nnefc.RunError):
                model(np.array([[1]]))


def test_a_program_in_c_writes_the_same_tokens(
    compiled: tuple[dict[str, np.ndarray], Artifact], tmp_path: Path
) -> None:
    values, artifact = compiled
    artifact.export(tmp_path / "m.so")
    command = [*zig(), "cc", "-Werror", "-Wall", "-Wextra", f"-I{RUNTIME}", EXAMPLE / "main.c", tmp_path / "m.so"]
    subprocess.run([*command, "-Wl,-rpath,$ORIGIN", "-o", tmp_path / "main"], check=True)
    after = likeliest(values, TOKENS[:9], 4)
    for end, written in (-1, after), (after[3], after[: after.index(after[3])]):
        command = [str(tmp_path / "main"), "4", str(end), *map(str, TOKENS[:9])]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        assert list(map(int, done.stdout.split())) == written
    refused = subprocess.run([*command[:3], "300"], check=False, capture_output=True, text=True)
    assert refused.returncode == 1
    assert "index" in refused.stderr


def test_a_conversation(tmp_path: Path, example: ModuleType) -> None:
    """In the terminal: the likeliest tokens, the same in every run, those that the definition says."""
    values = write_model(tmp_path / "m.gguf", tied=True)
    command = [
        sys.executable, EXAMPLE / "chat.py", tmp_path / "m.gguf", "--folder", tmp_path / "out", "--context", "48",
        "--temperature", "0", "--prompt", "hello",
    ]  # fmt: skip
    shown = [subprocess.run(command, check=True, capture_output=True, text=True) for _ in range(2)]
    assert "compiling" in shown[0].stderr
    assert "compiling" not in shown[1].stderr
    assert shown[0].stdout == shown[1].stdout
    vocabulary = example.Vocabulary(tmp_path / "m.gguf")
    tokens = vocabulary.conversation([{"role": "user", "content": "hello"}])
    assert vocabulary.text(tokens).replace("<|s|>", "") == "user\nhelloassistant"
    answer: list[int] = []
    while len(tokens) + len(answer) < 48 and (token := int(logits(values, tokens + answer).argmax())) != vocabulary.end:
        answer.append(token)
    assert shown[0].stdout.rstrip("\n") == vocabulary.text(answer).rstrip("\n")


def test_words_are_those_of_the_vocabulary(example: ModuleType) -> None:
    words = {
        "smollm": ["ĠDon", "'t", "Ġ", "1", "2", "3", "4", "Ċ", "Ċ", "ok", "!!"],
        "qwen2": ["ĠDon", "'t", "Ġ", "1", "2", "3", "4", "ĊĊ", "ok", "!!"],
        "llama-bpe": ["ĠDon", "'t", "Ġ", "123", "4", "ĊĊ", "ok", "!!"],
    }
    for name, wanted in words.items():
        found = [word for word, _ in example.splitting(name).pre_tokenize_str(" Don't 1234\n\nok!!")]
        assert found == wanted, name


def test_models_with_more_than_llama_has_are_refused(tmp_path: Path) -> None:
    """Rather than computed without it; nothing is written."""
    write_model(tmp_path / "m.gguf", True, other="rope_freqs")
    command = [sys.executable, EXAMPLE / "to_nnef.py", tmp_path / "m.gguf", tmp_path / "m"]
    refused = subprocess.run(command, check=False, capture_output=True, text=True)
    assert refused.returncode == 1
    assert "'rope_freqs.weight' is none of llama's" in refused.stderr
    assert not (tmp_path / "m").exists()
