"""Keeps track of which tensors of the model a call computes, by the names of Relax variables.

    conv1                  a front end's variable has the name of the model's tensor
    conv1@, conv1@1        what a pass makes on the way to it
    conv1+norm1+relu1@     a group of steps that became one kernel

TVM's passes keep the names of bindings, but for fusion, which makes new ones: see :func:`group_names`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import tvm
from tvm import relax

from nnefc.ir.dataflow import bindings_of

__all__ = ["NamingBuilder", "debug_locations", "group_names", "joined_name"]

_MARK = "@"
_MADE = re.compile(rf"{_MARK}\d*$")
_TOGETHER = "+"

_MAX = 16
"""Tensors that a group is named after: the first ones, and the last."""


def debug_locations(name: str) -> tuple[str, ...]:
    """Returns the tensors of the model that the variable `name` stands for; none if it is not known."""
    made = _MADE.search(name)
    parts = tuple(dict.fromkeys(name[: made.start()].split(_TOGETHER))) if made else (name,)
    return tuple(part for part in parts if part)


class NamingBuilder(relax.BlockBuilder):  # type: ignore[misc]
    """A builder that names what it emits after the binding that is being rewritten.

    Attributes:
        rewritten: the name of that binding's variable.
    """

    rewritten = ""

    def emit(self, expr: relax.Expr, name_hint: str = "") -> relax.Var:
        """Binds a new variable to an expression."""
        return super().emit(expr, name_hint or _MADE.sub("", self.rewritten) + _MARK)


def joined_name(*names: str) -> str:
    """Returns the name of a variable that stands for the model's tensors of all these variables."""
    return _together([part for name in names for part in debug_locations(name)])


def group_names(before: tvm.IRModule, grouped: tvm.IRModule) -> list[str]:
    """Returns a name for each call of `main`, after the steps that it was joined from.

    Args:
        before: the module in which each step is a call of a kernel.
        grouped: the same, with calls of groups: functions whose bindings are such calls, in the same order.
    """
    known: dict[object, list[relax.Var]] = {}
    for binding in bindings_of(before["main"]):
        known.setdefault(_key(binding.value, {}), []).append(binding.var)
    values: dict[relax.Var, relax.Var] = {}
    names = []
    for binding in bindings_of(grouped["main"]):
        found = _joined_from(binding.value, grouped, known, values)
        if found:
            values[binding.var] = found[-1]
        if isinstance(binding.value, relax.Call):
            names.append(_together([part for var in found for part in debug_locations(var.name)]))
    return names


def _joined_from(
    value: relax.Expr,
    grouped: tvm.IRModule,
    known: Mapping[object, list[relax.Var]],
    values: Mapping[relax.Var, relax.Var],
) -> list[relax.Var]:
    """Returns the variables that had the values of a binding of the grouped `main`, in order; the last one has its
    result.
    """
    if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.GlobalVar):
        return _taken(known, _key(value, values))
    group = grouped[value.op]
    inner = {param: values.get(arg, arg) for param, arg in zip(group.params, value.args, strict=True)}
    found = []
    for binding in bindings_of(group):
        vars_ = _taken(known, _key(binding.value, inner))
        if vars_:
            inner[binding.var] = vars_[-1]
            found += vars_
    return found


def _taken(known: Mapping[object, list[relax.Var]], key: object) -> list[relax.Var]:
    """Takes the next variables that were bound to each value, in order, as long as there are some."""
    alike = known.get(key, [])
    return [alike.pop(0)] if len(alike) > 1 else alike[:1]


def _key(value: relax.Expr, values: Mapping[relax.Var, relax.Expr]) -> object:
    """Returns the key of a step within its module: the kernel or operator, and its operands except constants."""
    if isinstance(value, relax.TupleGetItem):
        return _read(value.tuple_value, values), value.index
    if not isinstance(value, relax.Call):
        return _read(value, values)
    return value.op, tuple(_read(arg, values) for arg in value.args)


def _read(expr: relax.Expr, values: Mapping[relax.Var, relax.Expr]) -> object:
    match expr:
        case relax.Tuple():
            return tuple(_read(field, values) for field in expr.fields)
        case tvm.ir.GlobalVar():
            return expr
        case relax.Var():
            known = values.get(expr, expr)
            return known if isinstance(known, relax.Var) else None
    return None


def _together(parts: Sequence[str]) -> str:
    """Joins names of variables to the name of a group."""
    unique = list(dict.fromkeys(parts))
    if len(unique) > _MAX:
        unique = [*unique[: _MAX - 1], unique[-1]]
    return _TOGETHER.join(unique) + _MARK if unique else ""
