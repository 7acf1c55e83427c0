"""Prints programs for tests: networks of Relax line by line, kernels as TVMScript without what follows from it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import GenericConst

from nnefc.ir.attributes import DYNAMIC_DIMENSIONS

__all__ = ["kernel_text", "kernels_of", "network_text", "program_text"]

SHOWN_ELEMENTS = 8
"""Elements of a constant up to which all are printed; of others, the first and the last ones."""

_IMPLIED_ATTRIBUTES = {
    "op_pattern",
    "tirx.noalias",
    "global_symbol",
    "s_tir",
    "tirx.is_scheduled",
    "target",
    DYNAMIC_DIMENSIONS,
}
_LAYOUTS = {"NCW", "NCHW", "NCDHW", "OIW", "OIHW", "OIDHW", "IOW", "IOHW", "IODHW"}
_BUFFER = re.compile(r'T\.Buffer\(\((.*?),?\)(?:, "(\w+)")?\)')
_SPECIAL = re.compile(r'(?<!\()"(-?inf|nan)"')
_POINTER = re.compile(r'T\.handle\("(\w+)", "global"\)')
_USUAL = re.compile(r', annotations=\{"buffer_allocated_addr": \[\](, "buffer_data_alignment": T\.int32\(64\))?\}')
_NARROW = re.compile(r"T\.int32\((\d+)\)")
_NESTED = r"[^()]|\((?:[^()]|\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))*\)"
"""A letter, or parentheses inside of each other, four at most."""
_SOURCE = re.compile(r', source_code="(?:[^"\\]|\\.)*"')
_OTHER_TEXT = re.compile(r'metadata\["ir.StringImm"\]\[(\d+)\]')
_LONG = re.compile(r"\b\d+\.\d{15,}(?:e-?\d+)?")
"""A number with all 17 digits that tell it from others, whether it needs them or not."""
_MADE = re.compile(r"lv\d*|.*@.*")
_LEFT_OUT = re.compile(r"\s*(T\.(reads|writes)\(.*|# .*|@T\.prim_func.*|\w+ = (TypeVar\(.*|T\.int64\(\)))?")
_AREA = re.compile(r'\n *(\w+) = T\.decl_buffer\(\(1099511627776,\), "uint8", data=(\w+).*')
"""Bytes of any number at an address."""


def program_text(program: tvm.IRModule | tirx.PrimFunc, kernels: Collection[str] | None = None) -> str:
    """Returns a kernel as text, or a network followed by its kernels: by those with these names if any are given."""
    if isinstance(program, tirx.PrimFunc):
        return kernel_text(program)
    shown = [(name, func) for name, func in kernels_of(program).items() if kernels is None or name in kernels]
    return "\n\n".join([network_text(program), *(kernel_text(func, name) for name, func in shown)])


def kernels_of(module: tvm.IRModule) -> dict[str, tirx.PrimFunc]:
    """Returns the kernels of a network by name."""
    found = {gv.name_hint: func for gv, func in module.functions.items() if isinstance(func, tirx.PrimFunc)}
    return dict(sorted(found.items()))


def kernel_text(func: tirx.PrimFunc, name: str = "kernel") -> str:
    """Returns a kernel as TVMScript in which integers have one type, the most frequent one, and floats have 32 bits,
    unless they say their type.

    What follows from the statements is left out: the regions that blocks read and write, and common attributes.
    """
    attributes = {key: value for key, value in (func.attrs or {}).items() if key not in _IMPLIED_ATTRIBUTES}
    shown = tirx.PrimFunc(func.params, func.body, func.ret_type, tvm.ir.make_node("ir.DictAttrs", **attributes))
    func = shown.with_attr({"global_symbol": name, "s_tir": True})
    texts = (_shortened(func.script(int_dtype=dtype, float_dtype="float32")) for dtype in ("int64", "int32"))
    imported = [f"LLVM{number}:\n{text}" for number, text in enumerate(_imported(func), 1)]
    return "\n\n".join([min(texts, key=len), *imported])


def _shortened(text: str) -> str:
    """Returns TVMScript of a kernel without what is implied."""
    text = _OTHER_TEXT.sub(lambda found: f"LLVM{int(found[1]) + 1}", _SOURCE.sub("", text))
    text = _POINTER.sub(r'T.handle("\1")', _USUAL.sub("", _SPECIAL.sub(r'T.float32("\1")', text)))
    text = _LONG.sub(lambda found: repr(float(found[0])), text)
    for area, address in _AREA.findall(text):
        text = text.replace(f"{area}[", f"{address}[")
    text = _AREA.sub("", text)
    lines = [line for line in text.splitlines() if not _LEFT_OUT.fullmatch(line)]
    return "\n".join(_with_lanes(_BUFFER.sub(_tensor, line)) for line in lines)


def _imported(func: tirx.PrimFunc) -> list[str]:
    """Returns the LLVM IR that a kernel imports."""
    found: list[str] = []

    def note(stmt: tirx.AttrStmt) -> None:
        if stmt.attr_key == "pragma_import_llvm":
            found.append(str(stmt.value.value).strip().replace("\\0A", "\n    "))

    tvm_ffi.structural_walk(func.body, (tirx.AttrStmt, note))
    return found


def _with_lanes(line: str) -> str:
    """Returns a line in which numbers of lanes, which have 32 bits always, are shown as numbers."""
    line = re.sub(r"(?<=\], )\[(T\.int32\(\d+\)(, )?)+\](?=\))", lambda found: _NARROW.sub(r"\1", found[0]), line)
    return re.sub(rf"(T\.(?:Ramp|Broadcast)\((?:{_NESTED})*, ){_NARROW.pattern}\)", r"\1\2)", line)


def _tensor(found: re.Match[str]) -> str:
    """Returns a type of buffers; TVM writes shapes that name dimensions first as strings."""
    shape = re.sub(r'(?<!\\)"', "", found[1]).replace('\\"', '"')
    return f"{found[2] or 'float32'}[{shape}]"


def network_text(module: tvm.IRModule) -> str:
    """Returns the functions of Relax in a module: inputs, constants, `name: type = operation`, and `-> results`."""
    functions = {gv.name_hint: func for gv, func in module.functions.items() if isinstance(func, relax.Function)}
    main = [_Function(functions.pop("main")).text()] if "main" in functions else []
    return "\n\n".join(
        [*main, *(f"function {name}\n{_Function(functions[name]).text()}" for name in sorted(functions))]
    )


class _Function:
    """Names the variables of one function in the order in which they appear."""

    def __init__(self, func: relax.Function) -> None:
        self._func = func
        self._names: dict[relax.Var, str] = {}
        self._taken: set[str] = set()
        self._constants: dict[GenericConst, str] = {}
        self._number = -1  # of the last constant
        bindings = (binding for block in func.body.blocks for binding in block.bindings)
        self._of_variables = {str(var.name) for var in (*func.params, *(binding.var for binding in bindings))}
        self._tuples: dict[relax.Var, relax.Tuple] = {}

    def text(self) -> str:
        inputs = [f"{self._named(param)}: {_type(param.ty)}" for param in self._func.params]
        bindings = list(self._bindings())
        constants = [f"{name}: const {constant_text(const)}" for const, name in self._constants.items()]
        return "\n".join([*inputs, *constants, *bindings])

    def _bindings(self) -> Iterator[str]:
        body = self._func.body
        for block in body.blocks:
            for binding in block.bindings:
                if isinstance(binding.value, relax.Tuple):
                    self._tuples[binding.var] = binding.value
                elif isinstance(binding, relax.MatchCast):
                    yield f"{self._named(binding.var)}: {_type(binding.ty)} = match({self._shown(binding.value)})"
                else:
                    value = self._shown(binding.value)
                    yield f"{self._named(binding.var)}: {_type(binding.var.ty)} = {value}"
        result = self._tuples.get(body.body, body.body)
        fields = result.fields if isinstance(result, relax.Tuple) else [result]
        yield f"-> {', '.join(map(self._shown, fields))}"

    def _named(self, var: relax.Var) -> str:
        if var not in self._names:
            name = "lv" if _MADE.fullmatch(var.name) else re.sub(r"\W", "_", var.name)
            wanted = re.sub(r"\d+$", "", name) if name in self._taken else name
            number = 1
            while name in self._taken:
                name, number = f"{wanted}{number}", number + 1
            self._taken.add(name)
            self._names[var] = name
        return self._names[var]

    def _shown(self, expr: relax.Expr) -> str:
        match expr:
            case GenericConst():
                return self._constant(expr)
            case relax.Var() if expr in self._tuples:
                return self._shown(self._tuples[expr])
            case relax.Var():
                return self._named(expr)
            case relax.Tuple():
                return f"({', '.join(map(self._shown, expr.fields))}{',' if len(expr.fields) == 1 else ''})"
            case relax.TupleGetItem():
                return f"{self._shown(expr.tuple_value)}[{expr.index}]"
            case relax.ShapeExpr():
                return f"[{', '.join(map(_dimension, expr.values))}]"
            case relax.Call():
                return self._call(expr)
        return str(expr.script(int_dtype="int64", float_dtype="float32") if hasattr(expr, "script") else expr)

    def _call(self, call: relax.Call) -> str:
        operator = str(getattr(call.op, "name", getattr(call.op, "name_hint", call.op)))
        arguments = list(call.args)
        if operator == "relax.call_tir":
            callee, operands, *sizes = arguments
            shown = [*map(self._shown, operands.fields), *map(self._shown, sizes)]
            return f"{callee.name_hint}({', '.join(shown)})"
        name = operator.replace("relax.", "R.", 1)
        own = str(getattr(call.ty, "dtype", ""))
        attributes = [f"{key}={value}" for key, value in _attributes(call.attrs) if value != repr(own)]
        return f"{name}({', '.join([*map(self._shown, arguments), *attributes])})"

    def _constant(self, const: GenericConst) -> str:
        if not const.ty.shape:
            dtype = str(const.ty.dtype)
            return f"R.const({const.value.numpy()[()]!s}" + (")" if dtype == "float32" else f', "{dtype}")')
        if const not in self._constants:
            self._number = next(n for n in itertools.count(self._number + 1) if f"c{n or ''}" not in self._of_variables)
            self._constants[const] = f"c{self._number or ''}"
        return self._constants[const]


def constant_text(const: GenericConst) -> str:
    """Returns the type and the elements of a constant: `float32[3] = 1 2 3`."""
    array = const.value.numpy()
    elements = [_number(element) for element in array.reshape(-1)[:SHOWN_ELEMENTS]]
    if array.size and (array == array.reshape(-1)[0]).all():
        elements = elements[:1]
    elif array.size > SHOWN_ELEMENTS:
        elements = [*elements[:3], "…", *map(_number, array.reshape(-1)[-3:])]
    return f"{_type(const.ty)} = {' '.join(elements)}"


def _number(value: Any) -> str:
    return f"{float(value):.6g}" if not np.issubdtype(type(value), np.integer) else str(value)


def _type(type_: tvm.ir.Type) -> str:
    match type_:
        case relax.TensorType() if type_.shape is not None:
            return f"{type_.dtype}[{', '.join(map(_dimension, type_.shape))}]"
        case relax.TupleType():
            return f"({', '.join(map(_type, type_.fields))})"
    return str(type_)


def _dimension(size: tirx.Expr) -> str:
    return str(size.value) if isinstance(size, tirx.IntImm) else str(size.script(int_dtype="int64"))


def _attributes(attrs: Any) -> Iterator[tuple[str, str]]:
    """Yields attributes of an operator, without those that have their usual values."""
    if attrs is None:
        return
    values = {field.name: getattr(attrs, field.name) for field in type(attrs).__tvm_ffi_type_info__.fields}
    for key, value in values.items():
        shown = _value(value)
        numbers = set(re.findall(r"-?[\d.]+", shown)) if shown.startswith("[") else set()
        is_usual = (
            shown in ("None", "void", "False", "")
            or (key in ("strides", "dilation") and numbers <= {"1"})
            or (key in ("padding", "output_padding") and numbers <= {"0"})
            or (key, shown) in (("groups", "1"), ("axis", "-1"))
            or shown.strip("'") in _LAYOUTS
        )
        if not is_usual:
            yield key, shown


def _value(value: Any) -> str:
    if isinstance(value, str):
        return repr(str(value))
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_value(each)}" for key, each in value.items()) + "}"
    if hasattr(value, "__iter__"):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, tirx.IntImm | tirx.FloatImm):
        return str(value.value)
    return str(value)
