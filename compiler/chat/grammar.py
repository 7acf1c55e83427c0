"""Restricts a reply to a grammar: JSON, a JSON schema, a regular expression, or a grammar of llama.cpp.

The package llguidance (https://github.com/guidance-ai/llguidance) computes which tokens may follow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from nnefc.chat.prompts import ChatError, Prompts
from nnefc.loader import Model

__all__ = ["Grammars", "TokenMask"]

_WORD_BITS = 32
_SPACING = {"whitespace_pattern": r" | ?\n[ \t]{0,32}"}
"""White space between the tokens of JSON: one space, or a new line with its indentation. Without a limit, some
models go on writing white space for ever.
"""
_NOTHING_FOLLOWS = "NoExtensionBias"


class TokenMask:
    """The tokens that a grammar allows next: a :class:`nnefc.loader.sampling.Mask`."""

    def __init__(self, matcher: Any, count: int) -> None:
        self._matcher = matcher
        self._words = np.zeros(-(-count // _WORD_BITS), np.int32)

    def allowed(self) -> np.ndarray:
        """Return whether each token may follow, bool."""
        self._matcher.unsafe_compute_mask_ptr(self._words.ctypes.data, self._words.nbytes)
        self._check()
        bits = self._words[:, None] >> np.arange(_WORD_BITS, dtype=np.int32) & 1
        return bits.reshape(-1).astype(bool)

    def accept(self, token: int) -> None:
        """Advance by a token that has been chosen."""
        self._matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            problem = self._matcher.get_error().partition("\n")[0]  # the parser's state follows
            known = "no token may follow" if problem == _NOTHING_FOLLOWS else problem
            raise ChatError(f"the grammar cannot be followed: {known}")


class Grammars:
    """Makes token masks for one language model."""

    def __init__(self, model: Model, prompts: Prompts | None = None) -> None:
        """Read the vocabulary of a model, which takes a moment.

        Raises:
            ChatError: the package llguidance is not installed, the library has no tokenizer, or the model has no end
                token.
        """
        prompts = Prompts(model) if prompts is None else prompts
        if not prompts.ends:
            raise ChatError(f"{model.name} has no token that ends a reply, which a grammar needs")
        try:
            from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
        except ImportError:
            raise ChatError("a grammar needs llguidance: pip install 'nnefc[llm]'") from None
        self._tokens = _Tokens(model, prompts.ends)
        count = len(self._tokens.tokens)
        self._tokenizer = LLTokenizer(TokenizerWrapper(self._tokens), n_vocab=count, eos_token=list(prompts.ends))
        self._matcher = LLMatcher

    def json(self, schema: Mapping[str, Any] | None = None) -> TokenMask:
        """Return a mask for JSON that matches a schema; without a schema, for any object.

        White space is a space, or a new line with its indentation, unless the schema has other options for llguidance
        in `x-guidance`.

        Raises:
            ChatError: the schema is wrong, or not supported.
        """
        chosen = {"x-guidance": _SPACING, **({"type": "object"} if schema is None else schema)}
        return self._mask(self._matcher.grammar_from_json_schema(json.dumps(chosen)))

    def regex(self, regex: str) -> TokenMask:
        """Return a mask for texts that match a regular expression as a whole, in the syntax of Rust.

        Raises:
            ChatError: the expression is wrong.
        """
        return self._mask(self._matcher.grammar_from_regex(_checked(regex)))

    def gbnf(self, grammar: str) -> TokenMask:
        """Return a mask for texts of a grammar in GBNF, llama.cpp's notation.

        Raises:
            ChatError: the grammar is wrong.
        """
        from llguidance.gbnf_to_lark import any_to_lark

        try:
            lark = any_to_lark(grammar)
        except Exception as error:  # whatever the conversion of a wrong grammar raises
            raise ChatError(f"the grammar is wrong: {error}") from None
        return self.lark(lark)

    def lark(self, grammar: str) -> TokenMask:
        """Return a mask for texts of a grammar in llguidance's dialect of Lark.

        Raises:
            ChatError: the grammar is wrong.
        """
        return self._mask(self._matcher.grammar_from_lark(_checked(grammar)))

    def _mask(self, grammar: str) -> TokenMask:
        matcher = self._matcher(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise ChatError(f"the grammar is wrong: {matcher.get_error()}")
        mask = TokenMask(matcher, len(self._tokens.tokens))
        mask.allowed()  # raises an error where no token may be the first
        return mask


def _checked(text: str) -> str:
    """Return a text if it can be encoded in UTF-8.

    Raises:
        ChatError: it cannot, because of lone surrogates.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ChatError(f"the grammar is wrong: {error}") from None
    return text


class _Tokens:
    """A model's vocabulary in the form that llguidance reads."""

    bos_token_id = None

    def __init__(self, model: Model, ends: list[int]) -> None:
        self._model = model
        self.eos_token_id = ends[0]
        count = int(model.outputs[0].shape[-1])
        texts = [model.token_bytes(token) for token in range(count)]
        self.tokens = [text for text, _ in texts]
        self.special_token_ids = [token for token, (_, is_control) in enumerate(texts) if is_control]

    def __call__(self, text: bytes | str) -> list[int]:
        whole = text.decode(errors="replace") if isinstance(text, bytes) else text
        return self._model.tokenize(whole, begin_and_end=False)
