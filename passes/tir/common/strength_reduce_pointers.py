"""Computes the base pointer of a loop's reads once, in a form that LLVM keeps (strength reduction).

    for k in n:                                          for k in n:
                                                             p = pointer to A[(k h + y) w + 14 i]
        for j in 16:                                         for j in 16:
            a = (k h + y) w + 14 i + j             →
            for r in unrolled(14):                               for r in unrolled(14):
                c[r] = c[r] + A[a + 16 r]                            c[r] = c[r] + p[j + 16 r]

LLVM looks for the cheapest variables of a loop among the sums of the terms of all addresses in it, for each loop around
too. Addresses in tensors of dynamic sizes have many terms: that was two thirds of the time in which they became machine
code. It knows nothing of what `_OPAQUE` returns, so that each loop has an address of two terms; code for it is none.

Only what is read in unrolled loops, in each iteration of a loop that begins at 0, is concerned: the first of what is
read is then where the pointer says. Tensors that are written are left alone: TVM tells LLVM that no two pointers meet.

Addresses in tensors of known sizes have a term for each loop around. From four loops on, as convolutions with several
taps have them, LLVM looks for variables longer than all else that it does takes. There, the two innermost loops read
by pointers to what the loops around say:

    for c in 6:                                          for c in 6:
        for y in 3:                                          for y in 3:
                                                                 p = pointer to A[1600 c + 160 y]
            for x in 3:                            →             for x in 3:
                for i in 16:                                         for i in 16:
                    for r in unrolled(4):                                for r in unrolled(4):
                        … A[1600 c + 160 y + 16 x + i + 16 r]                … p[16 x + i + 16 r]

The two have few terms, and the pointer costs little compared with what they compute.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import PointerType, PrimType
from tvm.ir.expr import Call, TensorLoad
from tvm.sym import detect_linear_equation
from tvm.target import codegen

from nnefc.ir.attributes import DYNAMIC_SHAPES
from nnefc.ir.rebuild import with_fields
from nnefc.passes.tir.common.expressions import IF_THEN_ELSE, inside, int64, is_number, variables_of
from nnefc.passes.tir.tvm_workarounds.opaque import bound_value

__all__ = ["strength_reduce_pointers"]

_OPAQUE = "llvm.strip.invariant.group"
_CALL = "tirx.call_llvm_intrin"
_ADDRESS = "tirx.address_of"
_ONLY_ADDRESSES = frozenset(map(codegen.llvm_lookup_intrinsic_id, (_OPAQUE, "llvm.prefetch")))
_COPIED = (tirx.ForKind.UNROLLED, tirx.ForKind.VECTORIZED)
_BINARY = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Min, tirx.Max)
_QUOTIENTS = (tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod)
_TYPES = ("float16", "float32", "float64", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
"""The element types whose layout in memory is that of TVM's types."""
_ELEMENTS = 1 << 40  # more than there are

_DEEP = 4
"""The depth of nested serial loops of static sizes from which on pointers hide the outer ones."""

_INNERMOST = 2
"""The number of innermost loops that read through such a pointer."""


def strength_reduce_pointers(func: tirx.PrimFunc, in_deep_loops: bool = False) -> tirx.PrimFunc:
    """Returns a lowered kernel whose loops read through pointers.

    Args:
        func: the kernel.
        in_deep_loops: whether kernels of known sizes are concerned; without it, they stay as they are.
    """
    if DYNAMIC_SHAPES in func.attrs:
        return with_fields(func, body=_Kernel(_only_read(func.body)).statement(func.body))
    if in_deep_loops and _depth(func.body) >= _DEEP:
        return with_fields(func, body=_DeepKernel(_only_read(func.body)).statement(func.body))
    return func


def _depth(stmt: tirx.Stmt) -> int:
    """Returns the depth of nested serial loops."""
    match stmt:
        case tirx.SeqStmt():
            return max(map(_depth, stmt.seq), default=0)
        case tirx.IfThenElse():
            parts = [stmt.then_case] if stmt.else_case is None else [stmt.then_case, stmt.else_case]
            return max(map(_depth, parts))
        case tirx.AttrStmt():
            return _depth(stmt.body)
        case tirx.For():
            return _depth(stmt.body) + int(stmt.kind == tirx.ForKind.SERIAL)
    return 0


def _only_read(stmt: tirx.Stmt) -> set[tirx.Var]:
    """Returns a kernel's operands whose memory no statement writes to."""
    found: list[Any] = []
    tvm_ffi.structural_walk(stmt, ((tirx.BufferStore, tirx.DeclBuffer), found.append))
    views = {node.buffer: node.data for node in found if isinstance(node, tirx.DeclBuffer)}

    def memory(tensor: tirx.Var) -> tirx.Expr:
        while tensor in views:
            data = views[tensor]
            tensor = data.args[0] if isinstance(data, Call) else data
        return tensor

    written = {memory(node.buffer) for node in found if isinstance(node, tirx.BufferStore)}
    return {tensor for tensor in views if str(tensor.dtype) in _TYPES and memory(tensor) not in written}


