"""Measuring whose compilations run in this process: another would import TVM each time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from compile_one import compile_one

__all__ = ["compile_here"]


def compile_here(model: Path, library: Path, options: Mapping[str, Any] = MappingProxyType({})) -> dict[str, float]:
    """In place of `measure.compile_library`, with the options as they come out of JSON."""
    facts: dict[str, float] = json.loads(json.dumps(compile_one(model, library, json.loads(json.dumps(dict(options))))))
    return facts
