"""Computations of pooling that at least two formats can say."""

from formats import Computation

COMPUTATIONS = [
    Computation(
        "largest element",
        (1, 3, 7, 8),
        {},
        "max_pool(x, size = [1, 1, 3, 2], border = 'ignore', stride = [1, 1, 2, 2], "
        "padding = [(0, 0), (0, 0), (1, 1), (0, 0)])",
        ("MaxPool", "x", {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 0]}),
    ),
    Computation(
        "largest element of a last window that is not whole",
        (1, 3, 8, 8),
        {},
        "max_pool(x, size = [1, 1, 3, 3], border = 'ignore', stride = [1, 1, 2, 2], "
        "padding = [(0, 0), (0, 0), (0, 1), (0, 1)])",
        ("MaxPool", "x", {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    ),
    Computation(
        "mean with the padding",
        (1, 3, 9),
        {},
        "avg_pool(x, size = [1, 1, 4], stride = [1, 1, 2], padding = [(0, 0), (0, 0), (2, 2)])",
        ("AveragePool", "x", {"kernel_shape": [4], "strides": [2], "pads": [2, 2], "count_include_pad": 1}),
        ("nn.AvgPool1d kernel_size=(4) stride=(2) padding=(2)", {}),
    ),
    Computation(
        "mean without the padding",
        (1, 2, 5, 6, 7),
        {},
        "avg_pool(x, size = [1, 1, 3, 3, 3], border = 'ignore')",
        ("AveragePool", "x", {"kernel_shape": [3, 3, 3], "pads": [1] * 6}),
        ("nn.AvgPool3d kernel_size=(3,3,3) stride=(1,1,1) padding=(1,1,1) count_include_pad=False", {}),
    ),
    Computation(
        "mean of the padding, and not of what is behind it",
        (1, 3, 8),
        {},
        None,
        (
            "AveragePool",
            "x",
            {"kernel_shape": [3], "strides": [2], "pads": [1, 1], "count_include_pad": 1, "ceil_mode": 1},
        ),
        ("nn.AvgPool1d kernel_size=(3) stride=(2) padding=(1) ceil_mode=True", {}),
    ),
    Computation(
        "norm",
        (1, 3, 8, 6),
        {},
        None,
        ("LpPool", "x", {"kernel_shape": [3, 2], "strides": [2, 2], "p": 2}),
        ("nn.LPPool2d kernel_size=(3,2) stride=(2,2) norm_type=2", {}),
    ),
    Computation(
        "mean of all",
        (2, 3, 5, 4),
        {},
        None,
        ("GlobalAveragePool", "x", {}),
        ("nn.AdaptiveAvgPool2d output_size=(1,1)", {}),
    ),
]
