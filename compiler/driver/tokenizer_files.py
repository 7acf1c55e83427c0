"""Reads the tokenizer of a language model from a file of its own, for the option `tokenizer`."""

from __future__ import annotations

import os
from pathlib import Path

from nnefc.frontends.gguf.container import read_container
from nnefc.ir.network import Network
from nnefc.support.diagnostics import CompileError
from nnefc.tokenizer.gguf import vocabulary_of_gguf
from nnefc.tokenizer.huggingface_files import vocabulary_of_files
from nnefc.tokenizer.network import with_vocabulary
from nnefc.tokenizer.vocabulary import Vocabulary

__all__ = ["with_tokenizer"]


def with_tokenizer(network: Network, file: str | os.PathLike[str] | None) -> Network:
    """Returns the network with the tokenizer of a file; the network itself if there is none.

    Raises:
        CompileError: the file cannot be read, or its tokenizer is not supported.
    """
    if file is None:
        return network
    try:
        return with_vocabulary(network, _vocabulary(Path(file)))
    except OSError as error:
        raise CompileError(f"the tokenizer {file} cannot be read: {error.strerror or error}") from error


def _vocabulary(path: Path) -> Vocabulary:
    if path.suffix.lower() == ".gguf":
        return vocabulary_of_gguf(read_container(path).metadata)
    return vocabulary_of_files(path)
