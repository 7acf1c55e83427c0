"""Kernels that follow each other in the same part of the workspace keep their order in machine code."""

import numpy as np
from relax_programs import Case, Graph, Value, check


def test_kernels_that_share_workspace_do_not_overtake_each_other() -> None:
    """The mean's kernel has a workspace of its own, where the next kernel then writes its result."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((32, 32, 1, 1)).astype(np.float32)

    def squeeze_and_excite(graph: Graph, x: Value) -> Value:
        mean = graph.reduce("mean", x, [2, 3])
        return graph.binary("multiply", x, graph.unary("sigmoid", graph.convolve(mean, weights)))

    check([Case([rng.standard_normal((1, 32, 5, 13)).astype(np.float32)], squeeze_and_excite)], threads=1)
