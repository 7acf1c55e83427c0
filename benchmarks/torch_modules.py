"""Modules straight from PyTorch, compared with its own compilers: `python benchmarks/torch_modules.py [NAME …]`.

    pip install torch torchvision timm transformers onnxscript

Each module of `torch_networks.py` is compiled by `nnefc.torch.compile`, by `torch.compile` with inductor and freezing,
and by AOTInductor with freezing, from the same weights and the same inputs, in a process of its own. Results are
compared with the module in float64. Times are taken in turns, on one thread: the shortest of several short ones.
Prints the page; of all modules it is written to `results/PROCESSOR/torch_modules.md`. A module takes a minute or two.
"""

from __future__ import annotations

import copy
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import click
from conditions import Watch, page, write_page

TITLE = "Modules straight from PyTorch, compared with its own compilers"
HERE = Path(__file__).resolve().parent
ENGINES = ("eager", "nnefc", "inductor", "aotinductor")
TOLERANCE = 1e-4
"""Of the largest difference from float64, over the largest value."""

_TURNS, _TURN = 12, 0.15
"""Turns of each engine, and the seconds of a turn; at least one run."""

_PATIENCE = 900.0
_FREEZING = {"freezing": True}

Run = Callable[[], Any]


@click.command()
@click.argument("names", nargs=-1)
@click.option("--engine", "engines", multiple=True, type=click.Choice(ENGINES), help="Measure this one (repeatable).")
@click.option("--one", is_flag=True, hidden=True, help="Measure one module in this process, and print JSON.")
def main(names: tuple[str, ...], engines: tuple[str, ...], one: bool) -> None:
    """Measure these modules, or all."""
    chosen = [engine for engine in ENGINES if engine in (engines or ENGINES)]
    if one:
        print(json.dumps(_measured(names[0], chosen)))
        return
    known = _names()
    if unknown := set(names) - set(known):
        raise click.UsageError(f"there is no module named {min(unknown)}; there are {', '.join(known)}")
    watch = Watch()
    rows = {name: _in_process(name, chosen) for name in names or known}
    conditions, lines = watch.end(), _lines(rows)
    click.echo(page(TITLE, conditions, lines))
    if not names and not engines:
        write_page("torch_modules", TITLE, conditions, lines)


def _names() -> list[str]:
    from torch_networks import NETWORKS

    return list(NETWORKS)


