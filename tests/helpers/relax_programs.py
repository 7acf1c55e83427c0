"""Small networks for tests: written as text, or built operation by operation together with their values in NumPy."""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy_reference as reference
import tvm
import tvm.script
from tvm import relax, te, tirx
from tvm.ir import GenericConst

from nnefc.driver.compile import compile_network
from nnefc.driver.options import CodeOptions
from nnefc.ir.dataflow import bindings_of
from nnefc.ir.network import DynamicDimension, Network, State
from nnefc.operators.base import Emitter
from nnefc.operators.nn.normalization import LocalResponse
from nnefc.symbolic.dims import Range
from nnefc.targets.machine.cpu.parsing import parse_target
from nnefc.targets.machine.cpu.target import Target

__all__ = [
    "BINARY",
    "UNARY",
    "Case",
    "Graph",
    "Value",
    "check",
    "many_parts",
    "network_from",
    "network_of",
    "opened",
    "program",
    "summary",
    "target",
    "with_fast_memory",
]

target: Callable[[str], Target] = functools.cache(parse_target)


def program(text: str, **constants: np.ndarray) -> tvm.IRModule:
    """A module from text: the body of the dataflow block of `main`, after a line `inputs -> outputs`.

    Inputs are written `name[4, 5]`, or `name: int32[4, "n"]`; a constant of Relax is written by its name.
    """
    head, *body = (line.strip() for line in text.strip().splitlines())
    inputs, outputs = head.split(" -> ")
    params: list[relax.Var] = []
    sizes: dict[str, tirx.Var] = {}
    for element in inputs.split("; "):
        name, _, tail = element.partition("[")
        name, _, dtype = name.partition(": ")
        shape = [
            int(size) if size.isdigit() else sizes.setdefault(size, tirx.Var(size, "int64"))
            for size in (part.strip(' "') for part in tail.rstrip("]").split(","))
            if size
        ]
        params.append(relax.Var(name, relax.TensorType(shape, dtype or "float32")))
    scope = {name: relax.const(value, str(value.dtype)) for name, value in constants.items()}
    return network_from(params, "\n".join(body), outputs, scope)


def network_from(params: Sequence[relax.Var], body: str, outputs: str, scope: Mapping[str, Any]) -> tvm.IRModule:
    """A module of assignments of calls of Relax operators, `y = R.add(x, w)`: sooner than TVM reads its script."""
    known: dict[str, Any] = {"R": tvm.script.relax, "T": tvm.script.tirx, **scope}
    known |= {str(param.name): param for param in params}
    builder = relax.BlockBuilder()
    with builder.function("main", list(params)):
        with builder.dataflow():
            for statement in ast.parse(body).body:
                assert isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name), body
                name, value = statement.targets[0].id, ast.Expression(statement.value)
                known[name] = builder.emit(eval(compile(value, name, "eval"), known), name)
            output = builder.emit_output(relax.Tuple([*eval(f"({outputs},)", known)]))
        builder.emit_func_output(output)
    return builder.finalize()


def many_parts(operator: str, tensors: int, parts: int) -> tvm.IRModule:
    """All parts of some tensors of `parts` rows, joined by an operator of two operands."""
    text = [f"s{k} = R.split(x{k}, {parts}, axis=0)" for k in range(tensors)]
    taken = [(f"p{k}_{i}", f"s{k}[{i}]") for k in range(tensors) for i in range(parts)]
    text += [f"{name} = {element}" for name, element in taken]
    (joined, _), *others = taken
    for number, (name, _) in enumerate(others):
        text.append(f"a{number} = R.{operator}({joined}, {name})")
        joined = f"a{number}"
    inputs = "; ".join(f"x{k}[{parts}, 5]" for k in range(tensors))
    return program(f"{inputs} -> {joined}\n" + "\n".join(text))


