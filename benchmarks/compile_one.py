"""Compile one model and print, as JSON, how long it took, and how much the library holds and computes.

    python benchmarks/compile_one.py MODEL LIBRARY [OPTIONS]

OPTIONS are those of `nnefc.compile`, a JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import nnefc
from nnefc.formats import load_network
from nnefc.inspection import inspect_network

if __name__ == "__main__":
    model, library, *rest = sys.argv[1:]
    options = json.loads(rest[0]) if rest else {}
    compiler = nnefc.compile  # imports, of TVM above all, are not compilation
    start = time.perf_counter()
    compiler(model, **options).export(library)
    seconds = time.perf_counter() - start
    with nnefc.load(library, threads=1) as loaded:
        sizes = {"constant_bytes": loaded.constant_bytes, "workspace_bytes": loaded.workspace_bytes}
    options.pop("strict", None)  # how to compile, not what
    found = inspect_network(load_network(Path(model), **options))
    sizes |= {"multiply_adds": found.multiply_adds, "parameter_bytes": found.parameter_bytes}
    print(json.dumps({"seconds": seconds} | sizes))
