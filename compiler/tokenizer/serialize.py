"""Serializes a vocabulary for the runtime; `targets/runtime/tokenizer/vocabulary.h` declares the format."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from nnefc.operators.base import Array
from nnefc.tokenizer.patterns import WORD_CHARACTERS, CharacterClasses
from nnefc.tokenizer.unicode import combining_classes, compositions
from nnefc.tokenizer.vocabulary import (
    AddedToken,
    Behavior,
    Compose,
    FindAdded,
    MapCharacters,
    Pattern,
    Prepend,
    Reorder,
    Replace,
    Split,
    Step,
    Strip,
    TokenKind,
    TokenModel,
    Vocabulary,
)

__all__ = ["serialized"]

_VERSION = 1
_NO_TOKEN = 0xFFFFFFFF
_ALIGNMENT = 4
_HEADER_WORDS = 24
_BYTES_ARE_SYMBOLS, _WHOLE_WORDS, _BYTE_FALLBACK, _FUSES_UNKNOWN, _DROPS_UNKNOWN = 1, 2, 4, 8, 256
_STEP_ADDED, _STEP_PREPEND, _STEP_REPLACE, _STEP_MAP, _STEP_REORDER, _STEP_COMPOSE, _STEP_STRIP, _STEP_SPLIT = range(8)
_BEHAVIORS = (Behavior.REMOVED, Behavior.ISOLATED, Behavior.WITH_PREVIOUS, Behavior.WITH_NEXT, Behavior.CONTIGUOUS)
_INVERTS = 8
_HASH_START, _HASH_FACTOR = 2166136261, 16777619


def serialized(vocabulary: Vocabulary) -> bytes:
    """Return the bytes of an `nnefc_vocabulary`.

    Raises:
        CompileError: a pattern cannot be compiled.
    """
    pool = _Pool()
    texts = np.frombuffer(b"".join(vocabulary.tokens), np.uint8)
    lengths = np.array([len(text) for text in vocabulary.tokens], np.int64)
    begins = np.concatenate([[0], np.cumsum(lengths)])
    kinds = np.array(vocabulary.kinds, np.uint8)
    classes = CharacterClasses([pattern for step in vocabulary.steps for pattern in _patterns(step)])
    steps = _Steps(pool, vocabulary, classes)
    slots = _slots(texts, begins, kinds == TokenKind.TEXT)
    first_merges, merges = _merges(vocabulary)
    flags = (
        _BYTES_ARE_SYMBOLS * vocabulary.bytes_are_symbols
        + _WHOLE_WORDS * vocabulary.whole_words
        + _BYTE_FALLBACK * vocabulary.byte_fallback
        + _FUSES_UNKNOWN * vocabulary.fuses_unknown
        + _DROPS_UNKNOWN * vocabulary.drops_unknown
        + vocabulary.decoder
    )
    is_unigram = vocabulary.model is TokenModel.UNIGRAM
    words = [
        _VERSION,
        vocabulary.model,
        flags,
        len(vocabulary.tokens),
        _NO_TOKEN if vocabulary.unknown is None else vocabulary.unknown,
        int(lengths.max()),
        vocabulary.max_characters,
        struct.unpack("<I", struct.pack("<f", vocabulary.unknown_score))[0],
        pool.words(begins),
        pool.add(texts.tobytes()),
        pool.add(kinds.tobytes()),
        pool.words(_ranks(vocabulary)),
        pool.add(np.array(vocabulary.scores if is_unigram else (), "<f4").tobytes()),
        pool.words(slots),
        len(slots),
        pool.words(first_merges),
        pool.words(merges),
        pool.words(_byte_tokens(vocabulary)),
        pool.text(vocabulary.prefix),
        pool.words(np.array(steps.rows, np.int64)),
        len(steps.rows),
        pool.add(classes.table),
        pool.words([len(vocabulary.before), *vocabulary.before]),
        pool.words([len(vocabulary.after), *vocabulary.after]),
    ]
    return struct.pack(f"<{_HEADER_WORDS}I", *words) + pool.bytes()


class _Pool:
    """The bytes after the header; offsets are relative to the beginning of the header."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 4 * _HEADER_WORDS
        self._texts: dict[str, int] = {}

    def add(self, part: bytes) -> int:
        """Append aligned bytes, and return their offset."""
        offset = self._size
        part += bytes(-len(part) % _ALIGNMENT)
        self._parts.append(part)
        self._size += len(part)
        return offset

    def words(self, words: Sequence[int] | Array) -> int:
        """Append 32-bit integers, and return their offset."""
        return self.add(np.asarray(words, np.int64).astype("<u4").tobytes())

    def text(self, text: str) -> int:
        """Append a text with its size before it, unless it is there already, and return its offset."""
        if text not in self._texts:
            content = _utf8(text)
            self._texts[text] = self.add(struct.pack("<I", len(content)) + content)
        return self._texts[text]

    def bytes(self) -> bytes:
        """All bytes that were appended."""
        return b"".join(self._parts)


