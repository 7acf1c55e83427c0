"""Describes the vocabulary of a language model: its tokens, and how text is split into them.

The description is the same for all formats of files. `serialize.py` writes it for the runtime, which computes with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, IntEnum, IntFlag
from typing import TypeAlias

import numpy as np

from nnefc.support.diagnostics import CompileError

__all__ = [
    "MAX_TOKENS",
    "MAX_TOKEN_BYTES",
    "AddedToken",
    "Behavior",
    "Compose",
    "Decoder",
    "FindAdded",
    "MapCharacters",
    "Pattern",
    "Prepend",
    "Reorder",
    "Replace",
    "Split",
    "Step",
    "Strip",
    "TokenKind",
    "TokenModel",
    "Vocabulary",
]

MAX_TOKENS = 1 << 22
MAX_TOKEN_BYTES = 1 << 16
MAX_STEPS = 256


class TokenModel(IntEnum):
    """How the tokens of a piece of text are chosen; the numbers are the runtime's."""

    BPE_MERGES = 0
    BPE_SCORES = 1
    UNIGRAM = 2
    WORDPIECE = 3


class TokenKind(IntEnum):
    """What a token stands for; the numbers are the runtime's."""

    TEXT = 0
    ADDED = 1
    CONTROL = 2
    BYTE = 3


class Decoder(IntFlag):
    """What is done to the texts of tokens when they become a text; the numbers are the runtime's."""

    NONE = 0
    METASPACE = 16
    STRIP_FIRST = 32
    WORDS = 64
    CLEAN_UP = 128
    DROP_FIRST = 512
    PARTS = 1024


class Behavior(Enum):
    """What becomes of the matches of a pattern at which a text is split; the values are those of tokenizer.json."""

    REMOVED = "Removed"
    ISOLATED = "Isolated"
    WITH_PREVIOUS = "MergedWithPrevious"
    WITH_NEXT = "MergedWithNext"
    CONTIGUOUS = "Contiguous"


Pattern: TypeAlias = tuple[tuple[str, str | None], ...]
"""Regular expressions in RE2 syntax, of which the first that matches counts, each with one that must not match what
follows."""


@dataclass(frozen=True)
class AddedToken:
    """A token that is found in a text by a text of its own, with what the search does to the text around it."""

    token: int
    text: str
    strips_left: bool = False
    strips_right: bool = False
    single_word: bool = False


@dataclass(frozen=True)
class FindAdded:
    """Takes added tokens out of the text: of several at one position the longest, of those with one text the first."""

    tokens: tuple[AddedToken, ...]


@dataclass(frozen=True)
class Prepend:
    """Puts a text before each piece, or before the one that the text begins with; or only where it is not there yet."""

    text: str
    once: bool = False
    unless_there: bool = False


@dataclass(frozen=True)
class Replace:
    """Replaces the matches of a pattern by a text; or puts the text on both sides of each."""

    pattern: Pattern
    text: str
    surrounds: bool = False


@dataclass(frozen=True)
class MapCharacters:
    """Replaces characters by texts; Hangul syllables are decomposed on demand."""

    table: Mapping[int, str] = field(hash=False)
    decomposes_hangul: bool = False


@dataclass(frozen=True)
class Reorder:
    """Sorts successive marks by their canonical combining class."""


@dataclass(frozen=True)
class Compose:
    """Composes characters canonically."""


@dataclass(frozen=True)
class Strip:
    """Removes white space from the ends of each piece."""

    left: bool
    right: bool


@dataclass(frozen=True)
class Split:
    """Splits pieces at the matches of a pattern, or, if it `inverts`, at what is between them."""

    pattern: Pattern
    behavior: Behavior
    inverts: bool = False


