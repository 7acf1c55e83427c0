"""Infers the types of expressions (sections 3.3.2 and 3.3.3)."""

from __future__ import annotations

from dataclasses import dataclass, field

from nnefc.frontends.nnef.declarations import nearest_name
from nnefc.frontends.nnef.environment import Callee, Environment
from nnefc.frontends.nnef.invocation_rules import LITERAL_TYPES, InvocationRules, Reporter
from nnefc.frontends.nnef.language import syntax
from nnefc.frontends.nnef.language.lexer import MAX_NESTING
from nnefc.frontends.nnef.language.syntax import Expression, Source
from nnefc.frontends.nnef.language.types import (
    EMPTY_ARRAY,
    INTEGER,
    LOGICAL,
    SCALAR,
    STRING,
    ArrayType,
    GenericType,
    PrimitiveType,
    TensorType,
    TupleType,
    Type,
    common_type,
    convertible,
    has_tensor,
    substitute,
)

__all__ = ["BINARY_OPERATIONS", "UNARY_OPERATIONS", "Annotations", "Inference"]

BINARY_OPERATIONS = dict(
    zip(
        ("+", "-", "*", "/", "^", "<", "<=", ">", ">=", "==", "!=", "&&", "||"),
        ("add", "sub", "mul", "div", "pow", "lt", "le", "gt", "ge", "eq", "ne", "and", "or"),
        strict=True,
    )
)
"""Operators with a tensor among their operands, and the operations that they are."""

UNARY_OPERATIONS = {"-": "neg", "!": "not"}

_ARITHMETIC = frozenset("+-*/^")
_ORDER = frozenset(("<", "<=", ">", ">="))
_EQUALITY = frozenset(("==", "!="))
_LOGIC = frozenset(("&&", "||"))


@dataclass
class Annotations:
    """Results of type inference by node, for the evaluation.

    Attributes:
        contents: for each invocation of a generic operation, what `?` stands for ("?": as in the enclosing fragment).
        tensor_operators: the operators that are operations on tensors.
        inputs: for each invocation of `external`, the input that it defines.
    """

    contents: dict[syntax.Invocation, str] = field(default_factory=dict)
    tensor_operators: set[syntax.Binary | syntax.Unary] = field(default_factory=set)
    inputs: dict[syntax.Invocation, str] = field(default_factory=dict)


