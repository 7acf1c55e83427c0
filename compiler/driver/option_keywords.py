"""Declares options as keyword arguments with types for type checkers, and builds option objects from keywords.

def compile(model, target="llvm", **options: Unpack[CompileKeywords]): ...
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from textwrap import fill, indent
from typing import Any, TypedDict, TypeVar

from nnefc.driver.option_fields import UnknownOption, option_fields, python_help
from nnefc.driver.options import (
    Calibration,
    CodeOptions,
    CompileOptions,
    DebugOptions,
    FilePath,
    PrecisionOptions,
    ReadOptions,
    ShapeLike,
)

__all__ = [
    "KINDS",
    "CompareKeywords",
    "CompileKeywords",
    "LowerKeywords",
    "ReadKeywords",
    "compile_options",
    "read_options",
    "with_documented_options",
]

T = TypeVar("T", bound=Callable[..., Any])

KINDS: Mapping[str, type[Any]] = {
    "read": ReadOptions,
    "code": CodeOptions,
    "precision": PrecisionOptions,
    "debug": DebugOptions,
}
"""The types of the parts of :class:`CompileOptions`, by field."""


class ReadKeywords(TypedDict, total=False):
    """The options of :class:`ReadOptions`."""

    random_weights: int | None
    shape: Mapping[str, ShapeLike] | None
    values: Mapping[str, Any] | None
    graph: str | None
    dialect: str | None
    pedantic: bool
    scan_states: str | None
    entry: str | None
    overridable: bool
    output_tensors: Sequence[str]
    operators: Sequence[FilePath]
    max_depth: int | None
    max_operations: int | None
    context: int | None
    sequences: int | None
    candidates: int | None
    quantize: str | None
    kv_cache: str | None
    rewind: int | None
    all_logits: bool


class LowerKeywords(ReadKeywords, total=False):
    """The options that decide which kernels a network becomes; those of `nnefc view`."""

    strict: bool
    memory_budget: float
    precision: str | None
    keep_wide: Sequence[str]


class CompareKeywords(LowerKeywords, total=False):
    """The compiler's options of `nnefc.compare`."""

    calibrate: Calibration | None
    method: str


class CompileKeywords(CompareKeywords, total=False):
    """All options of a compilation except for the target."""

    fast: bool
    tokenizer: FilePath | None
    reproducible: bool
    small: bool
    patches: bool
    multi: bool
    specialize: Sequence[Mapping[str, Any] | str]
    only_specialized: bool
    profile: bool
    checked: bool
    max_error: float | None
    io: str
    dump: FilePath | None
    dump_after: Sequence[str]


def compile_options(
    function: str, keywords: Mapping[str, Any], target: str = "llvm", among: type[Any] = CompileKeywords
) -> CompileOptions:
    """Return checked options.

    Args:
        function: that has the keywords, for messages.
        keywords: the options by name.
        target: the machine to compile for.
        among: the keywords that the function accepts.

    Raises:
        CompileError: an option is unknown, of a wrong type or out of range, or conflicts with another one.
    """
    _check_names(function, keywords, tuple(among.__annotations__))
    parts = {
        part: kind(**{name: keywords[name] for name in option_fields(kind) if name in keywords})
        for part, kind in KINDS.items()
    }
    return CompileOptions(target=target, **parts)


def read_options(function: str, keywords: Mapping[str, Any]) -> ReadOptions:
    """Return checked options of a function that reads a model; arguments and errors as in :func:`compile_options`."""
    return compile_options(function, keywords, among=ReadKeywords).read


def _check_names(function: str, keywords: Mapping[str, Any], known: Sequence[str]) -> None:
    """Check the names of options.

    Raises:
        UnknownOption: a name is unknown; the hint has similar names.
    """
    for name in keywords:
        if name not in known:
            from difflib import get_close_matches

            close = get_close_matches(name, known, 3)
            raise UnknownOption(
                f"{function} has no option {name!r}",
                hint=f"did you mean {' or '.join(close)}?" if close else f"its options are {', '.join(known)}",
            )


def with_documented_options(keywords: type[Any]) -> Callable[[T], T]:
    """Completes the docstring and the signature of a function that has `**options: Unpack[keywords]`.

    In the docstring, the line `{options}` is replaced by the documentation of the options.
    """

    def decorated(function: T) -> T:
        known = keywords.__annotations__
        options = {name: each for kind in KINDS.values() for name, each in option_fields(kind).items() if name in known}
        lines = [
            indent(fill(f"{name}: {python_help(option)}", 108, subsequent_indent="    "), "        ")
            for name, option in options.items()
        ]
        if function.__doc__ is not None:
            function.__doc__ = re.sub(r"^ *\{options\}", lambda _: "\n".join(lines), function.__doc__, flags=re.M)
        own = inspect.signature(function)
        parameters = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
        parameters += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=option.type)
            for name, option in options.items()
        ]
        setattr(function, "__signature__", own.replace(parameters=parameters))  # noqa: B010
        return function

    return decorated
