"""Interprets a document of tract's dialect statement by statement, with dynamic typing.

There are no static types: what an expression is tells its value. Statements build one dataflow block as they are
evaluated; sizes and small tensors that follow from them are computed at compile time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import relax

from nnefc.frontends.nnef.arithmetic import ELEMENTS_A_STEP
from nnefc.frontends.nnef.declarations import STANDARD, nearest_name
from nnefc.frontends.nnef.dynamic.calls import call_extension, call_standard
from nnefc.frontends.nnef.dynamic.custom import custom_extension
from nnefc.frontends.nnef.dynamic.emitter import DynamicEmitter
from nnefc.frontends.nnef.dynamic.quantized import QuantizedTensors
from nnefc.frontends.nnef.dynamic.registry import ExtensionOperator, ExtensionRegistry, operator_of
from nnefc.frontends.nnef.dynamic.values import Value, integer, is_tensor, spelled, truth
from nnefc.frontends.nnef.evaluator import Evaluator, Frame, Limits, Work
from nnefc.frontends.nnef.files.archive import ModelFiles
from nnefc.frontends.nnef.language import syntax
from nnefc.frontends.nnef.language.inference import BINARY_OPERATIONS, UNARY_OPERATIONS
from nnefc.frontends.nnef.language.lexer import MAX_NESTING
from nnefc.frontends.nnef.language.signatures import literal_value
from nnefc.frontends.nnef.language.types import Dialect
from nnefc.frontends.nnef.operations.lowering import by_definition
from nnefc.support.diagnostics import CompileError, Location
from nnefc.symbolic.dims import Dimension, Size, expression, variables
from nnefc.symbolic.values import Condition, negated

__all__ = ["Interpreter"]

_MISSING = object()
_MAX_ELEMENTS = 1 << 20

Source = Callable[[Mapping[str, Value], str, str, Location], Value]
"""A function that creates the value of an input or a variable, from its arguments, content, name and
location."""


Submodels = Callable[["Interpreter", ModelFiles, str, Sequence[Value]], list[Value]]
"""A function that evaluates a model nested in another one: of the caller, the files, the label and the inputs."""


class Interpreter(Evaluator):
    """Evaluates one document.

    Args:
        document: it.
        ctx: where it is built.
        registries: those that it names.
        symbols: sizes by the names of symbols.
        sources: what makes the values of `external` and `variable`, by the names of operations.
        limits: what it may ask for.
        keeps_states: whether scans go on in a run where the one before ended.
        absent: symbols that no input has.
        quantized: the tensors of the graph that are integers.
        files: of the model.
        submodels: what evaluates the models that are among them.
        work: what has been done so far; models inside the model add to it.
    """

    TOO_LONG = "more than {} expressions are to be evaluated"
    TOO_MANY = "more than {} operations are called"
    UNPACKING = "{names} names are given to {values} values"

    def __init__(
        self,
        document: syntax.Document,
        ctx: DynamicEmitter,
        registries: Mapping[str, ExtensionRegistry],
        symbols: Mapping[str, Dimension],
        sources: Mapping[str, Source],
        limits: Limits,
        keeps_states: bool = False,
        absent: Set[str] = frozenset(),
        quantized: QuantizedTensors | None = None,
        files: ModelFiles | None = None,
        submodels: Submodels | None = None,
        work: Work | None = None,
    ) -> None:
        super().__init__(limits, Work() if work is None else work)
        self.emitter = ctx
        self.keeps_states = keeps_states
        self.quantized = QuantizedTensors(ctx, {}) if quantized is None else quantized
        self._absent = absent
        self._files = files
        self._submodels = submodels
        self._document = document
        self._registries = registries
        self._symbols = symbols
        self._sources = sources
        self._fragments = {fragment.name: fragment for fragment in document.fragments}
        self._definitions: dict[str, syntax.Fragment] = {}
        self._customs: dict[str, ExtensionOperator | None] = {}

    def is_endless(self, size: Dimension) -> bool:
        """Returns whether a size depends on a symbol that no input has: the length of a stream, which no run knows."""
        return any(str(var.name) in self._absent for var in variables(expression(size)))

    def length_state(self, size: Dimension) -> relax.Var | None:
        """The state that counts what caches hold, if a size is the symbol of that; else None."""
        return next((state for length, state in self.emitter.lengths if length == size), None)

    # Bodies

    def run_graph(self, graph: syntax.Graph) -> dict[str, Value]:
        """Evaluate a graph's statements; all values by name."""
        frame = Frame(self._document.source)
        self._body(graph.body, frame)
        for output in graph.outputs:
            self.identifier(output, frame)
        return frame.values

    def parameters_of(self, name: str) -> list[str]:
        """The names of the parameters of a fragment of the document; none if there is no such fragment."""
        fragment = self._fragments.get(name)
        return [parameter.name for parameter in fragment.parameters] if fragment else []

    def run_fragment(self, name: str, arguments: Mapping[str, Value]) -> dict[str, Value]:
        """Evaluate a fragment of the document by its name; its results by name.

        Raises:
            CompileError: there is no such fragment, or arguments are missing.
        """
        fragment = self._fragments.get(name)
        if fragment is None:
            nearest = nearest_name(name, self._fragments)
            hint = f"did you mean '{nearest}'?" if nearest else None
            raise CompileError(f"the document has no fragment '{name}'", hint=hint)
        return self._expanded(fragment, arguments)

    # Models inside the model

    def run_model(self, label: str, inputs: Sequence[Value]) -> list[Value]:
        """Evaluate the graph of a model inside the model; its outputs."""
        assert self._files is not None and self._submodels is not None
        return self._submodels(self, self._files, label, inputs)

    def inside(
        self,
        document: syntax.Document,
        registries: Mapping[str, ExtensionRegistry],
        symbols: Mapping[str, Dimension],
        sources: Mapping[str, Source],
        quantized: QuantizedTensors,
        files: ModelFiles,
    ) -> Interpreter:
        """The interpreter of a document whose graph is evaluated where this one is; what both may do is limited in all.

        Raises:
            CompileError: models are inside each other too deeply.
        """
        depth = self.limits.depth - self.depth - 1
        if depth < 1:
            raise CompileError("models are inside each other too deeply", hint="--max-depth N allows more")
        return Interpreter(
            document,
            self.emitter,
            registries,
            {**self._symbols, **symbols},
            sources,
            replace(self.limits, depth=depth),
            self.keeps_states,
            self._absent,
            quantized,
            files,
            self._submodels,
            self.work,
        )

    def text_of(self, name: str) -> str:
        """The content of a file of the model.

        Raises:
            CompileError: there is none of that name.
        """
        assert self._files is not None
        text = self._files.text_of(name)
        if text is None:
            raise CompileError(f"there is no file '{self._files.describe(name)}'")
        return text

    def _expanded(self, fragment: syntax.Fragment, arguments: Mapping[str, Value]) -> dict[str, Value]:
        inner = Frame(fragment.source)
        for parameter in fragment.parameters if fragment.body is not None else ():
            if parameter.name in arguments:
                inner.values[parameter.name] = arguments[parameter.name]
            elif parameter.default is not None:
                inner.values[parameter.name] = literal_value(parameter.default)
            else:
                raise CompileError(f"'{fragment.name}' needs an argument for '{parameter.name}'")
        results = self.expand(fragment, inner, self._body)
        return {result.name: value for result, value in zip(fragment.results, results, strict=True)}

    def _body(self, body: tuple[syntax.Assignment, ...], frame: Frame) -> None:
        for assignment in body:
            target = assignment.target
            name = target.name if isinstance(target, syntax.Identifier) else "part"
            if self.depth == 0:
                self.emitter.hint = name
            value = self.value(assignment.value, frame, name)
            if self.depth == 0 and isinstance(target, syntax.Identifier):
                value = self._placed(frame, assignment.target.at, self.quantized.assigned, name, value)
            self.assign(target, value, frame)

    # Expressions

    def condition(self, at: int, value: Any, frame: Frame) -> bool:
        chosen: bool = self._placed(frame, at, truth, self.emitter.known(value))
        return chosen

    def sequence(self, expression: syntax.Range | syntax.Comprehension | syntax.Builtin, frame: Frame) -> Any:
        self.fail(frame, expression.at, "such an expression does not belong to tract's dialect")

    def checked(self, at: int, value: Value, frame: Frame) -> Value:
        """A value, if no array is too large or too deep to take apart: those inside one may share their elements."""
        pending, count = [(value, 0)], 0
        while pending:
            element, depth = pending.pop()
            if isinstance(element, list | tuple):
                if depth >= MAX_NESTING:
                    self.fail(frame, at, f"arrays and tuples are more than {MAX_NESTING} inside each other")
                pending += [(part, depth + 1) for part in element]
            count += 1
            if count > _MAX_ELEMENTS:
                self.fail(frame, at, f"the array has more than {_MAX_ELEMENTS} elements")
        self.work.steps += count // ELEMENTS_A_STEP if isinstance(value, list | tuple) else 0
        return value

    def identifier(self, identifier: syntax.Identifier, frame: Frame) -> Value:
        name = identifier.name
        found = frame.values.get(name, _MISSING)
        if found is not _MISSING:
            return found
        if name in self._symbols:
            return self._symbols[name]
        if name == "inf":
            return math.inf
        nearest = nearest_name(name, [*frame.values, *self._symbols])
        hint = f"did you mean '{nearest}'?" if nearest else None
        self.fail(frame, identifier.at, f"'{name}' has no value here", hint)

    def unary(self, unary: syntax.Unary, frame: Frame) -> Value:
        value = self.value(unary.operand, frame)
        if is_tensor(value) or isinstance(value, list):
            plus = unary.operator == "+"
            return value if plus else self._called(UNARY_OPERATIONS[unary.operator], [value], frame, unary.at)
        if unary.operator == "!":
            return negated(value) if isinstance(value, Condition) else not self._placed(frame, unary.at, truth, value)
        if isinstance(value, str | tuple):
            self.fail(frame, unary.at, f"{spelled(value)} is not a number")
        return -value if unary.operator == "-" else value

    def binary(self, binary: syntax.Binary, frame: Frame) -> Value:
        sides = [self.checked(binary.sign, self.value(side, frame), frame) for side in (binary.left, binary.right)]
        if binary.operator not in BINARY_OPERATIONS:
            self.fail(frame, binary.sign, f"the operator '{binary.operator}' does not belong to tract's dialect")
        made = self._called(BINARY_OPERATIONS[binary.operator], sides, frame, binary.sign)
        if not any(is_tensor(side) or isinstance(side, list) for side in sides) and isinstance(made, np.ndarray):
            element = made.reshape(())[()]  # of two numbers
            return element.item() if isinstance(element, np.generic) else element
        return made

    def subscript(self, subscript: syntax.Subscript, frame: Frame) -> Value:
        sequence = self.value(subscript.sequence, frame)
        index = self._placed(frame, subscript.index.at, integer, self.value(subscript.index, frame))
        if isinstance(sequence, np.ndarray) and sequence.ndim:
            sequence = list(sequence)
        if not isinstance(sequence, list | tuple) or isinstance(index, Size):
            self.fail(frame, subscript.at, f"{spelled(sequence)} has no elements to choose from")
        if not -len(sequence) <= index < len(sequence):
            self.fail(frame, subscript.index.at, f"the index {index} is outside {len(sequence)} elements")
        return sequence[index]

    # Calls

    def _called(self, name: str, values: list[Value], frame: Frame, at: int) -> Value:
        """An operator of expressions, as the operation that it stands for."""
        operation = STANDARD.lookup(name, Dialect.FINAL)
        assert operation is not None
        names = [parameter.name for parameter in operation.signature.parameters]
        return self._placed(frame, at, call_standard, self.emitter, operation, dict(zip(names, values, strict=True)))

    def invocation(self, invocation: syntax.Invocation, frame: Frame, target: str) -> Value:
        name = invocation.name
        parameters = self._parameters(invocation, frame)
        given: dict[str, Value] = {}
        for position, argument in enumerate(invocation.arguments):
            if argument.name is None and position >= len(parameters):
                self.fail(frame, argument.at, f"'{name}' has {len(parameters)} parameters, more arguments are given")
            # Arguments with unknown names are ignored: torch-to-nnef writes some.
            given[argument.name or parameters[position]] = self.checked(
                argument.at, self.value(argument.value, frame), frame
            )
        self.count_operation(frame, invocation.at)
        if name in self._sources and name not in self._fragments:
            location = frame.source.location(invocation.at)
            content = invocation.content or "scalar"
            return self._placed(frame, invocation.at, self._sources[name], given, content, target, location)
        if self.depth == 0:
            given = dict(self.quantized.arguments(name, given))
        return self._placed(frame, invocation.at, self._resolved, name, given, invocation.content or "")

    def _custom(self, name: str) -> ExtensionOperator | None:
        """Returns the custom operator that a user registered under a name."""
        if name not in self._customs:
            self._customs[name] = custom_extension(name, self._fragments.get(name), self._registries)
        return self._customs[name]

    def _parameters(self, invocation: syntax.Invocation, frame: Frame) -> list[str]:
        """The names of the parameters of what is called."""
        name = invocation.name
        custom = self._custom(name)
        if custom is not None:
            return [parameter.name for parameter in custom.signature.parameters]
        if name in self._fragments:
            return self.parameters_of(name)
        operator = operator_of(name, self._registries) or STANDARD.lookup(name, Dialect.FINAL)
        if operator is None:
            known = [*self._fragments, *(each for r in self._registries.values() for each in r.operators)]
            nearest = nearest_name(name, known) or STANDARD.nearest(name, Dialect.FINAL)
            hint = f"did you mean '{nearest}'?" if nearest else "define a fragment of that name"
            self.fail(frame, invocation.at, f"the registries of this document have no operation '{name}'", hint)
        return [parameter.name for parameter in operator.signature.parameters]

    def _resolved(self, name: str, given: Mapping[str, Value], content: str) -> Value:
        """Call what a user registered, a fragment, an operator of a registry or one of the standard's operations."""
        custom = self._custom(name)
        if custom is not None:
            return call_extension(self, custom, given)
        fragment = self._fragments.get(name)
        if fragment is not None:
            return _listed(self._expanded(fragment, given))
        operator = operator_of(name, self._registries)
        if operator is not None:
            return call_extension(self, operator, given)
        operation = STANDARD.lookup(name, Dialect.FINAL)
        assert operation is not None, name
        if operation.lower is by_definition:
            if name not in self._definitions:
                self._definitions[name] = operation.defined(Dialect.FINAL)
            return _listed(self._expanded(self._definitions[name], given))
        return call_standard(self.emitter, operation, given, content)

    def _placed(self, frame: Frame, at: int, function: Callable[..., Any], *args: Any) -> Any:
        return self.located(frame, at, "in the expansion of what is called here", function, *args)


def _listed(results: Mapping[str, Value]) -> Value:
    """Return a single result as it is, several as a tuple."""
    values = tuple(results.values())
    return values[0] if len(values) == 1 else values
