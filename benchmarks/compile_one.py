"""Compile one model and print, as JSON, how long it took, and how much the library holds and computes.

    python benchmarks/compile_one.py MODEL LIBRARY [OPTIONS]

OPTIONS are those of `nnefc.compile`, a JSON object. A model that nnefc refuses has an `error` instead.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import nnefc
from nnefc.support.diagnostics import CompileError
from nnefc.support.minimal_tvm import import_tvm

__all__ = ["compile_one"]

_HOW = ("strict", "precision", "target", "multi", "checked", "reproducible")  # options of how to compile, not of what


def compile_one(model: Path, library: Path, options: Mapping[str, Any]) -> dict[str, float]:
    """Compile; seconds, constant_bytes, workspace_bytes, multiply_adds and parameter_bytes.

    With checks of accesses, how many are proved and checked besides.
    """
    import_tvm()
    from nnefc.driver.formats import load_network
    from nnefc.driver.options import ReadOptions
    from nnefc.inspect.cost_summary import inspect_network

    compiler = nnefc.compile  # imports, of TVM above all, are not compilation
    start = time.perf_counter()
    artifact = compiler(model, **options)
    artifact.export(library)
    seconds = time.perf_counter() - start
    with nnefc.load(library, threads=1) as loaded:
        sizes = {"constant_bytes": loaded.constant_bytes, "workspace_bytes": loaded.workspace_bytes}
    of_network = {name: value for name, value in options.items() if name not in _HOW}
    if artifact.checks is not None:
        sizes |= {"proved": artifact.checks.proved, "checked": artifact.checks.checked}
    found = inspect_network(load_network(model, ReadOptions(**of_network)))
    sizes |= {"multiply_adds": found.multiply_adds, "parameter_bytes": found.parameter_bytes}
    return {"seconds": seconds} | sizes


if __name__ == "__main__":
    path, output, *tail = sys.argv[1:]
    try:
        print(json.dumps(compile_one(Path(path), Path(output), json.loads(tail[0]) if tail else {})))
    except CompileError as error:
        print(error, file=sys.stderr)
        print(json.dumps({"error": error.message}))
