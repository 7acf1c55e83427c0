"""Reads the vocabulary of a `tokenizer.json`, the format of the package `tokenizers`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nnefc.support.diagnostics import CompileError
from nnefc.tokenizer.byte_alphabet import bytes_of
from nnefc.tokenizer.charsmap import charsmap_steps
from nnefc.tokenizer.normalization import normalized
from nnefc.tokenizer.patterns import SPACE, WORD_CHARACTERS, literal_pattern, pattern_of_regex
from nnefc.tokenizer.steps import (
    GPT2_PATTERN,
    METASPACE,
    PUNCTUATION,
    behavior_of,
    bert_normalization,
    bert_split,
    lowercase,
    metaspace,
    nmt_normalization,
    normal_form,
    split,
    split_characters,
    strip_accents,
)
from nnefc.tokenizer.vocabulary import (
    MAX_TOKENS,
    AddedToken,
    Behavior,
    Decoder,
    FindAdded,
    Pattern,
    Prepend,
    Replace,
    Split,
    Step,
    Strip,
    TokenKind,
    TokenModel,
    Vocabulary,
)

__all__ = ["vocabulary_of_json"]

_BYTE_TOKENS = {f"<0x{byte:02X}>": byte for byte in range(256)}
_UNKNOWN_PENALTY = 10.0
"""How much lower the score of an unknown character is than the lowest score of a token."""

_Json = Mapping[str, Any]


def vocabulary_of_json(
    document: _Json,
    *,
    end_tokens: Sequence[int] = (),
    named_tokens: Mapping[str, str] | None = None,
    chat_template: str | None = None,
) -> Vocabulary:
    """Return the vocabulary of a parsed `tokenizer.json`.

    Args:
        document: the parsed file.
        end_tokens: the tokens that end a reply, which other files name.
        named_tokens: special tokens by their names in the chat template.
        chat_template: from another file; None for none.

    Raises:
        CompileError: a part of the document is missing, of a wrong type, or not supported; the message names it.
    """
    try:
        parts = _Parts(document)
        return parts.vocabulary(tuple(end_tokens), dict(named_tokens or {}), chat_template)
    except RecursionError:
        raise CompileError("tokenizer.json has parts that lie too deep in each other") from None
    except (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError) as error:
        raise CompileError(f"tokenizer.json is not as the package tokenizers writes it: {str(error)[:200]}") from error


class _Parts:
    """The parsed parts of the document."""

    def __init__(self, document: _Json) -> None:
        self._document = document
        self._model: _Json = document["model"]
        self._pre = _listed(document.get("pre_tokenizer"), "pretokenizers")
        self._normalizers = _listed(document.get("normalizer"), "normalizers")
        self._normalization = [step for part in self._normalizers for step in _normalizer(part)]
        self._added = [self._added_token(added) for added in document.get("added_tokens") or ()]
        self._is_byte_level = any(part["type"] == "ByteLevel" for part in (*self._pre, *self._normalizers))

    def vocabulary(
        self, end_tokens: tuple[int, ...], named_tokens: dict[str, str], chat_template: str | None
    ) -> Vocabulary:
        """Return the vocabulary of the document; arguments as in :func:`vocabulary_of_json`."""
        vocabulary = self._model.get("vocab")
        untyped = "BPE" if "merges" in self._model else "Unigram" if isinstance(vocabulary, list) else "WordPiece"
        kind = self._model.get("type") or untyped
        known = {"BPE": self._byte_pairs, "Unigram": self._unigram, "WordPiece": self._wordpiece}
        if kind not in known:
            raise CompileError(f"tokenizers of the kind {kind} are not supported", hint=f"known are {', '.join(known)}")
        model = known[kind]()
        before, after, between = _around(self._document.get("post_processor"))
        decoder, prefix = _decoder(self._document.get("decoder"))
        if prefix is not None and model.setdefault("prefix", prefix) != prefix:
            raise CompileError(
                f"the tokenizer's decoder has words go on with {prefix!r}, its model with {model['prefix']!r}"
            )
        return Vocabulary(
            **model,
            bytes_are_symbols=self._is_byte_level,
            steps=self._steps(),
            before=before,
            after=after,
            between=between,
            decoder=decoder,
            end_tokens=end_tokens,
            named_tokens=named_tokens,
            chat_template=chat_template,
        )

    def _texts(self, vocabulary: Mapping[str, int], byte_fallback: bool) -> dict[str, Any]:
        """Return the arguments `tokens` and `kinds` of the vocabulary."""
        numbers = [*vocabulary.values(), *(added.token for added, _ in self._added)]
        if min(numbers) < 0 or max(numbers) >= MAX_TOKENS:
            wrong = min(numbers) if min(numbers) < 0 else max(numbers)
            raise CompileError(f"the tokenizer has a token {wrong}; 0 to {MAX_TOKENS - 1} are supported")
        tokens, kinds = [b""] * (max(numbers) + 1), [TokenKind.CONTROL] * (max(numbers) + 1)
        for text, token in vocabulary.items():
            is_byte = byte_fallback and text in _BYTE_TOKENS
            tokens[token] = bytes([_BYTE_TOKENS[text]]) if is_byte else self._bytes(text)
            kinds[token] = TokenKind.BYTE if is_byte else TokenKind.TEXT
        for added, flags in self._added:
            token, is_special = added.token, bool(flags.get("special"))
            is_of_model = kinds[token] is TokenKind.TEXT and tokens[token] == _utf8(flags["content"])
            if is_special or not is_of_model:  # else the model finds it as well
                tokens[token] = _utf8(added.text)
                kinds[token] = TokenKind.CONTROL if is_special else TokenKind.ADDED
        return {"tokens": tokens, "kinds": kinds}

    def _bytes(self, text: str) -> bytes:
        return bytes_of(text) if self._is_byte_level else _utf8(text)

    def _byte_pairs(self) -> dict[str, Any]:
        model = self._model
        for name in ("continuing_subword_prefix", "end_of_word_suffix"):
            if model.get(name):
                raise CompileError(f"the tokenizer's {name}, {model[name]!r}, is not supported")
        vocabulary: Mapping[str, int] = model["vocab"]
        merges = []
        for merge in model["merges"]:
            left, right = merge.split(" ", 1) if isinstance(merge, str) else merge
            merges.append((vocabulary[left], vocabulary[right], vocabulary[left + right]))
        return {
            **self._texts(vocabulary, bool(model.get("byte_fallback"))),
            "model": TokenModel.BPE_MERGES,
            "merges": merges,
            "unknown": vocabulary.get(model["unk_token"]) if model.get("unk_token") else None,
            "whole_words": bool(model.get("ignore_merges")),
            "byte_fallback": bool(model.get("byte_fallback")),
            "fuses_unknown": bool(model.get("fuse_unk")),
            "drops_unknown": True,
        }

    def _unigram(self) -> dict[str, Any]:
        model = self._model
        texts = self._texts(
            {text: token for token, (text, _) in enumerate(model["vocab"])}, bool(model.get("byte_fallback"))
        )
        scores = np.zeros(len(texts["tokens"]))
        scores[: len(model["vocab"])] = [score for _, score in model["vocab"]]
        return {
            **texts,
            "model": TokenModel.UNIGRAM,
            "scores": scores.tolist(),
            "unknown": model.get("unk_id"),
            "unknown_score": float(min(score for _, score in model["vocab"])) - _UNKNOWN_PENALTY,
            "byte_fallback": bool(model.get("byte_fallback")),
            "fuses_unknown": True,
        }

    def _wordpiece(self) -> dict[str, Any]:
        model = self._model
        return {
            **self._texts(model["vocab"], byte_fallback=False),
            "model": TokenModel.WORDPIECE,
            "unknown": model["vocab"].get(model["unk_token"]),
            "prefix": model.get("continuing_subword_prefix", "##"),
            "max_characters": model.get("max_input_chars_per_word", 100),
        }

    def _steps(self) -> tuple[Step, ...]:
        self._check_bytes_come_last()
        steps: list[Step] = []
        for is_normalized in (False, True):
            own = [each for each in self._added if bool(each[1].get("normalized")) is is_normalized]
            own.sort(key=lambda each: not each[1].get("special"))  # of tokens with one text a special one is found
            if is_normalized:
                steps += self._normalization
            if own:
                steps.append(FindAdded(tuple(added for added, _ in own)))
        return (*steps, *(step for part in self._pre for step in _pre_tokenizer(part)))

    def _added_token(self, added: _Json) -> tuple[AddedToken, _Json]:
        """Return an added token and its flags; the token's text is normalized if it is searched in normalized text."""
        text = normalized(added["content"], self._normalization) if added.get("normalized") else added["content"]
        flags = (bool(added.get(name)) for name in ("lstrip", "rstrip", "single_word"))
        return AddedToken(added["id"], text, *flags), added

    def _check_bytes_come_last(self) -> None:
        """Check that no step follows one that converts text to bytes: it would see the characters that stand for bytes.

        Raises:
            CompileError: a step does.
        """
        kinds = [part["type"] for part in (*self._normalizers, *self._pre)]
        first = kinds.index("ByteLevel") if "ByteLevel" in kinds else len(kinds)
        if first + 1 < len(kinds):
            what = "normalizer" if first < len(self._normalizers) else "pre-tokenizer"
            raise CompileError(f"the tokenizer's {what} ByteLevel is not supported before {kinds[first + 1]}")


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _listed(part: _Json | None, name: str) -> list[_Json]:
    """Return the parts of a part of the type `Sequence`, flattened."""
    if part is None:
        return []
    if part["type"] != "Sequence":
        return [part]
    return [inner for each in part[name] for inner in _listed(each, name)]


