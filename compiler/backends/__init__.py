"""Backends, one module per kind of machine that networks are compiled for: see :class:`Backend`.

A backend's module is imported when the first network is compiled for it. The other parts of a backend are in folders of
their own: schedule rules in `passes/schedule/`, code generation in `targets/codegen/`, the machine in
`targets/machine/`.
"""

from __future__ import annotations

from importlib import import_module

from nnefc.passes.backend import Backend
from nnefc.targets.machine.any_target import AnyTarget

__all__ = ["backend_of"]


def backend_of(target: AnyTarget) -> Backend:
    """The backend of a machine: `make_backend` of the module that `target.backend` names."""
    backend: Backend = import_module(f"{__name__}.{target.backend}").make_backend(target)
    return backend
