"""Adds the tokenizer of a language model to its network, so that it is compiled into the library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec

from nnefc.ir.network import Network
from nnefc.support.diagnostics import CompileError, warn
from nnefc.tokenizer.serialize import serialized
from nnefc.tokenizer.vocabulary import Vocabulary

__all__ = ["with_own_vocabulary", "with_vocabulary"]


def with_own_vocabulary(network: Network, read: Callable[[], Vocabulary]) -> Network:
    """Return the network with the vocabulary of its model's files; warn and return it without one if that is not
    supported.

    Args:
        network: of the model.
        read: reads the vocabulary; raises CompileError if it is not supported, OSError if a file cannot be read.
    """
    try:
        return with_vocabulary(network, read())
    except CompileError as error:
        warn(f"{error.message}: the library takes and gives tokens, not text")
    except OSError as error:
        warn(f"{error.filename} cannot be read ({error.strerror}): the library takes and gives tokens, not text")
    return network


def with_vocabulary(network: Network, vocabulary: Vocabulary) -> Network:
    """Return the network with a vocabulary, and with metadata about it for applications.

    The keys are `tokenizer.end_tokens` (numbers, separated by spaces), `tokenizer.chat_template`, `tokenizer.bos_token`
    and so on (the texts of special tokens of the template), and `tokenizer.pair_tokens`: the tokens before, between and
    after two texts that are read as one, separated by semicolons.
    """
    entries = {f"tokenizer.{name}": text for name, text in vocabulary.named_tokens.items()}
    if vocabulary.end_tokens:
        entries["tokenizer.end_tokens"] = " ".join(map(str, vocabulary.end_tokens))
    around = (
        vocabulary.before,
        vocabulary.after if vocabulary.between is None else vocabulary.between,
        vocabulary.after,
    )
    if any(around[1:]):
        entries["tokenizer.pair_tokens"] = ";".join(" ".join(map(str, tokens)) for tokens in around)
    if vocabulary.chat_template is not None:
        entries["tokenizer.chat_template"] = vocabulary.chat_template
    metadata = {**network.metadata, **entries}
    return replace(network, vocabulary=serialized(vocabulary), chat_program=_program(vocabulary), metadata=metadata)


def _program(vocabulary: Vocabulary) -> bytes:
    """Return the compiled chat template; warn and return an empty one if it cannot be compiled."""
    if vocabulary.chat_template is None:
        return b""
    if find_spec("jinja2") is None:
        warn("the chat template is not compiled, for Jinja2 is not installed: pip install 'nnefc[llm]'")
        return b""
    from nnefc.tokenizer.chat_template.compiler import compiled_template

    try:
        return compiled_template(vocabulary.chat_template, vocabulary.named_tokens)
    except CompileError as error:
        warn(f"the chat template is not compiled ({error.message}): the library has no nnefc_chat")
    return b""
