"""Reads programs of tests as :mod:`program_text` prints them, and computations that are written as formulas.

A program is one of five:

    def kernel(A: float32[9], B: float32[9]):     a kernel, in TVMScript whose integers are of 64 bits
        for i in range(9):
            B[i] = A[i] + 1.0

    x: float32[1, 9]                              a network
    w: const float32[1, 9] = 1 2                  a constant; its elements are repeated to its end
    y = R.add(x, w)
    -> y

    A: float32[9, 5]                              a kernel without a schedule, one formula for each tensor
    B[i: 9] = sum(A[i, k] for k in 5)

    graph net(x) -> (y) {                         what NNEF's front end makes of a document
        x = external<scalar>(shape = [1, 9]);
        y = relu(x);
    }

    net (float[1, 9] x) => (float[1, 9] y) {      what ONNX's front end makes of a graph in ONNX's syntax; elements of
        y = Relu(x)                               constants are repeated to their end
    }

Names in shapes that are nothing else are dynamic dimensions.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
import onnx.parser
import tvm
import tvm.script
from relax_programs import network_from
from tvm import relax, te, tirx
from tvm.script import tirx as T

from nnefc.driver.formats import load_network
from nnefc.driver.options import ReadOptions
from nnefc.ir.attributes import DYNAMIC_DIMENSIONS
from nnefc.passes.graph.rewriter import constant

__all__ = ["dimensions_of", "parse_program"]

_TENSOR = re.compile(r"(\w+): (\w+)\[([^\]]*)\]")
_CONSTANT = re.compile(r"(\w+): const (\w+)\[([^\]]*)\] = (.+)")
_BINDING = re.compile(r"(\w+)(?:: [^=]*)? = (.+)")


def parse_program(text: str, dims: Mapping[str, tirx.Var]) -> tvm.IRModule | tirx.PrimFunc:
    """Returns a network or a kernel.

    Args:
        dims: the dynamic dimensions that the text names.

    Raises:
        ValueError: says what is wrong with the text.
    """
    if re.search(r"^def ", text, re.MULTILINE):
        return _kernel(text, dims)
    if text.startswith("graph "):
        return _nnef(text)
    if " => " in text:
        return _onnx(text)
    if re.search(r"^ *-> ", text, re.MULTILINE):
        return _network(text, dims)
    return _computation(text, dims)


def dimensions_of(text: str) -> dict[str, tuple[int, int]]:
    """Returns dynamic dimensions with their ranges, written as `n 1..64, m 0..9`."""
    found = (re.fullmatch(r"(\w+) (\d+)\.\.(\d+)", each.strip()) for each in text.split(",") if each.strip())
    return {each[1]: (int(each[2]), int(each[3])) for each in found if each is not None}


# Kernels.


def _kernel(text: str, dims: Mapping[str, tirx.Var]) -> tirx.PrimFunc:
    source = _TENSOR.sub(lambda found: f'{found[1]}: T.Buffer(({found[3]},), "{found[2]}")', text)
    source = source.replace("T.nnefc.", "nnefc.")
    source = ast.unparse(_WithTypes().visit(ast.parse(source)))
    source = source.replace("def ", "@quick.prim_func(s_tir=True)\ndef ", 1)
    scope = {"T": tvm.script.tirx, "nnefc": _Own(), "quick": _Quick, **dims}  # which TVM has not seen defined
    func = tvm.script.from_source(source, extra_vars=scope, check_well_formed=not dims)
    func = func.without_attr("global_symbol")
    return func.with_attr(DYNAMIC_DIMENSIONS, list(dims.values())) if dims else func


class _Quick:
    """Stands for `T`, whose decorator of functions looks for the sources of all functions on the stack."""

    class prim_func:
        """The parser reads the options in the text."""

        dispatch_token = T.prim_func.dispatch_token

        def __init__(self, **_options: bool) -> None: ...


class _Own:
    """The compiler's own operators, `nnefc.sdot(sum, a, b)`: a call has the type of its first argument."""

    def __getattr__(self, name: str) -> Callable[..., tirx.Expr]:
        return lambda *args: tirx.call_intrin(str(args[0].expr_ty().dtype), f"nnefc.{name}", *args)