def _in_process(name: str, engines: Sequence[str]) -> dict[str, Any]:
    """Returns what a process of its own finds for a module: compilers may end it."""
    command = [sys.executable, str(HERE / "torch_modules.py"), "--one", name]
    command += [word for engine in engines for word in ("--engine", engine)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return {"failed": f"took longer than {_PATIENCE:.0f} s"}
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return {"failed": (done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"])[-1]}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def _measured(name: str, engines: Sequence[str]) -> dict[str, Any]:
    """Returns parameters, seconds of compilation, errors and milliseconds of a run, by engine."""
    import torch
    from torch_networks import NETWORKS

    torch.manual_seed(0)
    torch.set_num_threads(1)
    module, example = NETWORKS[name]()
    module = module.eval()
    with torch.inference_mode(), tempfile.TemporaryDirectory() as folder:
        exact = _flat(_in_float64(module, example))
        runs: dict[str, Run] = {}
        found: dict[str, Any] = {"parameters": sum(each.numel() for each in module.parameters()), "engines": {}}
        for engine in engines:
            began = time.perf_counter()
            try:
                run = _COMPILERS[engine](module, example, Path(folder))
                result = _flat(run())
            except Exception as error:
                first = next(iter(str(error).strip().splitlines()), type(error).__name__)
                found["engines"][engine] = {"failed": f"{type(error).__name__}: {first}"[:200]}
                continue
            runs[engine] = run
            found["engines"][engine] = {"seconds": time.perf_counter() - began, "error": _error(result, exact)}
        for engine, seconds in _times(runs).items():
            found["engines"][engine]["milliseconds"] = 1e3 * seconds
    return found


def _in_float64(module: Any, example: Sequence[Any]) -> Any:
    wide = copy.deepcopy(module).double()
    return wide(*(each.double() if each.is_floating_point() else each for each in example))


def _flat(result: Any) -> list[Any]:
    """Returns the tensors of a result."""
    import torch

    if isinstance(result, torch.Tensor):
        return [result.double()]
    if hasattr(result, "to_tuple"):
        result = result.to_tuple()
    values = result.values() if isinstance(result, Mapping) else result
    return [tensor for each in values if each is not None for tensor in _flat(each)]


def _error(found: Sequence[Any], exact: Sequence[Any]) -> float:
    """Returns the largest difference over the largest value, of the worst tensor."""
    if [each.shape for each in found] != [each.shape for each in exact]:
        return math.inf
    return max(
        (float((a - b).abs().max() / b.abs().max().clamp(min=1e-30)) for a, b in zip(found, exact, strict=True)),
        default=0.0,
    )


def _eager(module: Any, example: Sequence[Any], _: Path) -> Run:
    return lambda: module(*example)


def _nnefc(module: Any, example: Sequence[Any], _: Path) -> Run:
    import torch

    import nnefc.torch

    with torch.inference_mode(False), torch.no_grad():
        compiled = nnefc.torch.compile(module, *(each.clone() for each in example), threads=1)
    return lambda: compiled(*example)


def _inductor(module: Any, example: Sequence[Any], _: Path) -> Run:
    import torch

    compiled = torch.compile(module, options=_FREEZING)
    return lambda: compiled(*example)


def _aotinductor(module: Any, example: Sequence[Any], folder: Path) -> Run:
    import torch
    import torch._inductor

    with torch.inference_mode(False), torch.no_grad():
        program = torch.export.export(module, tuple(each.clone() for each in example))
        package = torch._inductor.aoti_compile_and_package(
            program, package_path=str(folder / "module.pt2"), inductor_configs=dict(_FREEZING)
        )
    loaded = torch._inductor.aoti_load_package(package)
    return lambda: loaded(*example)


_COMPILERS = {"eager": _eager, "nnefc": _nnefc, "inductor": _inductor, "aotinductor": _aotinductor}


def _times(runs: Mapping[str, Run]) -> dict[str, float]:
    """Returns the seconds of a run of each engine: of turns, in each of which all engines run, the fastest."""
    best = dict.fromkeys(runs, math.inf)
    for _ in range(_TURNS):
        for engine, run in runs.items():
            count, began = 0, time.perf_counter()
            while count == 0 or time.perf_counter() - began < _TURN:
                start = time.perf_counter()
                run()
                best[engine] = min(best[engine], time.perf_counter() - start)
                count += 1
    return best


def _lines(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Returns the page's text: counts, the table, and what failed."""
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "torchvision", "timm", "transformers"))
    heads = ["module", "million parameters", *(f"{engine}, ms" for engine in ENGINES), "faster than inductor"]
    heads += ["faster than AOTInductor", "error", "compile, s", "inductor, s"]
    table = [f"| {' | '.join(heads)} |", f"|---|{'---:|' * (len(heads) - 1)}"]
    failures = []
    for name, row in rows.items():
        if "failed" in row:
            failures.append(f"- {name}: {row['failed']}")
            continue
        engines = row["engines"]
        failures += [f"- {name}, {each}: {engines[each]['failed']}" for each in engines if "failed" in engines[each]]
        table.append(f"| {' | '.join(_cells(name, row['parameters'], engines))} |")
    return [
        *_summary(rows),
        "",
        f"One thread, float32, random weights; {packages}.",
        "",
        *table,
        "",
        *_failed(failures),
    ]


def _cells(name: str, parameters: int, engines: Mapping[str, Mapping[str, Any]]) -> list[str]:
    nnefc = engines.get("nnefc", {})
    cells = [name, f"{parameters / 1e6:.1f}", *(_number(engines.get(each, {}).get("milliseconds")) for each in ENGINES)]
    cells += [_number(_ratio(engines, each)) for each in ("inductor", "aotinductor")]
    error = nnefc.get("error")
    cells += ["-" if error is None else f"{error:.1e}", _number(nnefc.get("seconds"))]
    return [*cells, _number(engines.get("inductor", {}).get("seconds"))]


def _ratio(engines: Mapping[str, Mapping[str, Any]], other: str) -> float | None:
    """Returns how many times as fast as another engine nnefc is; None if one of the two does not run."""
    own, others = (engines.get(each, {}).get("milliseconds") for each in ("nnefc", other))
    return others / own if own and others else None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _summary(rows: Mapping[str, Mapping[str, Any]]) -> list[str]:
    measured = [row["engines"] for row in rows.values() if "engines" in row]
    ran = [engines for engines in measured if "error" in engines.get("nnefc", {})]
    agree = sum(engines["nnefc"]["error"] <= TOLERANCE for engines in ran)
    lines = [
        f"Of {len(rows)} modules, nnefc runs {len(ran)}; {agree} agree with the module in float64 to {TOLERANCE:.0e} "
        "of the largest value."
    ]
    for other, title in (
        ("inductor", "inductor"),
        ("aotinductor", "AOTInductor"),
        ("eager", "PyTorch without compiler"),
    ):
        ratios = [ratio for engines in ran if (ratio := _ratio(engines, other)) is not None]
        if ratios:
            mean, least = statistics.geometric_mean(ratios), min(ratios)
            lines.append(f"Times as fast as {title}: {mean:.2f} (mean of {len(ratios)}), {least:.2f} at least.")
    return lines


def _failed(failures: Sequence[str]) -> list[str]:
    return ["What does not compile or run:", "", *failures] if failures else []


if __name__ == "__main__":
    main()
