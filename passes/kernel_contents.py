"""Identifies kernels by what they compute, before they have a schedule: the key of their code in a cache.

    lv12: T.Buffer(…), relu: T.Buffer(…)     →     %0: T.Buffer(…), %1: T.Buffer(…)     →     SHA-256 of the text

Two kernels of one digest become the same machine code, in whatever network they are. So the digest covers all that
the passes over kernels depend on: the computation with its shapes and types, what the memory plan may do with the
operands, the target, the options, and for kernels with dynamic dimensions what is known of these. It does not depend
on the names of variables: two networks of a family give them other numbers. Trained values are operands, and in no
kernel.

TVM's structural hash has 64 bits, of which similar kernels share most; here a digest must be safe from collisions.
"""

from __future__ import annotations

import hashlib
import keyword
import re
from collections.abc import Collection, Sequence
from dataclasses import replace

import tvm
import tvm_ffi
from tvm import tirx

from nnefc.ir.extern_c import calls_c
from nnefc.ir.rebuild import with_fields
from nnefc.passes.backend import KernelUse, Settings
from nnefc.symbolic.prover import known

__all__ = ["content_of", "content_of_entry", "with_numbered_variables"]

_DIGITS = 32
"""The hexadecimal digits of a digest."""

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|(?<![\w.])[A-Za-z_]\w*')
"""Strings, and names that are no attributes of others."""

_KEPT = frozenset({*keyword.kwlist, "T", "I"})
"""The names in TVM's text that are no variables."""

_METADATA = "metadata["
"""TVM's text for objects that have none."""


def content_of(use: KernelUse, settings: Settings) -> str | None:
    """Returns the digest of a kernel, which can be a part of an identifier.

    None where nothing identifies its code: it calls C files of users, has parts without a text, or its dimensions have
    names that the text changes.
    """
    func = use.kernel.func
    text = func.script()
    if _METADATA in text or calls_c(func):
        return None
    facts = _facts(text, use.sizes) if use.sizes else ""
    if facts is None:
        return None
    names = {str(var.name) for var in use.sizes}
    parts = (
        repr(replace(settings.target.host, patches=False)),  # which kernels there are, not their code
        str(settings.strict),
        f"{use.results} {use.in_place} {use.aligned} {[str(var.name) for var in use.sizes]}",
        facts,
        _renamed(text, names),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_DIGITS]


def content_of_entry(entry: tirx.PrimFunc, settings: Settings) -> str | None:
    """Returns the digest of the entry's text with the names of its variables, which debugging information has; None if
    it has parts without a text.
    """
    text = entry.script()
    if _METADATA in text:
        return None
    parts = (repr(settings.target.host), str(settings.strict), text)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_DIGITS]


def with_numbered_variables(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Renames the variables of a function to v0, v1, …, except dimensions, whose names are in debugging information."""
    numbered = {param: param for param in func.params if isinstance(param.ty, tvm.ir.PrimType)}

    def of(var: tirx.Var) -> tirx.Var:
        found = numbered.get(var)
        if found is None:
            found = numbered[var] = tirx.Var(f"v{len(numbered)}", var.ty)
        return found

    params = [of(param) for param in func.params]
    return with_fields(func, params=params, body=tvm_ffi.structural_map(func.body, (tirx.Var, of)))


def _renamed(text: str, kept: Collection[str]) -> str:
    """Returns the text of a function with the names of its variables replaced by numbers, in the order of their first
    occurrence; strings, and the names in `kept`, stay.
    """
    names = {name: name for name in (*_KEPT, *kept)}
    first = len(names)

    def renamed(found: re.Match[str]) -> str:
        token = found[0]
        name = names.get(token)
        if name is None:
            if token[0] == '"':
                return token
            name = names[token] = f"%{len(names) - first}"
        return name

    return _TOKEN.sub(renamed, text)


def _facts(text: str, sizes: Sequence[tirx.Var]) -> str | None:
    """Returns what is known of the dynamic dimensions and of the kernel's sizes; None if two dimensions have one name,
    or the kernel's text may name them differently.
    """
    present = known()
    names = [str(var.name) for var in present.open]
    if len(set(names)) < len(names) or any(re.search(rf"\b{re.escape(name)}_\d+\b", text) for name in names):
        return None
    dimensions = [
        f"{var.name} {values} {var in present.reported} {var in present.data_dependent}"
        for var, values in present.open.items()
    ]
    own = [f"{var.name} {present.noted.get(var)} {present.bounds(var)}" for var in sizes]
    sums = [f"{name} {_text(expr)} {low} {high}" for name, (expr, low, high) in present.sums.items()]
    joins = [" ".join(map(_text, sizes)) for sizes in present.joins]
    return "\n".join((*dimensions, *own, *sums, *joins))


def _text(expr: tirx.Expr) -> str:
    return str(expr)
