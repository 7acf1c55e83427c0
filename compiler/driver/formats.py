"""Reads models of any format: finds the front end of the format, and passes it the options that it has."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from inspect import signature
from operator import index
from pathlib import Path
from typing import Any

from nnefc.driver.locks import in_turn
from nnefc.driver.model_format import ONNX, Format, format_of
from nnefc.driver.option_fields import flag_of, given_values, option_fields
from nnefc.driver.options import DEFAULT_READ, ReadOptions
from nnefc.frontends.dynamic_shapes import DynamicSizesError, naming_sum_dims
from nnefc.ir.network import Network, check_sizes
from nnefc.ir.outline import Outline
from nnefc.support.diagnostics import CompileError, memory_errors
from nnefc.support.garbage_collection import age_modules
from nnefc.symbolic.dims import DynamicSize

__all__ = ["load_network", "load_operator_files", "load_outline", "write_document"]


_TOO_LARGE = "{} takes more memory to read than there is"


def load_operator_files(files: Iterable[str | os.PathLike[str]]) -> None:
    """Run Python files that register custom operators.

    Raises:
        CompileError: a file cannot be run, or registers nothing.
    """
    for file in files:
        from nnefc.operators.custom import load_operators  # which TVM comes with

        load_operators(Path(file))


def load_outline(path: Path, options: ReadOptions = DEFAULT_READ) -> Outline:
    """Return the outline of a model of any format, without building a network; options that it does not need are
    ignored.

    Raises:
        CompileError: the file is not a valid model.
    """
    outline = format_of(path).outliner()
    known = signature(outline).parameters
    with in_turn(), memory_errors(_TOO_LARGE.format(path)):
        return outline(path, **{name: value for name, value in given_values(options).items() if name in known})


def load_network(
    path: Path,
    options: ReadOptions = DEFAULT_READ,
    *,
    fixed: Mapping[str, tuple[int | DynamicSize, ...]] | None = None,
    fixed_dimensions: Collection[str] | None = None,
    is_tied: bool = False,
    is_apart: bool = False,
) -> Network:
    """Read a model of any format.

    Args:
        path: of the model.
        options: how it is read. :func:`load_operator_files` must have loaded its custom operators.
        fixed: shapes of inputs that override all other options for dynamic sizes.
        fixed_dimensions: the dynamic dimensions whose other options are overridden; None: all.
        is_tied: whether dynamic sizes that are broadcast to each other are the same dimension.
        is_apart: whether the network may be incorrect for single sizes, which it lists: see :class:`Network`.

    Raises:
        CompileError: the model is invalid or not supported, or its format does not have an option.
    """
    format_ = format_of(path)
    load = format_.loader()
    age_modules()
    given = {name: value for name, value in given_values(options).items() if name != "operators"}
    known = _keywords(load)
    _check_known_options(given, format_, known)
    if "shape" in given:
        given["shape"] = {n: _sizes(n, shape, format_.has_sequences) for n, shape in given["shape"].items()}
    given["is_tied"] = is_tied
    if format_ is ONNX:
        given["is_apart"] = is_apart
    if fixed is not None:
        given["shape"] = _with_known(given.get("shape", {}), fixed, fixed_dimensions)
    with in_turn(), memory_errors(_TOO_LARGE.format(path)):
        try:
            network = load(path, **given)
        except DynamicSizesError as error:
            _check_with_known_sizes(error, load, path, given)
            raise
    check_sizes(network)
    return naming_sum_dims(network) if network.dynamic_dimensions else network


def write_document(path: Path, output: Path, options: ReadOptions) -> None:
    """Write a model whose front end converts it to an NNEF document.

    Raises:
        CompileError: the model is invalid, its format does not have an option, or the output cannot be written.
    """
    format_ = format_of(path)
    write = format_.writer()
    given = {name: value for name, value in given_values(options).items() if name != "operators"}
    _check_known_options(given, format_, _keywords(write))
    with in_turn(), memory_errors(_TOO_LARGE.format(path)):
        write(path, output, **given)


def _keywords(function: Callable[..., Any]) -> list[str]:
    """Return the names of the options of a front end's function."""
    named = [
        name for name, parameter in signature(function).parameters.items() if parameter.kind is parameter.KEYWORD_ONLY
    ]
    return [name for name in named if name not in ("is_tied", "is_apart")]


def _check_known_options(given: Mapping[str, Any], format_: Format, known: list[str]) -> None:
    for name in given:
        if name not in known:
            raise _no_option(name, format_, known)


def _check_with_known_sizes(error: DynamicSizesError, load: Callable[..., Network], path: Path, given: Any) -> None:
    """Read a network again with likely sizes instead of dynamic ones; if that fails as well, raise `error` without
    its hint to give sizes.
    """
    try:
        load(path, **{**given, "shape": _with_known(given.get("shape", {}), error.shapes)})
    except CompileError as other:
        raise other if other.message == error.message else error.cause from error


def _with_known(
    given: Mapping[str, Any],
    shapes: Mapping[str, tuple[int | DynamicSize, ...]],
    dimensions: Collection[str] | None = None,
) -> dict[str, Any]:
    """Return the user's shapes with the given shapes in place of the named dynamic dimensions, or of all."""

    def is_other(name: str, shape: Any) -> bool:
        is_dynamic = any(isinstance(size, DynamicSize) for size in shape or ())
        named = dimensions is None or name in shapes or not {name, *name.split(",")}.isdisjoint(dimensions)
        return not (is_dynamic and named)

    return {**{name: shape for name, shape in given.items() if is_other(name, shape)}, **shapes}


def _no_option(name: str, format_: Format, known: list[str]) -> CompileError:
    """Return the error for an option that a format does not have."""

    fields = option_fields(ReadOptions)

    def spelled(keyword: str) -> str:
        return flag_of(keyword, fields[keyword]) if keyword in fields else f"--{keyword}"

    return CompileError(
        f"{spelled(name)} (in Python {name}=) is not an option for {format_.name} models",
        hint=f"they have {', '.join(map(spelled, known))}",
    )


def _sizes(name: str, given: Any, has_sequences: bool) -> Any:
    """Return a shape as a tuple of Python's integers; with sequences also as nested tuples and None.

    Raises:
        CompileError: it has another type.
    """
    try:
        made = _in_tuples(given, has_sequences)
    except TypeError:
        raise CompileError(
            f"the shape given for {name!r} is {given!r}, not integers", hint="such as (1, 3, 224, 224)"
        ) from None
    return (made,) if isinstance(made, int | DynamicSize) else made


def _in_tuples(given: Any, has_sequences: bool, depth: int = 0) -> Any:
    if (
        isinstance(given, Iterable)
        and not isinstance(given, str | bytes | Set | Mapping)
        and (has_sequences or not depth)
    ):
        return tuple(_in_tuples(element, has_sequences, depth + 1) for element in given)
    if isinstance(given, DynamicSize):
        return given
    dynamic_size = DynamicSize.read(given) if isinstance(given, str) else None
    if dynamic_size is not None:
        return dynamic_size
    return None if has_sequences and given is None else index(given)
