"""Finds the layers of a network that can be quantized: products with trained weights, and the tensors that they read.

y = conv2d(x, W)        Layer(y, reads x, weights W, bias b in z)
z = y + b
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax

from nnefc.ir.dataflow import bindings_of, variables_read
from nnefc.passes.graph.precision.use_16bit_floats import at_the_ends
from nnefc.passes.graph.quantized.compute_in_integers import MAX_PRODUCTS
from nnefc.passes.graph.rewriter import array_of, is_call, is_constant, shape_of
from nnefc.passes.graph.stored_weights import weights_of

__all__ = ["MOVES", "Layer", "LayerGraph"]

Array = np.ndarray[Any, Any]

CONVOLUTIONS = ("nn.conv1d", "nn.conv2d", "nn.conv3d")
TRANSPOSED = ("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")

MOVES = (
    "expand_dims",
    "nn.max_pool1d",
    "nn.max_pool2d",
    "nn.max_pool3d",
    "nn.pad",
    "permute_dims",
    "reshape",
    "squeeze",
    "strided_slice",
)
"""Operators whose results' elements are elements of the operand, or zero: one scale is right for both."""


@dataclass(frozen=True, eq=False)
class Layer:
    """A convolution, a transposed one, or a matrix product with trained values.

    Attributes:
        var: its result, before the bias.
        data: what it reads.
        weights: float32, `[O, I, *k]`, `[I, O, *k]` of a transposed convolution, or `[I, O]`.
        groups: of a convolution; 0 for a matrix product.
        transposed: whether it is a transposed convolution.
        bias_var: the result with the bias, if there is one.
        bias: float32, in a shape that broadcasts to the result.
    """

    var: relax.Var
    data: relax.Var
    weights: Array
    groups: int
    transposed: bool
    bias_var: relax.Var | None
    bias: Array | None

    @property
    def name(self) -> str:
        """As the network calls its result, with the bias."""
        return str((self.var if self.bias_var is None else self.bias_var).name)

    @property
    def is_product(self) -> bool:
        """Whether it is a matrix product."""
        return not self.groups

    @property
    def axis(self) -> int:
        """The output channels' axis of the weights."""
        return _output_axis(self.weights, self.groups, self.transposed)

    @property
    def inputs(self) -> int:
        """How many channels it reads."""
        return int(self.weights.shape[0]) if self.by_inputs else int(self.weights.shape[1]) * self.groups

    @property
    def by_inputs(self) -> bool:
        """Whether the first axis of the weights is that of the channels that are read."""
        return self.is_product or self.transposed

    @property
    def result_axis(self) -> int:
        """The output channels' axis of the result."""
        return len(shape_of(self.var)) - 1 if self.is_product else 1

    @property
    def channels(self) -> int:
        """How many output channels there are."""
        return int(self.weights.shape[self.axis])

    def along_result(self, values: Array) -> Array:
        """One value for each output channel, in a shape that broadcasts to the result."""
        shape = [1] * len(shape_of(self.var))
        shape[self.result_axis] = -1
        return values.reshape(shape)

    def along_weights(self, values: Array) -> Array:
        """One value for each output channel, in a shape that broadcasts to the weights."""
        shape = [1] * self.weights.ndim
        shape[self.axis] = -1
        return values.reshape(shape)


