"""The matrix unit AMX in C: libraries for processors that have it run on machines with AVX-512 alone.

with emulation(f"sapphirerapids{EMULATED}") as target:
    nnefc.compile(path, target)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tvm import tirx

from nnefc.ir.extern_c import CCall, CSource
from nnefc.passes.schedule.cpu import tile_functions

__all__ = ["EMULATED", "SOURCE", "emulation"]

EMULATED = " (emulated)"
"""The end of what a test calls a target whose matrix unit is emulated."""

SOURCE = Path(__file__).with_name("emulated_amx.c")
"""Functions of the same meaning as the intrinsics."""


@contextmanager
def emulation(target: str) -> Iterator[str]:
    """Yields the target that a name stands for; if it ends with EMULATED, what is compiled in the meantime has calls
    of functions in C in place of the intrinsics on tiles, and needs no such unit."""
    emulated = target.removesuffix(EMULATED)
    if emulated == target:
        yield target
        return
    with_intrinsics = tile_functions.with_tile_functions
    called = CCall.of(CSource.file(SOURCE), "nnefc_emulated_tiles", (), (), ())

    def with_calls_of_c(func: tirx.PrimFunc) -> tirx.PrimFunc:
        made = with_intrinsics(func)
        return made if made is func else made.with_attrs(called.attributes)

    functions = {
        kind: (f"nnefc_emulated_{kind}", types.replace(" immarg", ""))
        for kind, (_, types) in tile_functions._INTRINSICS.items()
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tile_functions, "_INTRINSICS", functions)
        patch.setattr(tile_functions, "with_tile_functions", with_calls_of_c)
        patch.setattr(tile_functions, "features_of_tiles", lambda func, target: ())
        yield emulated
