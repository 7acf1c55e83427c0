"""How the libraries of a session are compiled or loaded."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nnefc.driver.in_memory import file_of
from nnefc.loader import LoadError, Model
from nnefc.loader import load as load_library
from nnefc.support.diagnostics import CompileError, compiler_missing

from .errors import Fail, as_kind
from .libraries import Variant
from .models import GivenModel, classified
from .options import SessionOptions
from .providers import Provider

if TYPE_CHECKING:
    from nnefc.driver.caching.background import Background
    from nnefc.driver.caching.user_cache import Cache
    from nnefc.driver.options import CompileOptions
    from nnefc.driver.progress import Progress

__all__ = ["Compilation"]


@dataclass(frozen=True)
class Compilation:
    """What the libraries of a model are made with. It does not refer to the session, which is freed with its last use.

    Attributes:
        model: the model, or a library.
        options: of the session.
        keywords: of `nnefc.compile`.
        provider: the execution provider.
        threads: of each session of a library.
        cache, progress: as of `InferenceSession`.
    """

    model: GivenModel
    options: SessionOptions
    keywords: Mapping[str, Any]
    provider: Provider
    threads: int | None
    cache: Cache
    progress: Progress | None

    def in_background(self) -> Model | Background | None:
        """Starts to compile the library of all inputs in another process.

        Returns:
            The library, if it is in the cache; None if it cannot be compiled elsewhere.

        Raises:
            CompileError: the model cannot be read; of one of onnxruntime's classes.
        """
        path = self.model.model
        if self.model.is_library or not isinstance(path, str | os.PathLike) or not sys.executable:
            return None
        from nnefc.driver.caching.background import Background
        from nnefc.driver.caching.cache import find_library

        options = self._options(Variant())
        try:
            found = find_library(Path(path), options, self.cache)
            return self.loaded(found) if found else Background(Path(path), options, self.cache)
        except CompileError as error:
            raise classified(error, self.model) from error
        except (OSError, pickle.PicklingError, TypeError, AttributeError):  # options that another process cannot read
            return None

    def loaded(self, library: Path) -> Model:
        """Loads a compiled library.

        Raises:
            LoadError: it cannot be loaded.
        """
        from nnefc.driver.caching.cache import load_cached

        return load_cached(library, self.model.path or library, **self._loading)

    @property
    def _loading(self) -> dict[str, Any]:
        """Returns the options of `nnefc.load`."""
        load: dict[str, Any] = {"threads": self.threads, "device": self.provider.device}
        flush = self.options._entries.get("session.set_denormal_as_zero")
        if flush is not None:
            load["flush_subnormals"] = flush == "1"
        return load

    def library(self, variant: Variant) -> Model:
        """Returns the library for a variant of the inputs, compiled or loaded.

        Raises:
            CompileError: the model cannot be compiled; of one of onnxruntime's classes.
            LoadError: the library cannot be loaded.
        """
        load, model = self._loading, self.model.model
        if self.model.is_library:
            path = Path(os.fspath(model))  # type: ignore[arg-type]
            if self.keywords:
                raise LoadError(f"{path} is compiled already: {', '.join(self.keywords)} are options for models")
            try:
                return load_library(path, **load)
            except LoadError as error:
                raise as_kind(Fail, error) from error
        if "target" in self.keywords:
            raise LoadError("a session runs here: providers say on what, and nnefc.compile compiles for other targets")
        return self._compiled(variant, load)

    def _compiled(self, variant: Variant, load: Mapping[str, Any]) -> Model:
        try:
            from nnefc.driver.caching.cache import load_model
        except ModuleNotFoundError as error:
            raise self._without_compiler(error) from error
        chosen = self._options(variant)
        try:
            path, folder = file_of(self.model.model)
            with folder or nullcontext():
                return load_model(path, chosen, self.cache, self.progress, **load)
        except CompileError as error:
            raise classified(error, self.model) from error

    def _options(self, variant: Variant) -> CompileOptions:
        """Returns how the library of a variant is compiled."""
        try:
            from nnefc.driver.option_keywords import compile_options
        except ModuleNotFoundError as error:
            raise self._without_compiler(error) from error
        keywords: dict[str, Any] = {**self.keywords, "shape": self._shapes(variant)}
        if variant.overridable:
            keywords["overridable"] = True
        if self.options.enable_profiling:
            keywords.setdefault("profile", True)
        return compile_options("nnefc.InferenceSession", keywords, self.provider.target)

    def _without_compiler(self, error: ModuleNotFoundError) -> Exception:
        return compiler_missing(f"a session of the model {self.model.path or 'in memory'}", error.name or "")

    def _shapes(self, variant: Variant) -> dict[str, Any] | None:
        """Returns the option `shape`: what the program gives, sizes of dimensions by name, and shapes of inputs."""
        shapes: dict[str, Any] = dict(self.keywords.get("shape") or {})
        interface = self.model.interface
        if interface is not None:
            before = self.model.dimension_names
            shapes |= {
                name: size
                for (kind, name), size in self.options._dimensions.items()
                if kind == "name" and name in before
            }
            if any(kind == "denotation" for kind, _ in self.options._dimensions):
                shapes |= {
                    each.name: each.shape
                    for each in interface.required
                    if any(each.denotations) and each.shape is not None and all(isinstance(s, int) for s in each.shape)
                }
        for name, shape in variant.shapes:
            shapes[name] = list(shape) if shape is not None else None
        return shapes or None

    def defaults(self) -> dict[str, np.ndarray]:
        """Returns the values of initializers that are inputs."""
        proto = self.model.proto()
        import onnx

        names = {value.name for value in proto.graph.input}
        tensors = (tensor for tensor in proto.graph.initializer if tensor.name in names)
        return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in tensors}