_OF_INTEGERS = {
    *("Buffer", "view", "alloc_buffer", "sblock_alloc_buffer", "decl_buffer"),
    *("range", "grid", "serial", "parallel", "vectorized", "unroll", "thread_binding"),
    *("max", "min", "if_then_else", "Select", "Div", "truncdiv", "truncmod", "floordiv", "floormod", "likely"),
    *("spatial", "reduce", "where", "remap"),
}
_INDEXED = {"Ramp", "Broadcast"}
"""Functions whose last argument is a number of lanes."""


class _WithTypes(ast.NodeTransformer):
    """Gives integers 64 bits, in shapes, extents, indices and arithmetic; arguments of other calls stay."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if type(node.value) is not int:
            return node
        return ast.parse(f"T.int64({node.value})", mode="eval").body

    def visit_Call(self, node: ast.Call) -> ast.AST:
        node.func = self.visit(node.func) if not isinstance(node.func, ast.Name | ast.Attribute) else node.func
        name = getattr(node.func, "attr", getattr(node.func, "id", ""))
        if name in _OF_INTEGERS:
            node.args = [self.visit(arg) for arg in node.args]
        elif name == "Shuffle":
            node.args = [self.visit(node.args[0]), node.args[1]]
        elif name in _INDEXED:
            node.args = [*(self.visit(arg) for arg in node.args[:-1]), node.args[-1]]
        else:
            node.args = [arg if isinstance(arg, ast.Constant) else self.visit(arg) for arg in node.args]
        return node  # arguments by name are types, scopes and annotations


# Networks.


def _network(text: str, dims: Mapping[str, tirx.Var]) -> tvm.IRModule:
    scope: dict[str, Any] = dict(dims)
    params: list[relax.Var] = []
    body: list[str] = []
    results = ""
    for line in filter(None, map(str.strip, text.splitlines())):
        if found := _CONSTANT.fullmatch(line):
            shape = tuple(int(size) for size in _split(found[3]))
            scope[found[1]] = constant(_elements(found[4], shape, found[2]))
        elif found := _TENSOR.fullmatch(line):
            sizes = [_size(size, dims) for size in _split(found[3])]
            params.append(relax.Var(found[1], relax.TensorType(sizes, found[2])))
        elif line.startswith("-> "):
            results = line.removeprefix("-> ")
        elif found := _BINDING.fullmatch(line):
            body.append(f"{found[1]} = {found[2]}")
        else:
            raise ValueError(f"not a line of a network: {line}")
    return network_from(params, "\n".join(body), results, scope)


def _split(shape: str) -> list[str]:
    return [size for size in shape.split(",") if size.strip()]


def _elements(text: str, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Returns an array of the elements that a text lists, repeated to the end; `random` is the same noise always."""
    count = int(np.prod(shape, dtype=np.int64))
    if text == "random":
        return np.random.default_rng(count).standard_normal(shape).astype(dtype)
    listed = np.array([float(element) for element in text.split()])
    return np.resize(listed, count).reshape(shape).astype(dtype)


def _nnef(text: str) -> tvm.IRModule:
    return _read("graph.nnef", f"version 1.0;\n{text}\n".encode())


def _onnx(text: str) -> tvm.IRModule:
    head = '<ir_version: 8, opset_import: ["" : 18, "com.microsoft" : 1]>'
    model = onnx.parser.parse_model(f"{head}\n{text}")
    for tensor in model.graph.initializer:
        listed = tensor.int32_data or tensor.int64_data or tensor.float_data
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        array = np.resize(np.array(list(listed)).astype(dtype), tuple(tensor.dims))
        tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    return _read("graph.onnx", model.SerializeToString())


def _read(name: str, content: bytes) -> tvm.IRModule:
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(content)
        return load_network(path, ReadOptions()).module


# Computations.


