"""Translates expressions of TIR to C99.

    C[i] = min(A[i] * B[j], 6.0)     →     c[i] = nnefc__min_float32(a[i] * b[j], 6.0f);

Results that C computes in another type than TIR are converted back: C promotes `int8_t` and `int16_t` to `int`. Left
shifts are computed on unsigned numbers, for which C defines them all. Let-bound names become variables before the
statement; so does a conditional expression if only one of its values may be evaluated. float16 is stored as bits, and
converted by functions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import tvm_ffi
from tvm import tirx
from tvm.ir import PointerType, StringImm
from tvm.ir.expr import Call, TensorLoad
from tvm.target import codegen

from nnefc.support.diagnostics import CompileError
from nnefc.support.element_types import bits_of
from nnefc.targets.codegen.c.c_types import FLOATS, is_narrow, is_signed, literal, pointee, storage_type, value_type
from nnefc.targets.codegen.c.helpers import PREFIX, min_max
from nnefc.targets.codegen.c.lanes import lane_of
from nnefc.targets.codegen.c.names import Names
from nnefc.targets.codegen.c.texts import STRING_FUNCTIONS, TEXT_RESULTS, makes_texts, text_function
from nnefc.targets.codegen.cpu.expressions import IF_THEN_ELSE, dtype_of, inside, lanes_of, name_of

__all__ = ["FAILED", "TEXTS", "Block", "ExpressionWriter", "Memory", "Value", "pointer_cast"]

FAILED = "failed"
"""The variable or parameter that records a failure of a kernel."""

TEXTS = "texts"
"""The variable or parameter with the memory for strings that a run makes."""

_PRIMARY, _UNARY, _MUL, _ADD, _SHIFT, _ORDER, _EQUAL, _AND, _XOR, _OR, _BOTH, _EITHER, _CHOICE = range(16, 3, -1)
"""Precedence of C's operators, the tightest first."""

_ARITHMETIC = frozenset({_MUL, _ADD})
_COMPARED = frozenset({_ORDER, _EQUAL})

_OPERATORS: Mapping[type, tuple[str, int]] = {
    tirx.Add: ("+", _ADD),
    tirx.Sub: ("-", _ADD),
    tirx.Mul: ("*", _MUL),
    tirx.Div: ("/", _MUL),
    tirx.Mod: ("%", _MUL),
    tirx.BitwiseAnd: ("&", _AND),
    tirx.BitwiseOr: ("|", _OR),
    tirx.BitwiseXor: ("^", _XOR),
    tirx.RShift: (">>", _SHIFT),
}
_COMPARISONS: Mapping[type, tuple[str, int]] = {
    tirx.LT: ("<", _ORDER),
    tirx.LE: ("<=", _ORDER),
    tirx.GT: (">", _ORDER),
    tirx.GE: (">=", _ORDER),
    tirx.EQ: ("==", _EQUAL),
    tirx.NE: ("!=", _EQUAL),
}

_MATH = {
    f"llvm.{name}": name
    for name in (
        *("acos", "asin", "atan", "ceil", "copysign", "cos", "cosh", "exp", "exp2", "fabs", "floor", "fma", "log"),
        *("log10", "log2", "pow", "round", "sin", "sinh", "sqrt", "tan", "tanh", "trunc"),
    )
} | {"llvm.minnum": "fmin", "llvm.maxnum": "fmax"}
"""Functions of LLVM's for floats, and of C's."""

_TO_EVEN = frozenset({"llvm.nearbyint", "llvm.rint", "llvm.roundeven"})
_DSP = {
    "llvm.arm.smlad": "smlad",
    "llvm.arm.sxtb16": "sxtb16",
    "llvm.arm.uxtb16": "uxtb16",
    "llvm.fshr": "rotated",
}
_REINTERPRETED = {
    ("float32", 32): ("bits_of_float", "float_of_bits"),
    ("float64", 64): ("bits_of_double", "double_of_bits"),
}


class Value(NamedTuple):
    """An expression of C, and the precedence of its outermost operator."""

    text: str
    level: int


