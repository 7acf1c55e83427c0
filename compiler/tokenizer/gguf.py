"""Reads the vocabulary of a GGUF file from its metadata: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nnefc.support.diagnostics import CompileError
from nnefc.tokenizer.byte_alphabet import bytes_of
from nnefc.tokenizer.charsmap import charsmap_steps
from nnefc.tokenizer.chat_template.joined import joined_templates
from nnefc.tokenizer.gguf_words import PRE_TOKENIZERS
from nnefc.tokenizer.patterns import literal_pattern
from nnefc.tokenizer.steps import (
    METASPACE,
    bert_normalization,
    bert_split,
)
from nnefc.tokenizer.vocabulary import (
    AddedToken,
    Decoder,
    FindAdded,
    Prepend,
    Replace,
    Step,
    TokenKind,
    TokenModel,
    Vocabulary,
)

__all__ = ["vocabulary_of_gguf"]

_UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 2, 3, 4, 6
"""Types of tokens in GGUF; 1 is text, 5 an unused token."""

_NAMED = {
    "bos_token": "bos",
    "eos_token": "eos",
    "unk_token": "unknown",
    "sep_token": "seperator",  # as GGUF spells it
    "pad_token": "padding",
    "cls_token": "cls",
    "mask_token": "mask",
}
"""The names of special tokens in chat templates → in GGUF's metadata."""

_ENDS = ("eos", "eot", "eom")
_PART_END, _RETURN, _CALL = "<|end|>", "<|return|>", "<|call|>"
_END_TEXTS = frozenset(
    (
        "<|eot_id|>",
        "<|im_end|>",
        _PART_END,
        _RETURN,
        _CALL,
        "<end_of_turn>",
        "<|endoftext|>",
        "<|eom_id|>",
        "<EOT>",
        "_<EOT>",
        "<|end_of_text|>",
        "<end_of_utterance>",
        "[EOT]",
    )
)
"""Texts of tokens that end a reply, even if the metadata does not say so."""
_UNKNOWN_PENALTY = 10.0


def vocabulary_of_gguf(metadata: Mapping[str, Any]) -> Vocabulary:
    """Return the vocabulary that a file's metadata describe.

    Args:
        metadata: the file's entries `tokenizer.…`.

    Raises:
        CompileError: an entry is missing, of a wrong type, or not supported; the message names it.
    """
    return _Metadata(metadata).vocabulary()