class _Steps:
    """Builds the table of steps; a row has the kind, flags, and the offsets of a table and a text."""

    def __init__(self, pool: _Pool, vocabulary: Vocabulary, classes: CharacterClasses) -> None:
        self._pool = pool
        self._vocabulary = vocabulary
        self._classes = classes
        self._automata: dict[str, int] = {}
        self.rows = [self._row(step) for step in vocabulary.steps]

    def _row(self, step: Step) -> tuple[int, int, int, int]:
        match step:
            case FindAdded(tokens):
                word = next((self._automaton(regex) for pattern in _patterns(step) for regex, _ in pattern), 0)
                return _STEP_ADDED, 0, self._added(tokens), word
            case Prepend(text, once, unless_there):
                return _STEP_PREPEND, once + 2 * unless_there, 0, self._pool.text(text)
            case Replace(pattern, text, surrounds):
                return _STEP_REPLACE, int(surrounds), self._pattern(pattern), self._pool.text(text)
            case MapCharacters(table, decomposes_hangul):
                return _STEP_MAP, int(decomposes_hangul), self._map(table), 0
            case Reorder():
                return _STEP_REORDER, 0, self._combining_classes(), 0
            case Compose():
                pairs = compositions()
                composed = self._pool.words([len(pairs), *(word for row in pairs for word in row)])
                return _STEP_COMPOSE, 0, composed, self._combining_classes()
            case Strip(left, right):
                return _STEP_STRIP, left + 2 * right, 0, 0
            case Split(pattern, behavior, inverts):
                return _STEP_SPLIT, _BEHAVIORS.index(behavior) + _INVERTS * inverts, self._pattern(pattern), 0

    def _pattern(self, pattern: Pattern) -> int:
        pairs = [0 if regex is None else self._automaton(regex) for pair in pattern for regex in pair]
        return self._pool.words([len(pattern), *pairs])

    def _automaton(self, regex: str) -> int:
        if regex not in self._automata:
            self._automata[regex] = self._pool.add(self._classes.automaton(regex).tobytes())
        return self._automata[regex]

    def _added(self, tokens: Sequence[AddedToken]) -> int:
        """Append the added tokens ordered by the first byte of their texts, with an index by that byte."""
        entries = sorted(
            ((_utf8(added.text), added) for added in tokens if added.text),
            key=lambda entry: (entry[0][0], -len(entry[0])),
        )
        first = np.searchsorted([text[0] for text, _ in entries], np.arange(257))
        flags = [a.strips_left + 2 * a.strips_right + 4 * a.single_word for _, a in entries]
        rows = [(a.token, own, self._pool.text(a.text)) for (_, a), own in zip(entries, flags, strict=True)]
        return self._pool.words([*first.tolist(), *(word for row in rows for word in row)])

    def _map(self, table: Mapping[int, str]) -> int:
        rows: list[list[int]] = []
        for character, text in sorted(table.items()):
            value = self._pool.text(text) if text else 0
            if rows and rows[-1][1] == character - 1 and rows[-1][2] == value:
                rows[-1][1] = character
            else:
                rows.append([character, character, value])
        return self._pool.words([len(rows), *(word for row in rows for word in row)])

    def _combining_classes(self) -> int:
        rows = combining_classes()
        return self._pool.words([len(rows), *(word for row in rows for word in row)])


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _patterns(step: Step) -> Iterator[Pattern]:
    """Yield the patterns of a step."""
    match step:
        case Replace(pattern, _, _) | Split(pattern, _, _):
            yield pattern
        case FindAdded(tokens) if any(added.single_word for added in tokens):
            yield ((f"[{WORD_CHARACTERS}]", None),)