@dataclass(frozen=True)
class Memory:
    """The elements of a buffer.

    Attributes:
        name: of a pointer or an array; empty if each element is a variable.
        dtype: of the elements.
        constant: whether nothing writes them.
        scalars: the variables.
    """

    name: str
    dtype: str
    constant: bool = False
    scalars: tuple[str, ...] = ()


class Block:
    """Indented lines of C."""

    def __init__(self, depth: int = 1) -> None:
        self.lines: list[str] = []
        self.depth = depth

    def add(self, text: str) -> None:
        """Adds a line, unless it is empty."""
        self.lines.append("    " * self.depth + text)


class ExpressionWriter:
    """Writes expressions, and before them the variables that they need.

    Attributes:
        block: to which statements are added.
        variables: the names of scalars and pointers.
        memory: of buffers.
        externs: functions of the C library that are called.
        failure: the expression that says whether a kernel has failed.
    """

    failure = f"*{FAILED}"

    def __init__(self, names: Names) -> None:
        self.names = names
        self.block = Block()
        self.variables: dict[tirx.Var, str] = {}
        self.memory: dict[tirx.Var, Memory] = {}
        self.externs: set[str] = set()
        self._vectors: dict[tirx.Var, tirx.Expr] = {}

    def bind_vector(self, var: tirx.Var, value: tirx.Expr) -> None:
        """Bind a name to a vector: to the memory that it is loaded from if nothing writes that, or else to a
        variable for each lane.
        """
        value = self._visible(value)
        loads = [part for part in inside(value) if isinstance(part, TensorLoad)]
        if all(self.memory[load.source].constant for load in loads):
            self._vectors[var] = value
            return
        parts = []
        for lane in range(lanes_of(value)):
            scalar = lane_of(value, lane)
            part = tirx.Var(f"{var.name}_{lane}", scalar.expr_ty())
            self.variables[part] = self.named(str(part.name), scalar)
            parts.append(part)
        self._vectors[var] = tirx.Shuffle(parts, list(range(len(parts))))

    def lane(self, expr: tirx.Expr, lane: int) -> tirx.Expr:
        """Returns one lane of a vector as a scalar."""
        return lane_of(self._visible(expr), lane)

    def _visible(self, expr: tirx.Expr) -> tirx.Expr:
        """Return an expression without let-bound names of vectors."""
        if not self._vectors:
            return expr
        made: tirx.Expr = tvm_ffi.structural_map(expr, (tirx.Var, lambda var: self._vectors.get(var, var)))
        return made

    def text(self, expr: tirx.Expr) -> str:
        """Return an expression for a context without operators."""
        return self.value(expr).text

    def atom(self, expr: tirx.Expr) -> str:
        """Return an expression as an operand of any postfix operator."""
        return _enclosed(self.value(expr), _UNARY)

    def bound(self, expr: tirx.Expr) -> str:
        """Return an expression as the right operand of a comparison."""
        return _enclosed(self.value(expr), _SHIFT)

    def value(self, expr: tirx.Expr) -> Value:
        """Returns a scalar expression."""
        match expr:
            case tirx.IntImm() | tirx.FloatImm():
                return _literal(expr.value, dtype_of(expr))
            case tirx.Var():
                return Value(self.variables[expr], _PRIMARY)
            case TensorLoad():
                return self._load(expr)
            case Call():
                return self._call(expr)
            case tirx.Cast():
                return self._cast(expr)
            case tirx.Let():
                return self._let(expr)
            case tirx.Select():
                condition, left, right = map(self.value, (expr.condition, expr.true_value, expr.false_value))
                return self._choice(condition, left, right, expr)
            case tirx.Min() | tirx.Max():
                return self._min_max(expr)
            case tirx.And() | tirx.Or():
                sign, level = ("&&", _BOTH) if isinstance(expr, tirx.And) else ("||", _EITHER)
                return _binary(self.value(expr.a), sign, level, self.value(expr.b))
            case tirx.Not():
                return Value(f"!{self.atom(expr.a)}", _UNARY)
            case tirx.BitwiseNot():
                return self._bitwise_not(expr)
            case tirx.LShift():
                return self._shifted_left(expr)
            case tirx.Shuffle():
                return self.value(self.lane(expr, 0))
        if type(expr) in _COMPARISONS:
            sign, level = _COMPARISONS[type(expr)]
            return _binary(self._number(expr.a), sign, level, self._number(expr.b))
        if type(expr) in _OPERATORS:
            return self._arithmetic(expr)
        raise CompileError(
            f"C source has no form of {type(expr).__name__}", hint="compile a static library: -t cortex-m4 -o NAME.a"
        )

    def element(self, buffer: tirx.Var, index: tirx.Expr) -> str:
        """Return an element of a buffer, which can be assigned to."""
        memory = self.memory[buffer]
        if memory.scalars:
            return memory.scalars[int(index)]
        return f"{memory.name}[{self.text(index)}]"

    def pointer(self, expr: tirx.Expr) -> tuple[str, str, bool]:
        """Return a pointer, its element type, and whether the elements are constant."""
        match expr:
            case tirx.Var() if expr in self.memory:
                memory = self.memory[expr]
                return memory.name, memory.dtype, memory.constant
            case Call() if name_of(expr) == "tirx.address_of":
                load = expr.args[0]
                memory, (index,) = self.memory[load.source], load.indices
                is_first = isinstance(index, tirx.IntImm) and int(index) == 0
                text = memory.name if is_first else f"&{memory.name}[{self.text(index)}]"
                return text, memory.dtype, memory.constant
            case Call() if name_of(expr) == "tirx.reinterpret":
                text, dtype, constant = self.pointer(expr.args[0])
                wanted = pointee(expr.ty)
                return pointer_cast(text, dtype, wanted, constant), wanted, constant
        raise CompileError(
            f"C source has no form of the address {expr}", hint="compile a static library: -t cortex-m4 -o NAME.a"
        )

    def named(self, name: str, expr: tirx.Expr) -> str:
        """Return a variable to which an expression is assigned before the statement."""
        text, variable = self.text(expr), self.names.fresh(name)
        self.block.add(f"const {value_type(dtype_of(expr))} {variable} = {text};")
        return variable

    def alias(self, name: str, expr: tirx.Expr) -> str:
        """Return a variable with the value of an expression: an existing or a new one."""
        while isinstance(expr, Call) and name_of(expr) == "tirx.reinterpret" and expr.args[0].ty == expr.ty:
            expr = expr.args[0]  # hidden from TVM
        return self.variables[expr] if isinstance(expr, tirx.Var) else self.named(name, expr)

    def _load(self, load: TensorLoad) -> Value:
        (index,) = load.indices
        text = self.element(load.source, index)
        return Value(f"{text} != 0", _EQUAL) if dtype_of(load) == "bool" else Value(text, _PRIMARY)

    def _number(self, expr: tirx.Expr) -> Value:
        """Return an operand of arithmetic; float16 is converted to `float`."""
        made = self.value(expr)
        return _call(f"{PREFIX}half_to_float", made) if dtype_of(expr) == "float16" else made

    def _result(self, made: Value, dtype: str) -> Value:
        """Convert the result of arithmetic to a type."""
        if dtype == "float16":
            return _call(f"{PREFIX}float_to_half", made)
        return _converted(made, dtype) if is_narrow(dtype) else made

    def _arithmetic(self, expr: tirx.Expr) -> Value:
        sign, level = _OPERATORS[type(expr)]
        if isinstance(expr, tirx.Mod) and dtype_of(expr) in (*FLOATS, "float16"):
            return self._library("fmod", expr, [expr.a, expr.b])
        left, right, dtype = self._number(expr.a), expr.b, dtype_of(expr)
        if dtype == "bool":
            return _binary(left, "&" if sign == "*" else sign, level, self.value(right))
        if sign in "+-" and _is_negative(right, dtype):
            opposite = literal(-right.value, dtype)
            return self._result(_binary(left, "-+"["+-".index(sign)], level, Value(opposite, _PRIMARY)), dtype)
        return self._result(_binary(left, sign, level, self._number(right)), dtype)

    def _bitwise_not(self, expr: tirx.BitwiseNot) -> Value:
        if dtype_of(expr) == "bool":
            return Value(f"!{self.atom(expr.a)}", _UNARY)
        return self._result(Value(f"~{self.atom(expr.a)}", _UNARY), dtype_of(expr))

    def _shifted_left(self, expr: tirx.LShift) -> Value:
        dtype = dtype_of(expr)
        width = max(32, bits_of(dtype))
        whole = _binary(self._as(self.value(expr.a), dtype, f"uint{width}"), "<<", _SHIFT, self.value(expr.b))
        return whole if dtype == f"uint{width}" else _converted(whole, dtype)

    def _as(self, made: Value, source: str, target: str) -> Value:
        return made if source == target else _converted(made, target)

    def _min_max(self, expr: tirx.Min | tirx.Max) -> Value:
        which, sign, dtype = (
            ("min", "<", dtype_of(expr)) if isinstance(expr, tirx.Min) else ("max", ">", dtype_of(expr))
        )
        if dtype == "bool":
            sign, level = ("&&", _BOTH) if which == "min" else ("||", _EITHER)
            return _binary(self.value(expr.a), sign, level, self.value(expr.b))
        left, right = self._number(expr.a), self._number(expr.b)
        if all(isinstance(each, tirx.Var | tirx.IntImm | tirx.FloatImm) for each in (expr.a, expr.b)):
            return self._result(_chosen(_binary(left, sign, _ORDER, right), left, right), dtype)
        name = min_max(which, "float32" if dtype == "float16" else dtype)
        made = Value(f"{name}({left.text}, {right.text})", _PRIMARY)
        return _call(f"{PREFIX}float_to_half", made) if dtype == "float16" else made

    def _choice(self, condition: Value, left: Value, right: Value, expr: tirx.Expr) -> Value:
        made, dtype = _chosen(condition, left, right), dtype_of(expr)
        return _converted(made, dtype) if is_narrow(dtype) or dtype == "float16" else made

    def _cast(self, cast: tirx.Cast) -> Value:
        source, target = dtype_of(cast.value), dtype_of(cast)
        made = self._number(cast.value)
        if target == "bool":
            zero = literal(0, "float32" if source == "float16" else source)
            return made if source == "bool" else _binary(made, "!=", _EQUAL, Value(zero, _PRIMARY))
        if target == "float16":
            if source == "float64":
                return _call(f"{PREFIX}double_to_half", made)
            wide = made if source in ("float16", "float32") else _converted(made, "float32")
            return _call(f"{PREFIX}float_to_half", wide)
        if source in (*FLOATS, "float16") and is_narrow(target):  # the low bits, as processors do
            made = _converted(made, "int32")
        return made if source == "float16" and target == "float32" else self._as(made, source, target)

    def _let(self, let: tirx.Let) -> Value:
        if lanes_of(let.value) > 1:
            return self.value(self.lane(let, 0))
        if isinstance(let.value.ty, PointerType):
            raise CompileError(
                "C source cannot bind an address within an expression",
                hint="compile a static library: -t cortex-m4 -o NAME.a",
            )
        self.variables[let.var] = self.alias(str(let.var.name), let.value)
        return self.value(let.body)

    def _call(self, call: Call) -> Value:
        name = name_of(call)
        if name in IF_THEN_ELSE:
            return self._one_of(call)
        match name:
            case "prim.likely" | "tirx.likely":
                return self.value(call.args[0])
            case "tirx.reinterpret":
                return self._reinterpreted(call)
            case "tirx.isnan":
                return self._is_nan(call.args[0])
            case "tirx.fmod":
                return self._library("fmod", call, call.args)
            case "tirx.large_uint_imm":
                low, high = (int(arg) for arg in call.args)
                return _literal(high << 32 | low, dtype_of(call))
            case "tirx.call_llvm_pure_intrin" | "tirx.call_llvm_intrin":
                return self._instruction(call)
            case "tirx.call_extern" | "tirx.call_pure_extern":
                return self._extern(call)
        return self._refused(name.removeprefix("tirx.").removeprefix("prim."))

    def _one_of(self, call: Call) -> Value:
        """Write a conditional expression, by an operator or, if one of its values needs statements, by an `if`."""
        condition, *values = call.args
        chosen = self.value(condition)
        parts = [self._apart(value) for value in values]
        if not any(lines for lines, _ in parts):
            return self._choice(chosen, parts[0][1], parts[1][1], call)
        variable, block = self.names.fresh("chosen"), self.block
        block.add(f"{value_type(dtype_of(call))} {variable};")
        for begin, (lines, value) in zip((f"if ({chosen.text}) {{", "} else {"), parts, strict=True):
            block.add(begin)
            block.lines += lines
            block.add(f"    {variable} = {value.text};")
        block.add("}")
        return Value(variable, _PRIMARY)

    def _apart(self, expr: tirx.Expr) -> tuple[list[str], Value]:
        """Return the statements that an expression needs, and the expression."""
        outer = self.block
        self.block = Block(outer.depth + 1)
        try:
            made = self.value(expr)
            return self.block.lines, made
        finally:
            self.block = outer

    def _reinterpreted(self, call: Call) -> Value:
        (value,) = call.args
        if lanes_of(value) > 1:
            return self.value(self.lane(call, 0))
        source, target = dtype_of(value), dtype_of(call)
        made = self.value(value)
        if source == target:
            return made
        if source in FLOATS:
            to_bits, _ = _REINTERPRETED[source, bits_of(target)]
            return self._as(_call(f"{PREFIX}{to_bits}", made), f"uint{bits_of(target)}", target)
        if target in FLOATS:
            _, of_bits = _REINTERPRETED[target, bits_of(source)]
            return _call(f"{PREFIX}{of_bits}", self._as(made, source, f"uint{bits_of(source)}"))
        if "bool" in (source, target):
            return _converted(made, target) if source == "bool" else _binary(made, "!=", _EQUAL, Value("0", _PRIMARY))
        return _converted(made, target)

    def _is_nan(self, expr: tirx.Expr) -> Value:
        if dtype_of(expr) not in (*FLOATS, "float16"):
            return Value("0", _PRIMARY)
        made = self._number(expr)
        if not isinstance(expr, tirx.Var):
            variable = self.names.fresh("tested")
            self.block.add(f"const {FLOATS.get(dtype_of(expr), 'float')} {variable} = {made.text};")
            made = Value(variable, _PRIMARY)
        return _binary(made, "!=", _EQUAL, made)

    def _instruction(self, call: Call) -> Value:
        """Translate an LLVM intrinsic."""
        name = str(codegen.llvm_get_intrinsic_name(int(call.args[0])))
        args, dtype = call.args[1:], dtype_of(call)
        if name in _MATH:
            return self._library(_MATH[name], call, args)
        if name in _TO_EVEN:
            function = f"{PREFIX}nearbyint{'' if dtype == 'float64' else 'f'}"
            return self._result(_call(function, self._number(args[0])), dtype if dtype == "float16" else "float32")
        if name == "llvm.fmuladd":
            return self._arithmetic(args[0] * args[1] + args[2])
        if name in _DSP and dtype == "int32":
            operands = args[1:] if name == "llvm.fshr" else args
            return _call(f"{PREFIX}{_DSP[name]}", *map(self.value, operands))
        if name == "llvm.sadd.sat" and dtype == "int32":
            return _call(f"{PREFIX}saturated_sum", *map(self.value, args))
        if name == "llvm.abs":
            return self.value(tirx.Max(args[0], tirx.const(0, dtype) - args[0]))
        if name in ("llvm.ctpop", "llvm.ctlz"):
            return self._bit_count(name, args[0], dtype)
        return self._refused(name)

    def _bit_count(self, name: str, operand: tirx.Expr, dtype: str) -> Value:
        bits = bits_of(dtype_of(operand))
        made = _converted(self._as(self.value(operand), dtype_of(operand), f"uint{bits}"), "uint64")
        if name == "llvm.ctpop":
            count = _call(f"{PREFIX}popcount", made)
        else:
            count = _call(f"{PREFIX}leading_zeros", made, Value(str(bits), _PRIMARY))
        return self._as(count, "int32", dtype)

    def _extern(self, call: Call) -> Value:
        name, *args = call.args
        symbol = str(name.value)
        if symbol == "nnefc_run_failed":
            return Value(self.failure, _UNARY)
        if symbol in TEXT_RESULTS:
            self.externs |= STRING_FUNCTIONS
            more = [TEXTS] * makes_texts(symbol) + [FAILED]
            return _call(text_function(symbol), *map(self._argument, args), *(Value(each, _PRIMARY) for each in more))
        if symbol.startswith(PREFIX):
            return _call(symbol, *(self._argument(arg) for arg in args))
        if symbol.startswith("nnefc_"):
            raise CompileError(
                f"C source has no form of the runtime's function {symbol}",
                hint="compile a library, for a machine with an operating system",
            )
        return self._library(symbol, call, args)

    def _argument(self, arg: tirx.Expr) -> Value:
        return Value(self.pointer(arg)[0], _UNARY) if isinstance(arg.ty, PointerType) else self.value(arg)

    def _library(self, name: str, call: Call, args: list[tirx.Expr]) -> Value:
        """Call a function of the C library; float16 uses those of float."""
        if any(isinstance(arg, StringImm) for arg in args):
            return self._refused(name)
        dtype = dtype_of(call)
        if dtype in ("float16", "float32") and not name.endswith("f"):
            name += "f"
        self.externs.add(name)
        return self._result(_call(name, *map(self._number, args)), dtype if dtype == "float16" else "float32")

    def _refused(self, name: str) -> Value:
        raise CompileError(
            f"C source has no form of the function {name}", hint="compile a static library: -t cortex-m4 -o NAME.a"
        )