def network_of(module: tvm.IRModule, states: Sequence[State] = (), name: str = "test") -> Network:
    """A network around a module; outputs are called y0, y1, …"""
    main = module["main"]
    inputs = [param.name for param in main.params][: len(main.params) - len(states)]
    count = len(main.ret_ty.fields) - len(states)
    return Network(name, module, tuple(inputs), tuple(f"y{i}" for i in range(count)), tuple(states))


def opened(network: Network) -> Network:
    """A network whose dynamic dimensions are those that its module has: 1 to 4096."""
    found: dict[str, tirx.Var] = {}
    for param in network.module["main"].params:
        assert isinstance(param.ty, relax.TensorType)
        found |= {str(size.name): size for size in param.ty.shape if isinstance(size, tirx.Var)}
    made = (DynamicDimension(name, var, Range(1, 4096, 48)) for name, var in found.items())
    return replace(network, dynamic_dimensions=tuple(made))


def summary(module: tvm.IRModule) -> str:
    """The bindings of `main`, one a line, `name[shape] = operation(operands)`; kernels go by their names, and variables
    that passes have made are numbered: lv, lv1, lv2."""
    lines = []
    made: dict[relax.Var, str] = {}

    def named(var: relax.Var) -> str:
        if "@" not in var.name:
            return str(var.name)
        return made.setdefault(var, f"lv{len(made) or ''}")

    def shown(expr: relax.Expr) -> str:
        match expr:
            case GenericConst():
                shape = [int(size) for size in expr.ty.shape]
                return f"const{shape}" if shape else str(expr.value.numpy().item())
            case relax.Tuple():
                return f"({', '.join(map(shown, expr.fields))})"
            case relax.TupleGetItem():
                return f"{shown(expr.tuple_value)}[{expr.index}]"
            case relax.Var():
                return named(expr)
            case relax.Call():
                if expr.op == tvm.ir.Op.get("relax.call_tir"):
                    return f"{expr.args[0].name_hint}{shown(expr.args[1])}"
                return f"{expr.op.name.removeprefix('relax.')}({', '.join(map(shown, expr.args))})"
        return str(expr)

    for binding in bindings_of(module["main"]):
        if isinstance(binding.var.ty, relax.TensorType):
            shape = [int(size) for size in binding.var.ty.shape]
            lines.append(f"{named(binding.var)}{shape} = {shown(binding.value)}")
        elif not isinstance(binding.value, relax.Tuple):
            lines.append(f"{named(binding.var)} = {shown(binding.value)}")
        else:
            lines.append(f"-> {', '.join(map(shown, binding.value.fields))}")
    return "\n".join(lines)


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor of a network under construction, and what it must be: floats in float64, other types exactly."""

    expr: relax.Expr
    array: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def dtype(self) -> str:
        return str(self.expr.ty.dtype)


Operation = tuple[Callable[..., relax.Expr], Callable[..., np.ndarray]]

UNARY: dict[str, Operation] = {
    "relu": (relax.op.nn.relu, lambda x: np.maximum(x, 0)),
    "leakyrelu": (lambda x: relax.op.nn.leakyrelu(x, 0.1), lambda x: np.where(x < 0, x * 0.1, x)),
    "sigmoid": (relax.op.sigmoid, lambda x: 1 / (1 + np.exp(-x))),
    "silu": (relax.op.nn.silu, lambda x: x / (1 + np.exp(-x))),
    "gelu": (relax.op.nn.gelu, lambda x: x * (1 + reference.erf(x / math.sqrt(2))) / 2),
    "tanh": (relax.op.tanh, np.tanh),
    "erf": (relax.op.erf, reference.erf),
    "exp": (relax.op.exp, np.exp),
    "log": (relax.op.log, np.log),
    "sqrt": (relax.op.sqrt, np.sqrt),
    "rsqrt": (relax.op.rsqrt, lambda x: 1 / np.sqrt(x)),
    "abs": (relax.op.abs, np.abs),
    "negative": (relax.op.negative, np.negative),
    "square": (relax.op.square, np.square),
    "sin": (relax.op.sin, np.sin),
    "cos": (relax.op.cos, np.cos),
    "atan": (relax.op.atan, np.arctan),
    "cosh": (relax.op.cosh, np.cosh),
    "asinh": (relax.op.asinh, np.arcsinh),
    "clip": (lambda x: relax.op.clip(x, -1, 2), lambda x: np.clip(x, -1, 2)),
}
BINARY: dict[str, Operation] = {
    "add": (relax.op.add, np.add),
    "subtract": (relax.op.subtract, np.subtract),
    "multiply": (relax.op.multiply, np.multiply),
    "divide": (relax.op.divide, np.divide),
    "maximum": (relax.op.maximum, np.maximum),
    "minimum": (relax.op.minimum, np.minimum),
    "power": (relax.op.power, np.power),
}
_REDUCTIONS = {"mean": np.mean, "sum": np.sum, "max": np.max, "min": np.min}
_CONVOLUTIONS = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}
_MAX_POOLS = {1: relax.op.nn.max_pool1d, 2: relax.op.nn.max_pool2d, 3: relax.op.nn.max_pool3d}
_AVERAGE_POOLS = {1: relax.op.nn.avg_pool1d, 2: relax.op.nn.avg_pool2d, 3: relax.op.nn.avg_pool3d}


class Graph:
    """Emits operations, and computes them in NumPy at once."""

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self._builder = builder

    def constant(self, array: np.ndarray) -> Value:
        """A trained value."""
        return Value(relax.const(array, str(array.dtype)), _exact(array))

    def emit(self, expr: relax.Expr, array: np.ndarray) -> Value:
        """An operation of any kind."""
        emitted = self._builder.emit(expr)
        shape = tuple(int(size) for size in emitted.ty.shape)
        assert shape == array.shape, f"Relax says {shape}, NumPy {array.shape}: {expr}"
        return Value(emitted, array)

    def compute(self, element: Callable[[tirx.Expr], tirx.Expr], x: Value, array: np.ndarray) -> Value:
        """An element-wise computation in TE."""
        return self.emit_te(lambda x: te.compute(x.shape, lambda *index: element(x(*index))), x, array)

    def emit_te(self, function: Callable[[te.Tensor], te.Tensor], x: Value, array: np.ndarray) -> Value:
        """Any computation in TE."""
        return self.emit(self._builder.call_te(function, x.expr), array)

    def unary(self, name: str, x: Value) -> Value:
        """An element-wise operation of :data:`UNARY`."""
        emit, compute = UNARY[name]
        return self.emit(emit(x.expr), compute(x.array))

    def binary(self, name: str, x: Value, y: Value) -> Value:
        """An element-wise operation of :data:`BINARY`, with NumPy's broadcasting."""
        emit, compute = BINARY[name]
        return self.emit(emit(x.expr, y.expr), compute(x.array, y.array))

    def convolve(
        self,
        x: Value,
        weights: np.ndarray | Value,
        strides: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        groups: int = 1,
    ) -> Value:
        """A convolution of one to three spatial dimensions; several may have one constant as their filter."""
        filters = weights if isinstance(weights, Value) else self.constant(weights)
        rank = filters.array.ndim - 2
        strides, dilation = _each(strides, rank), _each(dilation, rank)
        padding = _each(padding, 2 * rank)
        expr = _CONVOLUTIONS[rank](x.expr, filters.expr, strides, padding, dilation, groups)
        return self.emit(expr, reference.convolve(x.array, filters.array, strides, padding, dilation, groups))

    def max_pool(
        self, x: Value, size: int | Sequence[int], strides: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1, ceil_mode: bool = False,
    ) -> Value:  # fmt: skip
        """A max pooling of one to three spatial dimensions."""
        rank = len(x.shape) - 2
        window = _each(size, rank), _each(strides, rank), _each(padding, 2 * rank), _each(dilation, rank), ceil_mode
        return self.emit(_MAX_POOLS[rank](x.expr, *window), reference.max_pool(x.array, *window))

    def average_pool(
        self, x: Value, size: int | Sequence[int], strides: int | Sequence[int] = 1,
        padding: int | Sequence[int] = 0, dilation: int | Sequence[int] = 1, ceil_mode: bool = False,
        count_include_pad: bool = False,
    ) -> Value:  # fmt: skip
        """An average pooling of one to three spatial dimensions."""
        rank = len(x.shape) - 2
        window = _each(size, rank), _each(strides, rank), _each(padding, 2 * rank), _each(dilation, rank), ceil_mode
        expr = _AVERAGE_POOLS[rank](x.expr, *window, count_include_pad)
        return self.emit(expr, reference.average_pool(x.array, *window, count_include_pad))

    def local_response(self, x: Value, before: int, after: int, alpha: float, bias: float, beta: float) -> Value:
        """`x / (bias + alpha * mean of squares over a window of channels) ** beta`."""
        widths = [(0, 0), (before, after), *[(0, 0)] * (len(x.shape) - 2)]
        squares, count = np.pad(np.square(x.array), widths), before + after + 1
        means = sum(squares[:, start : start + x.shape[1]] for start in range(count)) / count
        made = LocalResponse(before, after, alpha, beta, bias).lower(Emitter(self._builder), x.expr)
        return self.emit(made, x.array / (means * alpha + bias) ** beta)

    def concatenate(self, parts: Sequence[Value], axis: int) -> Value:
        """Tensors one after the other along `axis`."""
        expr = relax.op.concat([part.expr for part in parts], axis)
        return self.emit(expr, np.concatenate([part.array for part in parts], axis))

    def reduce(self, name: str, x: Value, axes: Sequence[int], keepdims: bool = True) -> Value:
        """`mean`, `sum`, `max` or `min` over `axes`."""
        expr = getattr(relax.op, name)(x.expr, list(axes), keepdims)
        return self.emit(expr, _REDUCTIONS[name](x.array, axis=tuple(axes), keepdims=keepdims))

    def matmul(self, x: Value, y: Value) -> Value:
        """A matrix product, with NumPy's rules for more than two dimensions."""
        return self.emit(relax.op.matmul(x.expr, y.expr), np.matmul(x.array, y.array))

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        """The same values in another shape."""
        return self.emit(relax.op.reshape(x.expr, list(shape)), x.array.reshape(shape))

    def transpose(self, x: Value, axes: Sequence[int]) -> Value:
        """Dimensions in another order."""
        return self.emit(relax.op.permute_dims(x.expr, list(axes)), np.transpose(x.array, axes))

    def slice(self, x: Value, axis: int, begin: int, end: int, step: int = 1) -> Value:
        """A part of a tensor along one axis."""
        index = [slice(None)] * len(x.shape)
        index[axis] = slice(begin, end, step)
        expr = relax.op.strided_slice(x.expr, [axis], [begin], [end], [step])
        return self.emit(expr, x.array[tuple(index)])

    def split(self, x: Value, indices: Sequence[int], axis: int) -> list[Value]:
        """Parts of a tensor along one axis."""
        parts = self._builder.emit(relax.op.split(x.expr, list(indices), axis))
        arrays = np.split(x.array, indices, axis)
        return [self.emit(relax.TupleGetItem(parts, i), array) for i, array in enumerate(arrays)]

    def softmax(self, x: Value, axis: int) -> Value:
        """Softmax along one axis."""
        return self.emit(relax.op.nn.softmax(x.expr, axis), reference.softmax(x.array, axis))

    def cast(self, x: Value, dtype: str) -> Value:
        """Other elements of the same value."""
        return self.emit(relax.op.astype(x.expr, dtype), _exact(x.array.astype(dtype)))


