"""Computations of matrix products that at least two formats can say."""

from formats import Computation, real

WEIGHTS, BIAS = real(5, 4), real(5)
COMPUTATIONS = [
    Computation(
        "matmul",
        (2, 3, 4),
        {},
        "matmul(x, z)",
        ("MatMul", "x z", {}),
        ("torch.matmul", {}),
        inputs={"z": ((2, 4, 5), "float32")},
    ),
    Computation(
        "matmul of a vector",
        (4,),
        {},
        None,
        ("MatMul", "x z", {}),
        ("torch.matmul", {}),
        inputs={"z": ((2, 4, 5), "float32")},
    ),
    Computation(
        "linear",
        (3, 4),
        {"w": WEIGHTS, "b": BIAS},
        "linear(x, w, b)",
        ("Gemm", "x w b", {"transB": 1}),
        ("nn.Linear in_features=4 out_features=5 bias=True", {"weight": "w", "bias": "b"}),
    ),
    Computation(
        "product and summand",
        (3, 1),
        {},
        None,
        ("Gemm", "a b x", {"alpha": 0.5, "beta": 2.0}),
        ("torch.addmm beta=2.0 alpha=0.5", {}),
        inputs={"a": ((3, 4), "float32"), "b": ((4, 5), "float32")},
    ),
    *(
        Computation(
            f"einsum {equation}",
            (2, 3, 4),
            {},
            None,
            ("Einsum", "x z", {"equation": equation}),
            (f"torch.einsum equation={equation}", {}),
            inputs={"z": (shape, "float32")},
        )
        for equation, shape in (("bij,bjk->bki", (2, 4, 5)), ("...j,j->...", (4,)), ("bij,bkj->bik", (2, 5, 4)))
    ),
    Computation("triangle", (3, 4), {}, None, ("Trilu", "x", {"upper": 0}), ("torch.tril diagonal=0", {})),
]
