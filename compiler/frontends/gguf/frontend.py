"""Entry point of the GGUF front end: metadata and tensors → a decoder → a document of NNEF → one Relax function."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from nnefc.frontends.decoder import Weights
from nnefc.frontends.decoder.model import DecoderFrontEnd, DecoderSource
from nnefc.frontends.gguf.container import Container
from nnefc.frontends.gguf.hyperparameters import architecture_of, hyperparameters_of
from nnefc.frontends.gguf.parts import read_files, with_factors
from nnefc.frontends.gguf.pooling import encoding_of
from nnefc.tokenizer.gguf import vocabulary_of_gguf

__all__ = ["load", "outline", "read", "write"]


def read(path: Path, container: Container, others: tuple[str, ...] = ()) -> DecoderSource:
    """Returns what a file and `others` next to it say, and their tensors; no elements of matrices are read.

    Raises:
        CompileError: a key or a tensor is not as it must be, or the architecture is not supported.
    """
    architecture = architecture_of(container)
    tensors = with_factors(container.tensors, path)
    weights = Weights(str(path), {_name(architecture, name): tensor for name, tensor in tensors.items()})
    given = hyperparameters_of(container, architecture, weights)
    encoding = encoding_of(container, architecture, weights)
    metadata = container.metadata
    vocabulary = partial(vocabulary_of_gguf, metadata) if "tokenizer.ggml.tokens" in metadata else None
    return DecoderSource(
        path, "GGUF", architecture, given, weights, is_gguf=True, asked=others, vocabulary=vocabulary, encoding=encoding
    )


def _name(architecture: str, name: str) -> str:
    """Returns what the builder of decoders calls a tensor: files name two norms after what lies before them."""
    if architecture == "lfm2" and name == "token_embd_norm.weight":
        return "output_norm.weight"
    if architecture == "gpt-oss" and name.startswith("blk."):
        return name.replace(".post_attention_norm.", ".ffn_norm.").replace(".attn_post_norm.", ".ffn_norm.")
    return name


_FRONT_END = DecoderFrontEnd(lambda path: read(path, *read_files(path)))
load, outline, write = _FRONT_END.load, _FRONT_END.outline, _FRONT_END.write
