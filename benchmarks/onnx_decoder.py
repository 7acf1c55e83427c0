"""A decoder in ONNX as onnxruntime-genai's model builder writes it, compared with onnxruntime: a section of
language_model.md.

It has SmolLM2's sizes and random weights, of 4 bits in blocks of 32, and is compiled with dynamic lengths: one library
for prompts and for tokens, which takes caches and gives longer ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnx
from measure import REFERENCE, Plan, answers_of, compile_library, difference, start, take_turns
from models.decoders import Heads, RandomWeights, Sizes, decoder, feeds, in_blocks
from report import table

__all__ = ["SMOLLM2", "decoder_lines"]

SMOLLM2 = Sizes(heads=9, groups=3, size=64, inner=1536, words=49152, longest=2048)
_LAYERS = 30
_RUNS = ((128, 0), (1, 16), (1, 512), (1, 2000))
"""New positions, and those in the caches."""


@dataclass(frozen=True)
class _Speed:
    """Tokens per second, medians, and by how much results differ, over the largest one."""

    threads: int
    tokens: int
    past: int
    nnefc: float
    onnxruntime: float
    difference: float


def decoder_lines(folder: Path, plan: Plan, sizes: Sizes = SMOLLM2, layers: int = _LAYERS) -> list[str]:
    """The section's text."""
    folder.mkdir(parents=True, exist_ok=True)
    model, library = folder / "decoder.onnx", folder / "decoder.so"
    quantize = partial(in_blocks, block=32, accuracy_level=4)
    onnx.save(decoder(RandomWeights(quantize), [Heads()] * layers, sizes), model)
    compile_library(model, library)
    found = list(_speeds({"nnefc": library, REFERENCE: model}, folder, plan, sizes, layers))
    return [
        "## Compared with onnxruntime",
        "",
        f"A decoder in ONNX of SmolLM2's sizes as onnxruntime-genai's model builder writes it (`GroupQueryAttention`,"
        f" `MatMulNBits` of 4 bits with `accuracy_level` 4), with random weights. Both engines take caches and give"
        f" longer ones, and {sizes.words} logits for each token. *Difference*: of results, over the largest one.",
        "",
        *table(["threads", "", "tokens", "nnefc", "onnxruntime", "ratio", "difference"], map(_row, found)),
    ]


def _speeds(files: dict[str, Path], folder: Path, plan: Plan, sizes: Sizes, layers: int) -> Iterator[_Speed]:
    given = folder / "decoder.npz"
    for threads in plan.threads[: len(os.sched_getaffinity(0))]:
        np.savez(given, **_values(1, 1, sizes, layers))
        workers = start(files, given, threads)
        try:
            for tokens, past in _RUNS:
                np.savez(given, **_values(tokens, past, sizes, layers))
                for worker in workers:
                    worker.take(given)
                answers = answers_of(workers, folder)
                apart = difference(answers["nnefc"], answers[REFERENCE])
                latency = take_turns(workers, plan)
                rates = (1e3 * tokens / latency[name].median for name in files)
                yield _Speed(threads, tokens, past, *rates, apart)
        finally:
            for worker in workers:
                worker.close()


def _values(tokens: int, past: int, sizes: Sizes, layers: int) -> dict[str, np.ndarray]:
    """Of a run on some tokens, after others."""
    rng = np.random.default_rng(0)
    names = [f"present.{layer}.{part}" for layer in range(layers) for part in ("key", "value")]
    shape = (1, sizes.groups, past, sizes.size)
    caches = {name: rng.standard_normal(shape, np.float32) for name in names}
    return feeds(rng.integers(0, sizes.words, (1, tokens)), past + tokens, caches)


def _row(speed: _Speed) -> Sequence[str]:
    what = ("prompt of", speed.tokens) if not speed.past else ("generation after", speed.past)
    rates = f"{speed.nnefc:.1f}", f"{speed.onnxruntime:.1f}", f"{speed.nnefc / speed.onnxruntime:.2f}"
    return [str(speed.threads), what[0], str(what[1]), *rates, f"{speed.difference:.1e}"]
