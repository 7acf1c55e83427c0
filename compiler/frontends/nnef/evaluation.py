"""Flattens a document's graph: evaluates expressions, expands fragments, propagates shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from nnefc.frontends.nnef import arithmetic
from nnefc.frontends.nnef.arithmetic import ELEMENTS_A_STEP, MAX_ELEMENTS, ArithmeticProblem
from nnefc.frontends.nnef.declarations import Operation, Registry
from nnefc.frontends.nnef.environment import Environment, UserFragment, document_environment
from nnefc.frontends.nnef.evaluator import Evaluator, Frame, Limits, Work
from nnefc.frontends.nnef.flat import FlatGraph, Invocation
from nnefc.frontends.nnef.invocation import (
    ExternalShapes,
    complete,
    count_leaves,
    invoke,
    locations,
    written_arguments,
)
from nnefc.frontends.nnef.language import syntax
from nnefc.frontends.nnef.language.checking import check_definition, check_document, choose_graph
from nnefc.frontends.nnef.language.deep_stack import call_with_deep_stack
from nnefc.frontends.nnef.language.inference import BINARY_OPERATIONS, UNARY_OPERATIONS, Annotations
from nnefc.frontends.nnef.language.types import Dialect
from nnefc.frontends.nnef.naming import TensorNames, rename
from nnefc.frontends.nnef.values import Tensor, Value, shape_of
from nnefc.support.diagnostics import CompileError

__all__ = ["MAX_DEPTH", "MAX_OPERATIONS", "MAX_STEPS", "evaluate", "keep_whole"]

MAX_DEPTH = 2_000
MAX_OPERATIONS = 100_000
MAX_STEPS = 2_000_000


def keep_whole(operation: Operation) -> bool:
    """The default of `expand`: no compound operation is expanded."""
    return False


def evaluate(
    document: syntax.Document,
    *,
    registry: Registry,
    graph: str | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    max_depth: int = MAX_DEPTH,
    max_operations: int = MAX_OPERATIONS,
    max_steps: int = MAX_STEPS,
    expand: Callable[[Operation], bool] = keep_whole,
) -> FlatGraph:
    """Check a document and flatten one of its graphs.

    Args:
        registry: the standard's operations.
        graph: the graph's name; may be left out if there is only one.
        shapes: shapes of inputs, in place of those that the document gives them.
        max_depth: how many fragments may be expanded inside each other.
        max_operations: how many operations the flattened graph may have.
        max_steps: how many expressions may be evaluated, a measure of time.
        expand: whether a compound operation is replaced by its definition.

    Raises:
        CompileError: the document breaks a rule, an operation refuses its arguments, or a limit is exceeded.
    """

    def run() -> FlatGraph:
        environment = document_environment(document, registry)
        chosen = choose_graph(document, graph)
        annotations = check_document(document, chosen, environment)
        limits = Limits(max_depth, max_operations, max_steps)
        externals = ExternalShapes(chosen, shapes or {})
        return _Flattener(document, chosen, environment, annotations, externals, limits, expand).graph()

    return call_with_deep_stack(run, document.source.file, max_depth)


class _Flattener(Evaluator):
    """Evaluates one graph. Types have been checked: what is left to go wrong depends on values."""

    TOO_LONG = "the document takes more than {} steps to evaluate"
    TOO_MANY = "the flattened graph has more than {} operations"
    NOTES_EACH_CALL = True
    UNPACKING = "an array of {values} elements cannot be unpacked into {names}"
    UNDEFINED = "Give it a body: { … }; or register it with --operators FILE.py, see docs/how-to/custom-operator.md."

    def __init__(
        self,
        document: syntax.Document,
        graph: syntax.Graph,
        environment: Environment,
        annotations: Annotations,
        externals: ExternalShapes,
        limits: Limits,
        expand: Callable[[Operation], bool],
    ) -> None:
        super().__init__(limits, Work())
        self._document = document
        self._graph = graph
        self._environment = environment
        self._annotations = annotations
        self._externals = externals
        self._expand = expand
        self._definitions: dict[Operation, UserFragment] = {}
        self._invocations: list[Invocation] = []
        self._producers: dict[Tensor, Invocation] = {}
        self._variables: dict[str, Tensor] = {}
        self._names = TensorNames(
            {identifier.name for statement in graph.body for identifier in syntax.identifiers_of(statement.target)}
        )
        self._statement = ""

    def graph(self) -> FlatGraph:
        """Evaluate the graph's statements in their order."""
        frame = Frame(self._document.source)
        for assignment in self._graph.body:
            first = len(self._invocations)
            identifiers = syntax.identifiers_of(assignment.target)
            self._statement = identifiers[0].name if identifiers else self._graph.name
            value = self.value(assignment.value, frame)
            fresh = {tensor for invocation in self._invocations[first:] for tensor in invocation.tensors}
            self.assign(assignment.target, value, frame, partial(self._named, frame, fresh))
        flat = FlatGraph(
            self._graph.name,
            self._document.dialect,
            tuple([_tensor(frame.values[identifier.name]) for identifier in self._graph.inputs]),
            tuple([_tensor(frame.values[identifier.name]) for identifier in self._graph.outputs]),
            tuple(self._invocations),
        )
        return rename(flat, self._names)

    def _named(self, frame: Frame, fresh: set[Tensor], at: int, name: str, value: Any) -> Tensor:
        """A tensor called `name` in the graph: the value itself if its statement made it, else a copy."""
        if isinstance(value, Tensor) and value in fresh and value not in self._names.given:
            self._names.given[value] = name
            return value
        copied = self._copy(frame, at, value)
        self._names.given[copied] = name
        return copied

    def _copy(self, frame: Frame, at: int, value: Value) -> Tensor:
        """A new tensor of the same value. The provisional dialect has no `copy`, only `copy_n`."""
        content = value.content if isinstance(value, Tensor) else _CONTENTS[type(value)]
        copy = self._environment.lookup("copy")
        if isinstance(copy, Operation):
            return _tensor(self._standard(copy, {"x": value}, content, frame, at, None))
        copy_n = self._environment.lookup("copy_n")
        if not isinstance(copy_n, Operation):
            self.fail(frame, at, "the tensor has a name already", "Use the identifier that it was assigned to first.")
        (copied,) = self._standard(copy_n, {"x": value, "times": 1}, content, frame, at, None)
        return _tensor(copied)

    def _local(self, at: int, name: str, value: Any) -> Any:
        """A value that gets a name inside a fragment: tensors without one are called after it."""
        for i, tensor in enumerate(value if isinstance(value, list) else (value,)):
            if isinstance(tensor, Tensor):
                self._names.local.setdefault(tensor, f"{name}{i + 1}" if isinstance(value, list) else name)
        return value

    # Expressions

    def identifier(self, identifier: syntax.Identifier, frame: Frame) -> Any:
        return frame.values[identifier.name]

    def sequence(self, expression: syntax.Range | syntax.Comprehension | syntax.Builtin, frame: Frame) -> Any:
        match expression:
            case syntax.Range():
                return self._range(expression, frame)
            case syntax.Comprehension():
                return self._comprehension(expression, frame)
            case syntax.Builtin():
                return self._builtin(expression, frame)

    def unary(self, unary: syntax.Unary, frame: Frame) -> Any:
        operand = self.value(unary.operand, frame)
        if unary in self._annotations.tensor_operators:
            return self._operator(UNARY_OPERATIONS[unary.operator], (operand,), frame, unary.at)
        if isinstance(operand, Tensor):
            return operand
        return self._arithmetic(frame, unary.at, arithmetic.unary, unary.operator, operand)

    def binary(self, binary: syntax.Binary, frame: Frame) -> Any:
        left = self.value(binary.left, frame)
        if binary in self._annotations.tensor_operators:
            operands = (left, self.value(binary.right, frame))
            return self._operator(BINARY_OPERATIONS[binary.operator], operands, frame, binary.sign)
        if binary.operator == "&&":
            return left and self.value(binary.right, frame)
        if binary.operator == "||":
            return left or self.value(binary.right, frame)
        right = self.value(binary.right, frame)
        if binary.operator in ("==", "!=", "in"):
            self._check_size({"left": left, "right": right}, frame, binary.sign)
        return self._arithmetic(frame, binary.sign, arithmetic.binary, binary.operator, left, right)

    def _arithmetic(self, frame: Frame, at: int, function: Callable[..., Any], *operands: Any) -> Any:
        try:
            result = function(*operands)
        except ArithmeticProblem as problem:
            self.fail(frame, at, str(problem))
        if isinstance(result, list | str):
            self.spend(frame, at, len(result) // ELEMENTS_A_STEP)
        return result

    def subscript(self, subscript: syntax.Subscript, frame: Frame) -> Any:
        sequence, index = self.value(subscript.sequence, frame), self.value(subscript.index, frame)
        position = index + len(sequence) if index < 0 and self._document.dialect is Dialect.FINAL else index
        if not 0 <= position < len(sequence):
            self.fail(frame, subscript.index.at, f"the index {index} is outside {_length_text(sequence)}")
        return sequence[position]

    def _range(self, range_: syntax.Range, frame: Frame) -> Any:
        sequence = self.value(range_.sequence, frame)
        bounds = []
        for bound, default in ((range_.begin, 0), (range_.end, len(sequence))):
            value = default if bound is None else self.value(bound, frame)
            position = value + len(sequence) if value < 0 and self._document.dialect is Dialect.FINAL else value
            if not 0 <= position <= len(sequence):
                self.fail(frame, (bound or range_).at, f"the bound {value} is outside {_length_text(sequence)}")
            bounds.append(position)
        self.spend(frame, range_.at, max(0, bounds[1] - bounds[0]) // ELEMENTS_A_STEP)
        return sequence[bounds[0] : bounds[1]]

    def _comprehension(self, comprehension: syntax.Comprehension, frame: Frame) -> list[Any]:
        """The iterators advance together over arrays of one length."""
        sequences = [self.value(iterator.sequence, frame) for iterator in comprehension.iterators]
        for iterator, sequence in zip(comprehension.iterators, sequences, strict=True):
            if len(sequence) != len(sequences[0]):
                message = f"arrays of {len(sequences[0])} and {len(sequence)} elements cannot be iterated over together"
                self.fail(frame, iterator.sequence.at, message)
        elements = []
        for values in zip(*sequences, strict=True):
            for iterator, value in zip(comprehension.iterators, values, strict=True):
                self.assign(iterator.target, value, frame)
            if comprehension.condition is None or self.value(comprehension.condition, frame):
                elements.append(self.value(comprehension.element, frame))
        return elements

    def _builtin(self, builtin: syntax.Builtin, frame: Frame) -> Any:
        argument = self.value(builtin.argument, frame)
        match builtin.name:
            case "shape_of":
                shape = list(shape_of(argument))
                # The provisional standard counts at least two dimensions.
                missing = max(0, 2 - len(shape)) if self._document.dialect is Dialect.PROVISIONAL else 0
                return shape + [1] * missing
            case "length_of":
                return len(argument)
            case "range_of":
                self.spend(frame, builtin.at, len(argument) // ELEMENTS_A_STEP)
                return list(range(len(argument)))
            case name:
                return self._arithmetic(frame, builtin.at, arithmetic.cast, name, argument, self._document.dialect)

    # Invocations

    def _operator(self, name: str, operands: tuple[Value, ...], frame: Frame, at: int) -> Any:
        """An operator on tensors, as the operation that it stands for."""
        callee = self._environment.lookup(name)
        assert callee is not None, name
        names = [parameter.name for parameter in callee.signature.parameters]
        return self._call(callee, dict(zip(names, operands, strict=True)), "", frame, at, None)

    def invocation(self, invocation: syntax.Invocation, frame: Frame, target: str) -> Any:
        callee = self._environment.lookup(invocation.name)
        assert callee is not None, invocation.name
        written = written_arguments(callee.signature, invocation)
        given = {name: self.value(value, frame) for name, value in written.items()}
        content = self._annotations.contents.get(invocation, "")
        content = frame.content if content == "?" else content
        return self._call(callee, given, content, frame, invocation.at, invocation)

    def _call(
        self,
        callee: Operation | UserFragment,
        given: Mapping[str, Value],
        content: str,
        frame: Frame,
        at: int,
        invocation: syntax.Invocation | None,
    ) -> Any:
        arguments = complete(callee.signature, given)
        if isinstance(callee, UserFragment):
            return self._fragment(callee, arguments, content, frame, at)
        if callee.definition is not None and self._expand(callee):
            # Its own rule holds too: what the definition would accept beyond it is refused in either case.
            self._check_size(arguments, frame, at)
            invoke(
                callee, arguments, content, frame.source.location(at), locations(callee, invocation, frame.source, at)
            )
            return self._fragment(self._definition(callee), arguments, content, frame, at)
        return self._standard(callee, arguments, content, frame, at, invocation)

    def _definition(self, operation: Operation) -> UserFragment:
        """The definition of a compound operation, parsed and checked once."""
        definition = self._definitions.get(operation)
        if definition is None:
            fragment = operation.defined(self._document.dialect)
            definition = UserFragment(fragment, operation.signature)
            check_definition(definition, self._environment, self._annotations)
            self._definitions[operation] = definition
        return definition

    def _fragment(
        self, fragment: UserFragment, arguments: dict[str, Value], content: str, frame: Frame, at: int
    ) -> Any:
        """Evaluate a fragment's body; the results, a tuple if there are several."""
        inner = Frame(fragment.syntax.source, content, arguments)
        note = f"in the expansion of '{fragment.syntax.name}', invoked here"
        results = self.located(frame, at, note, self.expand, fragment.syntax, inner, self._run)
        return results[0] if len(results) == 1 else tuple(results)

    def _run(self, body: tuple[syntax.Assignment, ...], frame: Frame) -> None:
        for assignment in body:
            self.assign(assignment.target, self.value(assignment.value, frame), frame, self._local)

    def _standard(
        self,
        operation: Operation,
        arguments: dict[str, Value],
        content: str,
        frame: Frame,
        at: int,
        written: syntax.Invocation | None,
    ) -> Any:
        """Add an invocation of a standard operation; its results, a tuple if there are several."""
        self.count_operation(frame, at)
        self._check_size(arguments, frame, at)
        location = frame.source.location(at)
        if operation.name == "external" and written is not None:
            name = self._annotations.inputs[written]
            arguments["shape"] = self._externals.shape(name, arguments["shape"], location)
        if operation.name == "update":
            variable = arguments["variable"]
            if not isinstance(variable, Tensor) or self._producers[variable].operation.name != "variable":
                self.fail(frame, at, "the first argument of 'update' must be a variable")

        invocation = invoke(operation, arguments, content, location, locations(operation, written, frame.source, at))
        self._invocations.append(invocation)
        for tensor in invocation.tensors:
            self._producers[tensor] = invocation
            self._names.statement[tensor] = self._statement
        if operation.name == "variable":
            self._share(invocation, frame, at)
        results = list(invocation.results.values())
        return results[0] if len(results) == 1 else tuple(results)

    def _share(self, invocation: Invocation, frame: Frame, at: int) -> None:
        """Variables of one label share their data, so they have one shape."""
        label: Any = invocation.arguments["label"]
        (variable,) = invocation.tensors
        first = self._variables.setdefault(label, variable)
        if (first.shape, first.content) != (variable.shape, variable.content):
            message = f"the variable '{label}' has the shape {list(variable.shape)} here, {list(first.shape)} before"
            notes = (("the first variable of that label", first.location),)
            raise CompileError(message, location=frame.source.location(at), notes=notes)

    def _check_size(self, arguments: Mapping[str, Value], frame: Frame, at: int) -> None:
        """Arrays that share their elements can be larger than all memory when taken apart; looking at each takes
        time."""
        for name, value in arguments.items():
            if isinstance(value, list | tuple):
                count = count_leaves(value, MAX_ELEMENTS)
                if count > MAX_ELEMENTS:
                    self.fail(frame, at, f"'{name}' has more than {MAX_ELEMENTS} elements")
                self.spend(frame, at, count // ELEMENTS_A_STEP)


_CONTENTS: dict[type, str] = {bool: "logical", int: "integer", float: "scalar"}


def _tensor(value: Any) -> Tensor:
    assert isinstance(value, Tensor), value
    return value


def _length_text(sequence: str | list[Any] | tuple[Any, ...]) -> str:
    what = "characters" if isinstance(sequence, str) else "elements"
    return f"a sequence of {len(sequence)} {what}"
