"""Computations that at least two formats can say, by family."""

from __future__ import annotations

import numpy as np
from formats import Computation

__all__ = ["COMPUTATIONS"]

RNG = np.random.default_rng(5)


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


CONVOLUTIONS = [
    Computation(
        "convolution",
        (2, 4, 7, 9),
        {"w": real(6, 4, 3, 3), "b": real(6)},
        "conv(x, w, b, stride = [2, 1], padding = [(1, 1), (2, 2)], dilation = [1, 2])",
        ("Conv", "x w b", {"strides": [2, 1], "pads": [1, 2, 1, 2], "dilations": [1, 2]}),
        (
            "nn.Conv2d in_channels=4 out_channels=6 kernel_size=(3,3) stride=(2,1) padding=(1,2) dilation=(1,2) "
            "bias=True",
            {"weight": "w", "bias": "b"},
        ),
    ),
    Computation(
        "convolution in groups, with as many results as inputs",
        (1, 6, 11),
        {"w": real(6, 1, 4)},
        "conv(x, w, groups = 0)",
        ("Conv", "x w", {"group": 6, "auto_pad": "SAME_UPPER"}),
        ("nn.Conv1d in_channels=6 out_channels=6 kernel_size=(4) padding=same groups=6 bias=False", {"weight": "w"}),
    ),
    Computation(
        "transposed convolution",
        (1, 4, 5, 6),
        {"w": real(4, 3, 3, 3), "b": real(3)},
        "deconv(x, w, b, stride = [2, 2], padding = [(1, 1), (1, 1)], output_shape = [1, 3, 10, 12])",
        ("ConvTranspose", "x w b", {"strides": [2, 2], "pads": [1] * 4, "output_padding": [1, 1]}),
        (
            "nn.ConvTranspose2d in_channels=4 out_channels=3 kernel_size=(3,3) stride=(2,2) padding=(1,1) "
            "output_padding=(1,1) bias=True",
            {"weight": "w", "bias": "b"},
        ),
    ),
    Computation(
        "transposed convolution in groups",
        (1, 4, 5),
        {"w": real(4, 1, 4)},
        "deconv(x, w, stride = [3], padding = [(1, 1)], groups = 4)",
        ("ConvTranspose", "x w", {"strides": [3], "pads": [1, 1], "group": 4}),
        (
            "nn.ConvTranspose1d in_channels=4 out_channels=4 kernel_size=(4) stride=(3) padding=(1) groups=4 "
            "bias=False",
            {"weight": "w"},
        ),
    ),
    Computation(
        "transposed convolution with a dilation",
        (1, 2, 5, 4, 3),
        {"w": real(2, 2, 2, 3, 1)},
        "deconv(x, w, stride = [1, 2, 1], padding = [(0, 0), (0, 0), (0, 0)], dilation = [2, 1, 1])",
        ("ConvTranspose", "x w", {"strides": [1, 2, 1], "dilations": [2, 1, 1]}),
        (
            "nn.ConvTranspose3d in_channels=2 out_channels=2 kernel_size=(2,3,1) stride=(1,2,1) dilation=(2,1,1) "
            "bias=False",
            {"weight": "w"},
        ),
    ),
]

