"""Computations that move elements and that at least two formats can say."""

import numpy as np
from formats import Computation

SHAPE = (2, 4, 6)
COMPUTATIONS = [
    *(
        Computation(name, SHAPE, {key: np.array(value) for key, value in constants.items()}, nnef, onnx, pnnx)
        for name, constants, nnef, onnx, pnnx in (
            ("reshape", {"s": [3, -1]}, "reshape(x, shape = [3, -1])", ("Reshape", "x s", {}),
             ("Tensor.reshape shape=(3,-1)", {})),
            ("flatten", {}, "reshape(x, shape = [0, 24])", ("Flatten", "x", {"axis": 1}),
             ("torch.flatten start_dim=1", {})),
            ("unsqueeze", {"a": [1]}, "unsqueeze(x, axes = [1])", ("Unsqueeze", "x a", {}),
             ("torch.unsqueeze dim=1", {})),
            ("transpose", {}, "transpose(x, axes = [2, 0, 1])", ("Transpose", "x", {"perm": [2, 0, 1]}),
             ("torch.permute dims=(2,0,1)", {})),
            ("slice", {"b": [1], "e": [4], "a": [1], "s": [2]},
             "slice(x, axes = [1], begin = [1], end = [4], stride = [2])", ("Slice", "x b e a s", {}),
             ("Tensor.slice dim=1 start=1 end=4 step=2", {})),
            ("slice in reverse", {"b": [4], "e": [0], "a": [2], "s": [-2]},
             "slice(x, axes = [2], begin = [4], end = [0], stride = [-2])", ("Slice", "x b e a s", {}), None),
            ("flip", {"b": [-1], "e": [-9], "a": [1], "s": [-1]}, None, ("Slice", "x b e a s", {}),
             ("torch.flip dims=(1)", {})),
            ("tile", {"r": [1, 3, 2]}, "tile(x, repeats = [1, 3, 2])", ("Tile", "x r", {}),
             ("torch.tile dims=(1,3,2)", {})),
            ("expand", {"s": [3, 2, 4, 6]}, None, ("Expand", "x s", {}), ("Tensor.expand sizes=(3,2,4,6)", {})),
        )
    ),
    Computation("squeeze", (2, 1, 3), {"a": np.array([1])}, "squeeze(x, axes = [1])", ("Squeeze", "x a", {}),
                ("torch.squeeze dim=1", {})),
    Computation("concat", SHAPE, {}, "concat([x, y], axis = 1)", ("Concat", "x y", {"axis": 1}),
                ("torch.cat dim=1", {}), inputs={"y": ((2, 1, 6), "float32")}),
    Computation("stack", SHAPE, {}, "stack([x, y], axis = 1)", None, ("torch.stack dim=1", {}),
                inputs={"y": (SHAPE, "float32")}),
    Computation("split", SHAPE, {"s": np.array([1, 3])}, "split(x, axis = 1, ratios = [1, 3])",
                ("Split", "x s", {"axis": 1}), ("torch.split split_size_or_sections=(1,3) dim=1", {}), results=2),
    Computation("unstack", SHAPE, {}, "unstack(x, axis = 0)", None, ("torch.unbind dim=0", {}), results=2),
    Computation("depth to space", (1, 8, 2, 3), {}, None, ("DepthToSpace", "x", {"blocksize": 2, "mode": "CRD"}),
                ("nn.PixelShuffle upscale_factor=2", {})),
]  # fmt: skip
