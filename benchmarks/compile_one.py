"""Compile one model and print, as JSON, how long it took, and how much the library holds and computes."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import nnefc
from nnefc.frontends import nnef
from nnefc.inspection import inspect_network

if __name__ == "__main__":
    model, library = sys.argv[1:]
    compiler = nnefc.compile  # imports, of TVM above all, are not compilation
    start = time.perf_counter()
    compiler(model).export(library)
    seconds = time.perf_counter() - start
    with nnefc.load(library, threads=1) as loaded:
        sizes = {"constant_bytes": loaded.constant_bytes, "workspace_bytes": loaded.workspace_bytes}
    found = inspect_network(nnef.load(Path(model)))
    sizes |= {"multiply_adds": found.multiply_adds, "parameter_bytes": found.parameter_bytes}
    print(json.dumps({"seconds": seconds} | sizes))
