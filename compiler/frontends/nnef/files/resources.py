"""Reads a model's JSON resources, which documents query or include."""

from __future__ import annotations

import json
from typing import Any

from nnefc.frontends.nnef.files.archive import ModelFiles
from nnefc.frontends.nnef.files.template import is_template, rendered
from nnefc.support.diagnostics import CompileError

__all__ = ["document_text", "read_json"]


def read_json(text: str, name: str) -> Any:
    """The value of a file in JSON.

    Raises:
        CompileError: it is not in JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise CompileError(f"'{name}' is not in JSON") from None


def document_text(files: ModelFiles) -> tuple[str, str]:
    """The document of a model, filled in if it is a template, and its name in messages.

    Raises:
        CompileError: the template is not as it must be, or takes too much.
    """
    text = files.text()
    if not is_template(text):
        return text, files.document

    def resource(name: str) -> Any:
        found = files.text_of(f"{name}.json")
        return None if found is None else read_json(found, files.describe(f"{name}.json"))

    return rendered(text, files.document, resource), f"{files.document} (filled in)"
