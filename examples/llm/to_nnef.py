"""Write a language model, as files of GGUF have it, as a model of NNEF: llama, qwen2 and 3, gemma 1 to 3, phi2 and 3.

    python to_nnef.py SmolLM2-135M-Instruct.Q4_1.gguf smollm2/ --context 2048
    python to_nnef.py model.gguf model/ --sequences 8          # several conversations side by side
    python to_nnef.py model.gguf model/ --sample 40            # the network chooses one of the 40 likeliest tokens

The document uses what tract adds to NNEF, dynamic sizes with names, and nnefc's attention, with caches of keys and
values that a session keeps. Matrices keep the blocks that they have in the file.
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from document import Layer, Sizes, Style, document
from gguf import GGUFReader

_BLOCKS = 0x4747 << 16  # the header's element type of blocks, with ggml's number of their format
_STORED = {"F32": None, "Q4_0": 2, "Q4_1": 3, "Q8_0": 8}
_GELU = "tract_core_gelu_approx"


@dataclass(frozen=True)
class Architecture:
    """What an architecture does that its files do not say.

    Attributes:
        neighbours: whether positions turn neighbouring elements of a head, not elements of its two halves.
        activation: of the feed-forward layers.
        gated: whether these have gates.
        parallel: whether attention and feed-forward layer of a layer have one operand.
        scaled: whether embeddings are multiplied with the root of their length.
        whole_every: of layers with windows, every so manyth has none; 0: windows that the file speaks of are not used.
        local_base: of the angles by which layers with windows turn heads; None: all turn them alike.
        scaled_by_heads: how many layers the model has whose scores are over the root of `size / heads`.
    """

    neighbours: bool = False
    activation: str = "silu"
    gated: bool = True
    parallel: bool = False
    scaled: bool = False
    whole_every: int = 0
    local_base: float | None = None
    scaled_by_heads: int = 0


_EVERY_LAYER = 1 << 30
_ARCHITECTURES = {
    "llama": Architecture(neighbours=True),
    "qwen2": Architecture(),
    "qwen3": Architecture(),
    "gemma": Architecture(activation=_GELU, scaled=True),
    "gemma2": Architecture(activation=_GELU, scaled=True, whole_every=2, scaled_by_heads=46),
    "gemma3": Architecture(activation=_GELU, scaled=True, whole_every=6, local_base=10000.0, scaled_by_heads=62),
    "phi2": Architecture(activation=_GELU, gated=False, parallel=True),
    "phi3": Architecture(whole_every=_EVERY_LAYER),
}


@dataclass(frozen=True)
class Stored:
    """A tensor of the file: the name of its items' type, its shape, its rows as they are."""

    kind: str
    shape: tuple[int, ...]
    data: np.ndarray

    def rows(self, which: slice | np.ndarray) -> Stored:
        """Some of its rows."""
        data = np.ascontiguousarray(self.data[which])
        return Stored(self.kind, (len(data), *self.shape[1:]), data)


