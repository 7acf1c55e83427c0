"""Tokenizes and detokenizes texts by the functions of a library, `nnefc_tokenize` and `nnefc_detokenize`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from ctypes import byref, c_int64, c_size_t, create_string_buffer

from .library import Library
from .tensors import RunError

__all__ = ["TextStream", "decoded", "encoded", "streamed"]

_WITH_BEGIN_AND_END, _FIND_CONTROL, _SKIP_CONTROL, _CONTINUES = 1, 2, 4, 8
_OK, _BAD_ARGUMENT, _TOO_SMALL = 0, 1, 10


def encoded(library: Library, text: str, begin_and_end: bool, control: bool) -> list[int]:
    """Return the tokens of a text; arguments as in :meth:`Model.tokenize`.

    Raises:
        RunError: the library has no tokenizer, or there is not enough memory.
    """
    function = library.function("nnefc_tokenize")
    content = text.encode("utf-8", "surrogatepass")
    flags = begin_and_end * _WITH_BEGIN_AND_END + control * _FIND_CONTROL
    count, room = c_size_t(), len(content) // 2 + 16
    while True:
        tokens = (c_int64 * room)()
        status = function(content, len(content), flags, tokens, room, byref(count))
        if status != _TOO_SMALL:
            break
        room = count.value
    if status != _OK:
        raise RunError(f"{library.name}: {library.dll.nnefc_status_name(status).decode()}: no tokens of the text")
    return tokens[: count.value]


def decoded(library: Library, tokens: Sequence[int], skip_control: bool, continues: bool) -> bytes:
    """Return the text of tokens in UTF-8, which may end within a character.

    Args:
        library: that has the tokenizer.
        tokens: numbers of tokens.
        skip_control: whether control tokens are left out.
        continues: whether other tokens come before: some tokenizers treat the first token of a text differently.

    Raises:
        RunError: the library has no tokenizer, a number is not a token, or there is not enough memory.
    """
    function = library.function("nnefc_detokenize")
    try:
        numbers = (c_int64 * len(tokens))(*tokens)
    except TypeError as error:
        raise RunError(f"tokens are a list of integers: {error}") from None
    flags = skip_control * _SKIP_CONTROL + continues * _CONTINUES
    size, room = c_size_t(), 8 * len(tokens) + 16
    while True:
        text = create_string_buffer(room)
        status = function(numbers, len(tokens), flags, text, room, byref(size))
        if status != _TOO_SMALL:
            break
        room = size.value
    if status == _BAD_ARGUMENT:
        raise RunError(f"{library.name} has no such token: {_wrong(library, tokens)}")
    if status != _OK:
        raise RunError(f"{library.name}: {library.dll.nnefc_status_name(status).decode()}: no text of the tokens")
    return text.raw[: size.value]


def _wrong(library: Library, tokens: Sequence[int]) -> int:
    """Return the first number that is not a token."""
    size = c_size_t()
    function = library.function("nnefc_detokenize")
    return next(
        token for token in tokens if function((c_int64 * 1)(token), 1, 0, None, 0, byref(size)) == _BAD_ARGUMENT
    )


class TextStream:
    """Detokenizes tokens one by one."""

    def __init__(self, library: Library, skip_control: bool) -> None:
        self._library, self._skip_control = library, skip_control
        self._waiting = b""
        self._continues = False

    def add(self, token: int) -> str:
        """Return the text that a token adds; a character of several tokens is returned with its last token."""
        self._waiting += decoded(self._library, [token], self._skip_control, self._continues)
        self._continues = True
        whole = _whole_characters(self._waiting)
        text = self._waiting[:whole].decode(errors="replace")
        self._waiting = self._waiting[whole:]
        return text

    def end(self) -> str:
        """Return the remaining text: U+FFFD for an incomplete character, else empty."""
        text = self._waiting.decode(errors="replace")
        self._waiting = b""
        return text


def streamed(library: Library, tokens: Iterable[int], skip_control: bool) -> Iterator[str]:
    """Yield the text that each token adds, as :class:`TextStream`."""
    stream = TextStream(library, skip_control)
    for token in tokens:
        yield stream.add(token)
    if left := stream.end():
        yield left


def _whole_characters(text: bytes) -> int:
    """Return the bytes of a text without an incomplete character at its end."""
    for size in range(1, min(4, len(text) + 1)):
        byte = text[-size]
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return len(text) - size if size < needed else len(text)
        if byte < 0x80:
            break
    return len(text)
