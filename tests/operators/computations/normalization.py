"""Computations of normalization that at least two formats can say."""

from formats import Computation, real

STATISTICS = {"m": real(4), "v": real(4) ** 2, "s": real(4), "b": real(4)}
COMPUTATIONS = [
    Computation(
        "local response",
        (1, 7, 4, 3),
        {},
        None,
        ("LRN", "x", {"size": 5, "alpha": 0.002, "beta": 0.5, "bias": 2.0}),
        ("nn.LocalResponseNorm size=5 alpha=2e-3 beta=0.5 k=2.0", {}),
    ),
    Computation(
        "batch",
        (2, 4, 3, 5),
        STATISTICS | {f"{name}1": value.reshape(1, 4) for name, value in STATISTICS.items()},
        "batch_normalization(x, m1, v1, b1, s1, epsilon = 1e-5)",
        ("BatchNormalization", "x s b m v", {"epsilon": 1e-5}),
        (
            "nn.BatchNorm2d num_features=4 eps=1e-5 affine=True",
            {"weight": "s", "bias": "b", "running_mean": "m", "running_var": "v"},
        ),
    ),
    Computation(
        "instance",
        (2, 4, 7),
        {name: STATISTICS[name] for name in "sb"},
        None,
        ("InstanceNormalization", "x s b", {"epsilon": 1e-5}),
        ("nn.InstanceNorm1d num_features=4 eps=1e-5 affine=True", {"weight": "s", "bias": "b"}),
    ),
    Computation(
        "group",
        (2, 4, 3, 5),
        {name: STATISTICS[name] for name in "sb"},
        None,
        ("GroupNormalization", "x s b", {"epsilon": 1e-5, "num_groups": 2}),
        ("nn.GroupNorm num_groups=2 num_channels=4 eps=1e-5 affine=True", {"weight": "s", "bias": "b"}),
    ),
    Computation(
        "layer",
        (2, 3, 4),
        {name: STATISTICS[name] for name in "sb"},
        None,
        ("LayerNormalization", "x s b", {"epsilon": 1e-5}),
        ("nn.LayerNorm normalized_shape=(4) eps=1e-5 elementwise_affine=True", {"weight": "s", "bias": "b"}),
    ),
    *(
        Computation(
            f"l{order}",
            (2, 4, 3),
            {},
            f"l{order}_normalization(x, axes = [1], epsilon = 1e-5)",
            None,
            (f"F.normalize p={order}.0 dim=1 eps=1e-5", {}),
        )
        for order in (1, 2)
    ),
]