class _Metadata:
    def __init__(self, metadata: Mapping[str, Any]) -> None:
        self._metadata = metadata
        self._texts: list[str] = self._list("tokens", str)
        count = len(self._texts)
        self._types: list[int] = self._list("token_type", int) if self._of("token_type") is not None else [1] * count
        if len(self._types) != count:
            raise CompileError(f"the file has {count} tokens, but tokenizer.ggml.token_type has {len(self._types)}")
        self._pre = str(self._of("pre", "default"))

    def vocabulary(self) -> Vocabulary:
        models = {"gpt2": self._byte_pairs, "llama": self._sentence_piece, "t5": self._unigram, "bert": self._wordpiece}
        model = self._of("model")
        if not isinstance(model, str) or model not in models:
            raise CompileError(
                f"the file's tokenizer, tokenizer.ggml.model {_shown(model)}, is not supported",
                hint=f"known are {', '.join(models)}",
            )
        templates = [self._metadata.get(f"tokenizer.chat_template{name}") for name in ("", ".tool_use")]
        default, tool_use = (text if isinstance(text, str) else None for text in templates)
        named = {name: self._token(own) for name, own in _NAMED.items()}
        return Vocabulary(
            **models[model](),
            end_tokens=self._end_tokens(),
            named_tokens={name: self._texts[token] for name, token in named.items() if token is not None},
            chat_template=joined_templates(default, tool_use),
        )

    def _end_tokens(self) -> tuple[int, ...]:
        """Return the tokens that end a reply: those of the metadata, and those with known texts."""
        own = [token for name in _ENDS if (token := self._token(name)) is not None]
        known = [number for number, text in enumerate(self._texts) if text in _END_TEXTS]
        if {_RETURN, _CALL} <= {self._texts[number] for number in known}:  # then a part of a reply ends so
            known = [number for number in known if self._texts[number] != _PART_END]
        return tuple(dict.fromkeys([*own, *known]))

    def _of(self, name: str, default: Any = None) -> Any:
        return self._metadata.get(f"tokenizer.ggml.{name}", default)

    def _list(self, name: str, kind: type) -> list[Any]:
        found = self._of(name)
        if found is None:
            raise CompileError(f"the file has no tokenizer.ggml.{name}, which its tokenizer needs")
        if isinstance(found, np.ndarray):
            found = found.tolist()
        is_list = isinstance(found, Sequence) and not isinstance(found, str)
        if not is_list or not all(isinstance(each, kind) for each in found):
            raise CompileError(f"the file's tokenizer.ggml.{name} is not a list of {kind.__name__}")
        return list(found)

    def _bytes(self, name: str) -> bytes:
        return bytes(number & 0xFF for number in self._list(name, int))

    def _token(self, name: str) -> int | None:
        number = self._of(f"{name}_token_id")
        if number is None or number in (-1, 0xFFFFFFFF):
            return None
        if type(number) is not int or not 0 <= number < len(self._texts):
            raise CompileError(
                f"the file's tokenizer.ggml.{name}_token_id is {_shown(number)}, none of its {len(self._texts)} tokens"
            )
        return number

    def _around(
        self, begins: bool, ends: bool = False, begin: str = "bos", end: str = "eos", separates: bool = False
    ) -> dict[str, Any]:
        """Return the tokens before and after a text; the flags in the metadata override the arguments.

        Args:
            begins, ends, separates: whether there is a token before a text, after it, and a separator after it.
            begin, end: GGUF's names of the tokens before and after a text.
        """
        first, last, separator = self._token(begin), self._token(end), self._token("seperator")
        has_first, has_last = self._of("add_bos_token", begins), self._of("add_eos_token", ends)
        after = (separator,) * bool(self._of("add_sep_token", separates)) + (last,) * bool(has_last)
        return {
            "before": () if first is None or not has_first else (first,),
            "after": tuple(token for token in after if token is not None),
        }

    def _tokens(self, text_of: Any) -> dict[str, Any]:
        """Return the arguments `tokens` and `kinds` of the vocabulary; `text_of` returns the bytes of a token of
        text.
        """
        kinds, tokens = [], []
        for text, kind in zip(self._texts, self._types, strict=True):
            is_text = kind not in (_CONTROL, _USER_DEFINED, _BYTE, _UNKNOWN)
            own = {_USER_DEFINED: TokenKind.ADDED, _BYTE: TokenKind.BYTE}.get(kind, TokenKind.CONTROL)
            kinds.append(TokenKind.TEXT if is_text else own)
            tokens.append(_byte_of(text) if kind == _BYTE else text_of(text) if is_text else _utf8(text))
        return {"tokens": tokens, "kinds": kinds}

    def _added(self) -> tuple[Step, ...]:
        kinds = (_CONTROL, _USER_DEFINED, _UNKNOWN)
        found = [AddedToken(number, self._texts[number]) for number, kind in enumerate(self._types) if kind in kinds]
        return (FindAdded(tuple(found)),) * bool(found)

    def _byte_pairs(self) -> dict[str, Any]:
        if self._pre not in PRE_TOKENIZERS:
            raise CompileError(
                f"the file's pre-tokenizer, tokenizer.ggml.pre {_shown(self._pre)}, is not supported",
                hint=f"known are {', '.join(sorted(PRE_TOKENIZERS))}",
            )
        own = PRE_TOKENIZERS[self._pre]
        numbers = {text: number for number, text in reversed(list(enumerate(self._texts)))}
        merges = []
        for merge in self._list("merges", str):
            head, _, right = merge[1:].partition(" ")
            left = merge[:1] + head
            if left not in numbers or right not in numbers or left + right not in numbers:
                raise CompileError(
                    f"the file's tokenizer.ggml.merges has {_shown(merge)}, whose parts or whole are no tokens"
                )
            merges.append((numbers[left], numbers[right], numbers[left + right]))
        return {
            **self._tokens(bytes_of),
            **self._around(begins=own.begins, separates=own.separates),
            "model": TokenModel.BPE_MERGES,
            "merges": merges,
            "bytes_are_symbols": True,
            "whole_words": own.whole_words,
            "steps": (*self._added(), *own.steps),
        }

    def _spaces(self) -> tuple[tuple[Step, ...], Decoder]:
        """Return the steps that replace spaces by a mark, and the decoder that restores them."""
        has_prefix = bool(self._of("add_space_prefix", True))
        prefix = (Prepend(" "),) * has_prefix
        decoder = Decoder.METASPACE | (Decoder.STRIP_FIRST if has_prefix else Decoder.NONE)
        return (*prefix, Replace(literal_pattern(" "), METASPACE)), decoder

    def _scores(self) -> list[float]:
        scores = self._list("scores", float)
        if len(scores) != len(self._texts):
            raise CompileError(f"the file has {len(self._texts)} tokens, but tokenizer.ggml.scores has {len(scores)}")
        return scores

    def _sentence_piece(self) -> dict[str, Any]:
        steps, decoder = self._spaces()
        return {
            **self._tokens(_utf8),
            **self._around(begins=True),
            "model": TokenModel.BPE_SCORES,
            "scores": self._scores(),
            "unknown": self._token("unknown"),
            "byte_fallback": True,
            "steps": (*self._added(), *steps),
            "decoder": decoder,
        }

    def _unigram(self) -> dict[str, Any]:
        steps, decoder = self._spaces()
        charsmap = self._of("precompiled_charsmap")
        normalization = () if charsmap is None else charsmap_steps(self._bytes("precompiled_charsmap"))
        squeeze = (Replace(((" {2,}", None),), " "),) * bool(self._of("remove_extra_whitespaces", False))
        scores = self._scores()
        return {
            **self._tokens(_utf8),
            **self._around(begins=False, ends=True),
            "model": TokenModel.UNIGRAM,
            "scores": scores,
            "unknown": self._token("unknown"),
            "unknown_score": min(scores, default=0.0) - _UNKNOWN_PENALTY,
            "fuses_unknown": True,
            "between": None if (end := self._token("eos")) is None else (end, end),
            "steps": (*self._added(), *normalization, *squeeze, *steps),
            "decoder": decoder,
        }

    def _wordpiece(self) -> dict[str, Any]:
        """Return the arguments of a WordPiece vocabulary, in which U+2581 marks the first part of a word."""
        cls, sep = (
            ("cls" if self._token("cls") is not None else "bos"),
            ("seperator" if self._token("seperator") is not None else "eos"),
        )
        return {
            **self._tokens(lambda text: _utf8(text[1:] if text.startswith(METASPACE) else f"##{text}")),
            **self._around(begins=True, ends=True, begin=cls, end=sep),
            "model": TokenModel.WORDPIECE,
            "unknown": self._token("unknown"),
            "prefix": "##",
            "steps": (*self._added(), *bert_normalization(True, True, True, True), *bert_split()),
            "decoder": Decoder.WORDS | Decoder.PARTS | Decoder.CLEAN_UP,
        }


def _shown(value: object) -> str:
    return repr(str(value)[:80] if not isinstance(value, int | float) else value)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _byte_of(text: str) -> bytes:
    """Return the byte of a token such as `<0x0A>`.

    Raises:
        CompileError: the token has another form.
    """
    if len(text) != 6 or text[:3] != "<0x" or text[-1] != ">":
        raise CompileError(f"the file's token {text[:20]!r} is of the type byte, but not written as <0x0A>")
    try:
        return bytes([int(text[3:5], 16)])
    except ValueError as error:
        raise CompileError(f"the file's token {text!r} is of the type byte, but has no byte") from error