class _Kernel:
    """Rewrites the statements around loops of dynamic sizes."""

    def __init__(self, read: Set[tirx.Var]) -> None:
        self._read = set(read)

    def statement(self, stmt: tirx.Stmt) -> tirx.Stmt:
        match stmt:
            case tirx.SeqStmt():
                return _sequence([self.statement(part) for part in stmt.seq])
            case tirx.IfThenElse():
                tail = None if stmt.else_case is None else self.statement(stmt.else_case)
                return tirx.IfThenElse(stmt.condition, self.statement(stmt.then_case), tail)
            case tirx.AttrStmt():
                return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, self.statement(stmt.body))
            case tirx.For() if stmt.kind == tirx.ForKind.SERIAL:
                body = self.statement(stmt.body)
                if not is_number(stmt.min, 0):
                    return with_fields(stmt, body=body)
                loop = _Loop(stmt, body, self._read)
                made = with_fields(stmt, body=_sequence([loop.statement(part) for part in _parts(body)]))
                return _sequence([*loop.before, made])
            case tirx.For() if stmt.kind not in _COPIED:
                return with_fields(stmt, body=self.statement(stmt.body))
        return stmt


class _Loop:
    """Rewrites a loop whose inner loops read through pointers.

    Attributes:
        before: what is to be done before it.
    """

    def __init__(self, loop: tirx.For, body: tirx.Stmt, read: set[tirx.Var]) -> None:
        self.before: list[tirx.Stmt] = []
        self._read = read
        self._var = loop.loop_var
        self._runs = _runs(loop)
        found: list[Any] = []
        tvm_ffi.structural_walk(body, ((tirx.Bind, tirx.For), found.append))
        self._own = {self._var, *(node.loop_var if isinstance(node, tirx.For) else node.var for node in found)}
        named = [(part.var, part.value) for part in _parts(body) if isinstance(part, tirx.Bind)]
        self._offsets = {var: value for var, call in named if (value := bound_value(call)) is not call}
        self._pointers: dict[tirx.Var, list[tuple[tirx.Expr, tirx.Var]]] = {}

    def statement(self, stmt: tirx.Stmt) -> tirx.Stmt:
        """Returns a statement that runs in each iteration; those under conditions are left alone, and so are loops."""
        match stmt:
            case tirx.For() if stmt.kind == tirx.ForKind.UNROLLED:
                return with_fields(stmt, body=self._copies(stmt.body))
            case tirx.Evaluate() | tirx.Bind() if _has_address(stmt.value):  # a pointer, or what is asked for ahead
                return self._copies(stmt)
        return stmt

    def _copies(self, stmt: tirx.Stmt) -> tirx.Stmt:
        """Rewrites the body of an unrolled loop."""
        match stmt:
            case tirx.SeqStmt():
                return _sequence([self._copies(part) for part in stmt.seq])
            case tirx.For() if stmt.kind in _COPIED:
                return with_fields(stmt, body=self._copies(stmt.body))
            case tirx.BufferStore():
                return tirx.BufferStore(stmt.buffer, self._value(stmt.value), stmt.indices)
            case tirx.Evaluate():
                return tirx.Evaluate(self._value(stmt.value))
            case tirx.Bind():
                return tirx.Bind(stmt.var, self._value(stmt.value))
        return stmt

    def _value(self, value: tirx.Expr) -> tirx.Expr:
        match value:
            case TensorLoad():
                return self._load(value)
            case tirx.Cast():
                return tirx.Cast(str(value.expr_ty().dtype), self._value(value.value))
            case Call() if _name(value) not in IF_THEN_ELSE and not _takes_addresses(value):
                args = [self._value(arg) if isinstance(arg, tirx.Expr) else arg for arg in value.args]
                return Call(value.op, args, value.attrs, ret_ty=value.ty)
        if isinstance(value, _BINARY):
            return type(value)(self._value(value.a), self._value(value.b))
        return value

    def _load(self, load: TensorLoad) -> TensorLoad:
        """Returns the same element, loaded through a pointer if its stride between iterations is constant."""
        (index,) = load.indices
        if load.source not in self._read or str(index.expr_ty().dtype) != "int64":
            return load
        offsets = [var for var in variables_of([index]) if var in self._offsets]
        linear = list(detect_linear_equation(index, offsets)) if offsets else [index]
        if len(offsets) > 1 or not linear or (offsets and not is_number(linear[0], 1)):
            return load
        position, tail = (self._offsets[offsets[0]], linear[1]) if offsets else (index, int64(0))
        linear = list(detect_linear_equation(position, [self._var]))
        if not linear or isinstance(linear[1], tirx.IntImm) or not all(map(self._is_known_before, linear)):
            return load
        step, begin = linear
        return tirx.BufferLoad(self._from(load.source, begin), [self._var * step + tail])

    def _is_known_before(self, value: tirx.Expr) -> bool:
        """Whether a part of an index can be computed before the loop: where it divides, the loop must run."""
        if variables_of([value]) & self._own:
            return False
        parts = list(inside(value))
        divides = any(isinstance(part, _QUOTIENTS) and not isinstance(part.b, tirx.IntImm) for part in parts)
        return not any(isinstance(part, Call | TensorLoad) for part in parts) and (self._runs or not divides)

    def _from(self, source: tirx.Var, begin: tirx.Expr) -> tirx.Var:
        """Returns the tensor that begins at an element of another one."""
        known = self._pointers.setdefault(source, [])
        for position, tensor in known:
            if tvm_ffi.structural_equal(position, begin):
                return tensor
        dtype = str(source.dtype)
        data = tirx.Var("p", PointerType(PrimType(dtype)))
        tensor = tirx.decl_buffer((_ELEMENTS,), dtype, source.name, data=data, layout=None)
        address = tirx.address_of(tirx.BufferLoad(source, [begin]))
        opaque = tirx.call_llvm_intrin("handle", _OPAQUE, address)
        self.before += [tirx.Bind(data, tirx.reinterpret(address.ty, opaque)), tirx.DeclBuffer(tensor, data=data)]
        known.append((begin, tensor))
        self._read.add(tensor)
        return tensor


