"""Write a language model of llama's, qwen2's or qwen3's architecture, as files of GGUF have it, as a model of NNEF.

    python to_nnef.py SmolLM2-135M-Instruct.Q4_1.gguf smollm2/ --context 2048

The document uses what tract adds to NNEF: open sizes with names, caches of keys and values that a session keeps, and
attention. Matrices keep the blocks that they have in the file.
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from gguf import GGUFReader, ReaderTensor

_BLOCKS = 0x4747 << 16  # the header's item type of blocks, with ggml's number of their format
_ARCHITECTURES = {"llama": True, "qwen2": False, "qwen3": False}
"""Whether positions turn neighbouring items of a head, not items of its two halves."""
_STORED = {"F32": None, "Q4_0": 2, "Q4_1": 3, "Q8_0": 8}

_DOCUMENT = """\
version 1.0;
extension tract_registry tract_core;
extension tract_registry tract_transformers;
extension tract_symbol S;  # tokens of this run
extension tract_symbol P;  # tokens that came before
extension tract_assert S >= 1;
extension tract_assert P >= 0;
extension tract_assert S + P <= {context};

fragment norm(x: tensor<scalar>, weight: tensor<scalar>) -> (y: tensor<scalar>) {{
    y = tract_core_rms_norm(x, axis = 1, eps = {epsilon}) * weight;
}}

fragment heads(x: tensor<scalar>, count: integer) -> (y: tensor<scalar>) {{
    y = transpose(reshape(x, shape = [1, S, count, {width}]), axes = [0, 2, 1, 3]);
}}

fragment head_norm(x: tensor<scalar>, weight: tensor<scalar>) -> (y: tensor<scalar>) {{
    y = tract_core_rms_norm(x, axis = 3, eps = {epsilon}) * unsqueeze(weight, axes = [0, 1]);
}}

fragment turned(x: tensor<scalar>, cosine: tensor<scalar>, sine: tensor<scalar>) -> (y: tensor<scalar>) {{
    y = tract_transformers_apply_rope(x, cosine, sine);
}}

fragment cached(x: tensor<scalar>) -> (y: tensor<scalar>) {{
    y = tract_transformers_dyn_kv_cache(x, axis = 2, datum_type = 'f32',
        past_sequence_shape = [1, {key_heads}, P, {width}], input_sequence_shape = [1, {key_heads}, S, {width}]);
}}

fragment attention(
    x: tensor<scalar>, q: tensor<scalar>, k: tensor<scalar>, v: tensor<scalar>, o: tensor<scalar>,{parameters}
    cosine: tensor<scalar>, sine: tensor<scalar>, seen: tensor<logical>
) -> (y: tensor<scalar>) {{
    queries = turned({query}, cosine, sine);
    keys = cached(turned({key}, cosine, sine));
    values = cached({value});
    found = tract_transformers_sdpa(queries, keys, values, seen, is_causal = false);
    y = matmul(reshape(transpose(found, axes = [0, 2, 1, 3]), shape = [S, {inner}]), o, transposeB = true);
}}

fragment feed_forward(
    x: tensor<scalar>, gate: tensor<scalar>, up: tensor<scalar>, down: tensor<scalar>
) -> (y: tensor<scalar>) {{
    y = matmul(silu(matmul(x, gate, transposeB = true)) * matmul(x, up, transposeB = true), down, transposeB = true);
}}

graph {architecture}(tokens) -> (logits) {{
    tokens = tract_core_external(shape = [1, S], datum_type = 'i64');
    frequencies = variable<scalar>(label = 'frequencies', shape = [1, {width}]);
    positions = tract_core_range(P, P + S, step = 1);
    angles = matmul(tract_core_cast(unsqueeze(positions, axes = [1]), to = 'f32'), frequencies);
    cosine = cos(angles);
    sine = sin(angles);
    seen = le(unsqueeze(tract_core_range(0, P + S, step = 1), axes = [0]), unsqueeze(positions, axes = [1]));
    embeddings = variable<scalar>(label = 'token_embd.weight', shape = [{words}, {size}]);
    x0 = tract_core_gather(embeddings, squeeze(tokens, axes = [0]), axis = 0);
{layers}
    last = slice(x{count}, axes = [0], begin = [-1], end = [0]);
    logits = matmul(norm(last, {last_norm}), {output}, transposeB = true);
}}
"""

_LAYER = """\
    a{n} = x{n} + attention(norm(x{n}, {attn_norm}),
        {attn_q},
        {attn_k},
        {attn_v},
        {attn_output},{more}
        cosine, sine, seen);
    x{next} = a{n} + feed_forward(norm(a{n}, {ffn_norm}),
        {ffn_gate},
        {ffn_up},
        {ffn_down});
