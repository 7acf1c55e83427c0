"""The libraries of a session's model: one for most models, else one for each kind of inputs.

How many elements a sequence has, whether an optional input is given, and the rank of an input without a declared shape
are part of a library. For models with such inputs a library is compiled when the first inputs of a kind are given, and
kept for later ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Protocol

import numpy as np

from nnefc.loader import Model, SessionPool

from .declared import Declared, Interface
from .inputs import Feed
from .options import RunOptions

__all__ = ["Libraries", "Runner", "Source", "Variant"]

_MAX_VARIANTS = 16
"""Libraries that a session keeps, those that were used last."""


@dataclass(frozen=True)
class Variant:
    """What the inputs of a run say of the library that they need.

    Attributes:
        shapes: by input: the shape of a tensor of unknown rank, the shapes of a sequence's elements, None for a value
            that is absent.
        overridable: whether initializers are inputs.
    """

    shapes: tuple[tuple[str, Any], ...] = ()
    overridable: bool = False


class Source(Protocol):
    """Where libraries come from."""

    def library(self, variant: Variant) -> Model:
        """Returns the library of a variant."""
        ...

    def defaults(self) -> Mapping[str, np.ndarray]:
        """Returns the values of initializers that are inputs."""
        ...


class Runner:
    """A library with its sessions.

    Attributes:
        model: one session of the library.
        pool: sessions for several threads; None for a network with states, whose runs follow each other.
    """

    def __init__(self, model: Model, threads: int | None) -> None:
        self.model = model
        self.pool = None if model.states else SessionPool(model, threads=threads, takes_model=True)

    def run(
        self,
        feed: Feed,
        out: Mapping[str, Any] | str | None = None,
        options: RunOptions | None = None,
        outputs: Collection[str] | None = None,
    ) -> dict[str, Any]:
        """Runs on arrays by the library's names; `options` can end the run, `outputs` are those to compute, or all."""
        session = self._take()
        try:
            if options is None:
                return session.run(feed, out, outputs=outputs)
            with options._running(session):
                return session.run(feed, out, outputs=outputs)
        finally:
            self._give_back(session)

    def run_exact(self, values: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any] | None:
        """Runs on arrays of exactly the types and shapes of the library's inputs, in their order; None for others.

        `out` has an array for each output, to write into and return.
        """
        session = self._take()
        try:
            return session._session.run_exact(values, out)
        finally:
            self._give_back(session)

    def _take(self) -> Model:
        return self.model if self.pool is None else self.pool.take()

    def _give_back(self, session: Model) -> None:
        if self.pool is not None:
            self.pool.give_back(session)

    def outputs_of(self, wanted: Collection[str]) -> list[str]:
        """Returns the library's outputs that make up outputs of the model: of a sequence, its elements."""
        names = [tensor.name for tensor in self.model.outputs]
        return [name for name in names if name in wanted or name.rpartition(".")[0] in wanted]


class Libraries:
    """The libraries of one model."""

    def __init__(
        self,
        interface: Interface | None,
        source: Source,
        threads: int | None,
        later: bool = False,
    ) -> None:
        """Compiles the library, unless it depends on the inputs.

        Args:
            interface: of the model; None: the library says what its inputs are.
            source: gives the library of a variant.
            threads: of each session.
            later: whether :meth:`begin` gives the library, and not the source.
        """
        self._interface, self._source, self._threads = interface, source, threads
        self._lock = Lock()
        self._runners: OrderedDict[Variant, Runner] = OrderedDict()
        self._is_lazy = interface is not None and any(map(_is_open, interface.required))
        self._sequences = [] if interface is None else [each for each in interface.required if each.is_sequence]
        self.first: Runner | None = None if self._is_lazy or later else self.runner(Variant())

    @property
    def depends_on_inputs(self) -> bool:
        """Whether there is a library for each kind of inputs."""
        return self._is_lazy

    def begin(self, model: Model) -> Runner:
        """Takes the library of all inputs, which was compiled elsewhere."""
        runner = Runner(model, self._threads)
        with self._lock:
            self.first = self._runners[Variant()] = runner
        return runner

    def of_inputs(self, feed: Feed) -> tuple[Runner, Feed]:
        """Returns the library for inputs, and the inputs by its names."""
        if self.first is not None and self._interface is None:
            return self.first, feed
        assert self._interface is not None
        overridable = any(each.name in feed for each in self._interface.overridable)
        shapes: dict[str, Any] = {}
        for declared in self._interface.required:
            value = feed.get(declared.name)
            if value is None:
                shapes[declared.name] = None
            elif declared.is_sequence:
                shapes[declared.name] = tuple(tuple(np.shape(each)) for each in value)
            elif declared.shape is None:
                shapes[declared.name] = tuple(np.shape(value))
        if self.first is not None and not overridable and not shapes:
            return self.first, feed
        return self.runner(Variant(tuple(sorted(shapes.items())), overridable)), self._renamed(feed, overridable)

    def runner(self, variant: Variant) -> Runner:
        """Returns the library of a variant, which is compiled at its first use."""
        with self._lock:
            found = self._runners.get(variant)
            if found is None:
                found = self._runners[variant] = Runner(self._source.library(variant), self._threads)
                while len(self._runners) > _MAX_VARIANTS:
                    self._runners.popitem(last=False)
            self._runners.move_to_end(variant)
            return found

    def _renamed(self, feed: Feed, overridable: bool) -> Feed:
        """Returns elements of sequences as inputs of their own, without values that are absent."""
        assert self._interface is not None
        made: Feed = dict(self._source.defaults()) if overridable else {}
        names = {each.name for each in self._sequences}
        for name, value in feed.items():
            if name in names and value is not None:
                made.update({f"{name}.{number}": element for number, element in enumerate(value)})
            elif value is not None:
                made[name] = value
        return made

    def result(self, declared: Declared, runner: Runner, results: Mapping[str, Any]) -> Any:
        """Returns an output as onnxruntime does: a list for a sequence, mappings for classes, None if it is absent."""
        labels = runner.model.labels.get(declared.name)
        if labels is not None:
            return [dict(zip(labels, row, strict=True)) for row in np.asarray(results[declared.name]).tolist()]
        if not declared.is_sequence:
            return results.get(declared.name)
        if declared.name in results:
            return list(results[declared.name])
        elements: list[Any] = []
        while (name := f"{declared.name}.{len(elements)}") in results:
            elements.append(results[name])
        return elements


def _is_open(declared: Declared) -> bool:
    return declared.is_sequence or (declared.shape is None and not declared.is_optional)
