"""Describes the vocabulary of a language model: its tokens, and the steps that split text into them.

All file formats are read into this description. `serialize.py` serializes it for the runtime, which tokenizes with it.
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
    """The algorithm that chooses the tokens of a piece of text; the numbers are those of the runtime."""

    BPE_MERGES = 0
    BPE_SCORES = 1
    UNIGRAM = 2
    WORDPIECE = 3


class TokenKind(IntEnum):
    """What a token stands for; the numbers are those of the runtime."""

    TEXT = 0
    ADDED = 1
    CONTROL = 2
    BYTE = 3


class Decoder(IntFlag):
    """How tokens' texts are joined to a text; the flags are those of the runtime."""

    NONE = 0
    METASPACE = 16
    STRIP_FIRST = 32
    WORDS = 64
    CLEAN_UP = 128
    DROP_FIRST = 512
    PARTS = 1024


class Behavior(Enum):
    """What happens to the matches of a pattern at which a text is split; the values are those of `tokenizer.json`."""

    REMOVED = "Removed"
    ISOLATED = "Isolated"
    WITH_PREVIOUS = "MergedWithPrevious"
    WITH_NEXT = "MergedWithNext"
    CONTIGUOUS = "Contiguous"


Pattern: TypeAlias = tuple[tuple[str, str | None], ...]
"""Regular expressions in RE2 syntax, the first of which that matches counts; each with an expression that must not
match what follows (a negative lookahead), or None.
"""


@dataclass(frozen=True)
class AddedToken:
    """A token that is found by its own text before other tokens.

    Attributes:
        token: its number.
        text: the text to find.
        strips_left, strips_right: whether white space next to the text becomes part of the token.
        single_word: whether the text must not be next to word characters.
    """

    token: int
    text: str
    strips_left: bool = False
    strips_right: bool = False
    single_word: bool = False


@dataclass(frozen=True)
class FindAdded:
    """Extracts added tokens from the text: the longest one at each position, and of equal texts the first."""

    tokens: tuple[AddedToken, ...]


@dataclass(frozen=True)
class Prepend:
    """Inserts a text before each piece.

    Attributes:
        text: to insert.
        once: whether it is inserted before the text's first piece only.
        unless_there: whether pieces that begin with it are left unchanged.
    """

    text: str
    once: bool = False
    unless_there: bool = False


@dataclass(frozen=True)
class Replace:
    """Replaces the matches of a pattern by a text; or, with `surrounds`, inserts the text on both sides of each
    match.
    """

    pattern: Pattern
    text: str
    surrounds: bool = False


@dataclass(frozen=True)
class MapCharacters:
    """Replaces characters by texts, and with `decomposes_hangul` Hangul syllables by their parts."""

    table: Mapping[int, str] = field(hash=False)
    decomposes_hangul: bool = False


@dataclass(frozen=True)
class Reorder:
    """Sorts consecutive marks by their canonical combining class."""


@dataclass(frozen=True)
class Compose:
    """Composes characters canonically."""


@dataclass(frozen=True)
class Strip:
    """Removes white space from the left or right end of each piece."""

    left: bool
    right: bool


@dataclass(frozen=True)
class Split:
    """Splits pieces at the matches of a pattern or, with `inverts`, at the text between matches."""

    pattern: Pattern
    behavior: Behavior
    inverts: bool = False


Step: TypeAlias = FindAdded | Prepend | Replace | MapCharacters | Reorder | Compose | Strip | Split


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """The tokens of a language model.

    Attributes:
        model: the algorithm that chooses the tokens of a piece.
        tokens: the bytes of each token's text.
        kinds: of the tokens; the model finds tokens of the kind `TEXT` only.
        merges: for `BPE_MERGES`: left token, right token and their merged token, in the order of their ranks.
        scores: for `UNIGRAM` and `BPE_SCORES`: of each token; higher ones are preferred.
        unknown: the token of text without any token.
        unknown_score: for `UNIGRAM`: of a character without a token.
        bytes_are_symbols: whether merging begins with bytes; else with characters.
        whole_words: whether a piece that is a token is not split.
        byte_fallback: whether characters without a token become the tokens of their bytes.
        fuses_unknown: whether consecutive unknown characters become one unknown token.
        drops_unknown: whether characters without a token are removed before merging, if there is no unknown token
            either.
        prefix: for `WORDPIECE`: the prefix of a word's parts after the first.
        max_characters: for `WORDPIECE`: longer words are unknown.
        steps: applied to a text before its tokens are chosen.
        before, after: the tokens around a text.
        between: the tokens between two texts that are read as one; None: those of `after`.
        decoder: how tokens' texts are joined to a text.
        end_tokens: the tokens that end a reply.
        named_tokens: the texts of special tokens by their names in chat templates, such as `bos_token`.
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
        """Check the values, which come from files.

        Raises:
            CompileError: a value is of a wrong type or out of range.
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
        """Check numbers and texts other than tokens."""
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
