"""Entry point of the Hugging Face front end: config.json and safetensors → a decoder → a document of NNEF → Relax."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from nnefc.frontends.decoder.model import DecoderFrontEnd, DecoderSource
from nnefc.frontends.huggingface.config import architecture_of, hyperparameters_of
from nnefc.frontends.huggingface.fp8 import with_scales
from nnefc.frontends.huggingface.safetensors import INDEX, read_json, read_shards
from nnefc.frontends.huggingface.tensor_names import renamed
from nnefc.tokenizer.huggingface_files import TOKENIZER, TOKENIZER_FILES, vocabulary_of_files

__all__ = ["load", "outline", "write"]

_CONFIG = "config.json"


def _read(path: Path) -> DecoderSource:
    config = read_json(path / _CONFIG)
    architecture = architecture_of(config, path / _CONFIG)
    given = hyperparameters_of(config, architecture, path / _CONFIG)
    tensors, names = read_shards(path)
    tensors = with_scales(tensors, config, path)
    weights = renamed(str(path), architecture, tensors, config.get("tie_word_embeddings", _is_tied(tensors)) is True)
    index = (INDEX,) if (path / INDEX).is_file() else ()
    read = (_CONFIG, *index, *names)
    vocabulary = partial(vocabulary_of_files, path) if (path / TOKENIZER).is_file() else None
    return DecoderSource(
        path, "Hugging Face", architecture, given, weights, False, read, vocabulary, tuple(TOKENIZER_FILES)
    )


def _is_tied(tensors: Mapping[str, object]) -> bool:
    """Returns whether a folder has no matrix for logits: then they are products with the embeddings."""
    return "lm_head.weight" not in tensors


_FRONT_END = DecoderFrontEnd(_read)
load, outline, write = _FRONT_END.load, _FRONT_END.outline, _FRONT_END.write
