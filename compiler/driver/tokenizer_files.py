"""Reads the tokenizer of a language model from a separate file, for the option `tokenizer`.

Front ends and tokenizers are imported only if that option is given: the imports take as long as compiling a small
network.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from nnefc.driver.model_format import GGUF, HUGGING_FACE, format_of
from nnefc.ir.network import Network
from nnefc.support.diagnostics import CompileError

if TYPE_CHECKING:
    from nnefc.tokenizer.vocabulary import Vocabulary

__all__ = ["may_have_tokenizer", "with_tokenizer"]


def may_have_tokenizer(model: Path) -> bool:
    """Return whether a model's own files can have a tokenizer: those of Hugging Face folders, and any GGUF file.

    Raises:
        CompileError: there is no such file, or it is not a model.
    """
    found = format_of(model)
    if found is not HUGGING_FACE:
        return found is GGUF
    from nnefc.tokenizer.huggingface_files import has_tokenizer

    return has_tokenizer(model)


def with_tokenizer(network: Network, file: str | os.PathLike[str] | None) -> Network:
    """Return the network with the tokenizer of a file; without a file, the network itself.

    Raises:
        CompileError: the file cannot be read, or its tokenizer is not supported.
    """
    if file is None:
        return network
    from nnefc.tokenizer.network import with_vocabulary

    try:
        return with_vocabulary(network, _vocabulary(Path(file)))
    except OSError as error:
        raise CompileError(f"the tokenizer {file} cannot be read: {error.strerror or error}") from error


def _vocabulary(path: Path) -> Vocabulary:
    if path.suffix.lower() == ".gguf":
        from nnefc.frontends.gguf.parts import read_files
        from nnefc.tokenizer.gguf import vocabulary_of_gguf

        return vocabulary_of_gguf(read_files(path)[0].metadata)
    from nnefc.tokenizer.huggingface_files import vocabulary_of_files

    return vocabulary_of_files(path)
