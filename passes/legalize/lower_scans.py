"""Legalizes cumulative sums and products as scan kernels, which read their operand once.

y = cumsum(x, axis)                       →     y = scan(x)

a = flip(x, axis)
b = cumsum(a, axis)                       →     y = scan(x) {from the end}
y = flip(b, axis)
"""

from __future__ import annotations

import math

import tvm
from tvm import relax

from nnefc.passes.compute.scan import Scan, scan_in_chunks, scan_in_vectors
from nnefc.passes.graph.fusion.fusion_patterns import FUSION, OpPattern
from nnefc.passes.graph.rewriter import Rewriter, is_call, shape_of
from nnefc.targets.machine.cpu.target import Target

__all__ = ["lower_scans"]


def lower_scans(mod: tvm.IRModule, machine: Target | int) -> tvm.IRModule:
    """Lowers `cumsum` and `cumprod`: for a CPU, or for a device with many threads.

    Args:
        machine: the CPU, or how many threads keep the device busy.
    """
    return relax.transform.DeadCodeElimination()(_Lowerer(mod, machine).transform())


class _Lowerer(Rewriter):
    def __init__(self, mod: tvm.IRModule, machine: Target | int) -> None:
        super().__init__(mod)
        self._machine = machine
        self._scans: dict[relax.Var, relax.Call] = {}

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if is_call(call, "cumsum", "cumprod") and 0 not in shape_of(call.args[0]):
            made = self._lowered(call, call.args[0], reverse=False)
            self._scans[made] = call
            return made
        if is_call(call, "flip") and (scan := self._scans.get(call.args[0])) is not None:
            before = self.definition(scan.args[0])
            if is_call(before, "flip") and _axis(call) == _axis(before) == _axis(scan):
                return self._lowered(scan, before.args[0], reverse=True)
        return call

    def _lowered(self, call: relax.Call, data: relax.Expr, reverse: bool) -> relax.Var:
        shape, axis = shape_of(data), _axis(call)
        if call.attrs.dtype and str(call.attrs.dtype) not in ("void", str(data.ty.dtype)):
            data = self.builder.emit(relax.op.astype(data, call.attrs.dtype))
        outer, length, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
        scan = Scan(is_call(call, "cumprod"), bool(call.attrs.exclusive), reverse)
        lines = (outer, length) if inner == 1 and isinstance(self._machine, Target) else (outer, length, inner)
        view = self.builder.emit(relax.op.reshape(data, lines))
        attrs = {FUSION: OpPattern.OPAQUE}
        if isinstance(self._machine, int):
            made = self.emit_te(scan_in_chunks, view, scan, self._machine, name="scan", attrs=attrs)
            if isinstance(made.ty, relax.TupleType):
                made = self.builder.emit(relax.TupleGetItem(made, 0))
        else:
            made = self.emit_te(scan_in_vectors, view, scan, self._machine, name="scan", attrs=attrs)
        return self.builder.emit(relax.op.reshape(made, shape))


def _axis(call: relax.Call) -> int:
    """Returns the axis of a scan or flip, from the front."""
    return int(call.attrs.axis) % len(shape_of(call.args[0]))