Step: TypeAlias = FindAdded | Prepend | Replace | MapCharacters | Reorder | Compose | Strip | Split


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """The tokens of a language model.

    Attributes:
        model: how the tokens of a piece are chosen.
        tokens: the bytes of each token's text.
        kinds: of each token; tokens of text alone are found by the model.
        merges: of `BPE_MERGES`: left and right token, and the one that they become, in the order of their ranks.
        scores: of `UNIGRAM` and `BPE_SCORES`, of each token; a higher one is preferred.
        unknown: the token of what no other token has.
        unknown_score: of a character that no token has: `UNIGRAM`.
        bytes_are_symbols: whether tokens have any bytes, else whole characters.
        whole_words: whether a piece that is a token is not split.
        byte_fallback: whether characters that no token has become the tokens of their bytes.
        fuses_unknown: whether successive unknown characters are one unknown token.
        drops_unknown: whether what no token stands for, not even the unknown one, is removed before symbols merge.
        prefix: what WordPiece puts before the parts of a word but its first.
        max_characters: WordPiece: a longer word is unknown.
        steps: what is done to a text before its tokens are chosen.
        before, after: the tokens around a text.
        between: the tokens between two texts that are read as one; None for those of `after`.
        decoder: what is done to texts of tokens when they become a text.
        end_tokens: those that end a model's reply.
        named_tokens: tokens by the names that chat templates have for them, such as `bos_token`.
        chat_template: in Jinja; None if the model has none.
    """

    model: TokenModel
    tokens: Sequence[bytes]
    kinds: Sequence[TokenKind]
    merges: Sequence[tuple[int, int, int]] = ()
    scores: Sequence[float] = ()
    unknown: int | None = None
    unknown_score: float = 0.0
    bytes_are_symbols: bool = False
    whole_words: bool = False
    byte_fallback: bool = False
    fuses_unknown: bool = False
    drops_unknown: bool = False
    prefix: str = ""
    max_characters: int = 100
    steps: tuple[Step, ...] = ()
    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    between: tuple[int, ...] | None = None
    decoder: Decoder = Decoder.NONE
    end_tokens: tuple[int, ...] = ()
    named_tokens: Mapping[str, str] = field(default_factory=dict)
    chat_template: str | None = None

    def __post_init__(self) -> None:
        """Checks what files say.

        Raises:
            CompileError: a value that is not of its type or out of its range.
        """
        count = len(self.tokens)
        self._check_values()
        if not 0 < count <= MAX_TOKENS:
            raise CompileError(f"a vocabulary of {count} tokens is not supported: 1 to {MAX_TOKENS} are")
        if len(self.kinds) != count or len(self.scores) not in (0, count):
            raise CompileError(
                f"a vocabulary of {count} tokens has {len(self.kinds)} kinds and {len(self.scores)} scores"
            )
        longest = max(map(len, self.tokens))
        if longest > MAX_TOKEN_BYTES:
            raise CompileError(f"a token of {longest} bytes is not supported: {MAX_TOKEN_BYTES} at most are")
        named = [
            *self.before,
            *self.after,
            *(self.between or ()),
            *self.end_tokens,
            *(() if self.unknown is None else (self.unknown,)),
        ]
        named += [token for merge in self.merges for token in merge]
        named += [added.token for step in self.steps if isinstance(step, FindAdded) for added in step.tokens]
        if not all(type(token) is int for token in named):
            wrong = next(token for token in named if type(token) is not int)
            raise CompileError(f"the vocabulary names token {str(wrong)[:80]}, which is not a number")
        if named and not (min(named) >= 0 and max(named) < count):
            wrong = next(token for token in named if not 0 <= token < count)
            raise CompileError(f"the vocabulary names token {wrong}, but has {count} tokens")

    def _check_values(self) -> None:
        """Checks numbers and texts other than tokens."""
        if type(self.max_characters) is not int or not 0 <= self.max_characters < 1 << 31:
            raise CompileError(f"words of {str(self.max_characters)[:80]} characters are not supported")
        texts = [step.text for step in self.steps if isinstance(step, Prepend | Replace)]
        wrong = [text for text in (self.prefix, *texts) if not isinstance(text, str)]
        if wrong:
            raise CompileError(f"the tokenizer has {str(wrong[0])[:80]} where a text must be")
        largest = float(np.finfo(np.float32).max)
        if not np.all(np.abs(np.array((self.unknown_score, *self.scores), np.float64)) <= largest):
            raise CompileError("the tokenizer has a score that is NaN, or does not fit float32")
        if len(self.steps) > MAX_STEPS:
            raise CompileError(f"a tokenizer of {len(self.steps)} steps is not supported: {MAX_STEPS} at most are")