class Model:
    """A file of GGUF of a known architecture."""

    def __init__(self, path: Path) -> None:
        reader = GGUFReader(path)
        self._path, self._fields = path, reader.fields
        self._name = str(self.value("general.architecture"))
        if self._name not in _ARCHITECTURES:
            raise self._refused(f"the architecture '{self._name}' is none of {', '.join(_ARCHITECTURES)}")
        self._architecture = _ARCHITECTURES[self._name]
        self._tensors = {
            str(tensor.name): Stored(tensor.tensor_type.name, tuple(map(int, reversed(tensor.shape))), tensor.data)
            for tensor in reader.tensors
        }
        self.heads = self._number("attention.head_count")
        self.key_heads = int(self._given("attention.head_count_kv") or self.heads)
        self.size, self.layers = self._number("embedding_length"), self._number("block_count")
        self.width = int(self._given("attention.key_length") or self.size // self.heads)
        self.rotated = int(self._given("rope.dimension_count") or self.width)
        if self.rotated > self.width or self._given("attention.value_length") not in (None, self.width):
            raise self._refused("heads of several lengths are not supported")
        self._frequencies = self._of_positions()
        self._split()
        self._used = {"token_embd.weight"}

    def value(self, name: str) -> object:
        """What the file says of itself."""
        return self._fields[name].contents()

    def _given(self, name: str) -> object:
        """What the file says of its architecture; None if it says nothing."""
        name = f"{self._name}.{name}"
        return self.value(name) if name in self._fields else None

    def _number(self, name: str) -> int:
        return int(self.value(f"{self._name}.{name}"))

    def _refused(self, what: str) -> SystemExit:
        return SystemExit(f"{self._path}: {what}")

    # Positions

    def _of_positions(self) -> dict[str, np.ndarray]:
        """By how much heads turn from one position to the next: an angle for each pair of elements; by name."""
        scaling = self._given("rope.scaling.type")
        if scaling not in (None, "none", "linear") or any(name.startswith("rope_factors") for name in self._tensors):
            raise self._refused(f"positions that are scaled ({scaling or 'longrope'}) are not supported")
        exponents = np.arange(0, self.rotated, 2, dtype=np.float64) / self.rotated
        found = {"frequencies": float(self._given("rope.freq_base") or 10000) ** -exponents}
        if scaling == "linear":
            found["frequencies"] /= float(self._given("rope.scaling.factor") or 1)
        factors = self._tensors.pop("rope_freqs.weight", None)  # as llama 3 stretches its longest waves
        if factors is not None:
            found["frequencies"] /= factors.data
        if self._architecture.local_base is not None:
            base = float(self._given("rope.freq_base_swa") or self._architecture.local_base)
            found["local_frequencies"] = base**-exponents
        tail = np.zeros((self.width - self.rotated) // 2)
        return {name: np.tile(np.concatenate([pairs, tail]), 2) for name, pairs in found.items()}

    def _split_pairs(self) -> np.ndarray:
        """The elements of a head in the order in which those that are rotated together are as far apart as its halves.

        Elements that are not rotated come last in each half, as pairs with the angle 0.
        """
        elements, half = np.arange(self.width), self.rotated // 2
        rotated, others = elements[: self.rotated], elements[self.rotated :]
        first, second = (
            (rotated[::2], rotated[1::2]) if self._architecture.neighbours else (rotated[:half], rotated[half:])
        )
        return np.concatenate([first, others[: len(others) // 2], second, others[len(others) // 2 :]])

    # Tensors

    def _split(self) -> None:
        """Queries, keys and values as tensors of their own, and gates; heads in the order of pairs."""
        queries, keys = self.heads * self.width, self.key_heads * self.width
        order = self._split_pairs()
        for n in range(self.layers):
            for end in ("weight", "bias"):
                joined = self._tensors.pop(f"blk.{n}.attn_qkv.{end}", None)
                for part, start, count in ("q", 0, queries), ("k", queries, keys), ("v", queries + keys, keys):
                    name = f"blk.{n}.attn_{part}.{end}"
                    if joined is not None:
                        self._tensors[name] = joined.rows(slice(start, start + count))
                    if part != "v" and name in self._tensors:
                        heads = np.arange(count).reshape(-1, self.width)
                        if not np.array_equal(order, np.arange(self.width)):
                            self._tensors[name] = self._tensors[name].rows(heads[:, order].reshape(-1))
            both = self._tensors.get(f"blk.{n}.ffn_up.weight")
            if self._architecture.gated and f"blk.{n}.ffn_gate.weight" not in self._tensors and both is not None:
                inner = both.shape[0] // 2
                self._tensors[f"blk.{n}.ffn_gate.weight"] = both.rows(slice(inner))
                self._tensors[f"blk.{n}.ffn_up.weight"] = both.rows(slice(inner, None))

    def _variable(self, name: str) -> str:
        self._used.add(name)
        shape = self._tensors[name].shape
        return f"variable<scalar>(label = '{name}', shape = {list(shape if len(shape) > 1 else (1, *shape))})"

    def _with_bias(self, name: str) -> list[str]:
        """A weight, and its bias if it has one."""
        return [self._variable(f"{name}.{end}") for end in ("weight", "bias") if f"{name}.{end}" in self._tensors]

    def _parameters(self, n: int, parts: dict[str, str]) -> dict[str, str]:
        """Weights and biases of a layer, by what its fragments call them."""
        given = {key: self._with_bias(f"blk.{n}.{name}") for key, name in parts.items()}
        return {
            name: text for key, texts in given.items() for name, text in zip((key, f"{key}_bias"), texts, strict=False)
        }

    # The document

    def document(self, context: int, sequences: int, sample: int) -> str:
        """The model as NNEF's text."""
        words, size = self._tensors["token_embd.weight"].shape
        sizes = Sizes(self.heads, self.key_heads, self.width, size, words, context)
        layers = [self._layer(n) for n in range(self.layers)]
        last_norm = ", ".join(self._with_bias("output_norm"))
        output = self._with_bias("output") if "output.weight" in self._tensors else ["embeddings"]
        others = self._tensors.keys() - self._used
        if others:
            raise self._refused(f"the tensor '{min(others)}' is none of {self._name}'s: such models are not supported")
        return document(self._style(), sizes, layers, last_norm, output, sequences, min(sample, words))

    def _style(self) -> Style:
        own = self._architecture
        epsilon = self._given("attention.layer_norm_rms_epsilon")
        centered = epsilon is None
        scale = float(self._given("attention.scale") or 0)
        if self.layers == own.scaled_by_heads and not scale:
            scale = (self.size / self.heads) ** -0.5
        return Style(
            name=self._name,
            epsilon=np.format_float_positional(
                np.float32(self._given("attention.layer_norm_epsilon") if centered else epsilon)
            ),
            centered=centered,
            activation=own.activation,
            gated=own.gated,
            parallel=own.parallel,
            scale=float(np.sqrt(self.size)) if own.scaled else 1.0,
            attention_scale=scale,
            attention_cap=float(self._given("attn_logit_softcapping") or 0),
            cap=float(self._given("final_logit_softcapping") or 0),
            local=own.local_base is not None,
        )

    def _layer(self, n: int) -> Layer:
        parts = {"q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output"}
        parts |= {"q_norm": "attn_q_norm", "k_norm": "attn_k_norm"}
        norms = ("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm")
        texts = {name: ", ".join(self._with_bias(f"blk.{n}.{name}")) for name in norms}
        return Layer(
            {name: text for name, text in texts.items() if text},
            self._parameters(n, parts),
            self._parameters(n, {"gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down"}),
            self._window(n),
        )

    def _window(self, n: int) -> int:
        """How many positions a layer sees, 0 for all."""
        window, every = int(self._given("attention.sliding_window") or 0), self._architecture.whole_every
        pattern = self._given("attention.sliding_window_pattern")
        if isinstance(pattern, list) and every:
            return window if pattern[n] else 0
        every = int(pattern) if isinstance(pattern, int) and every else every
        return window if every and (n + 1) % every else 0

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Names and contents of the tensors' files."""
        for name, tensor in self._tensors.items():
            yield name, self._file(name, tensor)
        for name, values in self._frequencies.items():
            yield name, _file(values.astype("<f4").reshape(1, 1, 1, -1))

    def _file(self, name: str, tensor: Stored) -> bytes:
        if tensor.kind not in _STORED:
            raise self._refused(
                f"the tensor '{name}' has elements of the type {tensor.kind}, only {', '.join(_STORED)} are supported"
            )
        code, data = _STORED[tensor.kind], tensor.data
        if code is None:
            return _file(data if data.ndim > 1 else data[None])
        return _header(data.nbytes, tensor.shape, 0xFFFFFFFF, _BLOCKS | code) + data.tobytes()


def _file(array: np.ndarray) -> bytes:
    return _header(array.nbytes, array.shape, array.itemsize * 8, 0) + array.tobytes()


def _header(data_bytes: int, shape: Sequence[int], bits: int, element_type: int) -> bytes:
    """Of a tensor's file, as NNEF 1.0 defines it."""
    sizes = [*shape, *[0] * (8 - len(shape))]
    return struct.pack(
        "<2sBBII8III19I", b"\x4e\xef", 1, 0, data_bytes, len(shape), *sizes, bits, element_type, *[0] * 19
    )


def convert(gguf: Path, folder: Path, context: int, sequences: int = 1, sample: int = 0) -> None:
    """Write a file of GGUF as a model of NNEF.

    Args:
        gguf, folder: the file, and where the model is written.
        context: the maximum tokens of a conversation.
        sequences: how many conversations a session remembers.
        sample: of how many of the likeliest tokens the network chooses one; 0 if it gives logits.
    """
    model = Model(gguf)
    text = model.document(context, sequences, sample)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in model.files():
        (folder / f"{name}.dat").write_bytes(content)
    (folder / "graph.nnef").write_text(text)


def main() -> None:
    """Convert the file that the command line names."""
    parser = argparse.ArgumentParser(description="Write a language model in GGUF as a model of NNEF.")
    parser.add_argument("gguf", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--context", type=int, default=2048, help="the maximum tokens of a conversation")
    parser.add_argument("--sequences", type=int, default=1, help="how many conversations a session remembers")
    parser.add_argument(
        "--sample", type=int, default=0, help="let the network choose among so many likeliest tokens; 1: the likeliest"
    )
    args = parser.parse_args()
    if min(args.context, args.sequences) < 1 or args.sample < 0:
        parser.error("--context and --sequences are at least 1, --sample at least 0")
    convert(args.gguf, args.folder, args.context, args.sequences, args.sample)
    print(f"wrote {args.folder}", file=sys.stderr)


if __name__ == "__main__":
    main()
