"""What each lever brings: a network's time with all of them, and with one switched off at a time.

    python benchmarks/ablation.py MODEL …

Each variant is compiled and measured in a process of its own, on one thread; the table has the least processor time of
several runs in milliseconds, and how many times slower the network is without the lever.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np


def _without_passes(*names: str) -> Callable[[Any], None]:
    def switch_off(pipeline: Any) -> None:
        all_passes = pipeline.graph_passes
        pipeline.graph_passes = lambda *args: [(n, p) for n, p in all_passes(*args) if n not in names]

    return switch_off


def _without_fusion(pipeline: Any) -> None:
    import tvm

    all_passes = pipeline.graph_passes
    nothing = tvm.ir.transform.Sequential([])
    pipeline.graph_passes = lambda *args: [(n, nothing if n == "fuse" else p) for n, p in all_passes(*args)]


def _without_vector_functions(pipeline: Any) -> None:
    pipeline.use_vector_math = lambda: None


def _without_views(pipeline: Any) -> None:
    in_place_of = pipeline.in_place_of
    pipeline.in_place_of = lambda func: replace(in_place_of(func), concatenation=False, parts=False)


def _never(module: str, function: str, answer: object = False) -> Callable[[Any], None]:
    """A question that a pass asks about its target gets this answer."""

    def switch_off(_pipeline: Any) -> None:
        *owners, name = function.split(".")
        owner = functools.reduce(getattr, owners, importlib.import_module(f"nnefc.passes.{module}"))
        setattr(owner, name, lambda *_: answer)

    return switch_off


def _without_padding_in_place(_pipeline: Any) -> None:
    from nnefc.passes.graph import layout_rewriter
    from nnefc.passes.graph.patterns import OpPattern

    class Patterns(OpPattern):
        ELEMENT_WISE = OpPattern.OPAQUE

    layout_rewriter.OpPattern = Patterns


_CONVOLUTION = "graph.layout_rules.convolution"

LEVERS: dict[str, tuple[str, Callable[[Any], None]]] = {
    "all": ("everything on", lambda pipeline: None),
    "winograd": ("Winograd's algorithm", _never(_CONVOLUTION, "_winograd_pays")),
    "quarters": ("matrix products by seven quarters", _never("graph.pack_matmul", "_Packer._quarters_pay")),
    "widths": ("columns added to prime widths", _never(_CONVOLUTION, "columns_to_add", 0)),
    "padding": ("results written into the padding that follows", _without_padding_in_place),
    "permutations": ("channels renamed instead of moved", _without_passes("fold permutations")),
    "responses": ("local responses in blocked layout", _without_passes("join local response")),
    "affine": ("scales and shifts folded into weights", _without_passes("fold affine")),
    "fusion": ("element-wise steps joined with what is before them", _without_fusion),
    "functions": ("exp, tanh, erf, sigmoid in vectors", _without_vector_functions),
    "concatenation": ("concatenations and splits in place", _without_views),
    "rows": ("softmax and normalizations in one pass", _without_passes("lower rows")),
    "packing": ("matrix products on packed factors", _without_passes("pack matmul")),
    "layouts": ("blocked layout, and with it the convolutions' schedules", _without_passes("assign layouts")),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--lever", choices=LEVERS, help="measure this one here, and print its seconds")
    parser.add_argument("--only", nargs="*", choices=LEVERS, default=list(LEVERS))
    options = parser.parse_args()
    if options.lever is not None:
        print(json.dumps(measure(options.models[0], options.lever)))
        return
    for model in options.models:
        print(f"\n{Path(model).stem}\n\n| without | ms | times slower |\n|---|---:|---:|")
        base = math.nan
        for lever in dict.fromkeys(["all", *options.only]):
            command = [sys.executable, __file__, model, "--lever", lever]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                print(f"| {LEVERS[lever][0]} | failed | {done.stderr.strip().splitlines()[-1][:80]} |")
                continue
            seconds = json.loads(done.stdout.strip().splitlines()[-1])
            base = seconds if lever == "all" else base
            print(f"| {LEVERS[lever][0]} | {seconds * 1e3:.2f} | {seconds / base:.2f} |", flush=True)


def measure(model: str, lever: str) -> float:
    """Seconds of one run of `model` without `lever`, on one thread."""
    import nnefc
    from nnefc.passes import pipeline

    LEVERS[lever][1](pipeline)
    bare = model.endswith(".nnef") and Path(model).is_file()  # a document without weights
    artifact = nnefc.compile(model, random_weights=0 if bare else None)
    rng = np.random.default_rng(0)
    inputs = {i.name: rng.standard_normal(i.shape).astype(i.dtype) for i in artifact.inputs}
    with artifact.load(threads=1) as network:
        network.run(inputs)
        best, spent, runs = math.inf, 0.0, 0
        while runs < 5 or (spent < 2.0 and runs < 200):
            start = time.process_time()  # on one thread, other programs then disturb little
            network.run(inputs)
            took = time.process_time() - start
            best, spent, runs = min(best, took), spent + took, runs + 1
    return best


if __name__ == "__main__":
    main()