def _pattern(pattern: _Json) -> Pattern:
    return literal_pattern(pattern["String"]) if "String" in pattern else pattern_of_regex(pattern["Regex"])


def _normalizer(part: _Json) -> tuple[Step, ...]:
    match part["type"]:
        case "NFC" | "NFD" | "NFKC" | "NFKD":
            return normal_form(part["type"])
        case "Lowercase":
            return (lowercase(),)
        case "StripAccents":
            return (strip_accents(),)
        case "Strip":
            return (Strip(bool(part["strip_left"]), bool(part["strip_right"])),)
        case "Prepend":
            return (Prepend(part["prepend"]),)
        case "Replace":
            return (Replace(_pattern(part["pattern"]), part["content"]),)
        case "BertNormalizer":
            strips, lower = part.get("strip_accents"), bool(part["lowercase"])
            return bert_normalization(
                part["clean_text"], part["handle_chinese_chars"], lower if strips is None else strips, lower
            )
        case "Precompiled":
            return charsmap_steps(part["precompiled_charsmap"])
        case "Nmt":
            return nmt_normalization()
        case "ByteLevel":
            return ()
    raise CompileError(f"the tokenizer's normalizer {part['type']} is not supported")


def _pre_tokenizer(part: _Json) -> tuple[Step, ...]:
    match part["type"]:
        case "ByteLevel":
            prefix = (Prepend(" ", unless_there=True),) * bool(part.get("add_prefix_space", True))
            return (*prefix, *(split(GPT2_PATTERN),) * bool(part.get("use_regex", True)))
        case "Split":
            return (Split(_pattern(part["pattern"]), behavior_of(part["behavior"]), bool(part.get("invert"))),)
        case "Metaspace":
            scheme = part.get("prepend_scheme") or ("always" if part.get("add_prefix_space", True) else "never")
            return metaspace(part["replacement"], scheme, part.get("split", True))
        case "Digits":
            is_single = bool(part.get("individual_digits"))
            return (split_characters(r"\p{N}", Behavior.ISOLATED if is_single else Behavior.CONTIGUOUS),)
        case "Punctuation":
            return (split_characters(PUNCTUATION, behavior_of(part.get("behavior", "Isolated"))),)
        case "Whitespace":
            words = ((f"[{WORD_CHARACTERS}]+", None), (f"[^{WORD_CHARACTERS}{SPACE}]+", None))
            return (Split(words, Behavior.REMOVED, inverts=True),)
        case "WhitespaceSplit":
            return (split_characters(SPACE, Behavior.REMOVED),)
        case "BertPreTokenizer":
            return bert_split()
        case "CharDelimiterSplit":
            return (Split(literal_pattern(part["delimiter"]), Behavior.REMOVED),)
        case "FixedLength":
            return (Split(((f"(?s:.){{1,{int(part['length'])}}}", None),), Behavior.ISOLATED),)
    raise CompileError(f"the tokenizer's pre-tokenizer {part['type']} is not supported")


