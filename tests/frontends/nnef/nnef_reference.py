"""NumPy references for NNEF operations, written from the standard: slow, direct, in float64."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

LOWEST = -np.inf  # the maximum of nothing, as in the interpreter of Khronos

Pairs = Sequence[tuple[int, int]]
MODES = {"replicate": "edge", "reflect": "reflect", "reflect-even": "symmetric"}


def left(*arrays: np.ndarray) -> list[np.ndarray]:
    """Arrays with trailing dimensions added, so that NumPy broadcasts them from the left."""
    rank = max(a.ndim for a in arrays)
    return [a.reshape(a.shape + (1,) * (rank - a.ndim)) for a in arrays]


def complete(values: Sequence[int], rank: int) -> list[int]:
    return [*values, *[1] * (rank - len(values))]


def automatic(large: Sequence[int], small: Sequence[int], size, stride, dilation) -> list[tuple[int, int]]:
    pairs = []
    for length, out, f, s, d in zip(large, small, size, stride, dilation, strict=True):
        total = max(0, (out - 1) * s + (f - 1) * d + 1 - length)
        pairs.append((total // 2, total - total // 2))
    return pairs


def windows(x: np.ndarray, size, padding: Pairs, stride, dilation, border: str, outside: float = np.nan) -> np.ndarray:
    """What every window reads: shape [*results, *size]. `outside` stands for what border 'ignore' reads."""
    rank = x.ndim
    size, stride, dilation = (complete(v, rank) for v in (size, stride, dilation))
    if not padding:
        padding = automatic(x.shape, [-(-e // s) for e, s in zip(x.shape, stride, strict=True)], size, stride, dilation)
    x = x.astype(np.float64)
    if border in MODES:
        x = np.pad(x, padding, mode=MODES[border])
    else:
        x = np.pad(x, padding, constant_values=0.0 if border == "constant" else outside)
    results = [(e - (f - 1) * d - 1) // s + 1 for e, f, d, s in zip(x.shape, size, dilation, stride, strict=True)]
    out = np.empty((*results, *size))
    for position in np.ndindex(*results):
        read = tuple(
            slice(p * s, p * s + (f - 1) * d + 1, d)
            for p, s, f, d in zip(position, stride, size, dilation, strict=True)
        )
        out[position] = x[read]
    return out


def box(x, size, padding=(), stride=(), dilation=(), border="constant", normalize=False) -> np.ndarray:
    seen = windows(x, size, padding, stride, dilation, border)
    axes = tuple(range(x.ndim, 2 * x.ndim))
    sums = np.nansum(seen, axes)
    if not normalize:
        return sums
    inside = np.maximum(np.isfinite(seen).sum(axes), 1)
    return sums / (inside if border == "ignore" else np.prod(complete(size, x.ndim)))


def max_pool(x, size, padding=(), stride=(), dilation=(), border="constant") -> np.ndarray:
    return windows(x, size, padding, stride, dilation, border, LOWEST).max(tuple(range(x.ndim, 2 * x.ndim)))


def argmax_pool(x, size, padding=(), stride=(), dilation=(), border="constant") -> np.ndarray:
    seen = windows(x, size, padding, stride, dilation, border, -np.inf)
    return seen.reshape(*seen.shape[: x.ndim], -1).argmax(-1).astype(np.int32)


def sample(x, index, size, padding=(), stride=(), dilation=(), border="constant") -> np.ndarray:
    seen = windows(x, size, padding, stride, dilation, border, 0.0)
    return np.take_along_axis(seen.reshape(*seen.shape[: x.ndim], -1), index[..., None], -1)[..., 0]


def fold(padded: np.ndarray, padding: Pairs, border: str) -> np.ndarray:
    """The transpose of padding: every padded position gives its value to the one it reads."""
    for axis, (p, q) in enumerate(padding):
        size = padded.shape[axis] - p - q
        moved = np.moveaxis(padded, axis, 0)
        out = np.zeros((size, *moved.shape[1:]))
        if border in MODES:
            for slot, source in enumerate(np.pad(np.arange(size), (p, q), mode=MODES[border])):
                out[source] += moved[slot]
        else:
            out += moved[p : p + size]
        padded = np.moveaxis(out, 0, axis)
    return padded


def transposed_geometry(x, size, padding, stride, dilation, output_shape) -> tuple[list[int], list, list, list, list]:
    rank = x.ndim
    size, stride, dilation = (complete(v, rank) for v in (size, stride, dilation))
    reach = [(f - 1) * d + 1 for f, d in zip(size, dilation, strict=True)]
    if output_shape:
        shape = list(output_shape)
    elif padding:
        shape = [(e - 1) * s + r - p - q for e, s, r, (p, q) in zip(x.shape, stride, reach, padding, strict=True)]
    else:
        shape = [e * s for e, s in zip(x.shape, stride, strict=True)]
    padding = list(padding) or automatic(shape, x.shape, size, stride, dilation)
    return shape, padding, size, stride, dilation


def spread(x, values, padding, stride, dilation, size, shape, border) -> np.ndarray:
    """Write `values(position, offset)` of every window into the padded result, then fold the padding."""
    padded = np.zeros([e + p + q for e, (p, q) in zip(shape, padding, strict=True)])
    for position in np.ndindex(*x.shape):
        for offset in np.ndindex(*size):
            slot = tuple(a * s + k * d for a, s, k, d in zip(position, stride, offset, dilation, strict=True))
            if all(a < e for a, e in zip(slot, padded.shape, strict=True)):
                padded[slot] += values(position, offset)
    return fold(padded, padding, border)


def debox(x, size, padding=(), stride=(), dilation=(), border="constant", normalize=False, output_shape=()):
    shape, padding, size, stride, dilation = transposed_geometry(x, size, padding, stride, dilation, output_shape)
    x = x.astype(np.float64)
    counts = np.full(x.shape, float(np.prod(size)))
    if border == "ignore":
        for position in np.ndindex(*x.shape):
            inside = [
                sum(0 <= a * s + k * d - p < e for k in range(f))
                for a, s, d, f, (p, _), e in zip(position, stride, dilation, size, padding, shape, strict=True)
            ]
            counts[position] = np.prod(inside)
    return spread(
        x,
        lambda position, offset: x[position] / (counts[position] if normalize else 1),
        padding,
        stride,
        dilation,
        size,
        shape,
        border,
    )


def desample(x, index, size, padding=(), stride=(), dilation=(), border="constant", output_shape=()):
    shape, padding, size, stride, dilation = transposed_geometry(x, size, padding, stride, dilation, output_shape)
    offsets = list(np.ndindex(*size))
    return spread(
        x,
        lambda position, offset: x[position] if offsets[index[position]] == offset else 0.0,
        padding,
        stride,
        dilation,
        size,
        shape,
        border,
    )


def conv(x, w, bias=0.0, padding=(), stride=(), dilation=(), groups=1, border="constant") -> np.ndarray:
    groups = groups or x.shape[1]
    taken, made = w.shape[1], w.shape[0] // groups
    parts = []
    whole = [(0, 0), (0, 0), *padding] if padding else []
    if not padding:
        rank = x.ndim - 2
        s, d = complete(stride, rank), complete(dilation, rank)
        small = [-(-e // step) for e, step in zip(x.shape[2:], s, strict=True)]
        whole = [(0, 0), (0, 0), *automatic(x.shape[2:], small, w.shape[2:], s, d)]
    for group in range(groups):
        part = x[:, group * taken : (group + 1) * taken]
        seen = windows(part, (1, 1, *w.shape[2:]), whole, (1, 1, *stride), (1, 1, *dilation), border, 0.0)
        seen = seen.reshape(*seen.shape[: x.ndim], -1)
        filters = w[group * made : (group + 1) * made].reshape(made, taken, -1).astype(np.float64)
        parts.append(np.einsum("nc...k,fck->nf...", seen, filters))
    sums = np.concatenate(parts, 1)
    bias = np.asarray(bias, np.float64)
    return sums + (bias if bias.ndim == 0 else bias.reshape(1, -1, *[1] * (x.ndim - 2)))


def deconv(x, w, bias=0.0, padding=(), stride=(), dilation=(), groups=1, border="constant", output_shape=()):
    groups = groups or (output_shape[1] if output_shape else x.shape[1])
    spatial = np.empty(x.shape[2:])
    shape, padding, size, stride, dilation = transposed_geometry(
        spatial, w.shape[2:], padding, stride, dilation, output_shape[2:]
    )
    taken, made = x.shape[1] // groups, w.shape[1]
    out = np.zeros((x.shape[0], made * groups, *shape))
    for n, o in itertools.product(range(out.shape[0]), range(out.shape[1])):
        group, within = divmod(o, made)
        for c in range(group * taken, (group + 1) * taken):
            plane, kernel = x[n, c].astype(np.float64), w[c, within].astype(np.float64)
            out[n, o] += spread(
                plane,
                lambda position, offset, plane=plane, kernel=kernel: plane[position] * kernel[offset],
                padding,
                stride,
                dilation,
                size,
                shape,
                border,
            )
    bias = np.asarray(bias, np.float64)
    return out + (bias if bias.ndim == 0 else bias.reshape(1, -1, *[1] * (x.ndim - 2)))
