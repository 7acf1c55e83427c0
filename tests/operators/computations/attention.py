"""Computations of attention that at least two formats can say."""

from formats import Computation

HEADS = {"k": ((2, 4, 5, 8), "float32"), "v": ((2, 4, 5, 6), "float32")}
SHARED = {"k": ((2, 2, 3, 8), "float32"), "v": ((2, 2, 3, 8), "float32")}
COMPUTATIONS = [
    Computation(
        "attention",
        (2, 4, 3, 8),
        {},
        None,
        ("Attention", "x k v", {}),
        ("F.scaled_dot_product_attention", {}),
        opset=24,
        inputs=HEADS,
    ),
    Computation(
        "attention with a mask",
        (2, 4, 3, 8),
        {},
        None,
        ("Attention", "x k v m", {"scale": 0.5}),
        ("F.scaled_dot_product_attention scale=0.5", {}),
        opset=24,
        inputs={**HEADS, "m": ((3, 5), "bool")},
    ),
    Computation(
        "causal attention of shared heads",
        (2, 4, 3, 8),
        {},
        None,
        ("Attention", "x k v", {"is_causal": 1}),
        ("F.scaled_dot_product_attention is_causal=True enable_gqa=True", {}),
        opset=23,
        inputs=SHARED,
    ),
]