class Inference(Reporter):
    """Types of the expressions of one body. `names` holds the type of every identifier defined so far."""

    def __init__(
        self,
        environment: Environment,
        source: Source,
        annotations: Annotations,
        *,
        generic: bool,
        operators: bool,
    ) -> None:
        super().__init__(environment.dialect, source)
        self.names: dict[str, Type] = {}
        self._environment = environment
        self._annotations = annotations
        self._rules = InvocationRules(environment.dialect, source, generic=generic)
        self._operators = operators

    def type_of(self, expression: Expression) -> Type:
        """The type of an expression; whatever is wrong in it is a `CompileError`."""
        match expression:
            case syntax.Literal(_, value):
                return LITERAL_TYPES[type(value)]
            case syntax.Identifier():
                return self._identifier(expression)
            case syntax.Array():
                return self._array(expression)
            case syntax.Tuple():
                return self._tuple(expression)
            case syntax.Invocation():
                return self._invocation(expression)
            case syntax.Unary(_, "-" | "+", syntax.Literal(_, value)) if type(value) in (int, float):
                return LITERAL_TYPES[type(value)]
        if not self._operators:
            hint = "Write 'extension KHR_enable_operator_expressions;' after the version."
            self.fail(expression.at, "operator expressions are not enabled", hint)
        match expression:
            case syntax.Unary():
                return self._unary(expression)
            case syntax.Binary():
                return self._binary(expression)
            case syntax.Subscript():
                return self._subscript(expression)
            case syntax.Range():
                return self._range(expression)
            case syntax.Select():
                return self._select(expression)
            case syntax.Comprehension():
                return self._comprehension(expression)
            case syntax.Builtin():
                return self._builtin(expression)
        raise TypeError(f"not an expression: {expression}")

    def define(self, target: syntax.Target, type_: Type) -> None:
        """Define the identifiers of a target that a value of the type is assigned to."""
        match target, type_:
            case syntax.Identifier(at, name), _:
                if name in self.names:
                    self.fail(at, f"'{name}' is already defined", "Every identifier is assigned once.")
                self.names[name] = type_
            case syntax.Tuple(at, elements), TupleType(types):
                if len(elements) != len(types):
                    self.fail(at, f"a tuple of {len(types)} elements cannot be unpacked into {len(elements)}")
                for element, element_type in zip(elements, types, strict=True):
                    self.define(element, element_type)  # type: ignore[arg-type]
            case syntax.Array(_, elements), ArrayType(element_type) if element_type is not None:
                for element in elements:
                    self.define(element, element_type)  # type: ignore[arg-type]
            case _:
                what = "tuple" if isinstance(target, syntax.Tuple) else "array"
                self.fail(target.at, f"a value of type {self.spell(type_)} cannot be unpacked as {_article(what)}")

    # Identifiers, arrays, subscripts

    def _identifier(self, identifier: syntax.Identifier) -> Type:
        type_ = self.names.get(identifier.name)
        if type_ is None:
            nearest = nearest_name(identifier.name, self.names)
            hint = f"Did you mean '{nearest}'?" if nearest else "An identifier is assigned before it is used."
            self.fail(identifier.at, f"'{identifier.name}' is not defined here", hint)
        return type_

    def _array(self, array: syntax.Array) -> Type:
        if not array.elements:
            return EMPTY_ARRAY
        types = [self.type_of(element) for element in array.elements]
        distinct = list(dict.fromkeys(types))
        element = distinct[0] if len(distinct) == 1 else common_type(distinct)
        if element is None:
            for type_, expression in zip(types, array.elements, strict=True):
                if common_type((types[0], type_)) is None:
                    message = f"the elements of an array need a common type, not {self.spell(types[0])} and "
                    self.fail(expression.at, message + self.spell(type_))
            self.fail(
                array.at, f"the elements of an array need a common type, not {', '.join(map(self.spell, distinct))}"
            )
        return self._not_too_deep(array.at, ArrayType(element))

    def _tuple(self, tuple_: syntax.Tuple) -> Type:
        type_ = TupleType(tuple([self.type_of(element) for element in tuple_.elements]))
        if _size(type_) > _MAX_TUPLE:
            self.fail(tuple_.at, f"a tuple has more than {_MAX_TUPLE} elements, including those of its elements")
        return self._not_too_deep(tuple_.at, type_)

    def _not_too_deep(self, at: int, type_: Type) -> Type:
        """The type of an array or a tuple; each of those inside takes time wherever it is looked at."""
        if _depth(type_) > MAX_NESTING:
            self.fail(at, f"arrays and tuples are more than {MAX_NESTING} inside each other")
        return type_

    def _index(self, index: Expression) -> None:
        type_ = self.type_of(index)
        if type_ != INTEGER:
            self.fail(index.at, f"an index must be of type {self.spell(INTEGER)}, not {self.spell(type_)}")

    def _subscript(self, subscript: syntax.Subscript) -> Type:
        sequence = self.type_of(subscript.sequence)
        match sequence:
            case TupleType(elements):
                if not isinstance(subscript.index, syntax.Literal) or type(subscript.index.value) is not int:
                    self.fail(subscript.index.at, "the index of a tuple must be an integer literal")
                index = int(subscript.index.value)
                if index >= len(elements):
                    self.fail(subscript.index.at, f"the index {index} is outside a tuple of {len(elements)} elements")
                return elements[index]
            case PrimitiveType("string"):
                self._index(subscript.index)
                return STRING
            case ArrayType(element) if element is not None:
                self._index(subscript.index)
                return element
            case ArrayType():
                self.fail(subscript.at, "the empty array has no elements")
            case _:
                message = f"only arrays, tuples and strings have elements, not a value of type {self.spell(sequence)}"
                self.fail(subscript.at, message)

    def _range(self, range_: syntax.Range) -> Type:
        sequence = self.type_of(range_.sequence)
        if not (isinstance(sequence, ArrayType) or sequence == STRING):
            self.fail(range_.at, f"only arrays and strings have ranges, not a value of type {self.spell(sequence)}")
        for bound in (range_.begin, range_.end):
            if bound is not None:
                self._index(bound)
        return sequence

    # Selections, comprehensions, built-in functions

    def _condition(self, condition: Expression) -> None:
        type_ = self.type_of(condition)
        if type_ == LOGICAL:
            return
        hint = "To choose element by element, use the operation select." if isinstance(type_, TensorType) else None
        self.fail(condition.at, f"a condition must be of type logical, not {self.spell(type_)}", hint)

    def _select(self, select: syntax.Select) -> Type:
        self._condition(select.condition)
        value, otherwise = self.type_of(select.value), self.type_of(select.otherwise)
        type_ = common_type((value, otherwise))
        if type_ is None:
            message = f"the values of 'if … else' need a common type, not {self.spell(value)} and "
            self.fail(select.otherwise.at, message + self.spell(otherwise))
        return type_

    def _comprehension(self, comprehension: syntax.Comprehension) -> Type:
        elements: list[Type] = []
        for iterator in comprehension.iterators:
            sequence = self.type_of(iterator.sequence)
            if not isinstance(sequence, ArrayType) or sequence.element is None:
                spelled = "the empty array" if sequence == EMPTY_ARRAY else f"a value of type {self.spell(sequence)}"
                self.fail(iterator.sequence.at, f"only arrays are iterated over, not {spelled}")
            elements.append(sequence.element)
        for iterator, element in zip(comprehension.iterators, elements, strict=True):
            self.define(iterator.target, element)
        if comprehension.condition is not None:
            self._condition(comprehension.condition)
        type_ = self.type_of(comprehension.element)
        for iterator in comprehension.iterators:
            for identifier in syntax.identifiers_of(iterator.target):
                del self.names[identifier.name]
        return self._not_too_deep(comprehension.at, ArrayType(type_))

    def _builtin(self, builtin: syntax.Builtin) -> Type:
        argument = self.type_of(builtin.argument)
        match builtin.name, argument:
            case "shape_of", TensorType() | PrimitiveType() | GenericType():
                return ArrayType(INTEGER)
            case "length_of", ArrayType() | PrimitiveType("string"):
                return INTEGER
            case "range_of", ArrayType() | PrimitiveType("string"):
                return ArrayType(INTEGER)
            case ("integer" | "scalar" | "logical" | "string") as name, PrimitiveType() | GenericType():
                return PrimitiveType(name)
        spelled = self.spell(INTEGER) if builtin.name == "integer" else builtin.name
        takes = {"shape_of": "a tensor", "length_of": "an array or a string", "range_of": "an array or a string"}
        expected = takes.get(builtin.name, "a value of primitive type")
        self.fail(builtin.argument.at, f"{spelled} takes {expected}, not a value of type {self.spell(argument)}")

    # Operators

    def _unary(self, unary: syntax.Unary) -> Type:
        operand = self.type_of(unary.operand)
        match unary.operator, operand:
            case (("-" | "+"), PrimitiveType("integer" | "scalar")):
                return operand
            case "!", PrimitiveType("logical"):
                return operand
            case "+", TensorType("scalar"):
                return operand
            case ("-" | "!") as operator, TensorType():
                self._annotations.tensor_operators.add(unary)
                return self._operator(unary.at, UNARY_OPERATIONS[operator], (operand,))
        self.fail(unary.at, f"the operator '{unary.operator}' does not take a value of type {self.spell(operand)}")

    def _binary(self, binary: syntax.Binary) -> Type:
        left, right = self.type_of(binary.left), self.type_of(binary.right)
        if binary.operator in BINARY_OPERATIONS and (isinstance(left, TensorType) or isinstance(right, TensorType)):
            self._annotations.tensor_operators.add(binary)
            return self._operator(binary.sign, BINARY_OPERATIONS[binary.operator], (left, right))
        type_ = self._meta_binary(binary.operator, left, right)
        if type_ is None:
            message = f"the operator '{binary.operator}' does not take {self.spell(left)} and {self.spell(right)}"
            self.fail(binary.sign, message, self._mixing_hint(left, right))
        return type_

    def _mixing_hint(self, left: Type, right: Type) -> str | None:
        if {left, right} == {INTEGER, SCALAR}:
            return "Convert one of them: scalar(…)."
        if {left, right} == {INTEGER, ArrayType(INTEGER)}:
            return "To repeat an array, write it first: array * count."
        return None

    def _meta_binary(self, operator: str, left: Type, right: Type) -> Type | None:
        """The type of an operator's result on meta-parameters; None if it does not take such operands."""
        same = left == right
        if operator in _ARITHMETIC and same and left in (INTEGER, SCALAR):
            return left
        if operator == "+":
            both_arrays = isinstance(left, ArrayType) and isinstance(right, ArrayType)
            return left if same and left == STRING else common_type((left, right)) if both_arrays else None
        if operator == "*":
            return left if right == INTEGER and (left == STRING or isinstance(left, ArrayType)) else None
        if operator in _ORDER:
            return LOGICAL if same and left in (INTEGER, SCALAR) else None
        if operator in _EQUALITY:
            comparable = common_type((left, right)) is not None and not has_tensor(left) and not has_tensor(right)
            return LOGICAL if comparable else None
        if operator in _LOGIC:
            return LOGICAL if same and left == LOGICAL else None
        if operator == "in" and isinstance(right, ArrayType) and not has_tensor(left) and not has_tensor(right):
            return LOGICAL if right.element is None or common_type((left, right.element)) is not None else None
        return None

    def _operator(self, at: int, name: str, operands: tuple[Type, ...]) -> Type:
        """The type of an operator on tensors: that of the operation it stands for."""
        signature = self._callee(at, name).signature
        for parameter, operand in zip(signature.parameters, operands, strict=True):
            if not convertible(operand, parameter.type):
                spelled = " and ".join(map(self.spell, operands))
                hint = "Write a point: 1.0." if operand == INTEGER and parameter.type == TensorType("scalar") else None
                self.fail(at, f"the operation '{name}' does not take {spelled}", hint)
        return signature.results[0].type

    # Invocations

    def _callee(self, at: int, name: str) -> Callee:
        callee = self._environment.lookup(name)
        if callee is None:
            self.fail(at, f"the operation '{name}' is not known", self._environment.suggestion(name))
        return callee

    def _invocation(self, invocation: syntax.Invocation) -> Type:
        callee = self._callee(invocation.at, invocation.name)
        signature = callee.signature
        assigned = self._rules.assign(invocation, callee)
        types = {name: self.type_of(argument.value) for name, argument in assigned.items()}
        content = self._rules.content(invocation, signature, assigned, types)
        if signature.generic:
            self._annotations.contents[invocation] = content
        self._rules.check_types(invocation, signature, assigned, types, content)
        results = [substitute(result.type, content) for result in signature.results]
        if TensorType("string") in results:
            self.fail(invocation.at, "there are no tensors of strings")
        return results[0] if len(results) == 1 else TupleType(tuple(results))


_MAX_TUPLE = 4096
"""Tuples of tuples grow exponentially, and their types with them."""


def _size(type_: Type) -> int:
    """Returns how many types a type is made of."""
    match type_:
        case TupleType(elements):
            return sum([_size(element) for element in elements])
        case ArrayType(element) if element is not None:
            return _size(element)
        case _:
            return 1


def _depth(type_: Type) -> int:
    """Returns how many arrays and tuples are inside each other in a type."""
    match type_:
        case TupleType(elements):
            return 1 + max(map(_depth, elements))
        case ArrayType(element) if element is not None:
            return 1 + _depth(element)
        case _:
            return 0


def _article(noun: str) -> str:
    return f"an {noun}" if noun == "array" else f"a {noun}"