def _slots(texts: Array, begins: Array, is_found: Array) -> Array:
    """Return the hash table of the tokens that are found by their texts: open addressing, at most half full."""
    tokens = np.flatnonzero(is_found & (np.diff(begins) > 0))
    count = 1 << max(1, 2 * len(tokens) - 1).bit_length()
    slots = np.full(count, _NO_TOKEN, np.int64)
    hashes = _hashes(texts, begins[tokens], begins[tokens + 1]) & (count - 1)
    taken: set[bytes] = set()
    content = texts.tobytes()
    for token, slot in zip(tokens.tolist(), hashes.tolist(), strict=True):
        text = content[begins[token] : begins[token + 1]]
        if text in taken:  # of two tokens with one text the first is found
            continue
        taken.add(text)
        while slots[slot] != _NO_TOKEN:
            slot = (slot + 1) & (count - 1)
        slots[slot] = token
    return slots


def _hashes(texts: Array, begins: Array, ends: Array) -> Array:
    """Return the FNV-1a hashes of parts of the texts."""
    hashes = np.full(len(begins), _HASH_START, np.uint32)
    left = np.arange(len(begins))
    at = 0
    while len(left := left[begins[left] + at < ends[left]]):
        hashes[left] = (hashes[left] ^ texts[begins[left] + at]) * np.uint32(_HASH_FACTOR)
        at += 1
    return hashes


def _merges(vocabulary: Vocabulary) -> tuple[Array, Array]:
    """Return the index of each left token's first merge, and the right token, rank and result of each merge.

    If two tokens have several merges, the last one counts, as in `tokenizers`.
    """
    rows = np.array(vocabulary.merges, np.int64).reshape(-1, 3)
    ranks = np.arange(len(rows))
    order = np.lexsort((-ranks, rows[:, 1], rows[:, 0]))
    rows, ranks = rows[order], ranks[order]
    is_first = np.ones(len(rows), bool)
    is_first[1:] = np.any(rows[1:, :2] != rows[:-1, :2], axis=1)
    rows, ranks = rows[is_first], ranks[is_first]
    first = np.searchsorted(rows[:, 0], np.arange(len(vocabulary.tokens) + 1))
    return first, np.column_stack([rows[:, 1], ranks, rows[:, 2]])


def _ranks(vocabulary: Vocabulary) -> Array:
    """Return the rank of each token by its score, the highest first; equal scores have equal ranks."""
    if vocabulary.model is not TokenModel.BPE_SCORES:
        return np.zeros(0, np.int64)
    _, ranks = np.unique(-np.array(vocabulary.scores, np.float32), return_inverse=True)
    return ranks.reshape(-1)


def _byte_tokens(vocabulary: Vocabulary) -> Array:
    tokens = np.full(256, _NO_TOKEN, np.int64)
    for token, (kind, text) in enumerate(zip(vocabulary.kinds, vocabulary.tokens, strict=True)):
        if kind is TokenKind.BYTE and len(text) == 1:
            tokens[text[0]] = token
    return tokens
