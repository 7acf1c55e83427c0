"""Translates expressions of chat templates to instructions that push their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from jinja2 import nodes
from jinja2.idtracking import Symbols

from nnefc.support.diagnostics import CompileError
from nnefc.tokenizer.chat_template.program import Constant, Function, Kind, Label, Opcode, Program
from nnefc.tokenizer.chat_template.signatures import (
    CASES,
    FILTERS,
    REQUIRED,
    TESTS,
    UNSUPPORTED_METHODS,
    FilterCode,
    Required,
    Signature,
    TestCode,
)

__all__ = ["Expressions", "Frame", "as_text", "refuse"]

_OPERATORS: dict[type[nodes.BinExpr], Opcode] = {
    nodes.Add: Opcode.ADD,
    nodes.Sub: Opcode.SUBTRACT,
    nodes.Mul: Opcode.MULTIPLY,
    nodes.Div: Opcode.DIVIDE,
    nodes.FloorDiv: Opcode.FLOOR_DIVIDE,
    nodes.Mod: Opcode.MODULO,
    nodes.Pow: Opcode.POWER,
}
_UNARY: dict[type[nodes.UnaryExpr], Opcode] = {
    nodes.Neg: Opcode.NEGATE,
    nodes.Pos: Opcode.PLUS,
    nodes.Not: Opcode.NOT,
}
_RELATIONS = {
    "eq": Opcode.EQUAL,
    "ne": Opcode.NOT_EQUAL,
    "lt": Opcode.LESS,
    "lteq": Opcode.LESS_EQUAL,
    "gt": Opcode.GREATER,
    "gteq": Opcode.GREATER_EQUAL,
    "in": Opcode.IN,
    "notin": Opcode.NOT_IN,
}
_SELECTIONS = {
    "reject": (FilterCode.REJECT, 0),
    "rejectattr": (FilterCode.REJECTATTR, 1),
    "select": (FilterCode.SELECT, 0),
    "selectattr": (FilterCode.SELECTATTR, 1),
}
_SAME = {True: TestCode.TRUE, False: TestCode.FALSE, None: TestCode.NONE}
_MAX_ARGUMENTS = 255


def refuse(node: nodes.Node, what: str) -> NoReturn:
    """Refuses a template for what it has at a node.

    Raises:
        CompileError: always.
    """
    raise CompileError(f"line {node.lineno}: {what}")


def as_text(node: nodes.Expr) -> nodes.Expr:
    """Returns an expression that becomes text without its filter `safe`: nothing is escaped."""
    match node:
        case nodes.Filter(name="safe", node=nodes.Expr() as value):
            return as_text(value)
        case nodes.CondExpr(expr2=None):
            return nodes.CondExpr(node.test, as_text(node.expr1), None, lineno=node.lineno)
        case nodes.CondExpr(expr2=nodes.Expr() as other):
            return nodes.CondExpr(node.test, as_text(node.expr1), as_text(other), lineno=node.lineno)
    return node


@dataclass
class Frame:
    """A scope of names, as Jinja2 has it.

    Attributes:
        symbols: which names it has, and where their first values are from.
        function: whose variables they are.
        outer: the scope around it.
        slots: variables by their identifiers.
        breaks, continues: the labels of the loop around it, in the same text that is captured.
    """

    symbols: Symbols
    function: Function
    outer: Frame | None = None
    slots: dict[str, int] = field(default_factory=dict)
    breaks: Label | None = None
    continues: Label | None = None

    def found(self, identifier: str) -> tuple[int, int]:
        """Returns how many functions further out a variable is, and its number there."""
        level, frame = 0, self
        while identifier not in frame.slots:
            assert frame.outer is not None
            level += frame.outer.function is not frame.function
            frame = frame.outer
        return level, frame.slots[identifier]


class Expressions:
    """Translates expressions into a program."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def push(self, node: nodes.Node, frame: Frame) -> None:
        """Emits instructions that push the value of an expression.

        Raises:
            CompileError: a construct that is not supported.
        """
        emit, constant = self.program.emit, self.program.constant
        match node:
            case nodes.Const():
                emit(Opcode.CONSTANT, constant(self._supported(node)))
            case nodes.TemplateData():
                emit(Opcode.CONSTANT, constant(node.data))
            case nodes.Name():
                identifier = frame.symbols.find_ref(node.name)
                if identifier is None:  # Jinja2 does not know it either
                    refuse(node, f"the name {node.name[:30]} is not known here")
                level, slot = frame.found(identifier)
                emit(Opcode.LOAD, slot, level, constant(node.name))
            case nodes.Tuple() | nodes.List():
                self._push_all(node.items, frame)
                emit(Opcode.TUPLE if isinstance(node, nodes.Tuple) else Opcode.LIST, len(node.items))
            case nodes.Dict():
                self._push_all([part for pair in node.items for part in (pair.key, pair.value)], frame)
                emit(Opcode.DICT, len(node.items))
            case nodes.Concat():
                self._push_all([as_text(part) for part in node.nodes], frame)
                emit(Opcode.JOIN, len(node.nodes))
            case nodes.Compare():
                self._compare(node, frame)
            case nodes.And() | nodes.Or():
                end = Label()
                self.push(node.left, frame)
                self.program.jump(Opcode.AND if isinstance(node, nodes.And) else Opcode.OR, end)
                self.push(node.right, frame)
                self.program.bind(end)
            case nodes.BinExpr():
                self._push_all((node.left, node.right), frame)
                emit(_OPERATORS[type(node)])
            case nodes.UnaryExpr():
                self.push(node.node, frame)
                emit(_UNARY[type(node)])
            case nodes.CondExpr():
                self._choose(node, frame)
            case nodes.Getattr():
                self.push(node.node, frame)
                emit(Opcode.ATTRIBUTE, constant(self._attribute(node, node.attr)))
            case nodes.Getitem():
                self._element(node, frame)
            case nodes.Call():
                self.call(node, frame)
            case nodes.Filter():
                self.filter(node, frame)
            case nodes.Test():
                self._test(node, frame)
            case _:
                refuse(node, f"{type(node).__name__} is not supported")

    def _push_all(self, parts: Sequence[nodes.Node], frame: Frame) -> None:
        for part in parts:
            self.push(part, frame)

    def _push_constant(self, value: Constant) -> None:
        self.program.emit(Opcode.CONSTANT, self.program.constant(value))

    @staticmethod
    def _supported(node: nodes.Const) -> Constant:
        value = node.value
        if value is None or isinstance(value, bool | int | float | str):
            return value
        refuse(node, f"the constant {str(value)[:30]} is not supported")

    def _attribute(self, node: nodes.Node, name: str) -> str:
        """Returns the name of an attribute, which may be a method that needs tables."""
        if name.startswith("__"):
            refuse(node, f"the attribute {name[:30]} is unsafe")
        if name in ("capitalize", "lower", "upper"):
            self.program.cases |= CASES[name]
        return name

    def _compare(self, node: nodes.Compare, frame: Frame) -> None:
        self.push(node.expr, frame)
        *others, last = node.ops
        false, end = Label(), Label()
        for other in others:  # a < b < c: b is compared twice
            self.push(other.expr, frame)
            self.program.emit(Opcode.SWAP_COPY)
            self.program.emit(_RELATIONS[other.op])
            self.program.jump(Opcode.AND, false)
        self.push(last.expr, frame)
        self.program.emit(_RELATIONS[last.op])
        if others:
            self.program.jump(Opcode.JUMP, end)
            self.program.bind(false)
            self.program.emit(Opcode.DROP_BELOW)
            self.program.bind(end)

    def _choose(self, node: nodes.CondExpr, frame: Frame) -> None:
        other, end = Label(), Label()
        self.push(node.test, frame)
        self.program.jump(Opcode.JUMP_FALSE, other)
        self.push(node.expr1, frame)
        self.program.jump(Opcode.JUMP, end)
        self.program.bind(other)
        if node.expr2 is None:
            self._push_constant(Kind.UNDEFINED)
        else:
            self.push(node.expr2, frame)
        self.program.bind(end)

    def _element(self, node: nodes.Getitem, frame: Frame) -> None:
        self.push(node.node, frame)
        if not isinstance(node.arg, nodes.Slice):
            if isinstance(node.arg, nodes.Const) and isinstance(node.arg.value, str):
                self._attribute(node, node.arg.value)
            self.push(node.arg, frame)
            self.program.emit(Opcode.ELEMENT)
            return
        for limit in (node.arg.start, node.arg.stop, node.arg.step):
            if limit is None:
                self._push_constant(None)
            else:
                self.push(limit, frame)
        self.program.emit(Opcode.SLICE)

    def call(self, node: nodes.Call, frame: Frame, caller: int | None = None) -> None:
        """Emits instructions that call a function.

        Args:
            caller: the number of the function that is the argument `caller`.
        """
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            refuse(node, "arguments with * and ** are not supported")
        if isinstance(node.node, nodes.Getattr) and node.node.attr in UNSUPPORTED_METHODS:
            refuse(node, f"the method {node.node.attr} is not supported")
        if isinstance(node.node, nodes.Name) and node.node.name == "loop":
            refuse(node, "recursive loops are not supported")
        self.push(node.node, frame)
        self._push_all(node.args, frame)
        names = [keyword.key for keyword in node.kwargs]
        self._push_all([keyword.value for keyword in node.kwargs], frame)
        if caller is not None:
            names.append("caller")
            self.program.emit(Opcode.MACRO, caller)
        if len(node.args) > _MAX_ARGUMENTS or len(names) > _MAX_ARGUMENTS:
            refuse(node, f"more than {_MAX_ARGUMENTS} arguments are not supported")
        self.program.emit(Opcode.CALL, len(node.args) | len(names) << 8, *map(self.program.constant, names))

    def filter(self, node: nodes.Filter, frame: Frame) -> None:
        """Emits instructions that apply a filter, or several, to a value: in blocks to that on the stack."""
        if node.node is not None:
            self.push(node.node, frame)
        if node.name in _SELECTIONS or node.name == "map":
            self._generator(node, frame)
            return
        signature = self._signature(node, node.name)
        self._push_arguments(node, signature, node.args, frame)
        self.program.emit(Opcode.FILTER, signature.code | 1 + len(signature.names) << 8)

    def _signature(self, node: nodes.Node, name: str) -> Signature:
        if name not in FILTERS:
            refuse(node, f"the filter {name[:30]} is not supported")
        self.program.cases |= CASES.get(name, set())
        return FILTERS[name]

    def _push_arguments(
        self, node: nodes.Filter | nodes.Test, signature: Signature, args: Sequence[nodes.Expr], frame: Frame
    ) -> None:
        """Pushes all arguments of a filter, in order: those that are given, and the defaults of the others."""
        if node.dyn_args is not None or node.dyn_kwargs is not None:
            refuse(node, "arguments with * and ** are not supported")
        given = dict(zip(signature.names, args, strict=False))
        keywords = {str(keyword.key): keyword.value for keyword in node.kwargs}
        unknown = sorted({*keywords} - {*signature.names} | {*keywords} & {*given})
        if unknown or len(args) > len(signature.names):
            shown = f"{unknown[0]} " if unknown else ""
            refuse(node, f"the filter {node.name} has arguments {shown}that are not supported")
        given |= keywords
        for name, default in zip(signature.names, signature.defaults, strict=True):
            if name in given:
                self.push(given[name], frame)
            elif isinstance(default, Required):
                refuse(node, f"the filter {node.name} needs the argument {name}")
            else:
                self._push_constant(default)

    def _generator(self, node: nodes.Filter, frame: Frame) -> None:
        """Emits a filter that applies another filter, a test or an attribute to each element."""
        if node.name in _SELECTIONS:
            self._selection(node, frame)
            return
        if node.args:
            name = self._name_of(node, node.args[0])
            signature = self._signature(node, name)
            self._push_constant(int(signature.code))
            self._push_arguments(node, signature, node.args[1:], frame)
            count = 2 + len(signature.names)
            self.program.emit(Opcode.FILTER, FilterCode.MAP | count << 8)
            return
        signature = Signature(FilterCode.MAP_ATTRIBUTE, ("attribute", "default"), (REQUIRED, None))
        self._push_arguments(node, signature, (), frame)
        self.program.emit(Opcode.FILTER, FilterCode.MAP_ATTRIBUTE | 3 << 8)

    def _selection(self, node: nodes.Filter, frame: Frame) -> None:
        code, attributes = _SELECTIONS[node.name]
        if node.kwargs or node.dyn_args is not None or node.dyn_kwargs is not None or len(node.args) < attributes:
            refuse(node, f"the arguments of the filter {node.name} are not supported")
        self._push_all(node.args[:attributes], frame)
        tests = node.args[attributes:]
        name = self._name_of(node, tests[0]) if tests else None
        test, count = (TestCode.TRUTH, 0) if name is None else self._known_test(node, name)
        if len(tests[1:]) != count:
            refuse(node, f"the arguments of the test {name} are not supported")
        self._push_constant(int(test))
        self._push_all(tests[1:], frame)
        self.program.emit(Opcode.FILTER, code | 2 + attributes + count << 8)

    @staticmethod
    def _name_of(node: nodes.Filter, name: nodes.Expr) -> str:
        if isinstance(name, nodes.Const) and isinstance(name.value, str):
            return name.value
        refuse(node, f"the filter {node.name} takes names of filters and tests as texts only")

    @staticmethod
    def _known_test(node: nodes.Node, name: str) -> tuple[TestCode, int]:
        if name not in TESTS:
            refuse(node, f"the test {name[:30]} is not supported")
        return TESTS[name]

    def _test(self, node: nodes.Test, frame: Frame) -> None:
        self.push(node.node, frame)
        if node.name == "sameas" and len(node.args) == 1 and isinstance(node.args[0], nodes.Const):
            value = node.args[0].value
            if value is None or isinstance(value, bool):
                self.program.emit(Opcode.TEST, _SAME[value] | 1 << 8)
                return
        code, count = self._known_test(node, node.name)
        given = [*node.args, *(keyword.value for keyword in node.kwargs)]
        if len(node.args) != count or len(given) != count or node.dyn_args is not None or node.dyn_kwargs is not None:
            refuse(node, f"the arguments of the test {node.name} are not supported")
        self._push_all(node.args, frame)
        self.program.emit(Opcode.TEST, code | 1 + count << 8)
