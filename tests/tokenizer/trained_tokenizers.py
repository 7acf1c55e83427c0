"""Tokenizers of every kind, trained by the package tokenizers, and random texts to compare with."""

from __future__ import annotations

import ctypes
import json
import random
import unicodedata
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, processors, trainers
from tokenizers import pre_tokenizers as pre

from nnefc.targets.link.zig import run_compiler, zig
from nnefc.tokenizer.serialize import serialized
from nnefc.tokenizer.vocabulary import Vocabulary

ROOT = Path(__file__).resolve().parents[2]
RUNTIME = ROOT / "targets" / "runtime"

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LETTERS = r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
_CASES = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_CONTRACTIONS}?|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_END = r"\s+$"

ADDED = ("<|end|>", "<tool>", "  pad  ", "h\u4e00llo", " h\u4e00llo ", " <strip>  ", "</s>", "<s>", "[CLS]", "<unk>")
"""Texts of added tokens, some with what is around them."""


@cache
def _corpus() -> tuple[str, ...]:
    pages = [(ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CHANGELOG.md", "docs/glossary.md")]
    return (*pages, "中文字 かな 한국어 été naïve Ünïcode " * 30)


def _byte_pairs(splits: pre.PreTokenizer, normalizer: normalizers.Normalizer | None = None, **how: bool) -> Tokenizer:
    made = Tokenizer(models.BPE(**how))
    made.pre_tokenizer, made.decoder = splits, decoders.ByteLevel()
    if normalizer is not None:
        made.normalizer = normalizer
    alphabet = pre.ByteLevel.alphabet()
    special = ["<|end|>", "<|im_start|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=1200, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    made.train_from_iterator(_corpus(), trainer)
    made.add_tokens(
        [
            AddedToken("<tool>", normalized=False),
            AddedToken("  pad  ", normalized=False),
            AddedToken("h\u4e00llo", normalized=False, single_word=True),
            AddedToken("<strip>", normalized=False, lstrip=True, rstrip=True),
        ]
    )
    return made


def _bytes_of(*splits: pre.PreTokenizer) -> pre.PreTokenizer:
    return pre.Sequence([*splits, pre.ByteLevel(add_prefix_space=False, use_regex=False)])


def _isolated(regex: str) -> pre.PreTokenizer:
    return pre.Split(Regex(regex), "isolated")


def _byte_fallback() -> Tokenizer:
    made = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=900, special_tokens=special, show_progress=False, limit_alphabet=120)
    made.train_from_iterator(_corpus(), trainer)
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    made.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    document = json.loads(made.to_str())
    added = document["added_tokens"]
    document["added_tokens"] = [each for each in added if not each["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(document))


def _unigram(scheme: str, splits: bool) -> Tokenizer:
    made = Tokenizer(models.Unigram())
    made.pre_tokenizer = pre.Metaspace(prepend_scheme=scheme)
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    trainer = trainers.UnigramTrainer(
        vocab_size=400, unk_token="<unk>", special_tokens=["<unk>", "</s>"], show_progress=False
    )
    made.train_from_iterator(_corpus(), trainer)
    made.pre_tokenizer = pre.Metaspace(prepend_scheme=scheme, split=splits)
    made.decoder = decoders.Metaspace(prepend_scheme=scheme)
    made.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", 1)])
    return made


def _wordpiece(lower: bool) -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = normalizers.BertNormalizer(lowercase=lower), pre.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    special = ["[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = trainers.WordPieceTrainer(vocab_size=900, special_tokens=special, show_progress=False, limit_alphabet=200)
    made.train_from_iterator(_corpus(), trainer)
    made.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return made


def _incomplete() -> Tokenizer:
    """Bytes, some of which are no tokens: there is no unknown one either."""
    made = Tokenizer(models.BPE())
    made.normalizer, made.pre_tokenizer, made.decoder = normalizers.Nmt(), pre.ByteLevel(False), decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=400, show_progress=False, limit_alphabet=40)
    made.train_from_iterator(_corpus(), trainer)
    return made


def _words() -> Tokenizer:
    made = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True))
    made.pre_tokenizer = pre.Sequence([pre.Whitespace(), pre.Punctuation("contiguous"), pre.Digits()])
    made.normalizer = normalizers.Sequence(
        [normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()]
    )
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>"], show_progress=False, limit_alphabet=80)
    made.train_from_iterator(_corpus(), trainer)
    return made


KINDS: Mapping[str, Callable[[], Tokenizer]] = {
    "gpt2": lambda: _byte_pairs(pre.ByteLevel(add_prefix_space=False)),
    "gpt2 with a first space": lambda: _byte_pairs(pre.ByteLevel(add_prefix_space=True)),
    "llama3": lambda: _byte_pairs(_bytes_of(_isolated(_CONTRACTIONS + _LETTERS)), ignore_merges=True),
    "qwen2": lambda: _byte_pairs(_bytes_of(_isolated(_CONTRACTIONS + _LETTERS)), normalizers.NFC()),
    "o200k": lambda: _byte_pairs(_bytes_of(_isolated(_CASES))),
    "smollm": lambda: _byte_pairs(pre.Sequence([pre.Digits(individual_digits=True), pre.ByteLevel(False)])),
    "deepseek": lambda: _byte_pairs(
        _bytes_of(
            _isolated("[\r\n]"),
            _isolated(r"\s?[A-Za-zµÀ-ÖØ-öø-ƺ]+"),
            _isolated(_END),
            _isolated("[一-龥ࠀ-一가-퟿]+"),
            pre.Digits(individual_digits=True),
        )
    ),
    "merged delimiters": lambda: _byte_pairs(
        _bytes_of(pre.Split("o", "merged_with_previous"), pre.Split(Regex("[aeu]"), "merged_with_next"))
    ),
    "byte fallback": _byte_fallback,
    "unigram": lambda: _unigram("always", True),
    "unigram of whole texts": lambda: _unigram("first", False),
    "bert": lambda: _wordpiece(True),
    "bert with case": lambda: _wordpiece(False),
    "words": _words,
    "bytes that are no tokens": _incomplete,
}
"""How each tokenizer is made."""

_RARE = (
    *(0xE9, 0xDF, 0x130, 0x17F, 0x3A3, 0x3C2, 0x416, 0x4E2D, 0x6587, 0x3042, 0xAC00, 0xD55C, 0x301, 0x323, 0x1F600),
    *(0x200D, 0x2581, 0xA0, 0x3000, 0x663, 0x967, 0x1D7D8, 0x2028, 0xAD, 0xFB01, 0x212B, 0x1E9B, 0x85, 0xFEFF, 0x2163),
)
_WORDS = (
    "the ",
    "of",
    "in",
    "ing ",
    "don't ",
    "we'll ",
    "I'M",
    "it's ",
    "123 ",
    "4567",
    "hello ",
    "World ",
    "library ",
)


def _piece(choice: random.Random) -> str:
    match choice.randrange(5):
        case 0:
            return chr(choice.randrange(32, 127))
        case 1:
            return choice.choice(" \n\t\r  ")
        case 2:
            return chr(choice.choice(_RARE))
        case 3:
            return choice.choice(_WORDS)
    return choice.choice("etaoin shrdlu")


def _letter(choice: random.Random) -> str:
    """A character of the first version of Unicode that all libraries know: of letters and punctuation up to U+1FFF."""
    while True:
        c = chr(choice.randrange(0x20, 0x500))
        if unicodedata.category(c) != "Cn":
            return c


def random_text(choice: random.Random) -> str:
    """A text of up to 40 pieces, or of characters of the first blocks of Unicode, with an added token now and then."""
    make = _letter if choice.random() < 0.15 else _piece
    text = "".join(make(choice) for _ in range(choice.randrange(40)))
    if choice.random() < 0.4:
        at = choice.randrange(len(text) + 1)
        text = text[:at] + choice.choice(ADDED) + text[at:]
    return text


class _Pieces(ctypes.Structure):
    _fields_ = (
        ("bytes", ctypes.c_void_p),
        ("byte_count", ctypes.c_size_t),
        ("byte_room", ctypes.c_size_t),
        ("list", ctypes.c_void_p),
        ("count", ctypes.c_size_t),
        ("room", ctypes.c_size_t),
        ("failed", ctypes.c_bool),
    )


class _Tokens(ctypes.Structure):
    _fields_ = (
        ("list", ctypes.POINTER(ctypes.c_uint32)),
        ("count", ctypes.c_size_t),
        ("room", ctypes.c_size_t),
        ("failed", ctypes.c_bool),
    )


def runtime_tokenizer(folder: Path) -> ctypes.CDLL:
    """The runtime's functions for text, compiled as a library of their own."""
    sources = sorted(path for path in (RUNTIME / "tokenizer").glob("*.c") if path.name != "functions.c")
    library = folder / "tokenizer.so"
    flags = ["-std=c11", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", f"-I{RUNTIME}"]
    run_compiler([*zig(), "cc", *flags, *map(str, sources), "-o", str(library)], folder)
    return ctypes.CDLL(str(library))


class Compiled:
    """A vocabulary that the runtime computes with."""

    def __init__(self, runtime: ctypes.CDLL, vocabulary: Vocabulary) -> None:
        self._runtime = runtime
        self._content = ctypes.create_string_buffer(serialized(vocabulary))

    def encode(self, text: str, flags: int = 3) -> list[int]:
        """The tokens of a text, those around it and control tokens included."""
        content, tokens = text.encode(), _Tokens()
        self._runtime.nnefc_encode(self._content, content, ctypes.c_size_t(len(content)), flags, ctypes.byref(tokens))
        assert not tokens.failed
        return tokens.list[: tokens.count] if tokens.count else []

    def decode(self, tokens: list[int], skip_control: bool) -> str:
        """The text of tokens."""
        numbers, made = (ctypes.c_int64 * len(tokens))(*tokens), _Pieces()
        flags = 4 if skip_control else 0
        self._runtime.nnefc_decode.restype = ctypes.c_bool
        assert self._runtime.nnefc_decode(
            self._content, numbers, ctypes.c_size_t(len(tokens)), flags, ctypes.byref(made)
        )
        content = ctypes.string_at(made.bytes, made.byte_count) if made.byte_count else b""
        return content.decode(errors="replace")
