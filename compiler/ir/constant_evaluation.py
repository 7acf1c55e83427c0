"""Evaluates bindings that depend on constants only at compile time, within a budget of work.

Bindings are compiled for this machine without schedules and run once. Large matrix products are computed by NumPy,
whose BLAS library is a hundred times as fast. A model may contain any amount of work, so bindings that exceed the
budget are left for run time.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx
from tvm.ir import GenericConst, GlobalVar

from nnefc.ir.empty_reductions import fold_empty_reductions
from nnefc.support.mapped_files import ALIGNMENT, aligned
from nnefc.symbolic.dims import variables

__all__ = ["Budget", "Kernels", "evaluate", "external_calls"]

Kernels = Mapping[GlobalVar, tirx.PrimFunc]

_MIN_FOR_NUMPY = 1 << 26
"""Multiplications of a matrix product from which NumPy computes it; smaller ones are fast either way."""

_NUMPY_IS_FASTER = 64
"""The divisor of the cost of such a product."""

_COMPILATION = 1 << 22
"""The cost of each compilation, which takes about 10 ms."""


def external_calls(kernel: tirx.PrimFunc) -> set[str]:
    """Return the functions of the runtime that a kernel calls, such as those that report errors; they do not exist
    at compile time.
    """
    names: set[str] = set()

    def visit(call: tvm.ir.Call) -> None:
        if call.op.same_as(_EXTERN):
            names.add(str(call.args[0].value))

    tvm_ffi.structural_walk(kernel, (tvm.ir.Call, visit))
    return names


_EXTERN = tvm.ir.Op.get("tirx.call_extern")


@dataclass
class Budget:
    """The remaining work for constant evaluation, in iterations of innermost loops: a second has a few hundred million.

    Attributes:
        left: iterations.
        largest: maximum elements of a result that may be kept.
    """

    left: int = 1 << 29
    largest: int = 1 << 24

    @classmethod
    def for_constants(cls, elements: int) -> Budget:
        """Return the budget for a program whose constants have this number of elements; it grows with that number."""
        return cls(cls.left + 100 * elements, cls.largest + 4 * elements)

    def starts(self) -> bool:
        """Deduct the cost of a compilation; return whether the budget allows it."""
        self.left -= _COMPILATION
        return self.left > 0

    def covers(self, binding: relax.Binding, kernels: Kernels) -> bool:
        """Deduct the cost of a binding; return whether the budget allows it. Bindings with dynamic sizes are
        refused.
        """
        if variables(binding.value):
            return False
        work = _work(binding, kernels)
        if work > self.left or sum(map(_elements, _types(binding.var.ty))) > self.largest:
            return False
        self.left -= work
        return True


def _work(binding: relax.Binding, kernels: Kernels) -> int:
    """Estimate the cost of a binding: at least the number of elements that it reads and writes."""
    call = binding.value
    if not isinstance(call, relax.Call):
        return 0  # a part of a tuple
    fields = [f for arg in call.args for f in (arg.fields if isinstance(arg, relax.Tuple) else [arg])]
    tensors = [field for field in fields if isinstance(field.ty, relax.TensorType)]
    moved = sum(map(_elements, (*_types(binding.var.ty), *(tensor.ty for tensor in tensors))))
    called = next((field for field in fields if isinstance(field, GlobalVar)), None)
    if called is not None:
        return max(moved, _steps(kernels[called].body))
    work = _products(call, tensors, sum(map(_elements, _types(binding.var.ty))))
    return max(moved, work // _NUMPY_IS_FASTER if _is_product_of_numpys(binding) else work)


def _products(call: relax.Call, tensors: Sequence[relax.Expr], results: int) -> int:
    """Return the multiplications of a matrix product or convolution, or the elements that a pooling reads; 0 for
    other operators.
    """
    name = call.op.name.removeprefix("relax.") if isinstance(call.op, tvm.ir.Op) else ""
    if name == "matmul":
        return results * _shape(tensors[0].ty)[-1]
    if name.startswith("nn.conv"):
        sums = _elements(tensors[0].ty) if "transpose" in name else results
        return sums * math.prod(_shape(tensors[1].ty)[1:])
    if name.startswith(("nn.max_pool", "nn.avg_pool")):
        return results * math.prod(map(int, call.attrs.pool_size))
    if name == "einsum":
        return results * math.prod({size for tensor in tensors for size in _shape(tensor.ty)})
    return 0


def _steps(statement: tirx.Stmt) -> int:
    """Returns the total trip count of the innermost statements."""
    match statement:
        case tirx.For():
            size = int(statement.extent) if isinstance(statement.extent, tirx.IntImm) else 1
            return size * _steps(statement.body)
        case tirx.SeqStmt():
            return sum(map(_steps, statement.seq))
        case s_tir.SBlockRealize():
            return _steps(statement.block.body)
        case tirx.IfThenElse():
            other = 0 if statement.else_case is None else _steps(statement.else_case)
            return max(_steps(statement.then_case), other)
    inner = getattr(statement, "body", None)
    return 1 if inner is None else _steps(inner)


def evaluate(
    bindings: Sequence[relax.Binding],
    wanted: Sequence[relax.Var],
    kernels: Kernels,
    values: Mapping[relax.Var, Any] = MappingProxyType({}),
) -> list[tvm.runtime.Tensor]:
    """Return the values of some variables.

    Args:
        bindings: all on which the variables depend, in order; none may have kernels that report errors to the runtime.
        wanted: the variables, which are tensors.
        kernels: that the bindings call.
        values: of variables that the bindings read and that are known already.
    """
    known: dict[relax.Var, Any] = dict(values)
    waiting: list[relax.Binding] = []
    for index, binding in enumerate(bindings):
        if not _is_product_of_numpys(binding):
            waiting.append(binding)
            continue
        factors = list(binding.value.args)
        if any(factor in {element.var for element in waiting} for factor in factors):
            readers = [element.value for element in bindings[index:]]
            _run(
                waiting,
                [*wanted, *(var for value in readers for var in relax.analysis.free_vars(value))],
                kernels,
                known,
            )
            waiting = []
        arrays = [known[factor] if isinstance(factor, relax.Var) else factor.value for factor in factors]
        known[binding.var] = tvm.runtime.tensor(np.matmul(*(array.numpy() for array in arrays)))
    _run(waiting, wanted, kernels, known)
    return [known[var] for var in wanted]


def _run(
    bindings: Sequence[relax.Binding], wanted: Sequence[relax.Var], kernels: Kernels, known: dict[relax.Var, Any]
) -> None:
    """Compile and run bindings, and add the values of the wanted variables, tensors or tuples of these, to the known
    ones.
    """
    made = {binding.var for binding in bindings}
    results = [var for var in dict.fromkeys(wanted) if var in made]
    if not results:
        return
    builder = relax.BlockBuilder(tvm.IRModule(dict(kernels)))
    with builder.function("main", []):
        with builder.dataflow():
            for var, value in known.items():
                builder.emit_normalized(relax.VarBinding(var, _literal(value)))
            for binding in bindings:
                value = _aligned(binding.value)
                same = value.same_as(binding.value)
                builder.emit_normalized(binding if same else relax.VarBinding(binding.var, builder.normalize(value)))
            made_of = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(made_of)
    module = relax.transform.LegalizeOps()(relax.transform.DeadCodeElimination(["main"])(builder.finalize()))
    for name, func in module.functions_items():
        if isinstance(func, tirx.PrimFunc):
            module.update_func(name, fold_empty_reductions(func))
    machine = relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
    known.update(zip(results, machine["main"](), strict=True))


def _literal(value: Any) -> relax.Expr:
    if isinstance(value, tvm.runtime.Tensor):
        return relax.const(value)
    return relax.Tuple([_literal(element) for element in value])


def _aligned(value: relax.Expr) -> relax.Expr:
    """Return the value of a binding with constants at addresses that are aligned as compiled code expects."""
    match value:
        case GenericConst():
            tensor = aligned(value.value)
            return value if tensor.same_as(value.value) else relax.const(tensor)
        case relax.Tuple():
            return relax.Tuple([_aligned(field) for field in value.fields])
        case relax.Call() if not all(map(_is_aligned, value.args)):
            return relax.Call(value.op, [_aligned(arg) for arg in value.args], value.attrs, value.ty_args)
    return value


def _is_aligned(value: relax.Expr) -> bool:
    if isinstance(value, relax.Tuple):
        return all(map(_is_aligned, value.fields))
    return not isinstance(value, GenericConst) or value.value.data_ptr() % ALIGNMENT == 0


def _is_product_of_numpys(binding: relax.Binding) -> bool:
    """Return whether a binding is a matrix product for NumPy: large, and of a float type that its BLAS supports."""
    call = binding.value
    if not (isinstance(call, relax.Call) and call.op == tvm.ir.Op.get("relax.matmul")):
        return False
    types = [str(ty.dtype) for ty in (binding.var.ty, call.args[0].ty, call.args[1].ty)]
    work = _elements(binding.var.ty) * _shape(call.args[0].ty)[-1]
    return types in (["float32"] * 3, ["float64"] * 3) and work >= _MIN_FOR_NUMPY


def _types(ty: relax.Type) -> list[relax.TensorType]:
    return [ty] if isinstance(ty, relax.TensorType) else [element for field in ty.fields for element in _types(field)]


def _shape(ty: relax.TensorType) -> tuple[int, ...]:
    return tuple(int(size) for size in ty.shape)


def _elements(ty: relax.TensorType) -> int:
    return math.prod(_shape(ty))
