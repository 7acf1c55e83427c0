"""Normalizations."""

from __future__ import annotations

from walk import Walk

from spaces.declared import F, axis_of, some, space, weight


@space("BatchNormalization")
def _batch_normalization(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(2, 6))
    c = x.shape[1]
    scale, bias, mean = (weight(w, w.random((c,))) for _ in range(3))
    return w.add(
        name,
        x,
        scale,
        bias,
        mean,
        w.constant(w.rng.uniform(0.3, 2, c).astype(F)),
        **some(w, epsilon=w.real(1e-5, 1e-2)),
    )


@space("InstanceNormalization")
def _instance_normalization(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(3, 6))
    return w.add(name, x, *(weight(w, w.random((x.shape[1],))) for _ in range(2)), epsilon=0.1)


@space("LayerNormalization")
def _layer_normalization(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(1, 5))
    axis = axis_of(w, x)
    shape = x.shape[axis % x.array.ndim :]
    bias = [weight(w, w.random(shape))] if w.chance(0.6) else []  # onnxruntime ends the process for "" in its location
    outputs = w.one(1, 1, 3)
    return w.add(name, x, weight(w, w.random(shape)), *bias, outputs=outputs, axis=axis, epsilon=0.1)


@space("RMSNormalization")
def _rms_normalization(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(1, 5))
    axis = axis_of(w, x)
    scale = weight(w, w.random(x.shape[axis % x.array.ndim :]))
    return w.add(name, x, scale, axis=axis, **some(w, epsilon=w.real(1e-5, 1e-2)))


@space("GroupNormalization")
def _group_normalization(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(3, 5))
    groups = w.one(*(g for g in (1, 2, 3, 4, 8) if x.shape[1] % g == 0))
    return w.add(name, x, *(weight(w, w.random((x.shape[1],))) for _ in range(2)), num_groups=groups, epsilon=0.1)


@space("LRN")
def _lrn(w: Walk, name: str) -> object:
    return w.add(
        name,
        w.pick(ranks=[4]),
        size=w.one(1, 3, 5),
        **some(w, alpha=w.real(0.01, 0.5), beta=w.real(0.3, 1), bias=w.real(1, 2)),
    )


@space("LpNormalization")
def _lp(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(1, 4))
    return w.add(name, x, **some(w, axis=axis_of(w, x), p=w.number(1, 2)))


@space("MeanVarianceNormalization")
def _mvn(w: Walk, name: str) -> object:
    return w.add(name, w.pick(ranks=[4], minimum=64), **some(w, axes=w.one([0, 2], [1, 2, 3], [0, 1, 2, 3], [2, 3])))
