"""Random tokenizers of the package tokenizers: models, normalizers, pre-tokenizers, decoders and added tokens."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, processors
from tokenizers import pre_tokenizers as pre

__all__ = ["random_sentence", "random_tokenizer"]

_T = TypeVar("_T")
_LETTERS = "abcdeABC éÉ中字ñß12½²,.!'#▁Ġ\n\t  \u017fΣ"
_WORDS = ("ab", "abc", "Hello", "中字", "12", "é", "don't", "▁ab", " a", "##c", "  ", "BC.", "ñ!", "<s>", "ÉA")
_SPECIAL = ("<s>", "</s>", "[MASK]", "<|end|>")
_MARK = "▁"

_NORMALIZERS: tuple[Callable[[random.Random], Any], ...] = (
    lambda r: normalizers.NFC(),
    lambda r: normalizers.NFD(),
    lambda r: normalizers.NFKC(),
    lambda r: normalizers.NFKD(),
    lambda r: normalizers.Lowercase(),
    lambda r: normalizers.StripAccents(),
    lambda r: normalizers.Strip(left=r.random() < 0.5, right=r.random() < 0.5),
    lambda r: normalizers.Prepend(r.choice([_MARK, " ", "ab"])),
    lambda r: normalizers.Replace(r.choice([" ", "ab", "é"]), r.choice([_MARK, "", "a", "!! "])),
    lambda r: normalizers.Replace(Regex(r.choice([r" {2,}", r"[a-c]+", r"\d", r"\s+$", r"\s+"])), r.choice([" ", "x"])),
    lambda r: normalizers.BertNormalizer(*(r.random() < 0.5 for _ in range(4))),
    lambda r: normalizers.Nmt(),
)
_PATTERNS = (
    r"\s+(?!\S)|\s+", r" ?\p{L}+", r"\p{N}{1,3}", r"[^\s\p{L}\p{N}]+", r"(?i:'s|'t|'re)|\p{L}+", r"\s*[\r\n]+", r"\s+$",
    r"[a-c]++|é", r"\w+|[^\w\s]+", r"(?:ab|c)+", r"[\p{Lu}\p{Lt}]?[\p{Ll}]+|\p{Lo}", r".", r"\S",
)  # fmt: skip
_BEHAVIORS = ("removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous")
_PRE_TOKENIZERS: tuple[Callable[[random.Random], Any], ...] = (
    lambda r: pre.Split(Regex(r.choice(_PATTERNS)), r.choice(_BEHAVIORS), r.random() < 0.3),
    lambda r: pre.Split(r.choice([" ", "a", "ab", "中"]), r.choice(_BEHAVIORS), r.random() < 0.3),
    lambda r: pre.Metaspace(_MARK, r.choice(["always", "never"]), r.random() < 0.5),
    lambda r: pre.Digits(r.random() < 0.5),
    lambda r: pre.Punctuation(r.choice(_BEHAVIORS)),
    lambda r: pre.Whitespace(),
    lambda r: pre.WhitespaceSplit(),
    lambda r: pre.BertPreTokenizer(),
    lambda r: pre.CharDelimiterSplit(r.choice("a ▁")),
    lambda r: pre.FixedLength(r.choice([1, 3, 5])),
)
_MARKS = decoders.Replace(_MARK, " ")
_OF_BYTES: tuple[Callable[[], Any], ...] = (
    lambda: decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()]),
    lambda: decoders.Sequence([_MARKS, decoders.ByteFallback(), decoders.Fuse()]),
    lambda: decoders.Sequence([_MARKS, decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]),
)
_DECODERS: tuple[Callable[[], Any], ...] = (
    lambda: None,
    lambda: decoders.Fuse(),
    lambda: decoders.Metaspace(_MARK, "always"),
    lambda: decoders.Metaspace(_MARK, "never"),
    lambda: decoders.Sequence([_MARKS, decoders.Fuse()]),
    lambda: decoders.Sequence([_MARKS, decoders.Fuse(), decoders.Strip(" ", 1, 0)]),
    lambda: decoders.WordPiece("##", True),
    lambda: decoders.WordPiece("##", False),
)


def random_sentence(choice: random.Random) -> str:
    """A text of letters, words and special tokens."""
    pools: Sequence[Sequence[str]] = (_LETTERS, _LETTERS, _WORDS, _SPECIAL)
    return "".join(choice.choice(choice.choice(pools)) for _ in range(choice.randrange(24)))


def random_tokenizer(choice: random.Random) -> Tokenizer:
    """A tokenizer with up to three normalizers and pre-tokenizers, and up to five added tokens."""
    is_byte_level = choice.random() < 0.4
    tokenizer = Tokenizer(_model(choice, is_byte_level))
    if own := _some(choice, _NORMALIZERS):
        tokenizer.normalizer = normalizers.Sequence([make(choice) for make in own])
    splits = [make(choice) for make in _some(choice, _PRE_TOKENIZERS)]
    if is_byte_level:
        splits.append(pre.ByteLevel(choice.random() < 0.5, use_regex=choice.random() < 0.5))
    if splits:
        tokenizer.pre_tokenizer = pre.Sequence(splits)
    has_bytes = tokenizer.token_to_id("<0x41>") is not None
    decoder = decoders.ByteLevel() if is_byte_level else choice.choice(_OF_BYTES if has_bytes else _DECODERS)()
    if decoder is not None:
        tokenizer.decoder = decoder
    words = [word for word in _WORDS if word.strip() and (word.isascii() or not is_byte_level)]
    for content in choice.sample([*words, *_SPECIAL], choice.randrange(6)):
        flags = {name: choice.random() < 0.4 for name in ("lstrip", "rstrip", "single_word", "normalized")}
        flags["normalized"] &= content not in _SPECIAL and tokenizer.token_to_id(content) is None
        flags["single_word"] &= content not in _SPECIAL  # control tokens are none of the model's here
        added = AddedToken(content, **flags)
        (tokenizer.add_special_tokens if content in _SPECIAL else tokenizer.add_tokens)([added])
    if choice.random() < 0.5:
        tokenizer.add_special_tokens([AddedToken("<s>", normalized=False)])
        number = tokenizer.token_to_id("<s>")
        tokenizer.post_processor = choice.choice(
            [
                processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", number)]),
                processors.TemplateProcessing("<s> $A <s> <s>", special_tokens=[("<s>", number)]),
                processors.BertProcessing(("<s>", number), ("<s>", number)),
                processors.RobertaProcessing(("<s>", number), ("<s>", number), add_prefix_space=False),
                processors.ByteLevel(),
            ]
        )
    return Tokenizer.from_str(json.dumps(json.loads(tokenizer.to_str())))


def _some(choice: random.Random, of: Sequence[_T]) -> list[_T]:
    return [choice.choice(of) for _ in range(choice.choice([0, 0, 1, 1, 2, 3]))]


def _model(choice: random.Random, is_byte_level: bool) -> Any:
    alphabet = sorted(pre.ByteLevel.alphabet()) if is_byte_level else sorted(set(_LETTERS) - {"\u017f"})
    words = [word for word in _WORDS if not is_byte_level or word.isascii()]
    spelled = [word.replace(" ", "Ġ") if is_byte_level else word for word in words]
    kind = choice.choice(["BPE", "BPE", "Unigram", "WordPiece"])
    if kind == "WordPiece":
        pieces = ["[UNK]", *alphabet, *(f"##{letter}" for letter in alphabet), *spelled]
        return models.WordPiece(
            {piece: n for n, piece in enumerate(dict.fromkeys(pieces))},
            unk_token="[UNK]",
            max_input_chars_per_word=choice.choice([100, 6]),
        )
    if kind == "Unigram":
        pieces = ["<unk>", *dict.fromkeys([*alphabet, *spelled])]
        scores = [(piece, -choice.randrange(9 << 10) / 1024) for piece in pieces]
        has_bytes = not is_byte_level and choice.random() < 0.4
        scores += [(f"<0x{byte:02X}>", -9.0) for byte in range(256) if has_bytes]
        return models.Unigram(scores, 0, has_bytes)
    vocabulary = {letter: n for n, letter in enumerate(["<unk>", *alphabet])}
    merges = []
    for _ in range(60):
        left, right = (choice.choice([*vocabulary][1:]) for _ in range(2))
        if left + right not in vocabulary:
            vocabulary[left + right] = len(vocabulary)
            merges.append((left, right))
    has_bytes = not is_byte_level and choice.random() < 0.5
    for byte in range(256 if has_bytes else 0):
        vocabulary[f"<0x{byte:02X}>"] = len(vocabulary)
    return models.BPE(
        vocabulary, merges, unk_token=choice.choice([None, "<unk>"]), fuse_unk=choice.random() < 0.5,
        byte_fallback=has_bytes, ignore_merges=choice.random() < 0.3,
    )  # fmt: skip
