"""Entry point of the Hugging Face front end: config.json and safetensors → a decoder → a document of NNEF → Relax."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from nnefc.frontends.decoder import ENCODERS
from nnefc.frontends.decoder.model import DecoderFrontEnd, DecoderSource
from nnefc.frontends.huggingface.config import architecture_of, hyperparameters_of
from nnefc.frontends.huggingface.encoders import encoder_hyperparameters, renamed_encoder
from nnefc.frontends.huggingface.quantized import OLDER_FILES, dequantizable
from nnefc.frontends.huggingface.safetensors import INDEX, read_json, read_shards
from nnefc.frontends.huggingface.sentences import sentences_of
from nnefc.frontends.huggingface.tensor_names import renamed
from nnefc.frontends.huggingface.text_parts import text_configuration, text_tensors, without_predictors
from nnefc.tokenizer.huggingface_files import TOKENIZER_FILES, has_tokenizer, vocabulary_of_files

__all__ = ["load", "outline", "read", "write"]

_CONFIG = "config.json"
_OF_DECODERS = ("gemma-embedding",)
"""Encoders whose folders are like those of decoders."""


def read(path: Path) -> DecoderSource:
    """Returns what the files of a folder say, and its tensors; no elements are read.

    Raises:
        CompileError: a file is not as it must be, or the architecture is not supported.
    """
    whole = read_json(path / _CONFIG)
    config = text_configuration(whole)
    architecture = architecture_of(config, path / _CONFIG)
    sentences = sentences_of(path, config, architecture)
    tensors, names = read_shards(path)
    tensors = dequantizable(text_tensors(whole, tensors), config, path)
    if architecture in ENCODERS and architecture not in _OF_DECODERS:
        given = encoder_hyperparameters(config, architecture, path / _CONFIG)
        weights = renamed_encoder(str(path), config, tensors, sentences is not None and sentences.encoding.scores)
    else:
        given = hyperparameters_of(config, architecture, path / _CONFIG)
        if config.get("num_nextn_predict_layers"):
            tensors = without_predictors(tensors, given.layers)
        is_tied = config.get("tie_word_embeddings", _is_tied(tensors)) is True
        weights = renamed(str(path), architecture, tensors, is_tied or sentences is not None)
    if sentences is not None:
        weights.tensors |= sentences.tensors
        if "score.weight" in weights:
            weights.tensors["cls.output.weight"] = weights.tensors.pop("score.weight")
    index = (INDEX,) if (path / INDEX).is_file() else ()
    older = [name for name in OLDER_FILES if (path / name).is_file()]
    return DecoderSource(
        path,
        "Hugging Face",
        architecture,
        given,
        weights,
        is_gguf=False,
        asked=(_CONFIG, *index, *older, *names, *(() if sentences is None else sentences.files)),
        vocabulary=partial(vocabulary_of_files, path) if has_tokenizer(path) else None,
        vocabulary_files=tuple(TOKENIZER_FILES),
        encoding=None if sentences is None else sentences.encoding,
    )


def _is_tied(tensors: Mapping[str, object]) -> bool:
    """Returns whether a folder has no matrix for logits: then they are products with the embeddings."""
    return "lm_head.weight" not in tensors


_FRONT_END = DecoderFrontEnd(read)
load, outline, write = _FRONT_END.load, _FRONT_END.outline, _FRONT_END.write