POOLINGS = [
    Computation(
        "largest item",
        (1, 3, 7, 8),
        {},
        "max_pool(x, size = [1, 1, 3, 2], border = 'ignore', stride = [1, 1, 2, 2], "
        "padding = [(0, 0), (0, 0), (1, 1), (0, 0)])",
        ("MaxPool", "x", {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 0]}),
        ("nn.MaxPool2d kernel_size=(3,2) stride=(2,2) padding=(1,0)", {}),
    ),
    Computation(
        "largest item of a last window that is not whole",
        (1, 3, 8, 8),
        {},
        "max_pool(x, size = [1, 1, 3, 3], border = 'ignore', stride = [1, 1, 2, 2], "
        "padding = [(0, 0), (0, 0), (0, 1), (0, 1)])",
        ("MaxPool", "x", {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
        ("nn.MaxPool2d kernel_size=(3,3) stride=(2,2) ceil_mode=True", {}),
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

STATISTICS = {"m": real(4), "v": real(4) ** 2, "s": real(4), "b": real(4)}
NORMALIZATIONS = [
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
]

PADS = [0, 0, 1, 2, 0, 0, 3, 0]
PADDINGS = [
    *(
        Computation(
            f"padding: {mode}",
            (1, 2, 5, 6),
            {"pads": np.array(PADS)},
            None,
            ("Pad", "x pads", {"mode": mode}),
            (f"F.pad mode={torch} pad=(2,0,1,3)", {}),
        )
        for mode, torch in (
            ("constant", "constant"),
            ("reflect", "reflect"),
            ("edge", "replicate"),
            ("wrap", "circular"),
        )
    ),
    *(
        Computation(
            f"padding: NNEF's {border}",
            (1, 2, 5, 6),
            {},
            f"pad(x, padding = [(0, 0), (0, 0), (1, 3), (2, 0)], border = '{border}')",
            None,
            (f"F.pad mode={border} pad=(2,0,1,3)", {}),
        )
        for border in ("constant", "reflect", "replicate")
    ),
]

RESOLUTIONS = [
    Computation(
        "nearest neighbours, whole factors",
        (1, 4, 3, 5),
        {"scales": np.array([1, 1, 2, 3], np.float32)},
        "nearest_upsample(x, factor = [2, 3])",
        ("Resize", "x  scales", {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}),
        ("nn.Upsample mode=nearest scale_factor=(2.0,3.0)", {}),
    ),
    Computation(
        "linear between the corners",
        (1, 4, 3, 5),
        {"scales": np.array([1, 1, 2, 2], np.float32)},
        "multilinear_upsample(x, factor = [2, 2], method = 'aligned')",
        ("Resize", "x  scales", {"coordinate_transformation_mode": "align_corners", "mode": "linear"}),
        ("nn.UpsamplingBilinear2d scale_factor=(2.0,2.0)", {}),
    ),
    Computation(
        "linear between the middles",
        (1, 4, 6),
        {"scales": np.array([1, 1, 3], np.float32)},
        "multilinear_upsample(x, factor = [3])",
        ("Resize", "x  scales", {"mode": "linear"}),
        ("F.interpolate mode=linear scale_factor=3.0 align_corners=False", {}),
    ),
    Computation(
        "cubic",
        (1, 2, 7, 6),
        {"sizes": np.array([1, 2, 10, 4])},
        None,
        ("Resize", "x   sizes", {"mode": "cubic"}),
        ("F.interpolate mode=bicubic size=(10,4) align_corners=False", {}),
    ),
]

SLOPES = real(1, 4, 1)
ACTIVATIONS = [
    Computation(name, (2, 4, 5), constants, nnef, onnx, pnnx, opset=24)
    for name, constants, nnef, onnx, pnnx in (
        ("relu", {}, "relu(x)", ("Relu", "x", {}), ("nn.ReLU", {})),
        ("leaky relu", {}, "leaky_relu(x, alpha = 0.25)", ("LeakyRelu", "x", {"alpha": 0.25}),
         ("nn.LeakyReLU negative_slope=0.25", {})),
        ("parametric relu", {"s": SLOPES, "v": SLOPES.reshape(4)}, "prelu(x, s)", ("PRelu", "x s", {}),
         ("nn.PReLU num_parameters=4", {"weight": "v"})),
        ("elu", {}, "elu(x, alpha = 0.5)", ("Elu", "x", {"alpha": 0.5}), ("nn.ELU alpha=0.5", {})),
        ("celu", {}, None, ("Celu", "x", {"alpha": 0.5}), ("nn.CELU alpha=0.5", {})),
        ("silu", {}, "silu(x)", ("Swish", "x", {}), ("nn.SiLU", {})),
        ("gelu", {}, None, ("Gelu", "x", {}), ("nn.GELU", {})),
        ("gelu by tanh", {}, None, ("Gelu", "x", {"approximate": "tanh"}), ("nn.GELU approximate=tanh", {})),
        ("hard sigmoid", {}, None, ("HardSigmoid", "x", {"alpha": 1 / 6}), ("nn.Hardsigmoid", {})),
        ("hard swish", {}, None, ("HardSwish", "x", {}), ("nn.Hardswish", {})),
        ("soft shrink", {}, None, ("Shrink", "x", {"lambd": 0.5, "bias": 0.5}), ("nn.Softshrink lambd=0.5", {})),
        ("softplus", {}, "softplus(x)", ("Softplus", "x", {}), ("nn.Softplus beta=1.0 threshold=20.0", {})),
        ("softsign", {}, None, ("Softsign", "x", {}), ("nn.Softsign", {})),
        ("mish", {}, None, ("Mish", "x", {}), ("nn.Mish", {})),
        ("thresholded relu", {}, None, ("ThresholdedRelu", "x", {"alpha": 0.5}),
         ("nn.Threshold threshold=0.5 value=0.0", {})),
        ("softmax", {}, "softmax(x, axes = [1])", ("Softmax", "x", {"axis": 1}), ("nn.Softmax dim=1", {})),
        ("log softmax", {}, None, ("LogSoftmax", "x", {"axis": -1}), ("nn.LogSoftmax dim=2", {})),
    )
]  # fmt: skip

COMPUTATIONS = [*CONVOLUTIONS, *POOLINGS, *NORMALIZATIONS, *PADDINGS, *RESOLUTIONS, *ACTIVATIONS]
