"""Computations of padding that at least two formats can say."""

import numpy as np
from formats import Computation

PADS = [0, 0, 1, 2, 0, 0, 3, 0]
COMPUTATIONS = [
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
