"""Computations of reduction that at least two formats can say."""

import numpy as np
from formats import Computation

AXES = np.array([1, 2])
LAST = np.array(1)
COMPUTATIONS = [
    *(
        Computation(
            f"{name} {'of' if axes == '[1, 2]' else 'of all'}",
            (2, 4, 5),
            {"a": AXES} if axes == "[1, 2]" else {},
            f"{nnef}(x, axes = {axes})" if nnef else None,
            (onnx, "x a" if axes == "[1, 2]" else "x", {}),
            (f"{pnnx} dim=({axes[1:-1].replace(' ', '')}) keepdim=True", {}),
        )
        for axes in ("[1, 2]", "[0, 1, 2]")
        for name, nnef, onnx, pnnx in (
            ("sum", "sum_reduce", "ReduceSum", "torch.sum"),
            ("mean", "mean_reduce", "ReduceMean", "torch.mean"),
            ("max", "max_reduce", "ReduceMax", "torch.amax"),
            ("min", "min_reduce", "ReduceMin", "torch.amin"),
            ("log sum exp", None, "ReduceLogSumExp", "torch.logsumexp"),
            ("1-norm", None, "ReduceL1", "torch.norm p=1"),
            ("2-norm", None, "ReduceL2", "torch.norm p=2"),
        )
    ),
    Computation(
        "product",
        (2, 4, 5),
        {"a": np.array([1])},
        None,
        ("ReduceProd", "x a", {"keepdims": 0}),
        ("torch.prod dim=1", {}),
    ),
    *(
        Computation(
            name,
            (2, 4, 5),
            {},
            None,
            (onnx, "x", {"axis": 1, "keepdims": 0}),
            (f"{pnnx} dim=1 keepdim=False", {}),
            result="int64",
        )
        for name, onnx, pnnx in (("arg max", "ArgMax", "torch.argmax"), ("arg min", "ArgMin", "torch.argmin"))
    ),
    *(
        Computation(
            name,
            (2, 4, 5),
            {},
            f"{nnef}(x, axes = [0, 1])",
            None,
            (f"{pnnx} dim=(0,1) keepdim=True", {}),
            result="bool",
            dtype="bool",
        )
        for name, nnef, pnnx in (("any", "any_reduce", "torch.any"), ("all", "all_reduce", "torch.all"))
    ),
    Computation("running sum", (3, 7), {"a": LAST}, None, ("CumSum", "x a", {}), ("torch.cumsum dim=1", {})),
    Computation(
        "running product", (3, 7), {"a": LAST}, None, ("CumProd", "x a", {}), ("torch.cumprod dim=1", {}), opset=26
    ),
]
