"""The networks of the report without a GPU, by the words that name them.

    NAME[@TOKENS[+PAST]][*BATCH][:int8]

NAME is a network of `models/networks.py`, a decoder of this file, or a pretrained network of `real_networks.py`, whose
files a folder has. TOKENS are those of a sentence of `bert_base`, or the new ones of a decoder, whose caches have PAST
of them. Trained values of all but the pretrained networks are random, and repeat.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np
import onnx
from byte_networks import in_bytes
from libraries import repeating, with_batch
from models.decoders import Heads, RandomWeights, Sizes, decoder, in_blocks
from models.networks import NAMES, write_twins
from models.sequence_networks import bert_base
from real_networks import NETWORKS, values_of

import nnefc
from nnefc.targets.codegen.cuda.code import CudaCode

__all__ = ["DECODERS", "Case", "compiled"]

ROOT = Path(__file__).resolve().parents[2]
_WORD = re.compile(r"(\w+)(?:@(\d+)(?:\+(\d+))?)?(?:\*(\d+))?(:int8)?")


@dataclass(frozen=True)
class _Decoder:
    """Sizes of a decoder, its layers, and whether its matrices have 4 bits."""

    sizes: Sizes
    layers: int
    is_packed: bool


DECODERS: Mapping[str, _Decoder] = {
    "llama_block": _Decoder(Sizes(32, 8, 128, 14336, 512, 4096, 5e5), 1, False),
    "decoder_1b": _Decoder(Sizes(32, 8, 64, 8192, 128256, 4096, 5e5), 16, True),
}
"""A layer of Llama 3 8B with 16-bit weights, and the sizes of Llama 3.2 1B with weights of 4 bits in blocks of 32."""


@dataclass(frozen=True)
class Case:
    """A network and its sizes, as `bert_base@512*16` names it.

    Attributes:
        tokens, past: 0 where the word has none.
    """

    network: str
    tokens: int
    past: int
    batch: int
    is_quantized: bool

    @classmethod
    def of(cls, word: str) -> Case:
        """Returns the case that a word names."""
        found = _WORD.fullmatch(word)
        if found is None or found[1] not in (*NAMES, *DECODERS, *NETWORKS):
            raise click.ClickException(f"{word}: no such network: NAME[@TOKENS[+PAST]][*BATCH][:int8]")
        name, tokens, past, batch, quantized = found.groups()
        if tokens and name not in ("bert_base", *DECODERS):
            raise click.ClickException(f"{word}: {name} has no tokens to choose")
        return cls(name, int(tokens or 0), int(past or 0), int(batch or 1), quantized is not None)

    @property
    def is_pretrained(self) -> bool:
        """Whether a folder of pretrained networks has it."""
        return self.network in NETWORKS

    def written(self, folder: Path, pretrained: Path | None) -> tuple[Path, dict[str, Any]]:
        """Writes the network into a folder; returns the file, and the options of `nnefc.compile` for its sizes."""
        if self.is_pretrained:
            if pretrained is None:
                raise click.ClickException(f"{self.network} is a pretrained network: --pretrained FOLDER has its file")
            return self._given(pretrained / f"{self.network}.onnx")
        path = folder / f"{self.network}.onnx"
        if self.network in DECODERS:
            onnx.save(self._decoder(), path)
            return path, {"shape": self._decoder_shapes()}
        if self.tokens:
            graph, output = bert_base(self.tokens)
            model = graph.model(output)
        else:
            model = onnx.load(write_twins(ROOT / "build" / "models", self.network).onnx)
        model = repeating(model)
        onnx.save(with_batch(in_bytes(model) if self.is_quantized else model, self.batch), path)
        return path, {}

    def _given(self, path: Path) -> tuple[Path, dict[str, Any]]:
        if not path.exists():
            raise click.ClickException(f"no file {path}")
        values = values_of(self.network, path)
        numbers = {name: value.item() for name, value in values.items() if value.ndim == 0}
        shapes = {name: value.shape for name, value in values.items() if name not in numbers}
        return path, {"shape": shapes} | ({"values": numbers} if numbers else {})

    def _decoder(self) -> onnx.ModelProto:
        own = DECODERS[self.network]
        weights = _RepeatingWeights(partial(in_blocks, block=32) if own.is_packed else None)
        return decoder(weights, [Heads()] * own.layers, own.sizes, last_alone=True)

    def _decoder_shapes(self) -> dict[str, list[int]]:
        own, batch = DECODERS[self.network], self.batch
        cache = [batch, own.sizes.groups, self.past, own.sizes.size]
        caches = {f"past.{layer}.{part}": cache for layer in range(own.layers) for part in ("key", "value")}
        return {
            "input_ids": [batch, self.tokens or 1],
            "attention_mask": [batch, (self.tokens or 1) + self.past],
            **caches,
        }


class _RepeatingWeights(RandomWeights):
    """Random parameters that repeat: large decoders are written in seconds. Embeddings are rows of packed heads."""

    def table(self, words: int, width: int) -> np.ndarray | None:
        return super().table(words, width) if self._quantize is None else None

    def _real(self, *shape: int) -> np.ndarray:
        return np.resize(self._rng.standard_normal(4096, np.float32) / np.sqrt(shape[0]), shape).astype(np.float32)


def compiled(case: Case, precision: str, architecture: int, folder: Path, pretrained: Path | None = None) -> CudaCode:
    """Returns the code of a network for one architecture.

    Args:
        case: the network.
        precision: of its floats.
        architecture: as 90.
        folder: to write the network into.
        pretrained: the folder of pretrained networks.
    """
    path, options = case.written(folder, pretrained)
    code = nnefc.compile(path, f"cuda -arch=sm_{architecture}", precision=precision, **options).code
    assert isinstance(code, CudaCode)
    return code
