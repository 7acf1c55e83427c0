"""Imports the module of a front end that declares an operator when a model uses the operator.

Most networks use operators of a few families. To import the other families, and the parts of the operator library that
they are lowered to, would take longer than it takes to compile a small network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TypeVar

__all__ = ["LazyOperators"]

Declared = TypeVar("Declared")


class LazyOperators(Mapping[str, Declared]):
    """The operators of a front end by name; to read one imports the module that declares it.

    Attributes:
        declared: the operators whose modules have been imported.
    """

    def __init__(self, package: str, names: Mapping[str, str]) -> None:
        """
        Args:
            package: that the modules are in.
            names: by a module's name in the package, the names of the operators that it declares, with spaces between
                them.
        """
        self.declared: dict[str, Declared] = {}
        self._modules = {name: f"{package}.{module}" for module, listed in names.items() for name in listed.split()}

    def declare(self, name: str, module: str, operator: Declared) -> None:
        """Adds an operator, while the module that declares it is imported.

        Raises:
            AssertionError: it is not listed under this module, so that no model would find it, or is declared twice.
        """
        listed = self._modules.get(name)
        if module != listed:
            raise AssertionError(f"{module} declares the operator {name}, which is listed under {listed}")
        if name in self.declared:
            raise AssertionError(f"{module} declares the operator {name} twice")
        self.declared[name] = operator

    def __getitem__(self, name: str) -> Declared:
        import_module(self._modules[name])  # also if it is there: another thread may still be importing it
        return self.declared[name]

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)
