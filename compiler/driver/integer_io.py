"""Changes the float inputs and outputs of a quantized network to integers, as programs for microcontrollers use them.

    main(x: float32):                               main(x: int8):
        q = quantize(transpose(x), s, u)                q = transpose(x)
        …                                    →          …
        return dequantize(r, t, v)                      return r

The scales and zero points are stored in the description of the library: a real number is `(integer - zero point) ·
scale`.
"""

from __future__ import annotations

from dataclasses import replace

from tvm import relax

from nnefc.ir.dataflow import bindings_of
from nnefc.ir.network import Network, Scaling
from nnefc.passes.graph.quantized.quantized_values import Grid, grid_of, quantized_of
from nnefc.passes.graph.rewriter import Rewriter, is_call, operands
from nnefc.support.diagnostics import CompileError

__all__ = ["with_integer_io"]

_MOVING = ("expand_dims", "permute_dims", "reshape", "squeeze", "strided_slice")
"""Operators that only move elements, so that they can be exchanged with the quantization after or the dequantization
before them.
"""


def with_integer_io(network: Network, dtype: str) -> Network:
    """Return the network with integers of the type `dtype` instead of float32 for its inputs and outputs; states are
    not changed.

    Raises:
        CompileError: an input is used other than quantized to that type, or an output is not dequantized from it.
    """
    rewriter = _Rewriter(network, dtype)
    module = rewriter.transform()
    return replace(network, module=module, scalings=rewriter.scalings)


class _Rewriter(Rewriter):
    """Rewrites the main function.

    Attributes:
        scalings: scales and zero points of the integer inputs and outputs, by name.
    """

    def __init__(self, network: Network, dtype: str) -> None:
        super().__init__(network.module)
        self._network, self._dtype = network, dtype
        self._users: dict[relax.Var, list[relax.Binding]] = {}
        for binding in bindings_of(self.old):
            for var in _read(binding.value):
                self._users.setdefault(var, []).append(binding)
        self._integers: set[relax.Expr] = set()
        self.scalings: dict[str, Scaling] = {}

    def parameters(self) -> list[relax.Var]:
        params = list(self.old.params)
        for number, (name, param) in enumerate(zip(self._network.inputs, params, strict=False)):
            if str(param.ty.dtype) != "float32":
                continue
            grids = self._grids(name, param)
            if not grids or not all(grid.same_as(grids[0]) for grid in grids):
                several = "with several scales" if grids else "nowhere"
                raise CompileError(
                    f"the input '{name}' is quantized {several}: it cannot be given in {self._dtype}",
                    hint="leave out --io, and give it in float32",
                )
            self.scalings[name] = _scaling(grids[0])
            params[number] = made = relax.Var(param.name, relax.TensorType(param.ty.shape, self._dtype))
            self._new[param] = made
            self._integers.add(made)
        return params

    def _grids(self, name: str, first: relax.Var) -> list[Grid]:
        """Return the quantization parameters of all tensors that are computed from an input."""
        grids, waiting = [], [first]
        while waiting:
            var = waiting.pop()
            if var in _read(self.old.body.body):
                raise CompileError(f"the input '{name}' is an output too: it cannot be given in {self._dtype}")
            for binding in self._users.get(var, ()):
                call = binding.value
                if is_call(call, *_MOVING):
                    waiting.append(binding.var)
                    continue
                grid = grid_of(call) if is_call(call, "quantize") and call.args[0].same_as(var) else None
                if grid is None or grid.axis is not None or str(call.attrs.out_dtype) != self._dtype:
                    how = "used in floats"
                    if is_call(call, "quantize"):
                        how = f"quantized to {call.attrs.out_dtype}, not to {self._dtype} by one scale"
                    raise CompileError(
                        f"the input '{name}' is {how}: it cannot be given in {self._dtype}",
                        hint="quantize the network first, with --precision int8 or nnefc quantize, or leave out --io",
                    )
                grids.append(grid)
        return grids

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        if not call.args or call.args[0] not in self._integers:
            return call
        if is_call(call, "quantize"):
            source: relax.Expr = call.args[0]
            return source
        if not is_call(call, *_MOVING):
            return call
        moved = self.builder.emit(call)
        self._integers.add(moved)
        return moved

    def result(self, expr: relax.Expr) -> relax.Expr:
        fields = list(super().result(expr).fields)
        for number, name in enumerate(self._network.outputs):
            if str(fields[number].ty.dtype) == "float32":
                fields[number] = self._integer(name, fields[number])
        return relax.Tuple(fields)

    def _integer(self, name: str, expr: relax.Expr) -> relax.Expr:
        """Return the integers that an output is dequantized from."""
        call = self.definition(expr)
        if is_call(call, *_MOVING):
            return self.builder.emit(
                relax.Call(call.op, [self._integer(name, call.args[0]), *call.args[1:]], call.attrs)
            )
        source = quantized_of(call)
        if source is None or source.grid.axis is not None or source.dtype != self._dtype:
            raise CompileError(
                f"the output '{name}' is not dequantized from {self._dtype}: it cannot be returned so",
                hint="quantize the network first, with --precision int8 or nnefc quantize, or leave out --io",
            )
        self.scalings[name] = _scaling(source.grid)
        return source.data


def _scaling(grid: Grid) -> Scaling:
    return Scaling(float(grid.scale), int(grid.zero))


def _read(expr: relax.Expr) -> list[relax.Var]:
    found = (
        operands(expr)
        if isinstance(expr, relax.Call)
        else list(expr.fields)
        if isinstance(expr, relax.Tuple)
        else [expr]
    )
    return [operand for operand in found if isinstance(operand, relax.Var)]
