"""Modules straight from PyTorch, compared with its own compilers: `python benchmarks/torch_modules.py [NAME …]`.

    pip install torch torchvision timm transformers onnxscript

Each module of `torch_networks.py` is compiled by `nnefc.torch.compile`, by `torch.compile` with inductor and freezing,
and by AOTInductor with freezing, from the same weights and the same inputs. nnefc compiles a module that
`torch.export` refuses by `torch.compile(backend="nnefc")`, in parts. Results are compared with the module in float64.
Times are taken in one process for a module, in turns, on one thread: the shortest of several short ones. Prints the
page; of all modules it is written to `results/PROCESSOR/torch_modules.md`.

Each compiler first compiles a module in a process of its own, which may take ten minutes of processor time. That needs
no idle machine: `--prepare` does it and measures nothing. What it makes is kept in `--keep FOLDER`
(`~/.cache/nnefc-torch-modules`): inductor's cache, AOTInductor's packages, and for each module and compiler the
processor time of the first compilation, which is the one in the table, or why there is no result: the compiler's error,
or the bound on its time. A compiler is not asked again for what it refused; remove the file to try it again. nnefc's
kernels are in nnefc's own cache, which a checkout in another folder does not share. Names in the folder are digests of
`torch_networks.py`, of the packages' versions and, for nnefc, of its files. Several processes may prepare different
modules in one folder.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
import resource
import signal
import statistics
import subprocess
import sys
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

_PATIENCE = 600
"""Seconds of processor time of a process that compiles; by the clock, four times as many."""

_KEEP = Path.home() / ".cache" / "nnefc-torch-modules"
_FREEZING = {"freezing": True}

Run = Callable[[], Any]


@click.command()
@click.argument("names", nargs=-1)
@click.option("--engine", "engines", multiple=True, type=click.Choice(ENGINES), help="Measure this one (repeatable).")
@click.option("--prepare", is_flag=True, help="Compile, and measure nothing.")
@click.option("--keep", type=click.Path(path_type=Path), default=_KEEP, help="The folder of what is compiled.")
@click.option("--one", is_flag=True, hidden=True, help="Measure one module in this process, and print JSON.")
def main(names: tuple[str, ...], engines: tuple[str, ...], prepare: bool, keep: Path, one: bool) -> None:
    """Measure these modules, or all."""
    chosen = [engine for engine in ENGINES if engine in (engines or ENGINES)]
    keep.mkdir(parents=True, exist_ok=True)
    if one:
        if prepare:
            resource.setrlimit(resource.RLIMIT_CPU, (_PATIENCE, resource.getrlimit(resource.RLIMIT_CPU)[1]))
        print(json.dumps(_measured(names[0], chosen, keep, 0 if prepare else _TURNS)))
        return
    known = _names()
    if unknown := set(names) - set(known):
        raise click.UsageError(f"there is no module named {min(unknown)}; there are {', '.join(known)}")
    if prepare:
        for name in names or known:
            click.echo(f"{name}: {json.dumps(_prepared(name, chosen, keep))}")
        return
    watch = Watch()
    rows = {name: _row(name, chosen, keep) for name in names or known}
    conditions, lines = watch.end(), _lines(rows)
    click.echo(page(TITLE, conditions, lines))
    if not names and not engines:
        write_page("torch_modules", TITLE, conditions, lines)


def _names() -> list[str]:
    from torch_networks import NETWORKS

    return list(NETWORKS)


def _prepared(name: str, engines: Sequence[str], keep: Path) -> dict[str, float | str]:
    """Returns the processor seconds of the first compilation by each engine that compiles, or why it has no result.

    Compiles what the folder has no file of.
    """
    found = {}
    for engine in engines:
        if engine == "eager":
            continue
        kept = _kept(keep, name, engine).with_suffix(".json")
        if not kept.exists():
            row = _in_process(name, [engine], keep, prepare=True)
            made = row.get("engines", {}).get(engine, row)
            kept.write_text(json.dumps(made.get("failed", made.get("seconds"))), encoding="utf-8")
        found[engine] = json.loads(kept.read_text(encoding="utf-8"))
    return found


def _row(name: str, engines: Sequence[str], keep: Path) -> dict[str, Any]:
    """Returns what is measured of a module, with the compile times and the failures that the folder keeps."""
    prepared = _prepared(name, engines, keep)
    refused = {engine: {"failed": why} for engine, why in prepared.items() if isinstance(why, str)}
    row = _in_process(name, [engine for engine in engines if engine not in refused], keep)
    measured = row.get("engines", {})
    for engine in measured.keys() & prepared.keys():
        measured[engine] = {**measured[engine], "seconds": prepared[engine]}
    return {**row, "engines": {**measured, **refused}} if "failed" not in row else row


def _kept(keep: Path, name: str, engine: str) -> Path:
    """Returns the path, without suffix, of what is kept of a module that an engine compiled."""
    return keep / f"{name}-{engine}-{_state(engine)}"


def _in_process(name: str, engines: Sequence[str], keep: Path, prepare: bool = False) -> dict[str, Any]:
    """Returns what a process of its own finds for a module: compilers may end it."""
    command = [sys.executable, str(HERE / "torch_modules.py"), "--one", name, "--keep", str(keep)]
    command += ["--prepare"] * prepare + [word for engine in engines for word in ("--engine", engine)]
    own = {"TORCHINDUCTOR_CACHE_DIR": str(keep.resolve() / "inductor"), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=4 * _PATIENCE, check=False, env={**os.environ, **own}
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"takes longer than {4 * _PATIENCE} s"}
    lines = done.stdout.splitlines()
    if done.returncode == -signal.SIGXCPU:
        return {"failed": f"takes longer than {_PATIENCE} s of processor time"}
    if done.returncode or not lines:
        return {"failed": (done.stderr.strip().splitlines() or [f"ended with status {done.returncode}"])[-1]}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def _measured(name: str, engines: Sequence[str], keep: Path, turns: int) -> dict[str, Any]:
    """Returns parameters, processor seconds of compilation, errors and milliseconds of a run, by engine."""
    import torch
    from torch_networks import NETWORKS

    torch.manual_seed(0)
    torch.set_num_threads(1)
    module, example = NETWORKS[name]()
    module = module.eval()
    _fill_zeros(module)
    with torch.inference_mode():
        exact = _flat(_in_float64(module, example))
        runs: dict[str, Run] = {}
        found: dict[str, Any] = {"parameters": sum(each.numel() for each in module.parameters()), "engines": {}}
        for engine in engines:
            began = _processor_seconds()
            try:
                run = _COMPILERS[engine](module, example, _kept(keep, name, engine).with_suffix(".pt2"))
                result = _flat(run())
            except Exception as error:
                first = next(iter(str(error).strip().splitlines()), type(error).__name__)
                found["engines"][engine] = {"failed": f"{type(error).__name__}: {first}"[:200]}
                continue
            runs[engine] = run
            seconds = _processor_seconds() - began
            found["engines"][engine] = {"seconds": seconds, "error": _error(result, exact)}
        for engine, duration in _times(runs, turns).items():
            found["engines"][engine]["milliseconds"] = 1e3 * duration
    return found


def _fill_zeros(module: Any) -> None:
    """Gives parameters that are zero throughout random values: some modules would return zeros, which say nothing."""
    for parameter in module.parameters():
        if not parameter.any():
            parameter.data.normal_(std=0.02)


def _state(engine: str) -> str:
    """Returns a digest of what a compiled module depends on: modules, PyTorch, and the compiler."""
    versions = [version(package) for package in ("torch", "torchvision", "timm", "transformers")]
    text = [(HERE / "torch_networks.py").read_text(encoding="utf-8"), *versions]
    if engine == "nnefc":
        from nnefc.driver.caching.user_cache import compiler_state

        text.append(compiler_state())
    return hashlib.sha256("\n".join(text).encode()).hexdigest()[:16]


def _processor_seconds() -> float:
    """Returns the processor time of this process and of those that it has waited for, such as C++ compilers."""
    times = (resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in times)


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
    from nnefc import CompileError

    with torch.inference_mode(False), torch.no_grad():
        try:
            compiled = nnefc.torch.compile(module, *(each.clone() for each in example), threads=1)
        except CompileError:
            compiled = torch.compile(module, backend="nnefc", options={"threads": 1})
    return lambda: compiled(*example)


def _inductor(module: Any, example: Sequence[Any], _: Path) -> Run:
    import torch

    compiled = torch.compile(module, options=_FREEZING)
    return lambda: compiled(*example)


def _aotinductor(module: Any, example: Sequence[Any], package: Path) -> Run:
    import torch
    import torch._inductor

    if not package.exists():
        made = package.with_suffix(".made.pt2")
        with torch.inference_mode(False), torch.no_grad():
            program = torch.export.export(module, tuple(each.clone() for each in example))
            torch._inductor.aoti_compile_and_package(program, package_path=str(made), inductor_configs=dict(_FREEZING))
        made.rename(package)
    loaded = torch._inductor.aoti_load_package(str(package))
    return lambda: loaded(*example)


_COMPILERS = {"eager": _eager, "nnefc": _nnefc, "inductor": _inductor, "aotinductor": _aotinductor}


def _times(runs: Mapping[str, Run], turns: int) -> dict[str, float]:
    """Returns the seconds of a run of each engine: of turns, in each of which all engines run, the fastest."""
    best = dict.fromkeys(runs, math.inf) if turns else {}
    for _ in range(turns):
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
        f"One thread, float32, random weights; {packages}. Compile times are processor time of a first compilation.",
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
