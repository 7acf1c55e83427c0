"""Prints the pass list and the pass times of `nnefc compile`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["pass_lines"]


def pass_lines(keywords: Mapping[str, Any]) -> Iterator[str]:
    """Yields a line for each pass that runs for a target and options: its number, phase, name and condition.

    Args:
        keywords: the target and options of `nnefc.compile`.

    Raises:
        CompileError: the target or an option is invalid.
    """
    from nnefc.driver.compile import passes_of
    from nnefc.driver.option_keywords import compile_options

    others = {name: value for name, value in keywords.items() if name != "target"}
    passes = passes_of(compile_options("nnefc.compile", others, keywords.get("target", "llvm")))
    width = max(len(step.name) for step in passes)
    yield f"{'number':>6}  {'phase':9} {'pass':{width}}  runs on"
    for number, step in enumerate(passes, 1):
        yield f"{number:6}  {step.phase.value:9} {step.name:{width}}  {step.where.text}".rstrip()
