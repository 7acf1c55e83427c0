"""Records which operators a network was built from, for tools that write it again, such as `nnefc convert`.

Relax keeps what an operator of the library became: operators of Relax and kernels. In a recording, every variable also
has the applications of operators that gave it, the outermost first:

    with recording() as found:
        network = load_network(path)
    found.applications[var]     # [Application(HardSwish(), (x,)), …]

Nothing is recorded elsewhere, and a network is the same with and without a recording.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from tvm import relax

from nnefc.support.internal_errors import working_on
from nnefc.symbolic.refinement import now_built

__all__ = ["Application", "Recording", "note_location", "note_name", "recorded", "recording"]

Array: TypeAlias = npt.NDArray[Any]
Lower: TypeAlias = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Application:
    """An operator of the library applied to operands.

    Attributes:
        operator: with its attributes.
        operands: arrays, expressions, and None for those that are left out.
        location: of the model node that it was built for, for messages.
    """

    operator: Any
    operands: tuple[Any, ...]
    location: str


@dataclass
class Recording:
    """What was built.

    Attributes:
        applications: of an expression, each with the number of its result, or None if it has one; outermost first.
        names: what the model calls expressions.
        location: of the model node being built.
    """

    applications: dict[relax.Expr, list[tuple[Application, int | None]]] = field(default_factory=dict)
    names: dict[relax.Expr, str] = field(default_factory=dict)
    location: str = ""
    _constants: dict[object, tuple[Array, str]] = field(default_factory=dict)
    _made: dict[relax.Expr, int] = field(default_factory=dict)
    """How many applications had begun when the expression was first seen."""
    _begun: int = 0
    _running: list[Application] = field(default_factory=list)

    def constant_name(self, array: Array) -> str | None:
        """Returns the model's name of a constant, if it is one of the model's."""
        found = self._constants.get(_offset_in_memory(array))
        return None if found is None else found[1]

    def apply(self, lower: Lower, operator: Any, ctx: Any, operands: tuple[Any, ...], options: dict[str, Any]) -> Any:
        """Lower an operator, and note what it makes; what is known already, as an operand is, it does not make."""
        if self._running and self._running[-1].operator is operator:
            return lower(operator, ctx, *operands, **options)  # for its base class
        application = Application(operator, operands, self.location)
        self._begun += 1
        start = self._begun
        self._running.append(application)
        try:
            made = lower(operator, ctx, *operands, **options)
        finally:
            self._running.pop()
        parts = list(enumerate(made)) if isinstance(made, list | tuple) else [(None, made)]
        for index, part in parts:
            if not isinstance(part, relax.Expr) or any(part is operand for operand in operands):
                continue
            known = self.applications.get(part)
            if known is None:
                self.applications[part] = [(application, index)]
                self._made[part] = self._begun
            elif self._made[part] >= start:
                known.insert(0, (application, index))
        return made


_CURRENT: ContextVar[Recording | None] = ContextVar("nnefc.recording", default=None)


@contextmanager
def recording() -> Iterator[Recording]:
    """Record what is built meanwhile."""
    found = Recording()
    token = _CURRENT.set(found)
    try:
        yield found
    finally:
        _CURRENT.reset(token)


def recorded(lower: Lower) -> Lower:
    """Wraps the method `lower` of an operator to record its result where a recording is active."""

    @wraps(lower)
    def applied(operator: Any, ctx: Any, *operands: Any, **options: Any) -> Any:
        current = _CURRENT.get()
        if current is None:
            return lower(operator, ctx, *operands, **options)
        return current.apply(lower, operator, ctx, operands, options)

    return applied


def note_location(location: str) -> None:
    """Say what of the model is built from now on, for messages."""
    now_built(location)
    working_on(location)
    current = _CURRENT.get()
    if current is not None:
        current.location = location


def note_name(made: object, name: str) -> None:
    """Say what the model calls a constant or an expression; the first name stays."""
    current = _CURRENT.get()
    if current is None:
        return
    if isinstance(made, np.ndarray):
        current._constants.setdefault(_offset_in_memory(made), (made, name))
    elif isinstance(made, relax.Expr):
        current.names.setdefault(made, name)


def _offset_in_memory(array: Array) -> object:
    return array.__array_interface__["data"][0], array.size, str(array.dtype)