_Tokens = tuple[int, ...]


def _around(part: _Json | None) -> tuple[_Tokens, _Tokens, _Tokens | None]:
    """Return the tokens before and after a single text, and the tokens between two texts, or None if these are
    unknown.
    """
    adding = [own for own in _listed(part, "processors") if own["type"] != "ByteLevel"]
    if len(adding) > 1:
        kinds = " and ".join(str(own["type"]) for own in adding)[:200]
        raise CompileError(f"the tokenizer's post-processors {kinds} are not supported together")
    for own in adding:
        match own["type"]:
            case "BertProcessing":
                return (own["cls"][1],), (own["sep"][1],), None
            case "RobertaProcessing":
                return (own["cls"][1],), (own["sep"][1],), (own["sep"][1],) * 2
            case "TemplateProcessing":
                single, pair = _between_texts(own, "single"), _between_texts(own, "pair")
                if len(single) != 2:
                    raise CompileError(f"the tokenizer's post-processor has a text {len(single) - 1} times, not once")
                return single[0], single[1], pair[1] if len(pair) == 3 else None
            case other:
                raise CompileError(f"the tokenizer's post-processor {other} is not supported")
    return (), (), None


def _between_texts(part: _Json, key: str) -> list[_Tokens]:
    """Return the tokens before, between and after the texts of a template."""
    groups: list[_Tokens] = [()]
    for entry in part.get(key) or ():
        if "SpecialToken" in entry:
            groups[-1] += tuple(part["special_tokens"][entry["SpecialToken"]["id"]]["ids"])
        else:
            groups.append(())
    return groups


