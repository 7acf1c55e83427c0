"""Invokes Arm's Ethos-U: a command stream that Vela compiled, run by a function of the program.

The unit reads weights, and reads and writes one block of memory, the arena. Inputs and results have offsets in it:

    memcpy(arena + 64, x, 96);
    status = ethosu_run_commands(commands, bytes, {weights, arena, cache}, sizes, 3);
    memcpy(y, arena + 0, 32);
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nnefc.ir.extern_c import CSource
from nnefc.operators.base import Array, Emitter, Operand, Operator, Shape, dtype_of, shape_of
from nnefc.operators.c_function import call_c
from nnefc.operators.dtypes import numpy_dtype
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import is_known

__all__ = ["HOOK", "EthosUCommands"]

HOOK = "ethosu_run_commands"
"""The function that programs define."""

_FUNCTION = "ethos_u"


@dataclass(frozen=True, eq=False)
class EthosUCommands(Operator):
    """The computation of a command stream.

    Attributes:
        commands, weights: bytes that the unit reads.
        arena, cache: sizes of the memory that it works with, in bytes; a cache of none is the arena.
        results: their shapes and element types.
        inputs_at, results_at: offsets in the arena.
    """

    commands: Array
    weights: Array
    arena: int
    cache: int
    results: tuple[tuple[Shape, str], ...]
    inputs_at: tuple[int, ...]
    results_at: tuple[int, ...]

    def shape(self, *inputs: Shape) -> tuple[Shape, ...]:
        """Return the shapes that the file declares."""
        return tuple(shape for shape, _ in self.results)

    def lower(self, ctx: Emitter, *inputs: Operand) -> tuple[Operand, ...]:
        """Inputs of known sizes.

        Raises:
            CompileError: something lies outside of the arena.
        """
        given = [(shape_of(x), dtype_of(x)) for x in inputs]
        for (shape, dtype), offset in zip([*given, *self.results], [*self.inputs_at, *self.results_at], strict=True):
            if not is_known(*shape) or not 0 <= offset <= self.arena - _bytes(shape, dtype):
                raise CompileError(f"a tensor {list(shape)} of {dtype} at {offset} is not in {self.arena} bytes")
        work = [((self.arena,), "uint8"), *[((self.cache,), "uint8")] * bool(self.cache)]
        source = CSource(self._text(given), "ethos_u.c")
        made = call_c(ctx, source, _FUNCTION, [self.commands, self.weights, *inputs], [*self.results, *work])
        return made[: len(self.results)]

    def _text(self, given: Sequence[tuple[Shape, str]]) -> str:
        """The function in C that copies tensors, and calls the program's."""
        reads = ["const void *commands", "const void *weights", *(f"const void *x{k}" for k in range(len(given)))]
        writes = [f"void *y{k}" for k in range(len(self.results))]
        cache = "cache" if self.cache else "arena"
        parameters = ", ".join([*reads, *writes, "uint8_t *arena", *["uint8_t *cache"] * bool(self.cache)])
        copies = [
            f"    memcpy(arena + {offset}, x{k}, {_bytes(*each)});"
            for k, (each, offset) in enumerate(zip(given, self.inputs_at, strict=True))
        ]
        results = [
            f"    memcpy(y{k}, arena + {offset}, {_bytes(*each)});"
            for k, (each, offset) in enumerate(zip(self.results, self.results_at, strict=True))
        ]
        sizes = f"{self.weights.size}, {self.arena}, {self.cache or self.arena}"
        return "\n".join([
            f"int32_t {HOOK}(const void *commands, uint64_t bytes, void *const *addresses, const uint64_t *sizes, ",
            "                int32_t count)",
            "#if defined(__linux__)",
            "    __attribute__((weak)) /* a shared library finds it in the program */",
            "#endif",
            ";",
            "void *memcpy(void *, const void *, __SIZE_TYPE__);",
            f"static int32_t {_FUNCTION}({parameters}) {{",
            f"    void *const addresses[3] = {{(void *)(uintptr_t)weights, arena, {cache}}};",
            f"    const uint64_t sizes[3] = {{{sizes}}};",
            "    int32_t status;",
            "#if defined(__linux__)",
            f"    if (!{HOOK}) return 1;",
            "#endif",
            *copies,
            f"    status = {HOOK}(commands, {self.commands.size}, addresses, sizes, 3);",
            *results,
            "    return status;",
            "}",
        ])  # fmt: skip


def _bytes(shape: Shape, dtype: str) -> int:
    return math.prod(shape) * np.dtype(numpy_dtype(dtype)).itemsize
