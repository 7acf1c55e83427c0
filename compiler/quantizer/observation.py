"""Computes intermediate results of a network on calibration data, with a library that returns them as its outputs.

y = conv2d(x, W)                        y = conv2d(x, W)
return softmax(y)       becomes         return min(y, [0, 2, 3]), max(y, [0, 2, 3])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import tvm
from tvm import relax

from nnefc.driver.artifact import Artifact
from nnefc.ir.network import Network
from nnefc.passes.graph.rewriter import Rewriter, shape_of
from nnefc.quantizer.calibration import Samples
from nnefc.support.diagnostics import CompileError
from nnefc.support.element_types import element_bytes
from nnefc.symbolic.dims import size_hint

__all__ = ["Compile", "Made", "observed", "results", "returned_together", "returning"]

Array = np.ndarray[Any, Any]

Compile = Callable[[Network], Artifact]
"""Makes a library of a network, for this machine."""

Made = Callable[[relax.BlockBuilder], Sequence[relax.Expr]]
"""What to return of a network: expressions of its variables, or of others that it emits."""


def observed(network: Network, made: Made, compiled: Compile, samples: Samples) -> Iterator[list[Array]]:
    """Yields the tensors that `made` requests, for each run in turn.

    Raises:
        CompileError: the data do not fit the network, or this machine does not run its own code.
    """
    artifact = compiled(returning(network, made))
    yield from results(artifact, samples)


def results(artifact: Artifact, samples: Samples) -> Iterator[list[Array]]:
    """The outputs of a library, in their order, of each run.

    Raises:
        CompileError: the data do not fit the network, or this machine does not run its own code.
    """
    from nnefc.loader import LoadError, RunError

    try:
        with artifact.load() as model:
            for sample in samples:
                model.reset()
                yield list(model.run(sample).values())
    except LoadError as error:
        raise CompileError(f"calibration runs the network here, and this machine does not run it: {error}") from error
    except RunError as error:
        raise CompileError(f"the calibration does not fit the network: {error}") from error


def returning(network: Network, made: Made) -> Network:
    """Returns a network with outputs `result0`, `result1`, … that `made` requests, instead of its own."""
    rewriter = _Returning(network.module, made, len(network.outputs))
    module = relax.transform.DeadCodeElimination()(rewriter.transform())
    names = tuple(f"result{number}" for number in range(rewriter.count))
    texts = network.texts & set(network.inputs)
    return replace(network, module=module, outputs=names, labels={}, texts=texts)


def returned_together(tensors: Sequence[relax.Var]) -> Iterator[list[relax.Var]]:
    """Variables of a network, in groups that one library can return without taking too much memory."""
    group: list[relax.Var] = []
    size = 0
    for var in tensors:
        own = element_bytes(str(var.ty.dtype)) * math.prod(size_hint(each) for each in shape_of(var))
        if group and size + own > _TENSOR_BYTES:
            yield group
            group, size = [], 0
        group.append(var)
        size += own
    if group:
        yield group


_TENSOR_BYTES = 512 << 20
"""Of intermediate results that one library returns."""


class _Returning(Rewriter):
    def __init__(self, mod: tvm.IRModule, made: Made, outputs: int) -> None:
        super().__init__(mod)
        self._made, self._outputs = made, outputs
        self.count = 0

    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        return call

    def result(self, expr: relax.Expr) -> relax.Expr:
        whole = self.replaced(expr)
        made = self._made(self.builder)
        asked = [self.replaced(each) if isinstance(each, relax.Var) else self.builder.emit(each) for each in made]
        self.count = len(asked)
        return relax.Tuple([*asked, *list(whole.fields)[self._outputs :]])
