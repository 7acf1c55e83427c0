"""Declares registry operators, which documents of tract's dialect can call besides the standard's.

An operator is declared once, like the standard's own, around the function that lowers it:

    @operator("fragment tract_core_hard_swish(x: tensor<scalar>) -> (y: tensor<scalar>)")
    def hard_swish(at, args): ...

Types say what an argument becomes (see `values.coerced`): a tensor comes as an operand, one of sizes as an array of
objects if the operator says `sizes`, else written by a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

from tvm import relax

from nnefc.frontends.nnef.dynamic.emitter import DynamicEmitter
from nnefc.frontends.nnef.dynamic.quantized import QuantizedTensors
from nnefc.frontends.nnef.dynamic.values import Value
from nnefc.frontends.nnef.language.parser import parse_signature
from nnefc.frontends.nnef.language.signatures import Signature
from nnefc.frontends.nnef.language.types import Dialect
from nnefc.symbolic.dims import Dimension

__all__ = ["REGISTRIES", "ExtensionContext", "ExtensionOperator", "ExtensionRegistry", "operator_of", "registry"]

Lower = Callable[..., Any]


class ExtensionContext(Protocol):
    """Context of an operator's lowering: the emitter, and the properties of the document.

    Attributes:
        emitter: of the network.
        keeps_states: whether scans go on in a run where the one before ended.
        quantized: the tensors that are integers and stand for reals.
    """

    emitter: DynamicEmitter
    keeps_states: bool
    quantized: QuantizedTensors

    def is_endless(self, size: Dimension) -> bool:
        """Returns whether a size depends on a symbol that no input has: the length of a stream, which no run knows."""

    def length_state(self, size: Dimension) -> relax.Var | None:
        """The state that counts what caches hold, if a size is the symbol of that; else None."""

    def parameters_of(self, name: str) -> list[str]:
        """The names of the parameters of a fragment of the document; none if there is no such fragment."""

    def run_fragment(self, name: str, arguments: Mapping[str, Value]) -> dict[str, Value]:
        """Evaluate a fragment of the document by its name; its results by name."""

    def run_model(self, label: str, inputs: Sequence[Value]) -> list[Value]:
        """Evaluate the graph of a model inside the model; its outputs."""

    def text_of(self, name: str) -> str:
        """The content of a file of the model."""


@dataclass(frozen=True, eq=False)
class ExtensionOperator:
    """An operator of a registry.

    Attributes:
        declaration: the signature's text.
        lower: builds it, given the emitter and the arguments.
        sizes: whether it takes tensors of sizes as they are.
        promotes: whether operands of the same declared type become one element type.
        limits: what it refuses, for the documentation.
    """

    declaration: str
    lower: Lower
    sizes: bool = False
    promotes: bool = True
    limits: str = ""

    @cached_property
    def signature(self) -> Signature:
        """The parsed declaration; tensors may come after attributes, as in the provisional dialect."""
        return parse_signature(self.declaration, Dialect.PROVISIONAL)


@dataclass
class ExtensionRegistry:
    """Operators by name.

    Attributes:
        name: what a document names with `extension tract_registry`.
        operators: by name.
    """

    name: str
    operators: dict[str, ExtensionOperator]

    def __iter__(self) -> Iterator[tuple[str, ExtensionOperator]]:
        return iter(sorted(self.operators.items()))

    def operator(
        self, declaration: str, *, sizes: bool = False, promotes: bool = True, limits: str = ""
    ) -> Callable[[Lower], Lower]:
        """Declare an operator around the function that lowers it; see `ExtensionOperator`."""

        def declare(function: Lower) -> Lower:
            name = declaration.split("(", 1)[0].split()[-1].split("<")[0]
            assert name not in self.operators, name
            self.operators[name] = ExtensionOperator(declaration, function, sizes, promotes, limits)
            return function

        return declare


REGISTRIES: dict[str, ExtensionRegistry] = {}
"""Registries by name; importing `nnefc.frontends.nnef.registries` fills it."""


def registry(name: str) -> ExtensionRegistry:
    """The registry of that name, made when it is first asked for."""
    return REGISTRIES.setdefault(name, ExtensionRegistry(name, {}))


def operator_of(name: str, registries: Mapping[str, ExtensionRegistry]) -> ExtensionOperator | None:
    """The operator of that name in one of the registries."""
    return next((r.operators[name] for r in registries.values() if name in r.operators), None)
