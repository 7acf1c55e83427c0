"""Rebuilds a network binding by binding: the base of the passes over Relax."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from types import MappingProxyType
from typing import Any, TypeGuard

import numpy as np
import tvm
import tvm_ffi
from tvm import relax, tirx
from tvm.ir import GenericConst

from nnefc.ir.dataflow import bindings_of, variables_read
from nnefc.ir.kernel_calls import te_kernel
from nnefc.passes.graph.debug_locations import NamingBuilder, debug_locations
from nnefc.support.internal_errors import working_on
from nnefc.support.mapped_files import ALIGNMENT, LARGE, VIEWED, aligned_copy, kept, release_pages, tensor_of
from nnefc.symbolic.dims import dimensions

__all__ = ["Rewriter", "array_of", "constant", "is_call", "is_constant", "operands", "shape_of", "with_operands"]


def is_call(expr: relax.Expr | None, *names: str) -> TypeGuard[Any]:
    """Whether `expr` calls one of the Relax operators `names`, written without their prefix `relax.`."""
    return isinstance(expr, relax.Call) and isinstance(expr.op, tvm.ir.Op) and expr.op.name[6:] in names


def is_constant(expr: relax.Expr | None) -> TypeGuard[Any]:
    """Whether `expr` is a tensor known at compile time."""
    return isinstance(expr, GenericConst)


def array_of(expr: relax.Expr) -> np.ndarray:
    """Returns the value of a constant, read-only; without a copy except for types of less than a byte."""
    bits = VIEWED.get(str(expr.ty.dtype))
    try:
        if bits is not None:
            return np.from_dlpack(expr.value._create_view(expr.value.shape, bits)).view(str(expr.ty.dtype))
        return np.from_dlpack(expr.value)
    except (TypeError, ValueError, BufferError, RuntimeError):  # types that NumPy's DLPack does not know
        return np.asarray(expr.value.numpy())


def constant(value: np.ndarray, dtype: str | None = None) -> GenericConst:
    """Returns a constant of Relax. It shares the memory of `value`, which must not change afterwards, if TVM accepts
    that.

    Args:
        dtype: the element type of the constant, if it differs from that of `value`.
    """
    value = np.asarray(value)  # NumPy's arithmetic gives scalars in place of arrays without axes
    if value.nbytes >= LARGE:
        release_pages()  # the mapped constants have been read
    if dtype is not None and dtype != str(value.dtype):
        return relax.const(tensor_of(aligned_copy(value, dtype)))
    is_viewed = str(value.dtype) in VIEWED  # NumPy's DLPack does not know the type
    if value.nbytes < LARGE if is_viewed else value.dtype.kind not in "biuf":
        return relax.const(tvm.runtime.tensor(np.ascontiguousarray(value).reshape(value.shape)))
    if value.flags.c_contiguous and value.ctypes.data % ALIGNMENT == 0:
        shared = value.flags.writeable and not is_viewed
        return relax.const(kept(tvm.runtime.from_dlpack(value)) if shared else tensor_of(value))
    return relax.const(tensor_of(aligned_copy(value)))


def shape_of(expr: relax.Expr) -> tuple[Any, ...]:
    """Returns the sizes of a tensor; front ends leave no symbolic ones."""
    return dimensions(expr.ty.shape.values)


def with_operands(call: relax.Call, args: Sequence[relax.Expr]) -> relax.Call:
    """Returns a call of the same operator on other operands.

    A convolution or pooling keeps its type where the types of operands do: TVM takes a millisecond to infer it.
    """
    made = relax.Call(call.op, args, call.attrs, call.ty_args, call.span)
    if isinstance(call.op, tvm.ir.Op) and call.op.name.startswith("relax.nn."):
        pairs = zip(args, call.args[:], strict=True)
        if all(new is old or tvm_ffi.structural_equal(new.ty, old.ty) for new, old in pairs):
            relax.expr._update_type(made, call.ty)
    return made


def operands(call: relax.Call) -> list[relax.Expr]:
    """Returns the tensors that a call reads, those inside tuples included."""
    found: list[relax.Expr] = []
    for arg in call.args[:]:  # a part of a list of TVM's is a list of Python's, much sooner than by its iterator
        found += arg.fields[:] if isinstance(arg, relax.Tuple) else [arg]
    return found


class Rewriter:
    """Rebuilds `main`: a pass derives from it, and overrides :meth:`rewrite` to replace calls.

    Attributes:
        builder: where the new function is built; `builder.emit` adds bindings before the present one.
    """

    def __init__(self, mod: tvm.IRModule) -> None:
        self.old = mod["main"]
        main = mod.get_global_var("main")
        tail = {gv: func for gv, func in mod.functions.items() if gv.name_hint != main.name_hint}
        self.builder = NamingBuilder(tvm.IRModule(tail, attrs=mod.attrs))
        self._uses: Counter[relax.Var] = Counter()
        self._without_uses: list[tuple[relax.Var, relax.Var]] = []
        self._new: dict[relax.Var, relax.Expr] = {}
        self._computations: dict[object, tuple[tvm.ir.GlobalVar, list[tirx.Var], list[relax.TensorType]]] = {}

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        """Returns what `var` is bound to in the new function; `call` has the new function's variables as operands."""
        raise NotImplementedError

    def transform(self) -> tvm.IRModule:
        """Returns the module with `main` rebuilt."""
        func = self.old
        with self.builder.function("main", self.parameters(), attrs=dict((func.attrs or {}).items())):
            with self.builder.dataflow():
                for binding in bindings_of(func):
                    old = binding.var
                    new = self._bind(binding)
                    if not new.same_as(old):
                        self._new[old] = new
                    if isinstance(new, relax.Var):
                        self._without_uses.append((new, old))
                result = self.builder.emit_output(self.result(func.body.body))
            self.builder.emit_func_output(result)
        return self.builder.finalize()

    def parameters(self) -> list[relax.Var]:
        """Returns the new function's parameters."""
        return list(self.old.params)

    def result(self, expr: relax.Expr) -> relax.Expr:
        """Returns the new function's results, given the old one's."""
        return self.replaced(expr)

    def emit_te(
        self,
        function: Callable[..., Any],
        *args: object,
        name: str | None = None,
        attrs: Mapping[str, int | str] = MappingProxyType({}),
    ) -> relax.Var:
        """Binds a variable to the TE computation `function(*args)`.

        Equal computations become one kernel, which is made once.

        Args:
            function: returns a tensor, or several.
            args: tensors first, then values that are equal where their hashes are.
            name: of the kernel; the function's own without it.
            attrs: of the kernel.
        """
        tensors = [arg for arg in args if isinstance(arg, relax.Expr)]
        tail = args[len(tensors) :]
        key = (function, tuple((shape_of(t), str(t.ty.dtype)) for t in tensors), tail, name, tuple(attrs.items()))
        if key not in self._computations:
            made = te_kernel(function, args, attrs)
            gv = self.builder.add_func(made.kernel, name or function.__name__)
            self._computations[key] = gv, made.sizes, made.types
        kernel, sizes, types = self._computations[key]
        return self.builder.emit(relax.call_tir(kernel, relax.Tuple([*tensors, *sizes]), types))

    def replaced(self, expr: relax.Expr) -> relax.Expr:
        """Returns `expr` with the new function's variables."""
        match expr:
            case relax.Var():
                return self._new.get(expr, expr)
            case relax.Tuple():
                old = expr.fields[:]
                fields = [self.replaced(field) for field in old]
                return (
                    expr if all(new is field for new, field in zip(fields, old, strict=True)) else relax.Tuple(fields)
                )
            case relax.TupleGetItem():
                whole = expr.tuple_value
                source = self.replaced(whole)
                if source is whole:
                    return expr
                return source.fields[expr.index] if isinstance(source, relax.Tuple) else source[expr.index]
            case relax.Call():
                old = expr.args[:]
                args = [self.replaced(arg) for arg in old]
                if all(new is arg for new, arg in zip(args, old, strict=True)):
                    return expr
                return with_operands(expr, args)
        return expr

    def definition(self, expr: relax.Expr) -> relax.Expr | None:
        """Returns the value that the new function binds `expr` to, if it is a bound variable."""
        return self.builder.lookup_binding(expr) if isinstance(expr, relax.Var) else expr

    def used_once(self, expr: relax.Expr) -> bool:
        """Whether the variable `expr` of the new function has no more than one user."""
        for new, old in self._without_uses:
            self._uses[new] += self._old_uses[old]
        self._without_uses.clear()
        return self._uses[expr] <= 1

    @cached_property
    def _old_uses(self) -> Counter[relax.Var]:
        """Returns the number of users of the old function's variables."""
        return _count_uses(self.old)

    def _bind(self, binding: relax.Binding) -> relax.Expr:
        old = binding.value
        value = self.replaced(old)
        if isinstance(value, relax.Call):
            self.builder.rewritten = name = binding.var.name
            working_on(partial(_tensors_of, name))
            value = self.rewrite(binding.var, value)
        is_name = isinstance(value, relax.Var)  # another one, through which no operations would be joined
        if value is old and isinstance(binding.var, relax.DataflowVar) and not is_name:
            self.builder.emit_normalized(binding)  # as it is: its type is known
            return binding.var
        if isinstance(value, relax.Call | relax.TupleGetItem):
            return self.builder.emit(value, binding.var.name)
        return value


def _tensors_of(name: str) -> str:
    """Returns the model's tensors that a variable stands for, for messages."""
    return "the tensor " + ", ".join(f"'{tensor}'" for tensor in debug_locations(name) or (name,))


def _count_uses(func: relax.Function) -> Counter[relax.Var]:
    values = [binding.value for binding in bindings_of(func)]
    return Counter(var for expr in (*values, func.body.body) for var in variables_read(expr))