"""


class Model:
    """A file of GGUF of a known architecture."""

    def __init__(self, path: Path) -> None:
        reader = GGUFReader(path)
        self._fields = reader.fields
        self._tensors = {str(tensor.name): tensor for tensor in reader.tensors}
        self._architecture = str(self.value("general.architecture"))
        if self._architecture not in _ARCHITECTURES:
            known = ", ".join(_ARCHITECTURES)
            raise SystemExit(f"{path}: the architecture '{self._architecture}' is none of {known}")
        if self._given("rope.scaling.type") not in (None, "none"):
            raise SystemExit(f"{path}: positions that are scaled are not supported")
        self._used = {"token_embd.weight"}
        self.heads, self.key_heads = self._number("attention.head_count"), self._number("attention.head_count_kv")
        self.size, self.layers = self._number("embedding_length"), self._number("block_count")
        turned = int(self._given("rope.dimension_count") or 0)
        self.width = int(self._given("attention.key_length") or turned or self.size // self.heads)
        if turned not in (0, self.width) or self._given("attention.value_length") not in (None, self.width):
            raise SystemExit(f"{path}: heads of which only a part is turned, or of several lengths, are not supported")
        self._biased = [part for part in "qkv" if f"blk.0.attn_{part}.bias" in self._tensors]
        self._normed = [part for part in "qk" if f"blk.0.attn_{part}_norm.weight" in self._tensors]

    def value(self, name: str) -> object:
        """What the file says of itself."""
        return self._fields[name].contents()

    def _given(self, name: str) -> object:
        """What the file says of its architecture; None if it says nothing."""
        name = f"{self._architecture}.{name}"
        return self.value(name) if name in self._fields else None

    def _number(self, name: str) -> int:
        return int(self.value(f"{self._architecture}.{name}"))

    def document(self, context: int) -> str:
        """The model as NNEF's text."""
        layers = "".join(self._layer(n) for n in range(self.layers))
        tied = "output.weight" not in self._tensors
        own = [*(f"{part}_bias" for part in self._biased), *(f"{part}_norm" for part in self._normed)]
        made = _DOCUMENT.format(
            architecture=self._architecture,
            context=context,
            epsilon=np.format_float_positional(np.float32(self._given("attention.layer_norm_rms_epsilon"))),
            width=self.width,
            heads=self.heads,
            key_heads=self.key_heads,
            inner=self.heads * self.width,
            parameters="".join(f"\n    {name}: tensor<scalar>," for name in own),
            query=self._heads("q", self.heads),
            key=self._heads("k", self.key_heads),
            value=self._heads("v", self.key_heads),
            words=self._tensors["token_embd.weight"].shape[1],
            size=self.size,
            layers=layers.rstrip("\n"),
            count=self.layers,
            last_norm=self._variable("output_norm.weight"),
            output="embeddings" if tied else self._variable("output.weight"),
        )
        others = self._tensors.keys() - self._used
        if others:
            architecture = f"{self._architecture}'s"
            raise SystemExit(f"the tensor '{min(others)}' is none of {architecture}: such models are not supported")
        return made

    def _heads(self, part: str, count: int) -> str:
        """Queries, keys or values, before they are turned."""
        rows = f"matmul(x, {part}, transposeB = true)" + f" + {part}_bias" * (part in self._biased)
        heads = f"heads({rows}, {count})"
        return f"head_norm({heads}, {part}_norm)" if part in self._normed else heads

    def _layer(self, n: int) -> str:
        names = ["attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"]
        weights = {name: self._variable(f"blk.{n}.{name}.weight") for name in names}
        own = [*(f"attn_{part}.bias" for part in self._biased), *(f"attn_{part}_norm.weight" for part in self._normed)]
        more = "".join(f"\n        {self._variable(f'blk.{n}.{name}')}," for name in own)
        return _LAYER.format(n=n, next=n + 1, more=more, **weights)

    def _variable(self, name: str) -> str:
        self._used.add(name)
        shape = [int(size) for size in reversed(self._tensors[name].shape)]
        shape = shape if len(shape) > 1 else [1, *shape]
        return f"variable<scalar>(label = '{name}', shape = {shape})"

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Names and contents of the tensors' files."""
        for name, tensor in self._tensors.items():
            yield name, self._file(name, tensor)
        base = float(self._given("rope.freq_base") or 10000)
        half = base ** -(np.arange(0, self.width, 2, dtype=np.float64) / self.width)
        yield "frequencies", _file(np.concatenate([half, half])[None].astype("<f4"))

    def _file(self, name: str, tensor: ReaderTensor) -> bytes:
        kind = tensor.tensor_type.name
        if kind not in _STORED:
            raise SystemExit(
                f"the tensor '{name}' has items of the type {kind}, only {', '.join(_STORED)} are supported"
            )
        code, data = _STORED[kind], tensor.data
        if _ARCHITECTURES[self._architecture] and name.split(".")[-2] in ("attn_q", "attn_k"):
            data = self._halves_apart(data)
        if code is None:
            return _file(data if data.ndim > 1 else data[None])
        return (
            _header(data.nbytes, [int(size) for size in reversed(tensor.shape)], 0xFFFFFFFF, _BLOCKS | code)
            + data.tobytes()
        )

    def _halves_apart(self, rows: np.ndarray) -> np.ndarray:
        """The file has neighbouring rows of a head turned by one angle; the document turns the two halves of a head."""
        pairs = rows.reshape(-1, self.width // 2, 2, *rows.shape[1:])
        return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)


def _file(array: np.ndarray) -> bytes:
    return _header(array.nbytes, list(array.shape), array.itemsize * 8, 0) + array.tobytes()


def _header(data_bytes: int, shape: list[int], bits: int, item_type: int) -> bytes:
    """Of a tensor's file, as NNEF 1.0 defines it."""
    sizes = [*shape, *[0] * (8 - len(shape))]
    return struct.pack("<2sBBII8III19I", b"\x4e\xef", 1, 0, data_bytes, len(shape), *sizes, bits, item_type, *[0] * 19)


def convert(gguf: Path, folder: Path, context: int) -> None:
    """Write a file of GGUF as a model of NNEF, for conversations of up to `context` tokens."""
    model = Model(gguf)
    document = model.document(context)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in model.files():
        (folder / f"{name}.dat").write_bytes(content)
    (folder / "graph.nnef").write_text(document)


def main() -> None:
    """Convert the file that the command line names."""
    parser = argparse.ArgumentParser(description="Write a language model in GGUF as a model of NNEF.")
    parser.add_argument("gguf", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--context", type=int, default=2048, help="the most tokens of a conversation")
    args = parser.parse_args()
    convert(args.gguf, args.folder, args.context)
    print(f"wrote {args.folder}", file=sys.stderr)


if __name__ == "__main__":
    main()
