"""Compiles chat templates: statements and scopes, which Jinja2's own analysis resolves.

A name belongs to the scope that sets it, or to the context. A scope begins by giving its variables their first values:
those of the context, of the variable of the same name further out, or none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from jinja2 import Environment, TemplateError, nodes
from jinja2.compiler import find_undeclared
from jinja2.ext import Extension, loopcontrols
from jinja2.idtracking import VAR_LOAD_ALIAS, VAR_LOAD_PARAMETER, VAR_LOAD_RESOLVE, Symbols

from nnefc.support.diagnostics import CompileError
from nnefc.tokenizer.chat_template.expressions import Expressions, Frame, as_text, refuse
from nnefc.tokenizer.chat_template.program import Builtin, Flag, Function, Label, Opcode, Program

if TYPE_CHECKING:
    from jinja2.parser import Parser

__all__ = ["compiled_template"]

_MAX_TEMPLATE = 1 << 18
"""Characters of a template."""

_BUILTINS = {
    "dict": Builtin.DICT,
    "namespace": Builtin.NAMESPACE,
    "raise_exception": Builtin.RAISE,
    "range": Builtin.RANGE,
    "strftime_now": Builtin.TIME,
}
_UNSUPPORTED = ("cycler", "joiner", "lipsum", "self", "super")
"""What Jinja2 has besides."""
_SPECIAL = {"caller": Flag.CALLER, "kwargs": Flag.KEYWORDS, "varargs": Flag.VARIABLE}


class _Generation(Extension):
    """`{% generation %}`, which marks what the assistant says: its body is a scope."""

    tags = {"generation"}  # noqa: RUF012 - as the base class has it

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


def compiled_template(source: str, variables: Mapping[str, str]) -> bytes:
    """Returns the program of a chat template.

    Args:
        source: the template.
        variables: texts that the model gives to it, such as `bos_token`.

    Raises:
        CompileError: the template is wrong, or has what programs do not.
    """
    if len(source) > _MAX_TEMPLATE:
        raise CompileError(f"it has {len(source):,} characters, and more than {_MAX_TEMPLATE:,} are not supported")
    environment = Environment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    try:
        program = _Compiler().program_of(environment.parse(source))
    except TemplateError as error:
        line = getattr(error, "lineno", None)
        raise CompileError(f"{f'line {line}: ' if line is not None else ''}{error.message}") from error
    except ValueError as error:  # a number of thousands of digits
        raise CompileError(str(error)[:200]) from error
    except RecursionError:
        raise CompileError("its blocks and expressions lie too deep in each other") from None
    return program.serialized({**_BUILTINS, **variables})


class _Compiler:
    """Translates statements; expressions are translated by :class:`Expressions`."""

    def __init__(self) -> None:
        self.program = Program()
        self._expressions = Expressions(self.program)
        self._changed_by_macros: set[str] = set()
        self._operands: set[str] = set()

    def program_of(self, template: nodes.Template) -> Program:
        """Returns the program of a template.

        Raises:
            CompileError: it has what programs do not.
        """
        macros = (*template.find_all(nodes.Macro), *template.find_all(nodes.CallBlock))
        self._changed_by_macros = {part.name for macro in macros for part in macro.find_all(nodes.NSRef)}
        operations = template.find_all((nodes.Add, nodes.Mul, nodes.Mod, nodes.Getattr, nodes.Getitem))
        self._operands = {
            part.name for node in operations for part in node.iter_child_nodes() if isinstance(part, nodes.Name)
        }
        function = Function("template")
        frame = Frame(Symbols(), function)
        self.program.begin(function)
        frame.symbols.analyze_node(template)
        self._enter(frame)
        self._body(template.body, frame)
        self.program.emit(Opcode.RETURN)
        return self.program

    # -- scopes

    def _inner(self, frame: Frame, captures: bool = False) -> Frame:
        """Returns a scope within another one. What is captured cannot be left by `break`."""
        loop = (None, None) if captures else (frame.breaks, frame.continues)
        return Frame(Symbols(frame.symbols), frame.function, frame, {}, *loop)

    def _enter(self, frame: Frame) -> None:
        """Gives the variables of a scope their first values."""
        emit = self.program.emit
        for identifier, (action, parameter) in frame.symbols.loads.items():
            if identifier not in frame.slots:
                frame.slots[identifier] = frame.function.slot()
            slot = frame.slots[identifier]
            if action == VAR_LOAD_PARAMETER:
                continue
            if action == VAR_LOAD_RESOLVE:
                if parameter in _UNSUPPORTED:
                    raise CompileError(f"{parameter} is not supported")
                emit(Opcode.CONTEXT, self.program.variable(parameter))
            elif action == VAR_LOAD_ALIAS:
                assert frame.outer is not None
                level, outer = frame.outer.found(parameter)
                emit(Opcode.COPY, outer, level + (frame.outer.function is not frame.function))
            else:
                emit(Opcode.CLEAR, slot)
                continue
            emit(Opcode.STORE, slot)

    def _leave(self, frame: Frame) -> None:
        for slot in frame.slots.values():
            self.program.emit(Opcode.CLEAR, slot)

    def _store(self, target: nodes.Node, frame: Frame) -> None:
        """Takes a value from the stack, and gives it to a variable, an attribute of a namespace, or several of them."""
        match target:
            case nodes.Name():
                level, slot = frame.found(frame.symbols.ref(target.name))
                assert level == 0
                self.program.emit(Opcode.STORE, slot)
            case nodes.NSRef():
                self._load_namespace(target, frame)
                self.program.emit(Opcode.SET_ATTRIBUTE, self.program.constant(target.attr))
            case nodes.Tuple():
                self.program.emit(Opcode.UNPACK, len(target.items))
                for part in target.items:
                    self._store(part, frame)
            case _:
                refuse(target, f"an assignment to {type(target).__name__} is not supported")

    def _load_namespace(self, target: nodes.NSRef, frame: Frame) -> None:
        level, slot = frame.found(frame.symbols.ref(target.name))
        self.program.emit(Opcode.LOAD, slot, level, self.program.constant(target.name))

    def _load_target(self, target: nodes.Node, frame: Frame) -> None:
        """Pushes what was given to the target of a loop."""
        if isinstance(target, nodes.Tuple):
            for part in target.items:
                self._load_target(part, frame)
            self.program.emit(Opcode.TUPLE, len(target.items))
            return
        assert isinstance(target, nodes.Name)
        level, slot = frame.found(frame.symbols.ref(target.name))
        self.program.emit(Opcode.LOAD, slot, level, self.program.constant(target.name))

    # -- statements

    def _body(self, statements: Sequence[nodes.Node], frame: Frame) -> None:
        for statement in statements:
            self._statement(statement, frame)

    def _statement(self, node: nodes.Node, frame: Frame) -> None:
        match node:
            case nodes.Output():
                self._output(node, frame)
            case nodes.If():
                self._if(node, frame)
            case nodes.For():
                self._for(node, frame)
            case nodes.Assign():
                self._assign(node, frame)
            case nodes.AssignBlock():
                self._assign_block(node, frame)
            case nodes.Macro():
                self._macro(node, frame)
            case nodes.CallBlock():
                number = self._function(node, "", frame)
                self._expressions.call(node.call, frame, number)
                self.program.emit(Opcode.WRITE)
            case nodes.FilterBlock():
                inner = self._captured(node, node.body, frame)
                self._expressions.filter(node.filter, inner)
                self.program.emit(Opcode.WRITE)
                self._leave(inner)
            case nodes.With():
                self._with(node, frame)
            case nodes.Scope():
                inner = self._inner(frame)
                inner.symbols.analyze_node(node)
                self._enter(inner)
                self._body(node.body, inner)
                self._leave(inner)
            case nodes.Break() | nodes.Continue():
                label = frame.breaks if isinstance(node, nodes.Break) else frame.continues
                if label is None:
                    refuse(node, "break and continue are supported directly in loops only")
                self.program.jump(Opcode.JUMP, label)
            case _:
                refuse(node, f"{type(node).__name__} is not supported")

    def _output(self, node: nodes.Output, frame: Frame) -> None:
        for part in node.nodes:
            if isinstance(part, nodes.TemplateData):
                if part.data:
                    self.program.emit(Opcode.WRITE_CONSTANT, self.program.constant(part.data))
                continue
            self._expressions.push(as_text(part), frame)
            self.program.emit(Opcode.WRITE)

    def _if(self, node: nodes.If, frame: Frame) -> None:
        end = Label()
        for branch in (node, *node.elif_):
            other = Label()
            self._expressions.push(branch.test, frame)
            self.program.jump(Opcode.JUMP_FALSE, other)
            self._body(branch.body, frame)
            self.program.jump(Opcode.JUMP, end)
            self.program.bind(other)
        self._body(node.else_, frame)
        self.program.bind(end)

    def _for(self, node: nodes.For, frame: Frame) -> None:
        if node.recursive:
            refuse(node, "recursive loops are not supported")
        if any(name.ctx == "store" and name.name == "loop" for name in node.find_all(nodes.Name)):
            refuse(node, "an assignment to loop is not supported")
        inner, end, following = self._inner(frame), Label(), Label()
        inner.breaks, inner.continues = end, following
        loop = frame.function.slot()
        inner.slots[inner.symbols.declare_parameter("loop")] = loop
        inner.symbols.analyze_node(node, for_branch="body")
        self._expressions.push(node.iter, frame)
        if node.test is not None:
            self._selected(node, frame)
        self.program.emit(Opcode.LOOP, loop)
        is_empty = frame.function.slot()
        self._set_constant(is_empty, True)
        for identifier in inner.symbols.loads:
            if identifier not in inner.slots:
                inner.slots[identifier] = frame.function.slot()
        self.program.bind(following)
        self.program.jump(Opcode.NEXT, end, loop)
        self._store(node.target, inner)
        self._enter(inner)
        self._body(node.body, inner)
        self._set_constant(is_empty, False)  # not where `break` or `continue` comes first
        self.program.jump(Opcode.JUMP, following)
        self.program.bind(end)
        self._leave(inner)
        if node.else_:
            self._else(node, is_empty, frame)

    def _selected(self, node: nodes.For, frame: Frame) -> None:
        """Makes a list of the elements that pass the test of a loop."""
        self._check_test(node)
        assert node.test is not None
        inner, end, following = self._inner(frame), Label(), Label()
        inner.symbols.analyze_node(node, for_branch="test")
        loop = frame.function.slot()
        self.program.emit(Opcode.LOOP, loop)
        self.program.emit(Opcode.LIST_BEGIN)
        self._enter(inner)
        self.program.bind(following)
        self.program.jump(Opcode.NEXT, end, loop)
        self._store(node.target, inner)
        self._expressions.push(node.test, inner)
        self.program.jump(Opcode.JUMP_FALSE, following)
        self._load_target(node.target, inner)
        self.program.emit(Opcode.LIST_ADD)
        self.program.jump(Opcode.JUMP, following)
        self.program.bind(end)
        self._leave(inner)

    def _check_test(self, node: nodes.For) -> None:
        """Refuses tests that may see what the body of the loop has changed: they are evaluated before it."""
        assert node.test is not None
        body = [part for statement in node.body for part in (statement, *statement.find_all(nodes.Node))]
        changed = {part.name for part in body if isinstance(part, nodes.NSRef)}
        if any(isinstance(part, nodes.Call) for part in body):
            changed |= self._changed_by_macros
        read = {name.name for name in (node.test, *node.test.find_all(nodes.Name)) if isinstance(name, nodes.Name)}
        if changed & read:
            refuse(node, "a test of a loop that depends on what the loop sets is not supported")

    def _else(self, node: nodes.For, is_empty: int, frame: Frame) -> None:
        after, other = Label(), self._inner(frame)
        other.symbols.analyze_node(node, for_branch="else")
        self.program.emit(Opcode.LOAD, is_empty, 0, self.program.constant("loop"))
        self.program.jump(Opcode.JUMP_FALSE, after)
        self._enter(other)
        self._body(node.else_, other)
        self._leave(other)
        self.program.bind(after)

    def _set_constant(self, slot: int, value: bool) -> None:
        self.program.emit(Opcode.CONSTANT, self.program.constant(value))
        self.program.emit(Opcode.STORE, slot)

    def _assign(self, node: nodes.Assign, frame: Frame) -> None:
        for part in (node.target, *node.target.find_all(nodes.NSRef)):
            if isinstance(part, nodes.NSRef):
                self._load_namespace(part, frame)
                self.program.emit(Opcode.CHECK_NAMESPACE)
        value, target = node.node, node.target
        if isinstance(value, nodes.Expr) and isinstance(target, nodes.Name) and target.name not in self._operands:
            value = as_text(value)
        self._expressions.push(value, frame)
        self._store(node.target, frame)

    def _assign_block(self, node: nodes.AssignBlock, frame: Frame) -> None:
        inner = self._captured(node, node.body, frame)
        if node.filter is not None:
            self._expressions.filter(node.filter, inner)
        self._store(node.target, frame)
        self._leave(inner)

    def _captured(self, node: nodes.Node, body: Sequence[nodes.Node], frame: Frame) -> Frame:
        """Pushes the text of a block, which is a scope of its own."""
        inner = self._inner(frame, captures=True)
        inner.symbols.analyze_node(node)
        self._enter(inner)
        self.program.emit(Opcode.CAPTURE)
        self._body(body, inner)
        self.program.emit(Opcode.CAPTURED)
        return inner

    def _with(self, node: nodes.With, frame: Frame) -> None:
        inner = self._inner(frame)
        inner.symbols.analyze_node(node)
        self._enter(inner)
        for target, value in zip(node.targets, node.values, strict=True):
            self._expressions.push(value, frame)
            self._store(target, inner)
        self._body(node.body, inner)
        self._leave(inner)

    # -- functions

    def _macro(self, node: nodes.Macro, frame: Frame) -> None:
        self.program.emit(Opcode.MACRO, self._function(node, node.name, frame))
        _, slot = frame.found(frame.symbols.ref(node.name))
        self.program.emit(Opcode.STORE, slot)

    def _function(self, node: nodes.Macro | nodes.CallBlock, name: str, frame: Frame) -> int:
        """Compiles a macro, or the body of a call, where it stands; returns its number."""
        names = [arg.name for arg in node.args]
        special = find_undeclared(node.body, tuple(_SPECIAL)) - {*names}
        if "caller" in names or len({*names}) < len(names):
            refuse(node, "a parameter caller, or two of the same name, are not supported")
        flags = sum(flag for parameter, flag in _SPECIAL.items() if parameter in special)
        function = Function(name, names, flags)
        inner, after = Frame(Symbols(frame.symbols), function, frame), Label()
        inner.symbols.analyze_node(node)
        for parameter in (*names, *(parameter for parameter in _SPECIAL if parameter in special)):
            identifier = inner.symbols.refs.get(parameter) if parameter in names else None
            inner.slots[identifier or inner.symbols.declare_parameter(parameter)] = function.slot()
        inner.symbols.analyze_node(node)
        self.program.jump(Opcode.JUMP, after)
        number = self.program.begin(function)
        self._enter(inner)
        self._defaults(node, inner)
        self._body(node.body, inner)
        self.program.emit(Opcode.RETURN)
        self.program.bind(after)
        return number

    def _defaults(self, node: nodes.Macro | nodes.CallBlock, frame: Frame) -> None:
        """Gives parameters without an argument their defaults, in order."""
        without = len(node.args) - len(node.defaults)
        for arg, default in zip(node.args[without:], node.defaults, strict=True):
            slot, given = frame.slots[frame.symbols.ref(arg.name)], Label()
            self.program.jump(Opcode.PROVIDED, given, slot)
            self._expressions.push(default, frame)
            self.program.emit(Opcode.STORE, slot)
            self.program.bind(given)