def _exact(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def _each(value: int | Sequence[int], count: int) -> list[int]:
    return [value] * count if isinstance(value, int) else list(value)


@dataclass(frozen=True)
class Case:
    """A part of a network: inputs with their values, and what is made of them.

    `build` gets a graph and the inputs, and returns the outputs. `tolerance` is relative to the largest value.
    """

    inputs: Sequence[np.ndarray]
    build: Callable[..., Value | Sequence[Value]]
    tolerance: float = 3e-6
    name: str = field(default="")


@dataclass(frozen=True)
class Built:
    """Cases as one network, the values of its inputs, and what its outputs must be, with names for messages."""

    network: Network
    inputs: Mapping[str, np.ndarray]
    expected: Mapping[str, tuple[np.ndarray, float, str]]


def build(cases: Sequence[Case]) -> Built:
    """Put many cases into one network."""
    builder = relax.BlockBuilder()
    names = [[f"x{i}_{j}" for j in range(len(case.inputs))] for i, case in enumerate(cases)]
    params = [
        [relax.Var(n, relax.TensorType(a.shape, str(a.dtype))) for n, a in zip(ns, case.inputs, strict=True)]
        for ns, case in zip(names, cases, strict=True)
    ]
    expected: dict[str, tuple[np.ndarray, float, str]] = {}
    results: list[relax.Expr] = []
    with builder.function("main", [param for group in params for param in group]):
        with builder.dataflow():
            graph = Graph(builder)
            for i, (case, group) in enumerate(zip(cases, params, strict=True)):
                values = [Value(p, _exact(a)) for p, a in zip(group, case.inputs, strict=True)]
                made = case.build(graph, *values)
                for j, value in enumerate([made] if isinstance(made, Value) else made):
                    array = value.array.astype(value.dtype)
                    expected[f"y{i}_{j}"] = (array, case.tolerance, case.name or f"case {i}")
                    results.append(value.expr)
            output = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(output)
    inputs = {n: a for ns, case in zip(names, cases, strict=True) for n, a in zip(ns, case.inputs, strict=True)}
    network = Network("test", builder.finalize(), tuple(inputs), tuple(expected))
    return Built(network, inputs, expected)


def differences(expected: Mapping[str, tuple[np.ndarray, float, str]], outputs: Mapping[str, np.ndarray]) -> list[str]:
    """What is wrong with outputs, one line each."""
    wrong = []
    for name, (array, tolerance, case) in expected.items():
        got = outputs[name]
        if got.shape != array.shape or got.dtype != array.dtype:
            wrong.append(f"{case}: {got.dtype}{got.shape} instead of {array.dtype}{array.shape}")
        elif array.dtype.kind != "f":
            if not np.array_equal(got, array):
                wrong.append(f"{case}: {np.count_nonzero(got != array)} of {array.size} elements differ")
        elif array.size:
            scale = max(1.0, float(np.abs(array[np.isfinite(array)]).max(initial=0)))
            near = np.isclose(got, array, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
            if not near.all():
                first = tuple(int(i) for i in np.argwhere(~near)[0])
                message = f"{case}: {np.count_nonzero(~near)} of {array.size} elements are wrong"
                wrong.append(f"{message}, at {first} {got[first]} instead of {array[first]}")
    return wrong


def with_fast_memory(machine: Target) -> Target:
    """One on which matrix products by Strassen's algorithm are worth it whatever their size."""
    return replace(machine, costs=replace(machine.costs, loads=64, stores=64, memory_bytes_per_cycle=1 << 20))


def check(cases: Sequence[Case], machine: str | Target = "llvm", threads: int = 2, strict: bool = False) -> None:
    """Compile all cases as one network for a target, by the fastest algorithms, run it, and compare all outputs."""
    built = build(cases)
    machine = target(machine) if isinstance(machine, str) else machine
    artifact = compile_network(built.network, machine, CodeOptions(strict=strict, memory_budget=math.inf))
    with artifact.load(threads=threads) as model:
        outputs = model.run(built.inputs)
    wrong = differences(built.expected, outputs)
    assert not wrong, "\n".join(wrong)
