"""Shortens aiohttp's log: a parse error of HTTP is logged as one short line, without its traceback."""

from __future__ import annotations

import logging

from aiohttp.http_exceptions import HttpProcessingError

__all__ = ["http_log"]

_MAX_SHOWN = 200
"""Characters of a parse error's message that are logged: the message quotes what the client sent."""


def http_log() -> logging.Logger:
    """Return the logger of the HTTP server, with the filter that shortens parse errors."""
    found = logging.getLogger("nnefc.serving.http")
    found.addFilter(_shortened)
    return found


def _shortened(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    if isinstance(error, HttpProcessingError):
        words = repr(" ".join(str(error.message).split()))[1:-1]
        record.msg = f"{record.getMessage()}: {words[:_MAX_SHOWN]}"
        record.args = ()
        record.exc_info = record.exc_text = None
        record.levelno, record.levelname = logging.WARNING, logging.getLevelName(logging.WARNING)
    return True
