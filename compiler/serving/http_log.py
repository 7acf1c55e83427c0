"""Shortens aiohttp's log: data that is not HTTP gives one short line instead of a parser's traceback."""

from __future__ import annotations

import logging

from aiohttp.http_exceptions import HttpProcessingError

__all__ = ["http_log"]

_MAX_SHOWN = 200
"""Characters of what a client sent."""


def http_log() -> logging.Logger:
    """The logger, with the filter that shortens."""
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
