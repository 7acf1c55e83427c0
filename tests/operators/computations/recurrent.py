"""Computations of recurrent layers that at least two formats can say."""

import numpy as np
from formats import Computation, real

I, H = 5, 4  # noqa: E741  (what definitions of such layers call them)


def layer(
    name: str, kind: str, order: tuple[int, ...], directions: int, pnnx: str = "", **attributes: object
) -> Computation:
    """The last states of a layer in both formats; `order` says where PyTorch has each of ONNX's gates."""
    gates = len(order)
    rows = np.concatenate([np.arange(H) + H * gate for gate in order])
    ends = ("l0", "l0_reverse")[:directions]
    own = {
        f"{part}_{end}": real(gates * H, *columns)
        for end in ends
        for part, columns in (("weight_ih", (I,)), ("weight_hh", (H,)), ("bias_ih", ()), ("bias_hh", ()))
    }
    stacked = {
        "w": np.stack([own[f"weight_ih_{end}"][rows] for end in ends]),
        "r": np.stack([own[f"weight_hh_{end}"][rows] for end in ends]),
        "b": np.stack([np.concatenate([own[f"bias_{part}_{end}"][rows] for part in ("ih", "hh")]) for end in ends]),
    }
    results = 3 if kind == "LSTM" else 2
    direction = "bidirectional" if directions == 2 else "forward"
    return Computation(
        name,
        (6, 3, I),
        {**stacked, **own},
        None,
        (kind, "x w r b", {"hidden_size": H, "direction": direction, **attributes}),
        (f"nn.{kind} input_size={I} hidden_size={H} bidirectional={directions == 2} {pnnx}", {key: key for key in own}),
        results=results,
        kept=tuple(range(1, results)),
    )


COMPUTATIONS = [
    layer("long short-term memory, both directions", "LSTM", (0, 3, 1, 2), 2),
    layer("gated recurrent units", "GRU", (1, 0, 2), 1, linear_before_reset=1),
    layer("simple recurrent network", "RNN", (0,), 1, "nonlinearity=relu", activations=["Relu"]),
]
