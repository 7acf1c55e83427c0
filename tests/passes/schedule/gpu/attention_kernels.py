"""Attention as kernels for GPUs, scheduled and executed on the CPU, and what NumPy computes in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from emulate import run_kernel
from tvm import te, tirx

from nnefc.ir.attributes import RULE
from nnefc.passes.compute.attention.by_query import attend_by_query
from nnefc.passes.compute.attention.problem import Attended, Index, Loads
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cuda import CUDA_RULES
from nnefc.passes.schedule.rule import scheduled
from nnefc.targets.machine.cpu.parsing import parse_target
from nnefc.targets.machine.cuda.target import CudaTarget

__all__ = ["TARGET", "TOLERANCES", "Case", "assert_close"]

TARGET = CudaTarget("cuda", parse_target("llvm"), (80, 90))
TOLERANCES = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 2e-6}
"""How far results may be from those in float64, as a part of the largest value."""

_HIDDEN = float("-inf")


def assert_close(result: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Each element differs by no more than a part of the largest; NaN where NaN is expected."""
    np.testing.assert_array_equal(np.isnan(result), np.isnan(expected))
    error = np.nan_to_num(np.abs(result.astype(np.float64) - expected)).max()
    assert error <= tolerance * np.nanmax(np.abs(expected)), error


@dataclass(frozen=True)
class Case:
    """One attention, of two batch elements and some heads, with scores divided by the root of the size.

    Attributes:
        queries, keys, size: as of `Attended`.
        width: of values; None: as long as queries.
        dtype: of queries, and of the result.
        stored: of keys and values; None: as of queries.
        heads, sharing: of queries, and how many of them share keys.
        mask: what hides keys: nothing, those behind a query, those far from it too, or scores that are added.
        hides_row: whether the added scores hide all keys from the last query of the last batch element.
        seed: of the values.
    """

    queries: int
    keys: int
    size: int
    width: int | None = None
    dtype: str = "float16"
    stored: str | None = None
    heads: int = 2
    sharing: int = 1
    mask: str = ""
    hides_row: bool = False
    window: int = 20
    seed: int = 0

    def __str__(self) -> str:
        names = [f"{self.queries}x{self.keys}x{self.size}", self.dtype, self.stored, self.mask]
        return " ".join(name for name in (*names, f"of {self.sharing}" if self.sharing > 1 else "") if name)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Of queries, keys, values and, where there is one, the mask."""
        width, shared = self.width or self.size, self.heads // self.sharing
        of_queries, of_keys = (2, self.heads, self.queries, self.size), (2, shared, self.keys)
        masks = [(2, 1, self.queries, self.keys)] if self.mask == "added" else []
        return [of_queries, (*of_keys, self.size), (*of_keys, width), *masks]

    @property
    def types(self) -> list[str]:
        stored = self.stored or self.dtype
        return [self.dtype, stored, stored, "float32"][: len(self.shapes)]

    def operands(self) -> list[np.ndarray]:
        """Random values; of the added scores some are minus infinity."""
        rng = np.random.default_rng(self.seed)
        made = [rng.standard_normal(shape).astype(dtype) for shape, dtype in zip(self.shapes, self.types, strict=True)]
        if self.mask == "added":
            made[3][rng.random(made[3].shape) > 0.7] = -np.inf
            made[3][..., 0] = 0
            if self.hides_row:
                made[3][-1, :, -1] = -np.inf
        return made

    def kernel(self) -> tirx.PrimFunc:
        """The computation, without a schedule."""
        operands = [te.placeholder(shape, dtype) for shape, dtype in zip(self.shapes, self.types, strict=True)]
        made = te.create_prim_func([*operands, attend_by_query(self._problem(), self.dtype, operands)], "int64")
        return made.without_attr("global_symbol")

    def _problem(self) -> Attended:
        def element(position: int, sharing: int) -> Callable[[Loads, Index, tirx.Expr, tirx.Expr], tirx.Expr]:
            def read(loads: Loads, batch: Index, row: tirx.Expr, column: tirx.Expr) -> tirx.Expr:
                head = batch[1] if sharing == 1 else tirx.floordiv(batch[1], tirx.IntImm("int64", sharing))
                value = loads[position]([batch[0], head, row, column])
                return value if str(value.expr_ty().dtype) == "float32" else value.astype("float32")

            return read

        past = self.keys - self.queries
        ends = [lambda _loads, _batch, query: query + (past + 1)] if self.mask in ("causal", "window") else []
        firsts = [lambda _loads, _batch, query: query + (past + 1 - self.window)] if self.mask == "window" else []
        width = self.shapes[2][-1]
        return Attended(
            (2, self.heads), self.queries, self.keys, self.size, width,
            element(0, 1), element(1, self.sharing), element(2, self.sharing), self._score, ends, firsts,
            (2, self.queries, self.heads, width), lambda b, query, d: [b[0], query, b[1], d], False,
        )  # fmt: skip

    def _score(self, loads: Loads, batch: Index, query: tirx.Expr, key: tirx.Expr, product: tirx.Expr) -> tirx.Expr:
        score = product * tirx.const(self.size**-0.5, "float32")
        past, hidden = self.keys - self.queries, tirx.const(_HIDDEN, "float32")
        match self.mask:
            case "causal":
                return tirx.Select(key <= query + past, score, hidden)
            case "window":
                seen = tirx.all(key <= query + past, key > query + (past - self.window))
                return tirx.Select(seen, score, hidden)
            case "added":
                return score + loads[3]([batch[0], tirx.IntImm("int64", 0), query, key])
        return score

    def expected(self, operands: Sequence[np.ndarray]) -> np.ndarray:
        """The result in float64."""
        q, k, v = (x.astype(np.float64) for x in operands[:3])
        k, v = (x.repeat(self.sharing, axis=1) for x in (k, v))
        scores = q @ k.swapaxes(-1, -2) * np.float32(self.size**-0.5)
        positions = np.arange(self.keys) - np.arange(self.queries)[:, np.newaxis] - (self.keys - self.queries)
        if self.mask in ("causal", "window"):
            scores[..., positions > 0] = -np.inf
        if self.mask == "window":
            scores[..., positions <= -self.window] = -np.inf
        if self.mask == "added":
            scores = scores + operands[3]
        with np.errstate(invalid="ignore"):
            powers = np.exp(scores - np.maximum(scores.max(-1, keepdims=True), np.finfo(np.float32).min))
            weights = powers / powers.sum(-1, keepdims=True)
        return (weights @ v).swapaxes(1, 2)

    def scheduled(self, target: CudaTarget = TARGET) -> tirx.PrimFunc:
        """The kernel with the schedule of the first rule that knows it."""
        return scheduled(KernelAnalysis(self.kernel()), CUDA_RULES, target)

    def run(self, target: CudaTarget = TARGET) -> tuple[np.ndarray, np.ndarray, str]:
        """What the emulator computes, with all checks; what NumPy computes; and the name of the rule."""
        func, operands = self.scheduled(target), self.operands()
        expected = self.expected(operands)
        result = np.full(expected.shape, np.nan, self.dtype)
        for operand in operands:
            operand.flags.writeable = False
        run_kernel(func, [*operands, result], target)
        return result, expected, str(func.attrs[RULE])
