"""Parses inference requests that arrive completely in one read, and formats their answers, without aiohttp.

Most requests for small networks arrive so, and aiohttp needs several times as long for one as the run takes. aiohttp
handles all others: other paths, headers that are not listed below, bodies that arrive in parts or are compressed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from urllib.parse import unquote

__all__ = ["MAX_BODY", "DirectRequest", "direct_request", "formatted_answer"]

MAX_BODY = 1 << 16
"""Maximum bytes of a body; larger ones rarely arrive in one read."""

_MAX_HEAD = 1 << 13
_MAX_KNOWN = 256
"""Parsed heads that are cached: a client tends to send the same head with each request."""

_END = b"\r\n\r\n"

_WITHOUT_MEANING = {b"host", b"user-agent", b"accept", b"accept-encoding", b"accept-language", b"content-type"}
_LENGTH, _HEADER_LENGTH, _CONNECTION = b"content-length", b"inference-header-content-length", b"connection"
_AUTHORIZATION, _API_KEY, _TRACE = b"authorization", b"x-api-key", b"traceparent"
_KNOWN = _WITHOUT_MEANING | {_LENGTH, _HEADER_LENGTH, _CONNECTION, _AUTHORIZATION, _API_KEY, _TRACE}


@dataclass(frozen=True)
class DirectRequest:
    """The parsed head of an inference request.

    Attributes:
        model, version: in the path; the version may be empty.
        size: bytes of the body.
        header_length: the header `Inference-Header-Content-Length`, not yet checked; None without it.
        keeps_alive: whether the connection stays open after the answer.
        headers: the values of `authorization`, `x-api-key` and `traceparent`, where the client sent them.
    """

    model: str
    version: str
    size: int
    header_length: str | None
    keeps_alive: bool
    headers: Mapping[str, str]


_heads: dict[bytes, DirectRequest | None] = {}


def direct_request(data: bytes) -> tuple[DirectRequest, int] | None:
    """Parse the request at the beginning of `data`.

    Returns the request and the offset of its body; None if the request is incomplete, or is one for aiohttp.
    """
    end = data.find(_END, 0, _MAX_HEAD)
    if end < 0:
        return None
    head = data[:end]
    found = _heads.get(head, ...)
    if found is ...:
        if len(_heads) >= _MAX_KNOWN:
            _heads.clear()
        found = _heads[head] = _parsed(head)
    begin = end + len(_END)
    return None if found is None or len(data) - begin < found.size else (found, begin)


def _parsed(head: bytes) -> DirectRequest | None:
    first, *lines = head.split(b"\r\n")
    method, _, location = first.partition(b" ")
    path, _, protocol = location.partition(b" ")
    named = _named(path)
    if method != b"POST" or protocol != b"HTTP/1.1" or named is None:
        return None
    fields: dict[bytes, str] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        name = name.lower()
        if not colon or name not in _KNOWN or name in fields or not _is_text(value):
            return None
        fields[name] = value.strip(b" \t").decode("ascii")
    length, connection = fields.get(_LENGTH, ""), fields.get(_CONNECTION, "keep-alive").lower()
    if b"host" not in fields or not (length.isdigit() and len(length) < 8 and int(length) <= MAX_BODY):
        return None
    if connection not in ("keep-alive", "close"):
        return None
    kept = {key.decode(): fields[key] for key in (_AUTHORIZATION, _API_KEY, _TRACE) if key in fields}
    return DirectRequest(*named, int(length), fields.get(_HEADER_LENGTH), connection == "keep-alive", kept)


def _named(path: bytes) -> tuple[str, str] | None:
    """Return the network and the version (perhaps empty) of an inference path; None for other paths."""
    parts = path.split(b"/")
    if not _is_text(path) or b"?" in path or b"#" in path or parts[:3] != [b"", b"v2", b"models"]:
        return None
    match [unquote(part.decode("ascii")) for part in parts[3:]]:
        case [str(model), "infer"] if model:
            return model, ""
        case [str(model), "versions", str(version), "infer"] if model and version:
            return model, version
    return None


def _is_text(text: bytes) -> bool:
    return text.isascii() and text.replace(b"\t", b" ").decode("ascii").isprintable()


_date = (0, b"")


def _now() -> bytes:
    """Return the current time in the format of HTTP, cached for a second."""
    global _date
    seconds = int(time.time())
    if seconds != _date[0]:
        _date = seconds, formatdate(seconds, usegmt=True).encode()
    return _date[1]


def formatted_answer(
    status: int, parts: Sequence[bytes] | dict[str, object], keeps_alive: bool, headers: Mapping[str, str] | None = None
) -> bytes:
    """Format an HTTP response.

    Args:
        status: of HTTP.
        parts: JSON followed by the raw bytes of tensors, or an object that is serialized as JSON.
        keeps_alive: whether the connection stays open.
        headers: further headers.
    """
    if isinstance(parts, dict):
        parts = [json.dumps(parts).encode()]
    body = parts[0] if len(parts) == 1 else b"".join(parts)
    if status == HTTPStatus.OK:
        head = b"HTTP/1.1 200 OK\r\n"
    else:
        head = b"HTTP/1.1 %d %s\r\n" % (status, HTTPStatus(status).phrase.encode())
    if len(parts) == 1:
        kind = b"Content-Type: application/json\r\n"
    else:
        kind = b"Content-Type: application/octet-stream\r\nInference-Header-Content-Length: %d\r\n" % len(parts[0])
    more = b"".join(b"%s: %s\r\n" % (name.encode(), value.encode()) for name, value in (headers or {}).items())
    if not keeps_alive:
        more += b"Connection: close\r\n"
    return b"%s%s%sDate: %s\r\nContent-Length: %d\r\n\r\n%s" % (head, kind, more, _now(), len(body), body)