def _computation(text: str, dims: Mapping[str, tirx.Var]) -> tirx.PrimFunc:
    scope: dict[str, Any] = {**_FUNCTIONS, **dims}
    tensors: dict[str, te.Tensor] = {}
    read: set[te.Tensor] = set()
    for line in filter(None, map(str.strip, text.splitlines())):
        if found := _TENSOR.fullmatch(line):
            shape = [_size(size, dims) for size in _split(found[3])]
            tensors[found[1]] = te.placeholder(shape, found[2], found[1])
        else:
            name, tensor = _formula(line, {**scope, **tensors}, dims)
            tensors[name] = tensor
            read.update(tensor.op.input_tensors)
    inputs = [tensor for tensor in tensors.values() if isinstance(tensor.op, te.PlaceholderOp)]
    results = [t for t in tensors.values() if not isinstance(t.op, te.PlaceholderOp) and t not in read]
    func = te.create_prim_func([*inputs, *results]).without_attr("global_symbol")
    return func.with_attr(DYNAMIC_DIMENSIONS, list(dims.values())) if dims else func


def _size(text: str, dims: Mapping[str, tirx.Var]) -> tirx.Expr:
    value = eval(text, {}, dict(dims))
    return tirx.IntImm("int64", value) if isinstance(value, int) else value


def _formula(line: str, scope: Mapping[str, Any], dims: Mapping[str, tirx.Var]) -> tuple[str, te.Tensor]:
    """Returns the tensor of `C[i: 4, j: 5] = sum(A[i, k] * B[k, j] for k in 3)`."""
    (statement,) = ast.parse(line).body
    assert isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Subscript), line
    target = statement.targets[0]
    axes = dict(_axes(target.slice, dims))
    reduced: dict[str, te.IterVar] = {}

    class Reductions(ast.NodeTransformer):
        """Makes `sum(value for k in 3)` the call `sum(value, axis=[k])`."""

        def visit_Call(self, node: ast.Call) -> ast.AST:
            self.generic_visit(node)
            if node.args and isinstance(node.args[0], ast.GeneratorExp):
                zero, loops = tirx.IntImm("int64", 0), node.args[0].generators
                own = {ast.unparse(loop.target): _size(ast.unparse(loop.iter), dims) for loop in loops}
                reduced.update({name: te.reduce_axis((zero, size), name) for name, size in own.items()})
                names = ast.List([ast.Name(name, ast.Load()) for name in own], ast.Load())
                reducer = ast.Name(f"{ast.unparse(node.func)}_over", ast.Load())
                node = ast.Call(reducer, [node.args[0].elt, names], [])
            return node

    value = ast.Expression(ast.fix_missing_locations(Reductions().visit(statement.value)))
    code = compile(ast.fix_missing_locations(value), line, "eval")

    def element(*index: tirx.Var) -> tirx.Expr:
        return eval(code, {**scope, **reduced, **dict(zip(axes, index, strict=True))})

    name = ast.unparse(target.value)
    return name, te.compute(list(axes.values()), element, name=name, varargs_names=list(axes))


def _axes(node: ast.expr, dims: Mapping[str, tirx.Var]) -> Iterator[tuple[str, tirx.Expr]]:
    for each in node.elts if isinstance(node, ast.Tuple) else [node]:
        assert isinstance(each, ast.Slice) and each.lower is not None and each.upper is not None
        yield ast.unparse(each.lower), _size(ast.unparse(each.upper), dims)


def _constant_or_cast(dtype: str) -> Callable[[Any], tirx.Expr]:
    return lambda value: tirx.const(value, dtype) if isinstance(value, int | float) else tirx.Cast(dtype, value)


_TYPES = ("bool", "int8", "uint8", "int16", "uint16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
_OF_ELEMENTS = ("max", "min", "exp", "log", "tanh", "sigmoid", "erf", "sqrt", "rsqrt", "abs", "nearbyint", "all", "any")
_FUNCTIONS: dict[str, Any] = {
    **{name: getattr(tirx, name) for name in _OF_ELEMENTS},
    **{f"{name}_over": getattr(te, name) for name in ("sum", "max", "min")},
    **{dtype: _constant_or_cast(dtype) for dtype in _TYPES},
    "where": tirx.if_then_else,
    "select": tirx.Select,
}
"""What formulas may call, besides reductions."""
