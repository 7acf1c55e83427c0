"""Builds NNEF documents statement by statement: what a builder function adds becomes a fragment, written once.

    graph = Document("llama")
    y = graph.block("feed_forward", feed_forward, x)       # feed_forward(scope, x) adds the body's statements

Trained values, and tensors of the graph that a body reads, become parameters of the fragment. Bodies with the same text
are one fragment: a network of many layers stays a text of a few fragments, and of a few lines for each layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import numpy as np

__all__ = ["Document", "Literal", "Scope", "Tensor"]


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of a document.

    Attributes:
        text: its name in the scope that it belongs to, or the expression that it is.
        hint: what a parameter that stands for it is called.
        content: `scalar` or `integer`.
    """

    text: str
    hint: str
    content: str = "scalar"


@dataclass(frozen=True)
class Literal:
    """Text that stands as it is, such as a name of a dynamic dimension."""

    text: str


@dataclass
class _Fragments:
    """The fragments of a document: the name of each, by its kind and by its text without the name."""

    texts: dict[str, str] = field(default_factory=dict)
    names: dict[tuple[str, str], str] = field(default_factory=dict)

    def name_of(self, kind: str, text: str) -> str:
        """Returns the name of the fragment with this text, which is added if it is new."""
        if (kind, text) not in self.names:
            count = sum(own == kind for own, _ in self.names)
            name = f"{kind}_{count + 1}" if count else kind
            self.names[kind, text] = name
            self.texts[name] = f"fragment {name}{text}"
        return self.names[kind, text]


class Scope:
    """The body of the graph or of a fragment, to which statements are added."""

    def __init__(self, fragments: _Fragments, own: Sequence[Tensor] = (), is_graph: bool = False) -> None:
        self.statements: list[str] = []
        self.captured: dict[Tensor, Tensor] = {}
        self._fragments = fragments
        self._own = set(own)
        self._is_graph = is_graph
        self._names = {tensor.text for tensor in own}

    def call(
        self, operation: str, *operands: Any, name: str = "t", content: str = "scalar", **attributes: Any
    ) -> Tensor:
        """Adds an invocation with one result."""
        return self._assigned(self._invocation(operation, operands, attributes), name, content)

    def calls(
        self, operation: str, names: Sequence[str], contents: Sequence[str], *operands: Any, **attributes: Any
    ) -> list[Tensor]:
        """Adds an invocation with several results."""
        results = [self._new(name, content) for name, content in zip(names, contents, strict=True)]
        left = ", ".join(result.text for result in results)
        self.statements.append(f"({left}) = {self._invocation(operation, operands, attributes)};")
        return results

    def infix(self, operator: str, x: Any, y: Any, name: str = "t", content: str = "scalar") -> Tensor:
        """Adds `x operator y`."""
        return self._assigned(f"{self._spelled(x)} {operator} {self._spelled(y)}", name, content)

    def block(self, kind: str, build: Callable[..., Tensor], *tensors: Tensor) -> Tensor:
        """Adds an invocation of the fragment that `build(scope, *tensors)` writes."""
        names = list(signature(build).parameters)[1:]
        parameters = [Tensor(name, name, t.content) for name, t in zip(names, tensors, strict=True)]
        scope = Scope(self._fragments, parameters)
        result = build(scope, *parameters)
        declared = [*parameters, *scope.captured.values()]
        listed = ", ".join(f"{each.text}: tensor<{each.content}>" for each in declared)
        body = "".join(f"    {line}\n" for line in scope.statements)
        text = f"({listed}) -> ({result.text}: tensor<{result.content}>) {{\n{body}}}\n"
        name = self._fragments.name_of(kind, text)
        return self.call(name, *tensors, *scope.captured, name=kind, content=result.content)

    # Texts

    def _invocation(self, operation: str, operands: Sequence[Any], attributes: dict[str, Any]) -> str:
        given = [*map(self._spelled, operands), *(f"{key} = {self._spelled(v)}" for key, v in attributes.items())]
        return f"{operation}({', '.join(given)})"

    def _assigned(self, text: str, name: str, content: str) -> Tensor:
        made = self._new(name, content)
        self.statements.append(f"{made.text} = {text};")
        return made

    def _new(self, name: str, content: str) -> Tensor:
        made = Tensor(_unique(name, self._names), name, content)
        self._own.add(made)
        return made

    def named(self, name: str, operation: str, content: str = "scalar", **attributes: Any) -> Tensor:
        """Adds an invocation whose result has exactly this name: an input or an output."""
        assert name not in self._names, name
        return self.call(operation, name=name, content=content, **attributes)

    def _spelled(self, value: Any) -> str:
        match value:
            case Tensor():
                return self._visible(value).text
            case Literal():
                return value.text
            case bool():
                return "true" if value else "false"
            case int():
                return str(value)
            case float() | np.floating():
                return np.format_float_positional(value, trim="0")
            case str():
                return f"'{value}'"
            case list() | tuple():
                return f"[{', '.join(map(self._spelled, value))}]"
        raise TypeError(f"a document has no {type(value).__name__}")

    def _visible(self, tensor: Tensor) -> Tensor:
        """Returns the tensor, or in a fragment the parameter that stands for one of the scope around it."""
        if self._is_graph or tensor in self._own:
            return tensor
        if tensor not in self.captured:
            self.captured[tensor] = Tensor(_unique(tensor.hint, self._names), tensor.hint, tensor.content)
        return self.captured[tensor]


class Document(Scope):
    """A document of one graph, in tract's dialect with the registry `nnefc`."""

    def __init__(self, name: str) -> None:
        super().__init__(_Fragments(), is_graph=True)
        self.name = name
        self._symbols: list[str] = []

    def variable(self, label: str, shape: Sequence[int], hint: str) -> Tensor:
        """Returns a trained value, which is written where it is used."""
        sizes = ", ".join(map(str, shape))
        return Tensor(f"variable<scalar>(label = '{label}', shape = [{sizes}])", hint)

    def symbol(self, name: str, maximum: int, comment: str) -> Literal:
        """Declares a dynamic dimension from 1 on."""
        self._symbols += [
            f"extension tract_symbol {name};  # {comment}\n",
            f"extension tract_assert {name} >= 1;\n",
            f"extension tract_assert {name} <= {maximum};\n",
        ]
        return Literal(name)

    def text(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> str:
        """Returns the whole document."""
        registries = ("tract_core", "tract_transformers", "nnefc")
        head = "version 1.0;\n" + "".join(f"extension tract_registry {name};\n" for name in registries)
        fragments = "".join(f"{text}\n" for text in self._fragments.texts.values())
        given, made = (", ".join(each.text for each in tensors) for tensors in (inputs, outputs))
        body = "".join(f"    {line}\n" for line in self.statements)
        return f"{head}{''.join(self._symbols)}\n{fragments}graph {self.name}({given}) -> ({made}) {{\n{body}}}\n"


def _unique(name: str, taken: set[str]) -> str:
    """Returns a name that is not taken yet, and takes it."""
    made, number = name, 1
    while made in taken:
        number += 1
        made = f"{name}_{number}"
    taken.add(made)
    return made