class _DeepKernel(_Kernel):
    """Rewrites the statements around nests of loops of static sizes."""

    def __init__(self, read: Set[tirx.Var]) -> None:
        super().__init__(read)
        self._around = 0  # serial loops

    def statement(self, stmt: tirx.Stmt) -> tirx.Stmt:
        if not isinstance(stmt, tirx.For) or stmt.kind != tirx.ForKind.SERIAL:
            return super().statement(stmt)
        depth = _depth(stmt)
        if depth > _INNERMOST:
            self._around += 1
            body = self.statement(stmt.body)
            self._around -= 1
            return with_fields(stmt, body=body)
        if self._around + depth < _DEEP:
            return stmt
        nest = _Nest(stmt, stmt.body, self._read)
        made = nest.statement(stmt)
        return _sequence([*nest.before, made])


class _Nest(_Loop):
    """Rewrites loops of static sizes that read through shared pointers."""

    def __init__(self, loop: tirx.For, body: tirx.Stmt, read: set[tirx.Var]) -> None:
        super().__init__(loop, body, read)
        found: list[tirx.For] = []
        tvm_ffi.structural_walk(loop, (tirx.For, found.append))
        self._from_zero = {each.loop_var for each in found if is_number(each.min, 0) and _runs(each)}

    def statement(self, stmt: tirx.Stmt) -> tirx.Stmt:
        """Returns a statement that runs in each iteration; those under conditions are left alone."""
        match stmt:
            case tirx.SeqStmt():
                return _sequence([self.statement(part) for part in stmt.seq])
            case tirx.For() if stmt.kind == tirx.ForKind.SERIAL and stmt.loop_var in self._from_zero:
                return with_fields(stmt, body=self.statement(stmt.body))
            case tirx.For() if stmt.kind in _COPIED:
                return self._copies(stmt)
        return super().statement(stmt)

    def _load(self, load: TensorLoad) -> TensorLoad:
        """Returns the element loaded through a pointer to the element that the first iterations load."""
        (index,) = load.indices
        if load.source not in self._read or str(index.expr_ty().dtype) != "int64":
            return load
        own = [var for var in variables_of([index]) if var in self._own]
        linear = list(detect_linear_equation(index, own)) if self._from_zero.issuperset(own) else []
        if not linear or isinstance(linear[-1], tirx.IntImm) or not self._is_known_before(linear[-1]):
            return load
        *strides, begin = linear
        if not all(isinstance(stride, tirx.IntImm) for stride in strides):
            return load
        terms = (var * stride for var, stride in zip(own, strides, strict=True))
        return tirx.BufferLoad(self._from(load.source, begin), [sum(terms, int64(0))])


def _runs(loop: tirx.For) -> bool:
    return isinstance(loop.extent, tirx.IntImm) and int(loop.extent) > 0


def _has_address(value: tirx.Expr) -> bool:
    return any(isinstance(part, Call) and _name(part) == _ADDRESS for part in inside(value))


def _takes_addresses(call: Call) -> bool:
    """Whether a call may write to memory near an address that it is given; prefetches do not."""
    addresses = any(isinstance(arg, Call) and _name(arg) == _ADDRESS for arg in call.args)
    return addresses and not (_name(call) == _CALL and int(call.args[0]) in _ONLY_ADDRESSES)


def _name(call: Call) -> str:
    return str(getattr(call.op, "name", ""))


def _parts(stmt: tirx.Stmt) -> list[tirx.Stmt]:
    return list(stmt.seq) if isinstance(stmt, tirx.SeqStmt) else [stmt]


def _sequence(stmts: Sequence[tirx.Stmt]) -> tirx.Stmt:
    parts = [part for stmt in stmts for part in _parts(stmt)]
    return tirx.SeqStmt(parts) if len(parts) > 1 else parts[0]
