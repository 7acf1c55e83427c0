"""Computations of resizing that at least two formats can say."""

import numpy as np
from formats import Computation

COMPUTATIONS = [
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