def _decoder(part: _Json | None) -> tuple[Decoder, str | None]:
    """Return the decoder, and the prefix of tokens that continue a word, or None."""
    if part is None:
        return Decoder.WORDS, None
    decoder, is_fused = Decoder.NONE, False
    prefix: str | None = None
    for own in _listed(part, "decoders"):
        match own["type"]:
            case "ByteLevel" | "ByteFallback":
                pass
            case "Fuse":
                is_fused = True
            case "Metaspace" if own.get("replacement", METASPACE) == METASPACE:
                scheme = own.get("prepend_scheme") or ("always" if own.get("add_prefix_space", True) else "never")
                decoder |= Decoder.METASPACE | (Decoder.NONE if scheme == "never" else Decoder.DROP_FIRST)
            case "Replace" if own["pattern"] == {"String": METASPACE} and own["content"] == " ":
                decoder |= Decoder.METASPACE
            case "Strip" if is_fused and own["content"] == " " and own["start"] == 1 and not own["stop"]:
                decoder |= Decoder.STRIP_FIRST
            case "WordPiece":
                decoder |= (
                    Decoder.WORDS | Decoder.PARTS | (Decoder.CLEAN_UP if own.get("cleanup", True) else Decoder.NONE)
                )
                prefix = own.get("prefix", "##")
            case other:
                raise CompileError(f"the tokenizer's decoder {other} is not supported as it is: {str(own)[:200]}")
    if Decoder.WORDS in decoder and Decoder.METASPACE in decoder:
        raise CompileError("the tokenizer's decoders WordPiece and Metaspace are not supported together")
    return decoder, prefix
