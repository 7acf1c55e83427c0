"""Random networks of the structures that the passes know: shuffles, gates, padding, quarters, bytes

Each is made with odd counts and sizes, and with other readers where a pass may want none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy_reference as reference
from random_networks import Step, Walk
from relax_programs import Case, Value
from tvm import relax

__all__ = ["bytes_case", "structures_case", "tokens_case"]

_CHANNELS = (4, 6, 9, 12, 15, 16, 18, 20, 24, 30, 32, 33, 35, 40, 48, 64)
_SIZES = {1: (1, 7, 16, 31), 2: (1, 5, 7, 8, 9, 13, 17, 28), 3: (1, 3, 4, 5)}
_TOKENS = (7, 17, 96, 97, 101, 113, 127)
_WIDTHS = (64, 96, 176, 192, 208, 224, 240, 256)


def structures_case(seed: int, steps: int) -> Case:
    """A random graph of about `steps` structures of channels, in one to three dimensions."""
    rng = np.random.default_rng(seed)
    rank = int(rng.choice([1, 2, 2, 2, 2, 3]))
    spatial = [int(size) for size in rng.choice(_SIZES[rank], rank)]
    shape = (int(rng.choice([1, 1, 1, 2, 3])), int(rng.choice(_CHANNELS)), *spatial)
    inputs = [rng.standard_normal(shape).astype(np.float32)]
    return Case(inputs, lambda graph, *xs: _Structures(graph, rng, xs).outputs(steps), 1e-4, f"structures, seed {seed}")


def tokens_case(seed: int, steps: int) -> Case:
    """A random graph of about `steps` steps over rows of numbers, as in networks for text: many large products."""
    rng = np.random.default_rng(seed)
    shape = (*[1] * int(rng.integers(0, 3)), int(rng.choice(_TOKENS)), int(rng.choice(_WIDTHS)))
    inputs = [rng.standard_normal(shape).astype(np.float32)]
    return Case(inputs, lambda graph, *xs: _Tokens(graph, rng, xs).outputs(steps), 1e-4, f"tokens, seed {seed}")


def bytes_case(seed: int, steps: int) -> Case:
    """A random graph of about `steps` structures over bytes, all of whose results are exact."""
    rng = np.random.default_rng(seed)
    rank = int(rng.choice([1, 2, 2, 2, 3]))
    spatial = [int(size) for size in rng.choice(_SIZES[rank], rank)]
    shape = (int(rng.choice([1, 1, 2])), int(rng.choice(_CHANNELS)), *spatial)
    dtype = str(rng.choice(["int8", "uint8"]))
    inputs = [_random_bytes(rng, shape, dtype)]
    return Case(inputs, lambda graph, *xs: _Bytes(graph, rng, xs).outputs(steps), 0, f"bytes, seed {seed}")


def _random_bytes(rng: np.random.Generator, shape: Sequence[int], dtype: str) -> np.ndarray:
    kind = np.iinfo(dtype)
    return rng.integers(kind.min, kind.max, shape, dtype, endpoint=True)


class _Structures(Walk):
    """Takes structures as well as single steps; what is `kept` becomes an output, whatever else reads it."""

    largest = 1 << 16

    def steps(self) -> Sequence[Step]:
        return _OF_CHANNELS

    def pick(self) -> Value:
        """A late value that has channels and positions; the input is one."""
        found = [v for v in self.values if 3 <= len(v.shape) <= 5]
        return found[-1 - min(int(self.rng.exponential(2.0)), len(found) - 1)]

    def filters(self, outputs: int, inputs: int, kernel: Sequence[int]) -> np.ndarray:
        return self.random((outputs, inputs, *kernel), 1 / math.sqrt(inputs * math.prod(kernel)))

    def pointwise(self, x: Value, outputs: int, groups: int = 1) -> Value:
        ones = (1,) * (len(x.shape) - 2)
        return self.graph.convolve(x, self.filters(outputs, x.shape[1] // groups, ones), groups=groups)

    def divisor(self, number: int) -> int:
        return int(self.rng.choice([d for d in range(1, number + 1) if number % d == 0]))

    def depthwise(self, x: Value) -> Value:
        """A filter of three taps for each channel."""
        rank = len(x.shape) - 2
        return self.graph.convolve(
            x, self.filters(x.shape[1], 1, [3] * rank), self.some(1, 2, 1)[0], 1, groups=x.shape[1]
        )

    def shuffle(self, x: Value) -> Value:
        """Channels of `groups` groups interleaved."""
        groups = self.divisor(x.shape[1])
        batch, channels, *spatial = x.shape
        seen = self.graph.reshape(x, (batch, groups, channels // groups, *spatial))
        swapped = self.graph.transpose(seen, [0, 2, 1, *range(3, len(seen.shape))])
        return self.graph.reshape(swapped, x.shape)

    def grouped(self, x: Value) -> Value:
        """A grouped convolution, perhaps after one and a shuffle."""
        rank, groups = len(x.shape) - 2, self.divisor(x.shape[1])
        if self.chance(0.5):
            x = self.shuffle(self.pointwise(x, groups * int(self.rng.integers(1, 9)), groups))
            groups = self.divisor(x.shape[1])
        kernel = [1] * rank if self.chance(0.5) else [3] * rank
        filters = self.filters(groups * int(self.rng.integers(1, 20)), x.shape[1] // groups, kernel)
        return self.graph.convolve(x, filters, padding=kernel[0] // 2, groups=groups)

    def some_channels(self, x: Value) -> Value | None:
        """A slice of the channels, with what may follow."""
        channels = x.shape[1]
        if channels < 3:
            return None
        begin = int(self.rng.integers(0, channels - 1))
        y = self.graph.slice(x, 1, begin, int(self.rng.integers(begin + 1, channels + 1)), self.some(1, 3, 1)[0])
        match int(self.rng.integers(5)):
            case 0:
                return self.pointwise(y, int(self.rng.choice(_CHANNELS)))
            case 1:
                return self.depthwise(y)
            case 2:
                return self.graph.concatenate([y, x], 1)
            case 3:
                return self.per_channel(y)
        return y

    def shuffled_unit(self, x: Value) -> Value | None:
        """Half of the channels through convolutions, next to the other half, and all shuffled."""
        if x.shape[1] % 2:
            return None
        if self.chance(0.5):
            left, right = self.graph.split(x, [x.shape[1] // 2], 1)
        else:
            left = self.graph.slice(x, 1, 0, x.shape[1] // 2)
            right = self.graph.slice(x, 1, x.shape[1] // 2, x.shape[1])
        right = self.graph.unary("relu", self.pointwise(right, right.shape[1]))
        if self.chance(0.5):
            filters = self.filters(right.shape[1], 1, [3] * (len(x.shape) - 2))
            right = self.graph.convolve(right, filters, 1, 1, groups=right.shape[1])
        joined = self.graph.concatenate([left, right] if self.chance(0.7) else [right, left], 1)
        return self.shuffle(joined)

    def taken(self, x: Value) -> Value:
        """Channels in any order; of some, perhaps twice."""
        count = int(self.rng.integers(1, x.shape[1] + 1))
        positions = self.rng.choice(x.shape[1], count, replace=self.chance(0.2))
        return self.graph.emit(relax.op.take(x.expr, relax.const(positions.astype(np.int32)), 1), x.array[:, positions])

    def enlarged(self, x: Value) -> Value | None:
        """Each position of an image several times."""
        if len(x.shape) != 4:
            return None
        factors = self.some(1, 3, 2)
        expr = relax.op.image.resize2d(
            x.expr,
            relax.ShapeExpr([size * factor for size, factor in zip(x.shape[2:], factors, strict=True)]),
            layout="NCHW",
            method="nearest_neighbor",
            coordinate_transformation_mode="asymmetric",
            rounding_method="floor",
        )
        return self.graph.emit(expr, x.array.repeat(factors[0], 2).repeat(factors[1], 3))

    def framed(self, x: Value) -> Value:
        """Some number around the positions, before what may add zeros."""
        rank, number = len(x.shape) - 2, float(self.rng.choice([0.0, 1.0, -0.5]))
        widths = [(0, 0), (0, 0), *[tuple(self.some(0, 2, 2)) for _ in range(rank)]]
        flat = [width for pair in widths for width in pair]
        array = np.pad(x.array, widths, constant_values=number)
        padded = self.graph.emit(relax.op.nn.pad(x.expr, flat, "constant", number), array)
        return self.depthwise(padded) if self.chance(0.5) else padded

    def parts(self, x: Value) -> Value | None:
        """Several parts of the channels, each with an operation of its own, in another order together again."""
        count = min(int(self.rng.integers(2, 5)), x.shape[1])
        if count < 2:
            return None
        seams = sorted(int(s) + 1 for s in self.rng.choice(x.shape[1] - 1, count - 1, replace=False))
        made = [self.changed(part) for part in self.graph.split(x, seams, 1)]
        if self.chance(0.5):
            self.kept.append(made[int(self.rng.integers(count))])
        return self.graph.concatenate([made[int(i)] for i in self.rng.permutation(count)], 1)

    def changed(self, x: Value) -> Value:
        """A value of the same shape."""
        match int(self.rng.integers(4)):
            case 0:
                return self.activation(x)
            case 1:
                return self.pointwise(x, x.shape[1])
            case 2:
                return self.graph.convolve(
                    x, self.filters(x.shape[1], 1, [3] * (len(x.shape) - 2)), 1, 1, groups=x.shape[1]
                )
        return x

    def padded_with_others(self, x: Value) -> Value:
        """A tensor that is read with padding, with other padding, and as it is."""
        rank = len(x.shape) - 2
        inner = self.graph.unary("relu", self.pointwise(x, int(self.rng.choice(_CHANNELS))))
        if self.chance(0.3):
            inner = self.graph.max_pool(inner, [3] * rank, padding=1)
        readers = [
            lambda: self.graph.convolve(inner, self.filters(9, inner.shape[1], [3] * rank), padding=1),
            lambda: self.depthwise(inner),
            lambda: self.graph.max_pool(inner, [3] * rank, self.some(1, 2, 1)[0], 1),
            lambda: self.graph.average_pool(inner, [3] * rank, 1, 1, count_include_pad=self.chance(0.5)),
            lambda: self.graph.convolve(inner, self.filters(5, inner.shape[1], [5] * rank), 2, 2),
            lambda: self.pointwise(inner, 7),
            lambda: self.graph.unary("tanh", inner),
            lambda: self.graph.reduce("mean", inner, range(2, rank + 2)),
            lambda: inner,
        ]
        chosen = [readers[int(i)]() for i in self.rng.choice(len(readers), 3, replace=False)]
        self.kept += [value for value in chosen[1:] if self.chance(0.5)]
        self.values += chosen[1:]
        return chosen[0]

    def excitation(self, x: Value) -> Value:
        """A factor for each channel, and a convolution of the product or something else."""
        rank = len(x.shape) - 2
        base = self.changed(x)
        mean = self.graph.reduce(str(self.rng.choice(["mean", "max"])), base, range(2, rank + 2))
        narrow = self.graph.unary("relu", self.pointwise(mean, int(self.rng.integers(1, 20))))
        factor = self.graph.unary("sigmoid", self.pointwise(narrow, x.shape[1]))
        if self.chance(0.15):
            base = self.graph.constant(self.random(x.shape))
        product = self.graph.binary("multiply", *((base, factor) if self.chance(0.6) else (factor, base)))
        if self.chance(0.2):
            self.kept.append(product)
        if self.chance(0.2):
            product = self.shuffle(product)
        if self.chance(0.3):
            kernel = [3] * rank
            return self.graph.convolve(product, self.filters(11, x.shape[1], kernel), padding=1)
        return self.pointwise(product, int(self.rng.choice(_CHANNELS))) if self.chance(0.7) else product

    def residual_across_concatenation(self, x: Value) -> Value:
        """A sum of a concatenation and of what was made of it, next to one of its parts."""
        first = self.graph.unary("relu", self.pointwise(x, int(self.rng.choice(_CHANNELS))))
        both = self.graph.concatenate([x, first] if self.chance(0.5) else [first, x], 1)
        total = self.graph.binary("add", both, self.changed(self.pointwise(both, both.shape[1])))
        if self.chance(0.3):
            self.kept.append(both)
        return self.graph.concatenate([total, first], 1) if self.chance(0.4) else total

    def response(self, x: Value) -> Value:
        """Local response normalization, mostly of blocked data."""
        if self.chance(0.7):
            x = self.graph.unary("relu", self.pointwise(x, int(self.rng.choice(_CHANNELS))))
        before, after = self.some(0, int(self.rng.choice([1, 3, 9])), 2)
        bias, beta = float(self.rng.choice([1.0, 2.0])), float(self.rng.choice([0.5, 0.75, 1.0, 0.6]))
        return self.graph.local_response(x, before, after, float(self.rng.choice([0.1, 1e-4, 1.0])), bias, beta)


class _Tokens(Walk):
    largest = 1 << 16

    def steps(self) -> Sequence[Step]:
        return _OF_ROWS

    def large_product(self, x: Value) -> Value | None:
        if len(x.shape) < 2:
            return None
        depth, columns = x.shape[-1], int(self.rng.choice(_WIDTHS))
        result = self.graph.matmul(x, self.graph.constant(self.random((depth, columns), 1 / math.sqrt(depth))))
        if self.chance(0.6):
            result = self.graph.binary("add", result, self.graph.constant(self.random((columns,))))
        if self.chance(0.5):
            result = self.activation(result)
        if result.shape == x.shape and self.chance(0.5):
            result = self.graph.binary("add", result, x)
        return result

    def per_column(self, x: Value) -> Value:
        array = self.random((x.shape[-1],))
        return self.graph.binary(str(self.rng.choice(["add", "multiply"])), x, self.graph.constant(array))

    def normalized(self, x: Value) -> Value:
        mean = self.graph.reduce("mean", x, [len(x.shape) - 1])
        centred = self.graph.binary("subtract", x, mean)
        variance = self.graph.reduce("mean", self.graph.unary("square", centred), [len(x.shape) - 1])
        shifted = self.graph.binary("add", variance, self.graph.constant(np.float32(0.01)))
        return self.graph.binary("multiply", centred, self.graph.unary("rsqrt", shifted))

    def attention(self, x: Value) -> Value | None:
        if len(x.shape) != 3 or x.shape[-1] % 16:
            return None
        batch, rows, width = x.shape
        heads = int(self.rng.choice([1, 2, 4]))

        def head(axes: Sequence[int]) -> Value:
            weights = self.graph.constant(self.random((width, width), 1 / math.sqrt(width)))
            seen = self.graph.reshape(self.graph.matmul(x, weights), (batch, rows, heads, width // heads))
            return self.graph.transpose(seen, axes)

        queries, keys, values = head([0, 2, 1, 3]), head([0, 2, 3, 1]), head([0, 2, 1, 3])
        scale = self.graph.constant(np.float32(math.sqrt(heads / width)))
        scores = self.graph.binary("multiply", self.graph.matmul(queries, keys), scale)
        mixed = self.graph.matmul(self.graph.softmax(scores, 3), values)
        return self.graph.reshape(self.graph.transpose(mixed, [0, 2, 1, 3]), x.shape)

    def transposed(self, x: Value) -> Value | None:
        """Rows as columns, through a product, and back."""
        if len(x.shape) < 2:
            return None
        axes = [*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2]
        transposed = self.graph.transpose(x, axes)
        weights = self.random((transposed.shape[-1], transposed.shape[-1]), 1 / math.sqrt(transposed.shape[-1]))
        return self.graph.transpose(self.graph.matmul(transposed, self.graph.constant(weights)), axes)


class _Bytes(_Structures):
    """Values are bytes, or sums of products of bytes."""

    def steps(self) -> Sequence[Step]:
        return _OF_BYTES

    def calmed(self, value: Value) -> Value:
        return value

    def largest_byte(self, x: Value) -> Value:
        return self.graph.max_pool(x, [3] * (len(x.shape) - 2), self.some(1, 2, 1)[0], 1)

    def piece(self, x: Value) -> Value | None:
        return self.slice(x) if self.chance(0.5) else self.split(x)

    def joined(self, x: Value) -> Value:
        alike = [
            v for v in self.values if v.dtype == x.dtype and v.shape[:1] + v.shape[2:] == x.shape[:1] + x.shape[2:]
        ]
        return self.graph.concatenate([x, alike[int(self.rng.integers(len(alike)))]], 1)

    def sums(self, x: Value) -> Value:
        """A convolution of bytes, in int32."""
        rank, channels = len(x.shape) - 2, x.shape[1]
        groups = self.divisor(channels) if self.chance(0.5) else 1
        groups = channels if self.chance(0.2) else groups
        outputs = groups * int(self.rng.integers(1, 2 if groups == channels and self.chance(0.7) else 20))
        kernel = [1] * rank if self.chance(0.5) else [3] * rank
        filters = _random_bytes(
            self.rng, (outputs, channels // groups, *kernel), str(self.rng.choice(["int8", "uint8"]))
        )
        padding, strides = [kernel[0] // 2] * 2 * rank, self.some(1, 2, 1) * rank
        data, array = x.expr, x.array
        if self.chance(0.3):
            value = int(_random_bytes(self.rng, (), x.dtype))
            widths = [(0, 0), (0, 0), *[(1, 1)] * rank]
            data = self.graph.emit(
                relax.op.nn.pad(data, [w for pair in widths for w in pair], "constant", value),
                np.pad(array, widths, constant_values=value),
            )
            data, array, padding = data.expr, data.array, [0] * 2 * rank
        convolve = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}[rank]
        weights = relax.const(filters, str(filters.dtype))
        expr = convolve(data, weights, strides, padding, [1] * rank, groups, out_dtype="int32")
        sums = reference.convolve(array, filters, strides, padding, [1] * rank, groups)
        return self.graph.emit(expr, np.rint(sums).astype(np.int32))

    def integer_convolution(self, x: Value) -> Value:
        return self.reduced(self.sums(x))

    def sum_and_other(self, x: Value) -> Value:
        """Sums that are read as numbers too."""
        sums = self.sums(x)
        self.kept.append(self.graph.cast(sums, "float32") if self.chance(0.5) else sums)
        return self.reduced(sums)

    def reduced(self, sums: Value) -> Value:
        """The upper bits of sums as bytes again."""
        dtype = str(self.rng.choice(["int8", "uint8"]))
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        shift = max(0, int(np.abs(sums.array).max(initial=1)).bit_length() - 7)
        shifted = self.graph.emit(
            relax.op.right_shift(sums.expr, relax.const(shift, "int32")), np.right_shift(sums.array, shift)
        )
        above = self.graph.binary("maximum", shifted, self.graph.constant(np.array(low, np.int32)))
        return self.graph.cast(
            self.graph.binary("minimum", above, self.graph.constant(np.array(high, np.int32))), dtype
        )


_OF_CHANNELS: tuple[Step, ...] = (
    Walk.convolution,
    Walk.pooling,
    Walk.activation,
    Walk.per_channel,
    Walk.join,
    Walk.concatenation,
    Walk.wild,
    Walk.reduction,
    Walk.transpose,
    *[_Structures.shuffle] * 2,
    *[_Structures.shuffled_unit] * 2,
    *[_Structures.grouped] * 2,
    *[_Structures.some_channels] * 2,
    _Structures.parts,
    *[_Structures.padded_with_others] * 3,
    *[_Structures.excitation] * 2,
    *[_Structures.residual_across_concatenation] * 2,
    _Structures.response,
    _Structures.depthwise,
    _Structures.taken,
    _Structures.enlarged,
    _Structures.framed,
)

_OF_ROWS: tuple[Step, ...] = (
    Walk.activation,
    Walk.join,
    Walk.softmax,
    Walk.transpose,
    Walk.square_and_transpose,
    Walk.slice,
    Walk.product,
    _Tokens.per_column,
    *[_Tokens.large_product] * 6,
    _Tokens.normalized,
    *[_Tokens.attention] * 2,
    _Tokens.transposed,
)

_OF_BYTES: tuple[Step, ...] = (
    *[_Bytes.integer_convolution] * 5,
    *[_Bytes.shuffle] * 2,
    _Bytes.largest_byte,
    _Bytes.taken,
    _Bytes.enlarged,
    _Bytes.joined,
    _Bytes.piece,
    _Bytes.sum_and_other,
)
