"""Models of NNEF between programs: `python benchmarks/nnef_exchange.py FOLDER [--real FOLDER] [--jobs N] [NAME …]`.

FOLDER keeps models and what is made of them. Nothing is timed; the numbers are of

- small models of the kinds that tract's own harness has (`models/tract_cases.py`): compared with tract;
- the benchmark networks as tract dumps them from ONNX: compared with onnxruntime;
- round trips of these, and of pretrained networks in the folder that --real names (see `real_networks.py`): written as
  NNEF 1.0, read by Khronos' package, and compiled again; written in tract's dialect, run by tract, and compiled again.

Each network is looked at in a process of its own. Of all networks the page is written to `results/nnef_exchange.md`.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
from conditions import Conditions, page, write_page
from exact import errors
from models.networks import NAMES, input_of, write_twins
from models.tract_cases import CASES, Case

import nnefc

TITLE = "Models of NNEF between programs"
TOLERANCE = 1e-3
"""Of whole networks, over the largest value of an output; tract's and onnxruntime's own sums differ so far."""
_PATIENCE = 1500
_RUN = 60

Values = Mapping[str, np.ndarray]
Found = dict[str, str]
"""By what was tried: "agrees", or why it does not work."""

AGREES = "agrees"


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.argument("names", nargs=-1)
@click.option("--real", type=click.Path(path_type=Path, file_okay=False, exists=True), help="Pretrained networks.")
@click.option("--jobs", type=click.IntRange(1), default=1, help="Networks that are tried at the same time.")
@click.option("--one", hidden=True, is_flag=True)
def main(folder: Path, names: tuple[str, ...], real: Path | None, jobs: int, one: bool) -> None:
    """Try all cases and networks, or those named."""
    if one:
        sys.stdout.write(json.dumps(network(names[0], folder, real)))
        return
    whole = not names
    networks = [*NAMES, *(real_names() if real else ())]
    unknown = set(names) - {*CASES, *networks}
    if unknown:
        raise click.BadParameter(f"there is no {', '.join(sorted(unknown))}")
    cases = {name: tried(name, lambda name=name: case(CASES[name])) for name in CASES if whole or name in names}
    chosen = [name for name in networks if whole or name in names]
    with ThreadPoolExecutor(jobs) as pool:
        found = dict(zip(chosen, pool.map(lambda name: apart(name, folder, real), chosen), strict=True))
    lines = [*body_of_cases(cases), "", *body_of_networks(found)]
    conditions = Conditions.now()
    click.echo(page(TITLE, conditions, lines))
    if whole and real is not None:
        write_page("nnef_exchange", TITLE, conditions, lines)


def real_names() -> Sequence[str]:
    """The pretrained networks."""
    from real_networks import NETWORKS

    return tuple(NETWORKS)


def tried(name: str, attempt: Callable[[], str]) -> str:
    """What comes of an attempt, or why it fails."""
    try:
        result = attempt()
    except Exception as error:  # of any of the programs
        result = str(error).strip().partition("\n")[0][:160] or type(error).__name__
    click.echo(f"{name}: {result}", err=True)
    return result


def case(given: Case) -> str:
    """Run a small model here and in tract, at all of its sizes."""
    apart_ = 0.0
    with tempfile.TemporaryDirectory() as position, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        given.write(Path(position))
        with nnefc.compile(position).load(threads=1) as library:
            if given.other_text:
                replace(given, text=given.other_text).write(Path(position))
            for sizes in given.sizes:
                values = given.values(sizes)
                made = list(library.run(values).values())
                apart_ = max(apart_, difference(made, by_tract(Path(position), values, sizes)))
    return AGREES if apart_ <= given.tolerance else f"apart by {apart_:.1e}"


def by_tract(model: Path, values: Values, sizes: Mapping[str, int] | None = None) -> list[np.ndarray]:
    """The outputs of tract."""
    import tract

    reader = tract.nnef().with_tract_extra().with_tract_transformers().with_pulse().with_onnx()
    form = reader.with_extended_identifier_syntax().load(str(model))
    if sizes:
        form.transform(tract.SetSymbols(dict(sizes)))
    signal.alarm(_RUN)
    made = form.into_runnable().run(list(values.values()))
    signal.alarm(0)
    return [each.to_numpy() for each in made]


def difference(made: Sequence[Any], expected: Sequence[Any]) -> float:
    """The largest of all outputs; infinite where there are others."""
    if len(made) != len(expected):
        return float("inf")
    found = 0.0
    for one, other in zip(made, expected, strict=True):
        if np.shape(one) != np.shape(other):
            return float("inf")
        if np.size(one):
            found = max(found, float(errors(np.asarray(one, np.float64), np.asarray(other, np.float64))[0]))
    return found


# Whole networks


def apart(name: str, folder: Path, real: Path | None) -> Found:
    """Look at a network in a process of its own."""
    options = ["--real", str(real)] if real else []
    command = [sys.executable, "-W", "ignore", __file__, str(folder), name, "--one", *options]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return {"all": f"not done in {_PATIENCE} s"}
    if done.returncode:
        messages = [line for line in done.stderr.splitlines() if line.strip()] or [f"status {done.returncode}"]
        return {"all": messages[-1][:160]}
    click.echo(f"{name}: {done.stdout.splitlines()[-1]}", err=True)
    found: Found = json.loads(done.stdout.splitlines()[-1])
    return found


def network(name: str, folder: Path, real: Path | None) -> Found:
    """The dump of tract and the round trips of a network."""
    model, values, options = source_of(name, folder, real)
    expected = by_onnxruntime(model, values)
    own = {key: value for key, value in values.items() if key not in options.get("values", {})}
    found: Found = {}
    with tempfile.TemporaryDirectory() as position:
        made = Path(position)

        def compiled(path: Path, given: Values) -> str:
            with nnefc.compile(path).load(threads=1) as library:
                results = list(
                    library.run(dict(zip([i.name for i in library.inputs], given.values(), strict=True))).values()
                )
            return verdict(results)

        def verdict(results: Sequence[np.ndarray]) -> str:
            apart_ = difference(results, expected)
            return AGREES if apart_ <= TOLERANCE else f"apart by {apart_:.1e}"

        def dumped() -> str:
            import tract

            form = tract.onnx().load(str(model))
            for index, value in enumerate(values.values()):
                form.set_input_fact(
                    index, f"{','.join(map(str, value.shape))}{',' * bool(value.shape)}{_TRACT[str(value.dtype)]}"
                )
            whole = form.into_model()
            tract.nnef().with_onnx().with_tract_extra().with_tract_transformers().write_model_to_tar(
                whole, str(made / "dump.nnef.tar")
            )
            return AGREES

        def khronos() -> str:
            import nnef

            nnef.load_graph(str(made / "standard.nnef"))
            return AGREES

        def written(into: str, registry: str | None) -> str:
            nnefc.convert(model, made / into, registry=registry, **options)
            return AGREES

        found["tract writes"] = tried("tract writes", dumped)
        if found["tract writes"] == AGREES:
            found["its dump"] = tried("its dump", lambda: compiled(made / "dump.nnef.tar", values))
        found["NNEF"] = tried("NNEF", lambda: written("standard.nnef", None))
        if found["NNEF"] == AGREES:
            found["read by nnef"] = tried("read by nnef", khronos)
            found["NNEF again"] = tried("NNEF again", lambda: compiled(made / "standard.nnef", _narrow(own)))
        found["dialect"] = tried("dialect", lambda: written("dialect.nnef", "tract_core"))
        if found["dialect"] == AGREES:
            found["run by tract"] = tried("run by tract", lambda: verdict(by_tract(made / "dialect.nnef", own)))
            found["dialect again"] = tried("dialect again", lambda: compiled(made / "dialect.nnef", own))
    return found


_TRACT = {"float32": "f32", "float16": "f16", "int64": "i64", "int32": "i32", "bool": "bool", "uint8": "u8"}


def _narrow(values: Values) -> dict[str, np.ndarray]:
    """Integers of NNEF are read as 32 bits."""
    return {name: value.astype(np.int32) if value.dtype == np.int64 else value for name, value in values.items()}


def source_of(name: str, folder: Path, real: Path | None) -> tuple[Path, dict[str, np.ndarray], dict[str, Any]]:
    """The file of a network in ONNX, values of its inputs, and how it is read: with their sizes."""
    if name in NAMES:
        import onnx

        model = write_twins(folder / "twins", name).onnx
        return model, dict(input_of(onnx.load(model))), {}
    from real_networks import values_of

    assert real is not None
    model = real / f"{name}.onnx"
    values = values_of(name, model)
    numbers = {key: value.item() for key, value in values.items() if value.ndim == 0}
    shapes = {key: value.shape for key, value in values.items() if key not in numbers}
    return model, values, {"shape": shapes, **({"values": numbers} if numbers else {})}


def by_onnxruntime(model: Path, values: Values) -> list[np.ndarray]:
    """The outputs of onnxruntime."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return [np.asarray(each) for each in session.run(None, dict(values))]


