"""Finds the modules of this package under the name `onnxruntime`, and a distribution of that name."""

from __future__ import annotations

from collections.abc import Iterable
from email.message import Message
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution, DistributionFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from .environment import VERSION
from .namespace import modules
from .tools import TOOLS, tool_module

__all__ = ["Finder"]

_NAME = "onnxruntime"


class Finder(DistributionFinder, Loader):
    """Finds the modules, and the distribution that they would belong to."""

    def __init__(self) -> None:
        self._modules: dict[str, ModuleType] = {}

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Returns the spec of a module of onnxruntime; None for all others, and for those that do not exist."""
        if name != _NAME and not name.startswith(f"{_NAME}."):
            return None
        if not self._modules:
            self._modules = modules()
        known = self._modules.get(name)
        if known is None and name.startswith(tuple(f"{tool}." for tool in TOOLS)):
            known = self._modules[name] = tool_module(name)
        return None if known is None else ModuleSpec(name, self, is_package=hasattr(known, "__path__"))

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Returns the module, whose names are there already."""
        return self._modules[spec.name]

    def exec_module(self, module: ModuleType) -> None:
        """Does nothing."""

    def find_distributions(self, context: DistributionFinder.Context = DistributionFinder.Context()) -> Iterable[Any]:  # noqa: B008
        """Returns the distribution `onnxruntime`, which programs ask for its version."""
        return [_Distribution()] if context.name in (None, _NAME) else []


class _Distribution(Distribution):
    """The distribution of the version whose interface this is."""

    def read_text(self, filename: str) -> str | None:
        """Returns the metadata, and nothing for other files."""
        if filename != "METADATA":
            return None
        message = Message()
        message["Metadata-Version"], message["Name"], message["Version"] = "2.1", _NAME, VERSION
        message["Summary"] = "The interface of onnxruntime, by nnefc"
        return message.as_string()

    def locate_file(self, path: Any) -> Any:
        """Returns where a file would be."""
        return Path(__file__).parent / path