def pointer_cast(text: str, source: str, target: str, constant: bool) -> str:
    """Return a pointer cast to another type."""
    qualifier = "const " if constant else ""
    if target == "void":
        return text
    if source != "void" and storage_type(source) == storage_type(target):
        return text
    return f"({qualifier}{storage_type(target)} *)({qualifier}void *){_pointed(text)}"


def _pointed(text: str) -> str:
    """Return a pointer as the operand of a cast; placeholders between `@` are replaced later."""
    return text if re.fullmatch(r"\w+|@(in|out)put \d+@|@constant \d+ \w+@", text) else f"({text})"


def _literal(value: float, dtype: str) -> Value:
    text = literal(value, dtype)
    return Value(text, _UNARY if text.startswith("-") else _PRIMARY)


def _is_negative(expr: tirx.Expr, dtype: str) -> bool:
    """Return whether an expression is a negative number that C can subtract instead."""
    if isinstance(expr, tirx.FloatImm):
        return dtype in FLOATS and -math.inf < expr.value < 0
    return isinstance(expr, tirx.IntImm) and is_signed(dtype) and -(1 << 30) < int(expr) < 0


def _call(function: str, *args: Value) -> Value:
    return Value(f"{function}({', '.join(arg.text for arg in args)})", _PRIMARY)


