"""Registers user-defined operators for models of all formats.

    @custom.register(onnx="com.example::Threshold", nnef="threshold", pnnx="example::threshold")
    class Threshold(custom.CustomOperator):
        level: float = 0.5

        def shape(self, x):
            return x

        def lower(self, ctx, x):
            return ctx.elements(shape_of(x), lambda given, at: …, x, name="threshold")

Front ends ask :func:`nnefc.operators.custom_registry.custom_operator` before they look among the operators that they
know, and make an instance of the values in the file with :meth:`DeclaredOperator.make`.
"""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, TypeVar, cast, dataclass_transform

from nnefc.operators.base import Operator
from nnefc.operators.custom_declaration import DeclaredOperator
from nnefc.operators.custom_registry import FORMATS, REGISTERED
from nnefc.support.diagnostics import CompileError, Location

__all__ = [
    "CustomOperator",
    "forget",
    "load_operators",
    "register",
]

_Class = TypeVar("_Class", bound="type[CustomOperator]")


class CustomOperator(Operator, listed=False):
    """The base of a user's operators.

    The annotated fields of a subclass are the attributes, of the types bool, int, float, str, np.ndarray, a tuple of
    one of the first four (`tuple[int, ...]`), or one of these or None. The parameters of `lower` after the emitter are
    the inputs; one whose default is None may be left out, `*tail` takes any number.

    `shape` takes the shapes of the inputs, None for one that is left out, and gives that of the result, or a tuple of
    such. Sizes may be open: calculate with them as with integers. NNEF asks it for the types of tensors; elsewhere it
    may be left out, and is checked against what `lower` makes where it is there.
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(listed=False, **options)


@dataclass_transform(frozen_default=True)
def register(
    *,
    onnx: str | Sequence[str] = (),
    nnef: str | Sequence[str] = (),
    pnnx: str | Sequence[str] = (),
    tflite: str | Sequence[str] = (),
    registry: str = "",
) -> Callable[[_Class], _Class]:
    """Register a class, which becomes a frozen dataclass, as an operator of models.

    An operator that is registered replaces one of the same name that the format or the model has. To register
    the same class of the same file again replaces it.

    Args:
        onnx: its name, `domain::Name`, or `Name` alone in ONNX's own domain; or several names.
        nnef: the name of a fragment that documents declare, or its declaration, where they do not: `fragment
            threshold(x: tensor<scalar>, level: scalar = 0.5) -> (y: tensor<scalar>)`; or several.
        pnnx: the type in the param file, such as `example::threshold` or `models.Threshold`; or several.
        tflite: the code of a custom operator, such as `Threshold`; or several. Its attributes are a flexbuffer's map.
        registry: what documents of tract's dialect must name to call it: `extension tract_registry NAME;`.

    Raises:
        CompileError: the class is not as it must be, or another one has the name.
    """
    given = onnx, nnef, pnnx, tflite
    names = [(format_, name) for format_, each in zip(FORMATS, given, strict=True) for name in _all(each)]

    def declare(kind: _Class) -> _Class:
        if not (isinstance(kind, type) and issubclass(kind, CustomOperator)):
            raise CompileError(
                f"{getattr(kind, '__name__', kind)!r} is no operator", hint="derive it from custom.CustomOperator"
            )
        if not names:
            raise CompileError(
                f"the operator {kind.__name__} has no name that models know it by",
                hint="such as register(onnx='com.example::Threshold')",
            )
        try:
            made: _Class = kind if "__dataclass_fields__" in vars(kind) else cast(Any, dataclass(frozen=True)(kind))
        except (TypeError, ValueError) as error:
            raise CompileError(f"the fields of the operator {kind.__name__} are no attributes: {error}") from error
        declared = replace(DeclaredOperator.of(made), registry=registry)
        found = {(format_, _name_of(name)): replace(declared, fragment=_fragment(name)) for format_, name in names}
        for key in found:
            _check_free(key, made)
        REGISTERED.update(found)
        return made

    return declare


def forget(kind: type[CustomOperator]) -> None:
    """Take back the registration of a class."""
    for key in [key for key, declared in REGISTERED.items() if declared.kind is kind]:
        del REGISTERED[key]


def load_operators(path: Path) -> None:
    """Run a Python file, which registers operators.

    Raises:
        CompileError: the file cannot be read or run, or registers nothing.
    """
    path = path.resolve()
    name = f"nnefc_operators_{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise CompileError(f"there is no Python file '{path}' with operators", hint="its name must end with .py")
    module = module_from_spec(spec)
    sys.modules[name] = module  # where the types of annotations are looked up
    try:
        spec.loader.exec_module(module)
    except CompileError:
        raise
    except Exception as error:
        raise CompileError(
            f"the file with operators failed: {type(error).__name__}: {error}", location=_location_in(path, error)
        ) from error
    if not any(declared.kind.__module__ == name for declared in REGISTERED.values()):
        raise CompileError(
            f"{path} registers no operator", hint="put @custom.register(onnx='com.example::Name') before a class"
        )


def _location_in(path: Path, error: Exception) -> Location:
    """The innermost line of the file that an error came through."""
    line = error.lineno or 1 if isinstance(error, SyntaxError) else 1
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == str(path):
            line = trace.tb_lineno
        trace = trace.tb_next
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    text = lines[line - 1] if 0 < line <= len(lines) else ""
    return Location(str(path), line, len(text) - len(text.lstrip()) + 1, text)


def _all(names: str | Sequence[str]) -> Sequence[str]:
    return [names] if isinstance(names, str) else names


_DECLARATION = re.compile(r"\s*fragment\s+([A-Za-z_]\w*)", re.ASCII)


def _name_of(name: str) -> str:
    """The name alone of what may be a fragment's declaration."""
    match = _DECLARATION.match(name)
    return match[1] if match else name


def _fragment(name: str) -> str:
    return name if _DECLARATION.match(name) else ""


def _check_free(key: tuple[str, str], kind: type[Operator]) -> None:
    before = REGISTERED.get(key)
    if before is not None and _origin(before.kind) != _origin(kind):
        raise CompileError(
            f"'{key[1]}' is registered already, by the class {before.kind.__qualname__} of {before.kind.__module__}",
            hint=f"choose another name, or take it back first: custom.forget({before.kind.__name__})",
        )


def _origin(kind: type) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__