# The page


def body_of_cases(cases: Mapping[str, str]) -> list[str]:
    """The small models: how many agree with tract, and the others."""
    agreeing = sum(result == AGREES for result in cases.values())
    others = [f"| {name} | {result.replace('|', '/')} |" for name, result in cases.items() if result != AGREES]
    return [
        "## Small models of the kinds that tract's harness has",
        "",
        f"{agreeing} of {len(cases)} compute what tract computes of the same files: {', '.join(cases)}.",
        *(["", "| model | |", "| --- | --- |", *others] if others else []),
    ]


_TRIED = ("tract writes", "its dump", "NNEF", "read by nnef", "NNEF again", "dialect", "run by tract", "dialect again")


def body_of_networks(found: Mapping[str, Found]) -> list[str]:
    """Whole networks: a table, and the reasons."""
    counts = {what: sum(each.get(what) == AGREES for each in found.values()) for what in _TRIED}
    rows = [
        f"| {name} | " + " | ".join(_mark(each.get(what, each.get("all"))) for what in _TRIED) + " |"
        for name, each in found.items()
    ]
    reasons = [
        f"| {name} | {what} | {reason.replace('|', '/')} |"
        for name, each in found.items()
        for what, reason in each.items()
        if reason != AGREES
    ]
    return [
        "## Whole networks",
        "",
        "*tract writes*: tract's own dump of the ONNX file; *its dump*, compiled. *NNEF*: written by `nnefc convert` in"
        " NNEF 1.0; read by Khronos' package; compiled again. *dialect*: written with `--registry tract_core`; run by"
        f" tract; compiled again. What is run agrees with onnxruntime on the ONNX file, to {TOLERANCE:.0e} of the"
        " largest value.",
        "",
        f"| network | {' | '.join(_TRIED)} |",
        f"| --- | {' | '.join('---' for _ in _TRIED)} |",
        f"| of {len(found)} | {' | '.join(str(counts[what]) for what in _TRIED)} |",
        *rows,
        *(["", "| network | what | why not |", "| --- | --- | --- |", *reasons] if reasons else []),
    ]


def _mark(result: str | None) -> str:
    return "" if result is None else "yes" if result == AGREES else "no"


if __name__ == "__main__":
    main()
