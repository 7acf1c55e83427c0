"""Small functions of TIR for tests, written as text."""

from __future__ import annotations

import functools

import tvm.script
from tvm import tirx

__all__ = ["function"]


@functools.cache
def function(text: str) -> tirx.PrimFunc:
    """A function from TVMScript: its parameters in the first line, as `x: T.Buffer((9,)), n: T.int64`, then its body.

    TVM would make functions that are written as Python's while pytest collects the tests, a tenth of a second each.
    """
    head, *body = (line for line in text.splitlines() if line.strip())
    source = [f"@T.prim_func\ndef main({head.strip()}):", *body]
    return tvm.script.from_source("\n".join(source), extra_vars={"T": tvm.script.tirx})
