"""Translates kernels to C99 functions.

    kernel(A: pointer, B: pointer):           static void nnefc__kernel_pad(const float *NNEFC__NO_ALIAS a, …) {
        for i in 16: B[i] = A[i] * 2    →         for (int32_t i = 0; i < 16; ++i) {
                                                      b[i] = a[i] * 2.0f;
                                                  }
                                              }

Pointers are `restrict`, except for operands that a kernel may overwrite. A small array that is accessed at constant
indices only becomes one variable per element, so that any compiler keeps the accumulators of a tile in registers.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from hashlib import sha256

import tvm_ffi
from tvm import tirx
from tvm.ir import PointerType, StringImm
from tvm.ir.expr import Call

from nnefc.support.diagnostics import CompileError
from nnefc.targets.codegen.c.c_types import pointee, storage_type, value_type
from nnefc.targets.codegen.c.expressions import FAILED, TEXTS, Block, ExpressionWriter, Memory, pointer_cast
from nnefc.targets.codegen.c.helpers import PREFIX, UPPER_PREFIX
from nnefc.targets.codegen.c.names import Names, identifier
from nnefc.targets.codegen.c.statement_analysis import (
    BUFFER_DATA,
    has_effect,
    kept_in_variables,
    reads_others,
    used_variables,
    written_pointers,
)
from nnefc.targets.codegen.c.texts import TEXT_RESULTS, makes_texts
from nnefc.targets.codegen.cpu.expressions import dtype_of, lanes_of, name_of

__all__ = [
    "KERNEL_PREFIX",
    "Function",
    "FunctionWriter",
    "function_name",
    "is_failure",
    "kernel_function",
    "makes_strings",
    "math_function",
    "reports_failures",
]

KERNEL_PREFIX = "nnefc_kernel_"
"""Begins the symbols of kernels."""

_FAILURES = frozenset({"nnefc_kernel_error", "nnefc_run_failed"})
_EXTERN = frozenset({"tirx.call_extern", "tirx.call_pure_extern"})
_NOTE = "nnefc_at_step"
_JUMPS = {"tirx.break_loop": "break;", "tirx.continue_loop": "continue;"}


@dataclass(frozen=True)
class Function:
    """A function in C.

    Attributes:
        symbol: of the TIR function.
        prototype: without the semicolon.
        lines: of its body.
        externs: the functions of the C library that it calls.
    """

    symbol: str
    prototype: str
    lines: tuple[str, ...]
    externs: frozenset[str]

    @property
    def text(self) -> str:
        """The definition."""
        return "\n".join([f"{self.prototype} {{", *self.lines, "}", ""])


def function_name(symbol: str) -> str:
    """Return the C name of a kernel: distinct for each symbol, and from helper functions."""
    name = identifier(symbol.removeprefix(KERNEL_PREFIX))
    whole = name == symbol.removeprefix(KERNEL_PREFIX)
    return f"{PREFIX}kernel_{name}" + ("" if whole else f"_{sha256(symbol.encode()).hexdigest()[:8]}")


def reports_failures(func: tirx.PrimFunc) -> bool:
    """Return whether a kernel reports failures or asks for them, as functions for strings do."""
    return any(symbol in _FAILURES or symbol in TEXT_RESULTS for symbol in _called(func))


def makes_strings(func: tirx.PrimFunc) -> bool:
    """Return whether a kernel makes strings, for which it needs memory."""
    return any(map(makes_texts, _called(func)))


def _called(func: tirx.PrimFunc) -> set[str]:
    """Return the symbols of the functions that a kernel calls."""
    found: set[str] = set()

    def look(call: Call) -> None:
        if name_of(call) in _EXTERN:
            found.add(str(call.args[0].value))

    tvm_ffi.structural_walk(func.body, (Call, look))
    return found


def is_failure(expr: object) -> bool:
    """Return whether an expression is a call that reports a failure or asks for one."""
    return isinstance(expr, Call) and name_of(expr) in _EXTERN and str(expr.args[0].value) in _FAILURES


def kernel_function(func: tirx.PrimFunc, shared: Collection[int] = ()) -> Function:
    """Return a kernel, a flat function of pointers and numbers, in C.

    Args:
        func: after all passes over objects.
        shared: the indices of pointers that may overlap others.
    """
    symbol = str(func.attrs["global_symbol"])
    writer = FunctionWriter()
    written = written_pointers(func)
    declared = []
    for position, param in enumerate(func.params):
        name = writer.names.fresh(str(param.name).removesuffix("_data"))
        writer.variables[param] = name
        if isinstance(param.ty, PointerType):
            constant, dtype = param not in written, pointee(param.ty)
            writer.memory[param] = Memory(name, dtype, constant)
            restrict = "" if position in shared else f"{UPPER_PREFIX}NO_ALIAS "
            declared.append((name, f"{'const ' * constant}{storage_type(dtype)} *{restrict}{name}"))
        else:
            declared.append((name, f"const {value_type(str(param.ty.dtype))} {name}"))
    if makes_strings(func):
        declared.append((TEXTS, f"{PREFIX}texts *{TEXTS}"))
    if reports_failures(func):
        declared.append((FAILED, f"int32_t *{FAILED}"))
    lines = writer.body(func.body)
    unused = [f"    (void){name};" for name, _ in declared if not _uses(name, lines)]
    parameters = ", ".join(text for _, text in declared)
    prototype = f"{UPPER_PREFIX}KERNEL void {function_name(symbol)}({parameters or 'void'})"
    return Function(symbol, prototype, (*unused, *lines), frozenset(writer.externs))


def math_function(func: tirx.PrimFunc) -> Function:
    """Return in C a function of one number whose body returns an expression."""
    symbol = str(func.attrs["global_symbol"])
    writer = FunctionWriter(returns=True)
    (param,) = func.params
    writer.variables[param] = writer.names.fresh(str(param.name))
    lines = writer.body(func.body)
    dtype = value_type(str(param.ty.dtype))
    prototype = f"static {dtype} {symbol}(const {dtype} {writer.variables[param]})"
    return Function(symbol, prototype, tuple(lines), frozenset(writer.externs))


class FunctionWriter(ExpressionWriter):
    """Writes the statements of a function."""

    def __init__(self, prefix: str = "", returns: bool = False) -> None:
        super().__init__(Names(prefix=prefix))
        self._returns = returns
        self._uses: Counter[tirx.Var] = Counter()
        self._scalars: set[tirx.Var] = set()
        self._undeclared: dict[str, str] = {}  # variables that are declared with their first value

    def body(self, stmt: tirx.Stmt) -> list[str]:
        """Returns the lines of a function's body."""
        self._uses, self._scalars = used_variables(stmt), kept_in_variables(stmt)
        self._statement(stmt)
        return self.block.lines

    def _statement(self, stmt: tirx.Stmt) -> None:
        if isinstance(stmt, tirx.For | tirx.While | tirx.IfThenElse | tirx.Evaluate):
            self._declare_all()
        match stmt:
            case tirx.SeqStmt():
                for part in stmt.seq:
                    self._statement(part)
            case tirx.AttrStmt():
                self._statement(stmt.body)
            case tirx.For():
                self._loop(stmt)
            case tirx.While():
                self._while(stmt)
            case tirx.IfThenElse():
                self._branch(stmt)
            case tirx.Bind():
                self._bind(stmt)
            case tirx.DeclBuffer():
                self._declare(stmt)
            case tirx.AllocBuffer():
                self._allocate(stmt.buffer)
            case tirx.BufferStore():
                self._store(stmt)
            case tirx.Evaluate():
                self._evaluate(stmt.value)
            case tirx.Return():
                self._return(stmt)
            case tirx.Break():
                self.block.add("break;")
            case tirx.Continue():
                self.block.add("continue;")
            case _:
                raise CompileError(
                    f"C source has no form of the statement {type(stmt).__name__}",
                    hint="compile a static library: -t cortex-m4 -o NAME.a",
                )

    def _inner(self, begin: str, stmt: tirx.Stmt) -> None:
        """Write statements in a block."""
        self.block.add(begin)
        self.block.depth += 1
        with self.names.scope():
            self._statement(stmt)
        self._undeclared = {}  # of variables that have got no value in the block
        self.block.depth -= 1

    def _loop(self, loop: tirx.For) -> None:
        dtype = dtype_of(loop.loop_var)
        begin, extent = loop.min, loop.extent
        first = self.text(begin)
        step = 1 if loop.step is None else int(loop.step)
        is_zero = isinstance(begin, tirx.IntImm) and int(begin) == 0
        if isinstance(begin, tirx.IntImm) and isinstance(extent, tirx.IntImm):
            end = str(int(begin) + int(extent))
        else:
            end = self.bound(extent if is_zero else begin + extent)
        with self.names.scope():
            name = self.names.fresh(str(loop.loop_var.name))
            self.variables[loop.loop_var] = name
            move = f"++{name}" if step == 1 else f"{name} += {step}"
            self._inner(f"for ({value_type(dtype)} {name} = {first}; {name} < {end}; {move}) {{", loop.body)
            self.block.add("}")

    def _while(self, loop: tirx.While) -> None:
        outer, self.block = self.block, Block(self.block.depth + 1)
        condition = self.value(loop.condition)
        before, self.block = self.block.lines, outer
        if not before:
            self._inner(f"while ({condition.text}) {{", loop.body)
            self.block.add("}")
            return
        self.block.add("for (;;) {")
        self.block.lines += before
        self.block.add(f"    if (!({condition.text})) {{")
        self.block.add("        break;")
        self.block.add("    }")
        self.block.depth += 1
        with self.names.scope():
            self._statement(loop.body)
        self.block.depth -= 1
        self.block.add("}")

    def _branch(self, stmt: tirx.IfThenElse) -> None:
        self._inner(f"if ({self.text(stmt.condition)}) {{", stmt.then_case)
        if stmt.else_case is not None:
            self._inner("} else {", stmt.else_case)
        self.block.add("}")

    def _bind(self, stmt: tirx.Bind) -> None:
        var = stmt.var
        if isinstance(var.ty, PointerType):
            self._bind_pointer(var, stmt.value)
            return
        if not self._uses[var] and not has_effect(stmt.value):
            return
        if lanes_of(stmt.value) > 1:
            self.bind_vector(var, stmt.value)
            return
        self.variables[var] = self.alias(str(var.name), stmt.value)

    def _bind_pointer(self, var: tirx.Var, value: tirx.Expr) -> None:
        text, _, constant = self.pointer(value)
        dtype = pointee(var.ty)
        if not self._uses[var]:
            return
        name = self.names.fresh(str(var.name).removesuffix("_data"))
        self.variables[var], self.memory[var] = name, Memory(name, dtype, constant)
        self.block.add(f"{'const ' * constant}{storage_type(dtype)} *const {name} = {text};")

    def _declare(self, stmt: tirx.DeclBuffer) -> None:
        """Declare a buffer in the memory of a pointer."""
        data = stmt.data
        if isinstance(data, Call) and name_of(data) == BUFFER_DATA:
            data = data.args[0]
        if data not in self.memory:
            return  # nothing reads or writes it
        memory, dtype = self.memory[data], str(stmt.buffer.dtype)
        name = pointer_cast(memory.name, memory.dtype, dtype, memory.constant)
        self.memory[stmt.buffer] = Memory(
            name if name.isidentifier() else f"({name})", dtype, memory.constant, memory.scalars
        )

    def _allocate(self, buffer: tirx.Var) -> None:
        dtype, size = str(buffer.dtype), 1
        for extent in buffer.shape:
            size *= int(extent)
        type_, name = storage_type(dtype), str(buffer.name)
        if buffer in self._scalars:
            names = tuple(self.names.fresh(f"{name}_{number}" if size > 1 else name) for number in range(size))
            self.memory[buffer] = Memory("", dtype, scalars=names)
            self._undeclared |= dict.fromkeys(names, dtype)
            return
        array = self.names.fresh(name)
        self.memory[buffer] = Memory(array, dtype)
        self.block.add(f"{type_} {array}[{size}];")

    def _store(self, stmt: tirx.BufferStore) -> None:
        (index,) = stmt.indices
        lanes = lanes_of(stmt.value)
        if lanes == 1:
            self._assign(stmt.buffer, self.lane(index, 0), stmt.value)
            return
        values = [self.lane(stmt.value, lane) for lane in range(lanes)]
        if reads_others(stmt):
            variables = []
            for value in values:
                var = tirx.Var("lane", value.expr_ty())
                self.variables[var] = self.named("lane", value)
                variables.append(var)
            values = variables
        for lane, value in enumerate(values):
            self._assign(stmt.buffer, self.lane(index, lane), value)

    def _assign(self, buffer: tirx.Var, index: tirx.Expr, value: tirx.Expr) -> None:
        dtype = self.memory[buffer].dtype
        made = self.atom(value) if dtype_of(value) == "bool" else self.text(value)
        target = self.element(buffer, index)
        if target in self._undeclared:
            del self._undeclared[target]
            target = f"{storage_type(dtype)} {target}"
        self.block.add(f"{target} = {f'({storage_type(dtype)})' * (dtype_of(value) == 'bool')}{made};")

    def _declare_all(self) -> None:
        """Declare the variables that have no value yet."""
        for variable, dtype in self._undeclared.items():
            self.block.add(f"{storage_type(dtype)} {variable} = {'0.0f' if dtype == 'float32' else '0'};")
        self._undeclared = {}

    def _evaluate(self, value: tirx.Expr) -> None:
        if not isinstance(value, Call):
            return
        name = name_of(value)
        if name in _EXTERN:
            self._call_statement(value)
        elif name in _JUMPS:
            self.block.add(_JUMPS[name])
        else:
            self.block.add(f"(void){self.atom(value)};")  # which is refused where C has no form of it

    def _call_statement(self, call: Call) -> None:
        symbol = str(call.args[0].value)
        if symbol == "nnefc_kernel_error":
            self.block.add(f"{self.failure} = 1; /* {_comment(call.args[1])} */")
        elif symbol == _NOTE:
            self.block.add(f"/* {_comment(call.args[1])} */")
        elif symbol in ("memcpy", "memset"):
            self.externs.add(symbol)
            target, source, size = call.args[1:]
            begin = self.pointer(target)[0]
            given = self.pointer(source)[0] if symbol == "memcpy" else self.text(source)
            count = self.text(size) if isinstance(size, tirx.IntImm) else f"(size_t){self.atom(size)}"
            self.block.add(f"{symbol}({begin}, {given}, {count});")
        else:
            self.block.add(f"{self.text(call)};")

    def _return(self, stmt: tirx.Return) -> None:
        if self._returns:
            self.block.add(f"return {self.text(stmt.value)};")
        elif self.block.depth > 1:
            self.block.add("return;")


def _comment(text: StringImm) -> str:
    """Return a text without characters that would end a comment."""
    made = "".join(letter if letter.isascii() and letter.isprintable() else "_" for letter in str(text.value))
    return made.replace("*/", "* /").replace("/*", "/ *").replace("??", "? ?").replace("@", "_").rstrip("\\")


def _uses(name: str, lines: Collection[str]) -> bool:
    word = re.compile(rf"\b{name}\b")
    return any(word.search(line) for line in lines)
