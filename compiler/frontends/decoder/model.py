"""A decoder that a front end has read, as a network, as an outline, and as a model of NNEF on disk.

A front end of language models is a :class:`DecoderFrontEnd` of the function that reads its files.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from nnefc.frontends.decoder.architectures import architecture_named, described
from nnefc.frontends.decoder.description import Encoding
from nnefc.frontends.decoder.encoder import built_encoder
from nnefc.frontends.decoder.files import GeneratedFiles
from nnefc.frontends.decoder.hyperparameters import Hyperparameters
from nnefc.frontends.decoder.network import Session, built
from nnefc.frontends.decoder.weights import StoredTensor, Weights
from nnefc.frontends.nnef import load_files, outline_of_files
from nnefc.frontends.nnef.files.block_formats import GGML
from nnefc.frontends.nnef.files.tensor_file import block_header, tensor_bytes
from nnefc.frontends.tensor_types import GGML_TYPES
from nnefc.frontends.tensor_types.floats import F16, F32, F64
from nnefc.ir.network import Network
from nnefc.ir.outline import Outline
from nnefc.support.diagnostics import CompileError, warn
from nnefc.symbolic.dims import DynamicSize
from nnefc.tokenizer.network import with_own_vocabulary
from nnefc.tokenizer.vocabulary import Vocabulary

__all__ = ["DecoderFrontEnd", "DecoderSource"]

_DEFAULT_CONTEXT = 2048
_DEFAULT_TEXTS = 32
"""Texts that an encoder takes at a time at most."""
_MAX_CONTEXT, _MAX_SEQUENCES = 1 << 24, 1 << 12

_NUMBERS = {kind: number for number, kind in GGML_TYPES.items()}


@dataclass(frozen=True)
class DecoderSource:
    """A language model as a front end has read it.

    Attributes:
        path: of the model.
        format: its name, for outlines.
        architecture: the name of the decoder's.
        hyperparameters: what its files say.
        weights: its tensors.
        is_gguf: whether the rows of heads are in the order of files of GGUF.
        asked: the files that it was read from, relative to its folder.
        vocabulary: reads the model's tokenizer, if it has one.
        vocabulary_files: what that is read from, relative to the folder.
        encoding: how the rows of a text become one result; None for decoders.
    """

    path: Path
    format: str
    architecture: str
    hyperparameters: Hyperparameters
    weights: Weights
    is_gguf: bool
    asked: tuple[str, ...] = ()
    vocabulary: Callable[[], Vocabulary] | None = None
    vocabulary_files: tuple[str, ...] = ()
    encoding: Encoding | None = None

    def files(self, session: Session) -> GeneratedFiles:
        """Returns the model as files of NNEF, none of which is on disk."""
        given, trained = self.hyperparameters, self.hyperparameters.context
        if trained and session.context > trained:
            warn(f"{self.path.name}: a context of {session.context:,} is longer than the {trained:,} of its training")
        decoder = described(self.architecture, given, self.is_gguf, session.context, str(self.path))
        if self.encoding is None:
            model = built(decoder, self.weights, session)
        else:
            own = architecture_named(self.architecture)
            model = built_encoder(decoder, own.embedding_norm, own.final_norm, self.encoding, self.weights, session)
        return GeneratedFiles(model, str(self.path), self.asked, session.quantize)

    def network(
        self,
        session: Session,
        shape: Mapping[str, tuple[int | DynamicSize, ...]] | None,
        output_tensors: tuple[str, ...],
        is_tied: bool,
    ) -> Network:
        """Returns the network, with the model's tokenizer."""
        network = load_files(
            self.files(session), self.path.name, shape=shape, output_tensors=output_tensors, is_tied=is_tied
        )
        if self.vocabulary is None:
            return network
        files = tuple(sorted({*network.files, *self.vocabulary_files}))
        return with_own_vocabulary(replace(network, files=files), self.vocabulary)

    def outline(self, session: Session) -> Outline:
        """Returns the outline; no elements are read."""
        tensors = self.weights.tensors.values()
        kinds = Counter(tensor.type.name for tensor in tensors)
        listed = ", ".join(f"{count} of {name}" for name, count in sorted(kinds.items(), key=lambda e: (-e[1], e[0])))
        about = f"{self.format}, architecture {self.architecture}; tensors: {listed}"
        stored, count = (
            sum(tensor.stored_bytes for tensor in tensors),
            sum(math.prod(tensor.shape) for tensor in tensors),
        )
        return outline_of_files(self.files(session), about, count, stored)

    def write(self, session: Session, output: Path) -> None:
        """Writes the model as one of NNEF: tensors that the format of tensor files has keep their bytes."""
        from nnefc.frontends.nnef.writing import write_files  # with all rules, which nothing else here needs

        model = self.files(session).model
        write_files(model.text, ((label, _file(tensor)) for label, tensor in model.tensors.items()), output)


