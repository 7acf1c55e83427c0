"""Computations with positions that at least two formats can say.

What an index that is out of range does differs between the formats: those that are known at compile time are the same.
"""

import numpy as np
from formats import Computation

COMPUTATIONS = [
    Computation("gather", (2, 4, 3), {"i": np.array([[1, 3], [0, -1]], np.int32)}, "gather(x, i, axis = 1)",
                ("Gather", "x i", {"axis": 1})),
    Computation("one hot", (2, 3), {"d": np.array(5), "v": np.array([0, 1])}, None, ("OneHot", "x d v", {"axis": -1}),
                ("F.one_hot num_classes=5", {}), dtype="int64", result="int64"),
    Computation("top k", (3, 7), {"k": np.array([2])}, None, ("TopK", "x k", {"axis": 1}),
                ("torch.topk k=2 dim=1", {}), results=2, result="float32 int64"),
]  # fmt: skip