def _converted(made: Value, dtype: str) -> Value:
    return Value(f"({value_type(dtype)}){_enclosed(made, _UNARY)}", _UNARY)


def _chosen(condition: Value, left: Value, right: Value) -> Value:
    asked = f"({condition.text})" if condition.level <= _CHOICE else condition.text
    return Value(f"{asked} ? {_arm(left)} : {_arm(right)}", _CHOICE)


def _arm(value: Value) -> str:
    return f"({value.text})" if value.level <= _CHOICE else value.text


def _enclosed(value: Value, level: int) -> str:
    return value.text if value.level >= level else f"({value.text})"


def _binary(left: Value, sign: str, level: int, right: Value) -> Value:
    return Value(f"{_operand(left, level, sign, False)} {sign} {_operand(right, level, sign, True)}", level)


_FREE: Mapping[int, frozenset[int]] = {
    _ORDER: _ARITHMETIC,
    _EQUAL: _ARITHMETIC,
    _BOTH: _COMPARED | _ARITHMETIC,
    _EITHER: _COMPARED | _ARITHMETIC,
}
"""Levels of operands without parentheses, by that of the operator: those for which compilers do not warn."""


def _operand(value: Value, level: int, sign: str, is_right: bool) -> str:
    """Return an operand, in parentheses if the precedence requires them or a compiler would warn."""
    inner = value.level
    if inner >= _UNARY:
        return value.text
    if level in _ARITHMETIC:
        binds = inner > level or (inner == level and not is_right)
        return value.text if binds and inner in _ARITHMETIC else f"({value.text})"
    if inner == level and sign in ("&&", "||", "|", "&", "^") and not is_right:
        return value.text
    return value.text if inner in _FREE.get(level, ()) else f"({value.text})"