@dataclass(frozen=True)
class DecoderFrontEnd:
    """The functions of a front end of language models.

    Attributes:
        read: reads a model, given its path.
    """

    read: Callable[[Path], DecoderSource]

    def load(
        self,
        path: Path | str,
        *,
        context: int | None = None,
        sequences: int | None = None,
        candidates: int | None = None,
        quantize: str | None = None,
        kv_cache: str | None = None,
        rewind: int | None = None,
        all_logits: bool = False,
        shape: Mapping[str, tuple[int | DynamicSize, ...]] | None = None,
        output_tensors: tuple[str, ...] = (),
        is_tied: bool = False,
    ) -> Network:
        """Loads a language model.

        Args:
            path: the file or folder.
            context: how many tokens a conversation has at most; None: as many as in training, at most 2048.
            sequences: how many conversations a session keeps.
            candidates: of how many of the likeliest tokens the network chooses one; None or 0 for logits.
            quantize: to what matrices of floats are rounded; None for nothing.
            kv_cache: how keys and values are kept: `f16`, `q8` or `f32`; None for `f16`.
            rewind: how many of its last tokens a conversation can forget where layers have windows; None for 256.
            all_logits: whether a run returns the logits of the tokens that a further input lists. Encoders have none.
            shape: sizes of symbols or shapes of inputs, by name.
            output_tensors: names of tensors to return in place of the network's own outputs.
            is_tied: whether dynamic sizes that broadcast are one size.

        Raises:
            CompileError: a file is not as it must be, or the architecture is not supported.
        """
        source = self.read(Path(path))
        session = _session(source, context, sequences, candidates, quantize, kv_cache, rewind, all_logits)
        return source.network(session, shape, output_tensors, is_tied)

    def outline(
        self,
        path: Path | str,
        *,
        context: int | None = None,
        sequences: int | None = None,
        candidates: int | None = None,
        all_logits: bool = False,
    ) -> Outline:
        """Returns the outline of a language model; the arguments are those of `load`."""
        source = self.read(Path(path))
        return source.outline(_session(source, context, sequences, candidates, all_logits=all_logits))

    def write(
        self,
        path: Path,
        output: Path,
        *,
        context: int | None = None,
        sequences: int | None = None,
        candidates: int | None = None,
        kv_cache: str | None = None,
        rewind: int | None = None,
        all_logits: bool = False,
    ) -> None:
        """Writes a language model as a model of NNEF; the arguments are those of `load`."""
        source = self.read(path)
        session = _session(source, context, sequences, candidates, cache=kv_cache, rewind=rewind, all_logits=all_logits)
        source.write(session, output)


def _session(
    source: DecoderSource,
    context: int | None,
    sequences: int | None,
    candidates: int | None,
    quantize: str | None = None,
    cache: str | None = None,
    rewind: int | None = None,
    all_logits: bool = False,
) -> Session:
    """Returns what a session keeps, or for encoders takes at a time, by the options of a user.

    Raises:
        CompileError: an option is out of range.
    """
    if source.encoding is not None:
        for name, value in (("candidates", candidates), ("cache", cache), ("rewind", rewind)):
            if value:
                raise CompileError(
                    f"'{source.path}' is an encoder, which chooses no tokens and keeps nothing: leave out {name}"
                )
        sequences = sequences or _DEFAULT_TEXTS
    if candidates and all_logits:
        raise CompileError(
            f"'{source.path}': a network that chooses the next token returns no logits: leave out candidates or "
            "all_logits"
        )
    trained = source.hyperparameters.context or _DEFAULT_CONTEXT
    chosen = min(_DEFAULT_CONTEXT, trained) if context is None else context
    for name, value, maximum in (("context", chosen, _MAX_CONTEXT), ("sequences", sequences or 1, _MAX_SEQUENCES)):
        if not 1 <= value <= maximum:
            raise CompileError(f"'{source.path}': {name} is {value:,}, it can be 1 to {maximum:,}")
    own = Session.rewind if rewind is None else rewind
    return Session(chosen, sequences or 1, candidates or 0, quantize, cache or "f16", own, all_logits)


def _file(tensor: StoredTensor) -> Iterator[bytes]:
    """Yields the parts of a tensor file."""
    shape = tensor.final_shape if len(tensor.final_shape) > 1 else (1, *tensor.final_shape)
    number = _NUMBERS.get(tensor.type)
    if tensor.is_stored_whole and number is not None and tensor.type not in (F16, F32, F64):
        data = tensor.raw().tobytes()
        yield block_header(shape, GGML << 16 | number, len(data))
        yield data
        return
    yield from tensor_bytes(tensor.value_as_floats().reshape(shape))
