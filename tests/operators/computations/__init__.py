"""Computations that at least two formats can say, a file a family of operators; and those that differ for NaN alone."""

from importlib import import_module
from pkgutil import iter_modules

from formats import Computation

__all__ = ["COMPUTATIONS"]

COMPUTATIONS: list[Computation] = [
    computation
    for family in sorted(module.name for module in iter_modules(__path__))
    for computation in import_module(f"{__name__}.{family}").COMPUTATIONS
]