class LayerGraph:
    """A network's function, to be asked what its layers are and what surrounds them.

    Attributes:
        layers: in order.
        definitions: what variables are bound to.
        users: the variables bound to what reads a variable, by that.
        results: what the function returns.
        parts: of concatenations that are stored as integers for convolutions: the parts that others read too, so that
            these are stored by the same scale. Concatenations come before those that are their parts.
            Whether a concatenation's scale suits a part is what `parts_within` says.
    """

    def __init__(self, module: tvm.IRModule) -> None:
        main = module["main"]
        bindings = bindings_of(main)
        self._bindings = bindings
        self.definitions: Mapping[relax.Var, relax.Expr] = {b.var: b.value for b in bindings}
        self.users: dict[relax.Var, list[relax.Var]] = {}
        for binding in bindings:
            for var in variables_read(binding.value):
                self.users.setdefault(var, []).append(binding.var)
        self.results = set(variables_read(self.definitions.get(main.body.body, main.body.body)))
        self.layers = [layer for b in bindings if (layer := self._layer(b.var, b.value)) is not None]
        self._read = {layer.data for layer in self.layers}
        self.parts = self._joined()

    def sole_user(self, var: relax.Var) -> relax.Var | None:
        """Returns the only user of a variable; None if there are several or it is a result."""
        users = self.users.get(var, [])
        return users[0] if len(users) == 1 and var not in self.results else None

    def at_the_ends(self, ends: Collection[str]) -> set[relax.Var]:
        """The layers that no other one's result goes into (`first`), and those whose go into no other (`last`)."""
        return at_the_ends(self._bindings, {layer.var for layer in self.layers}, ends)

    def stored(self, var: relax.Var, quantized: Collection[relax.Var] = ()) -> relax.Var:
        """The tensor whose integers stand for those of `var`: `var`, or what it only moves the elements of."""
        call = self.definitions.get(var)
        while is_call(call, *MOVES) and isinstance(call.args[0], relax.Var) and self._moves(call):
            source = call.args[0]
            if source not in quantized and source not in self._read and self.sole_user(source) is None:
                break
            var, call = source, self.definitions.get(source)
        return var

    def _joined(self) -> dict[relax.Var, tuple[relax.Var, ...]]:
        found: dict[relax.Var, tuple[relax.Var, ...]] = {}
        left = [self.stored(layer.data) for layer in self.layers if not layer.is_product]
        while left:
            var = left.pop()
            call = self.definitions.get(var)
            if var in found or not is_call(call, "concat"):
                continue
            fields = [field for field in call.args[0].fields if isinstance(field, relax.Var)]
            self._read.update(field for field in fields if self.sole_user(field) is None)
            stored = [self.stored(field) for field in fields]
            found[var] = tuple(p for p in stored if p in self._read or is_call(self.definitions.get(p), "concat"))
            left += found[var]
        order = {binding.var: index for index, binding in enumerate(self._bindings)}
        return {var: found[var] for var in sorted(found, key=order.__getitem__, reverse=True)}

    def parts_within(self, var: relax.Var, known: Collection[relax.Var]) -> list[relax.Var]:
        """The parts of a concatenation that can be stored by its scale.

        What it joins may be slices or maxima of a part, whose other values its range then leaves out: such a part needs
        a range of its own, in `known`.
        """
        fields = {field for field in self.definitions[var].args[0].fields if isinstance(field, relax.Var)}
        return [part for part in self.parts[var] if part in fields or part in known]

    def _moves(self, call: Any) -> bool:
        return not is_call(call, "nn.pad") or (call.attrs.pad_mode == "constant" and float(call.attrs.pad_value) == 0)

    def _layer(self, var: relax.Var, call: relax.Expr) -> Layer | None:
        if not is_call(call, *CONVOLUTIONS, *TRANSPOSED, "matmul") or str(var.ty.dtype) != "float32":
            return None
        data, weights = call.args[0], self._weights(call.args[1])
        if weights is None or not isinstance(data, relax.Var) or len(shape_of(data)) < 2:
            return None
        if is_call(call, "matmul"):
            if weights.ndim != 2:
                return None
            groups = 0
        else:
            groups = int(call.attrs.groups)
        transposed = is_call(call, *TRANSPOSED)
        if transposed and (groups > 1 or any(int(step) != 1 for step in call.attrs.dilation)):
            return None
        axis = _output_axis(weights, groups, transposed)
        if weights.size // weights.shape[axis] >= MAX_PRODUCTS:
            return None
        return Layer(var, data, weights, groups, transposed, *self._bias(var, weights.shape[axis], not groups))

    def _weights(self, expr: relax.Expr) -> Array | None:
        """Trained values in float32, also transposed ones."""
        found = weights_of(expr, lambda each: self.definitions.get(each) if isinstance(each, relax.Var) else each)
        usual = found is not None and found.dtype == np.float32 and found.size and bool(np.isfinite(found).all())
        return found if usual else None

    def _bias(self, var: relax.Var, channels: int, is_product: bool) -> tuple[relax.Var | None, Array | None]:
        user = self.sole_user(var)
        call = self.definitions.get(user) if user is not None else None
        if not is_call(call, "add"):
            return None, None
        other = call.args[1] if call.args[0] is var or call.args[0].same_as(var) else call.args[0]
        if not is_constant(other):
            return None, None
        value, rank = array_of(other), len(shape_of(var))
        shape = [1] * rank
        shape[rank - 1 if is_product else 1] = channels
        if (1,) * (rank - value.ndim) + value.shape != tuple(shape) or not np.isfinite(value).all():
            return None, None
        return user, value.reshape(shape)


def _output_axis(weights: Array, groups: int, transposed: bool) -> int:
    """That of the output channels; of a matrix product without groups."""
    return 1 if transposed else 0 if groups else weights.ndim - 1
