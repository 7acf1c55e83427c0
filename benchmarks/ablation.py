"""What each optimization brings: a network's time with all of them, and with one switched off at a time.

    python benchmarks/ablation.py [NETWORK ...] [--only LEVER ...]

Each variant is compiled and measured in a process of its own, on one thread. Without names it measures NETWORKS and
writes results/PROCESSOR/ablation.md.
"""

from __future__ import annotations

import functools
import importlib
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from conditions import Watch, page, write_page
from models.networks import NAMES, write_twins

MODELS = Path(__file__).resolve().parents[1] / "build" / "models"
NETWORKS = (
    "resnet50", "mobilenet_v2", "shufflenet", "inception_v1", "efficientnet_b0", "vit_b16", "lstm", "zfnet512",
)  # fmt: skip
TITLE = "What each optimization brings"


def _without_passes(*names: str) -> Callable[[Any], None]:
    def switch_off(_pipeline: Any) -> None:
        _change_passes(lambda passes: [step for step in passes if step.name not in names])

    return switch_off


def _without_fusion(_pipeline: Any) -> None:
    _change_passes(
        lambda passes: [replace(step, run=lambda module, _: module) if step.name == "fuse" else step for step in passes]
    )


def _change_passes(change: Callable[[Any], Any]) -> None:
    from nnefc.backends.cpu import CpuBackend
    from nnefc.passes.manager import PassList

    CpuBackend.passes = PassList(change(CpuBackend.passes))


def _without_vector_functions(pipeline: Any) -> None:
    pipeline.use_vector_math = lambda: None


def _without_views(pipeline: Any) -> None:
    in_place_of = pipeline.in_place_of
    pipeline.in_place_of = lambda kernel: replace(in_place_of(kernel), concatenation=False, parts=False)


def _never(module: str, function: str, answer: object = False) -> Callable[[Any], None]:
    """A question that a pass asks about its target gets this answer."""

    def switch_off(_pipeline: Any) -> None:
        *owners, name = function.split(".")
        owner = functools.reduce(getattr, owners, importlib.import_module(f"nnefc.passes.{module}"))
        setattr(owner, name, lambda *_: answer)

    return switch_off


def _without_padding_in_place(_pipeline: Any) -> None:
    from nnefc.passes.graph.fusion.fusion_patterns import OpPattern
    from nnefc.passes.graph.layout import layout_rewriter

    class Patterns(OpPattern):
        ELEMENT_WISE = OpPattern.OPAQUE

    layout_rewriter.OpPattern = Patterns


_CONVOLUTION = "graph.layout.rules.convolution"

_EXPLANATION = [
    "The minimum processor time of a run on one thread, and how many times as long the network takes with one",
    "optimization switched off, each compiled again. Two measurements of one library differ by as much as 0.03.",
    "",
]

LEVERS: dict[str, tuple[str, Callable[[Any], None]]] = {
    "all": ("nothing", lambda pipeline: None),
    "winograd": ("Winograd's algorithm", _never("graph.algorithms.choose_algorithms", "winograd_saving", 0)),
    "strassen": ("Strassen's algorithm", _never("graph.algorithms.choose_algorithms", "strassen_saving", 0)),
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


@click.command()
@click.argument("networks", nargs=-1, type=click.Choice(NAMES))
@click.option("--lever", type=click.Choice(list(LEVERS)), help="Measure this one here, and print its seconds.")
@click.option("--only", type=click.Choice(list(LEVERS)), multiple=True, help="Repeatable.  [default: all]")
def main(networks: tuple[str, ...], lever: str | None, only: tuple[str, ...]) -> None:
    """Measure NETWORKS, or a choice of them."""
    if lever is not None:
        click.echo(json.dumps(measure(write_twins(MODELS, networks[0]).nnef, lever)))
        return
    watch = Watch()
    levers = list(dict.fromkeys(["all", *(only or LEVERS)]))
    seconds: dict[str, dict[str, float]] = {}
    for network in networks or NETWORKS:
        found = seconds[network] = {}
        for name in levers:
            found[name] = measure_apart(network, name)
            click.echo(f"{network}: {LEVERS[name][0]}: {found[name] * 1e3:.2f} ms", err=True)
    conditions, lines = watch.end(), body(seconds)
    click.echo(page(TITLE, conditions, lines))
    if not networks and not only:
        write_page("ablation", TITLE, conditions, lines)


def measure_apart(network: str, lever: str) -> float:
    """As :func:`measure`, in a process of its own; NaN if that failed."""
    command = [sys.executable, __file__, network, "--lever", lever]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        return math.nan
    return float(json.loads(done.stdout.strip().splitlines()[-1]))


def body(seconds: Mapping[str, Mapping[str, float]]) -> list[str]:
    """A table of how many times slower each network is without each lever, from seconds by network and lever."""
    head = "| without | " + " | ".join(seconds) + " |"
    lines = [head, "|---" + "|---:" * len(seconds) + "|"]
    for lever in next(iter(seconds.values())):
        if lever == "all":
            cells = [f"{found[lever] * 1e3:.2f} ms" for found in seconds.values()]
        else:
            cells = [f"{found[lever] / found['all']:.2f}" for found in seconds.values()]
        lines.append(f"| {LEVERS[lever][0]} | {' | '.join(cells)} |")
    return [*_EXPLANATION, *lines]


def measure(model: Path, lever: str) -> float:
    """Seconds of one run of `model` without `lever`, on one thread."""
    import nnefc
    from nnefc.passes import pipeline

    LEVERS[lever][1](pipeline)
    artifact = nnefc.compile(model, memory_budget=math.inf)  # no optimization is left out for its memory
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
