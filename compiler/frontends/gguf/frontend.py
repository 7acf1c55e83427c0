"""Entry point of the GGUF front end: metadata and tensors → a decoder → a document of NNEF → one Relax function."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from nnefc.frontends.decoder import Weights
from nnefc.frontends.decoder.model import DecoderSource, session_of
from nnefc.frontends.gguf.container import Container, read_container
from nnefc.frontends.gguf.hyperparameters import architecture_of, hyperparameters_of
from nnefc.ir.network import Network
from nnefc.ir.outline import Outline
from nnefc.symbolic.dims import DynamicSize
from nnefc.tokenizer.gguf import vocabulary_of_gguf
from nnefc.tokenizer.network import with_own_vocabulary

__all__ = ["load", "outline", "write"]


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
        path: the file.
        context: how many tokens a conversation has at most; None: as many as in training, at most 2048.
        sequences: how many conversations a session keeps.
        candidates: of how many of the likeliest tokens the network chooses one; None or 0 for logits.
        quantize: to what matrices of floats are rounded; None for nothing.
        shape: sizes of symbols or shapes of inputs, by name.
        output_tensors: names of tensors to return in place of the network's own outputs.
        is_tied: whether dynamic sizes that broadcast are one size.

    Raises:
        CompileError: the file is not as it must be, or of an architecture that is not supported.
    """
    container = read_container(Path(path))
    source = _source(Path(path), container)
    session = session_of(source.path, source.hyperparameters, context, sequences, candidates, quantize)
    return _with_tokenizer(source.network(session, shape, output_tensors, is_tied), container.metadata)


def outline(
    path: Path | str, *, context: int | None = None, sequences: int | None = None, candidates: int | None = None
) -> Outline:
    """Returns the outline of a language model; the arguments are those of `load`."""
    source = _source(Path(path), read_container(Path(path)))
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
    source = _source(path, read_container(path))
    source.write(session_of(source.path, source.hyperparameters, context, sequences, candidates), output)


def _with_tokenizer(network: Network, metadata: Mapping[str, Any]) -> Network:
    """Returns the network with the file's tokenizer, if there is one."""
    if "tokenizer.ggml.tokens" not in metadata:
        return network
    return with_own_vocabulary(network, partial(vocabulary_of_gguf, metadata))


def _source(path: Path, container: Container) -> DecoderSource:
    architecture = architecture_of(container)
    weights = Weights(str(path), {_name(architecture, name): tensor for name, tensor in container.tensors.items()})
    given = hyperparameters_of(container, architecture, weights)
    return DecoderSource(path, "GGUF", architecture, given, weights, is_gguf=True)


def _name(architecture: str, name: str) -> str:
    """Returns what the builder of decoders calls a tensor: files of gpt-oss name a norm after what lies before it."""
    if architecture == "gpt-oss" and name.startswith("blk."):
        return name.replace(".post_attention_norm.", ".ffn_norm.").replace(".attn_post_norm.", ".ffn_norm.")
    return name
