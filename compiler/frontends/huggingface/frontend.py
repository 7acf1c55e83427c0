"""Entry point of the Hugging Face front end: config.json and safetensors → a decoder → a document of NNEF → Relax."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from nnefc.frontends.decoder.model import DecoderSource, session_of
from nnefc.frontends.huggingface.config import architecture_of, hyperparameters_of
from nnefc.frontends.huggingface.fp8 import with_scales
from nnefc.frontends.huggingface.safetensors import INDEX, read_json, read_shards
from nnefc.frontends.huggingface.tensor_names import renamed
from nnefc.ir.network import Network
from nnefc.ir.outline import Outline
from nnefc.symbolic.dims import DynamicSize
from nnefc.tokenizer.huggingface_files import TOKENIZER, TOKENIZER_FILES, vocabulary_of_files
from nnefc.tokenizer.network import with_own_vocabulary

__all__ = ["load", "outline", "write"]

_CONFIG = "config.json"


def load(
    path: Path | str,
    *,
    context: int | None = None,
    sequences: int | None = None,
    candidates: int | None = None,
    quantize: str | None = None,
    shape: Mapping[str, tuple[int | DynamicSize, ...]] | None = None,
    output_tensors: tuple[str, ...] = (),
    is_tied: bool = False,
) -> Network:
    """Loads a language model.

    Args:
        path: the folder.
        context: how many tokens a conversation has at most; None: as many as in training, at most 2048.
        sequences: how many conversations a session keeps.
        candidates: of how many of the likeliest tokens the network chooses one; None or 0 for logits.
        quantize: to what matrices of floats are rounded; None for nothing.
        shape: sizes of symbols or shapes of inputs, by name.
        output_tensors: names of tensors to return in place of the network's own outputs.
        is_tied: whether dynamic sizes that broadcast are one size.

    Raises:
        CompileError: a file is not as it must be, or the architecture is not supported.
    """
    source = _read(Path(path))
    session = session_of(source.path, source.hyperparameters, context, sequences, candidates, quantize)
    network = source.network(session, shape, output_tensors, is_tied)
    if not (source.path / TOKENIZER).is_file():
        return network
    files = tuple(sorted({*network.files, *TOKENIZER_FILES}))
    return with_own_vocabulary(replace(network, files=files), partial(vocabulary_of_files, source.path))


def outline(
    path: Path | str, *, context: int | None = None, sequences: int | None = None, candidates: int | None = None
) -> Outline:
    """Returns the outline of a language model; the arguments are those of `load`."""
    source = _read(Path(path))
    return source.outline(session_of(source.path, source.hyperparameters, context, sequences, candidates))


def write(
    path: Path,
    output: Path,
    *,
    context: int | None = None,
    sequences: int | None = None,
    candidates: int | None = None,
) -> None:
    """Writes a language model as a model of NNEF; the arguments are those of `load`."""
    source = _read(path)
    source.write(session_of(source.path, source.hyperparameters, context, sequences, candidates), output)


def _read(path: Path) -> DecoderSource:
    config = read_json(path / _CONFIG)
    architecture = architecture_of(config, path / _CONFIG)
    given = hyperparameters_of(config, architecture, path / _CONFIG)
    tensors, names = read_shards(path)
    tensors = with_scales(tensors, config, path)
    weights = renamed(str(path), architecture, tensors, config.get("tie_word_embeddings", _is_tied(tensors)) is True)
    index = (INDEX,) if (path / INDEX).is_file() else ()
    return DecoderSource(path, "Hugging Face", architecture, given, weights, False, (_CONFIG, *index, *names))


def _is_tied(tensors: Mapping[str, object]) -> bool:
    """Returns whether a folder has no matrix for logits: then they are products with the embeddings."""
    return "lm_head.weight" not in tensors
