"""Measurements as a Markdown page, a CSV table and JSON."""

from __future__ import annotations

import csv
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path

from conditions import RESULTS, Conditions, write_page
from measure import Measurement, Plan, difference_spelled
from peers import STRICT
from picture import image

__all__ = ["TITLE", "markdown", "table", "tables", "time_spelled", "write_report"]

TITLE = "nnefc compared with its peers"


def write_report(
    name: str,
    measurements: Sequence[Measurement],
    plan: Plan,
    conditions: Conditions,
    failed: Mapping[str, str],
    results: Path = RESULTS,
) -> Path:
    """Write the page `name`, and next to it .csv, .json and .svg; returns its path. `failed` has reasons, by network.

    Raises:
        click.ClickException: the conditions are not those of a page that is published.
    """
    written = write_page(name, TITLE, conditions, markdown(measurements, plan, failed), results)
    written.with_suffix(".svg").write_text(image(measurements, plan.threads))
    document = {
        "conditions": asdict(conditions),
        "failed": dict(failed),
        "plan": asdict(plan),
        "networks": [asdict(m) for m in measurements],
    }
    written.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
    with written.with_suffix(".csv").open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(
            ["network", "threads", "engine", "least_ms", "median_ms", "runs", "agreement", "error", "share_of_peak"]
        )
        for m in measurements:
            for threads, latencies in m.latency.items():
                for engine, latency in latencies.items():
                    share = _number(m.share(threads, engine), "{:.3f}")
                    error = _number(m.error.get(engine), "{:.2e}")
                    numbers = [f"{latency.minimum:.4f}", f"{latency.median:.4f}", latency.runs]
                    rows.writerow([m.network, threads, engine, *numbers, f"{m.agreement[engine]:.2e}", error, share])
    return written


def markdown(measurements: Sequence[Measurement], plan: Plan, failed: Mapping[str, str]) -> list[str]:
    """The lines of the page: how it was measured, then a table of times and one of libraries."""
    versions = {name: version for m in measurements for name, version in m.versions.items()}
    return [
        ", ".join(f"{name} {version}" for name, version in versions.items()) + ".",
        "",
        "Float32, a batch of one where the name says no other. Each engine in a process of its own, held to as many"
        f" processors as threads; warmed up, then in turns, {plan.repeats} of at least {plan.seconds} s."
        " Milliseconds: median (minimum).",
        "*Ratio*: the faster peer's time over nnefc's, likewise; above 1 nnefc is faster. Weights are random.",
        "*Share*: multiply-adds a second of convolutions and matrix products over what the machine does in"
        " registers alone; by their definition, so that Winograd's algorithm can pass 100%.",
        "*Roofline*: the time that these multiply-adds take at that rate, or that reading every parameter once"
        " takes (an array of their size, read between the runs), whichever is longer, over nnefc's.",
        "",
        "Each peer in its best form for float32 at low latency: onnxruntime with all graph optimizations; OpenVINO with"
        " the latency hint, one stream, and float32 asked for, since it rounds to bfloat16 by itself where the"
        " processor has instructions for that; tract optimized, on one thread always.",
        "",
        *tables(measurements, plan, failed),
        "",
        "*Error*: the largest difference from what float64 gives, computed by ONNX's evaluator, over the largest value."
        " *Time*: of a median run with `--strict`, which leaves out Winograd's and Strassen's algorithms and attention"
        " by tiles, over one without. *Ratio*: the faster peer's median over nnefc's with `--strict`.",
        "",
        *_strictly(measurements, plan),
        *_errors(measurements, plan),
    ]


def tables(measurements: Sequence[Measurement], plan: Plan, failed: Mapping[str, str]) -> list[str]:
    """The mean of the ratios, the times, and the libraries."""
    return [
        f"Geometric mean of the ratios: {_means(measurements, plan)}.",
        "",
        *_times(measurements, plan, failed),
        "",
        "*Agreement*: the largest difference from onnxruntime's output over its largest value; of a session with"
        " `session.x64quantprecision`, without which products of bytes saturate on processors without VNNI.",
        "",
        *_libraries(measurements),
    ]


def _means(measurements: Sequence[Measurement], plan: Plan, own: str = "nnefc") -> str:
    """The geometric mean of the ratios of medians, by number of threads."""
    means = []
    for threads in plan.threads:
        ratios = [r for m in measurements if (r := m.ratio(threads, attrgetter("median"), own)) is not None]
        mean = statistics.geometric_mean(ratios) if ratios else None
        means.append(f"{_number(mean, '{:.2f}')} on {threads} thread{'s' if threads > 1 else ''}")
    return ", ".join(means)


def _times(measurements: Sequence[Measurement], plan: Plan, failed: Mapping[str, str]) -> list[str]:
    engines = [name for name in _engines(measurements) if name != STRICT]
    rows = []
    for threads in plan.threads:
        for m in measurements:
            found = [m.latency[threads].get(engine) for engine in engines]
            cells = [
                "-" if each is None else f"{time_spelled(each.median)} ({time_spelled(each.minimum)})" for each in found
            ]
            ratios = [m.ratio(threads, of) for of in (attrgetter("median"), attrgetter("minimum"))]
            cells.append("-" if None in ratios else f"{ratios[0]:.2f} ({ratios[1]:.2f})")
            cells += [_number(share(threads, "nnefc"), "{:.0%}") for share in (m.share, m.roofline)]
            rows.append([m.network, str(threads), *cells])
        rows += [[name, str(threads), f"failed: {reason}"] for name, reason in failed.items()]
    return table(["network", "threads", *engines, "ratio", "share", "roofline"], rows)


def _engines(measurements: Sequence[Measurement]) -> list[str]:
    return list(dict.fromkeys(engine for m in measurements for of in m.latency.values() for engine in of))


def time_spelled(milliseconds: float) -> str:
    """Milliseconds, with as many digits as tell."""
    return f"{milliseconds:.2f}" if milliseconds >= 1 else f"{milliseconds:.4f}"


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)


def _libraries(measurements: Sequence[Measurement]) -> list[str]:
    rows = [
        [
            m.network,
            difference_spelled(m.agreement["nnefc"]),
            f"{m.compile_seconds:.1f}",
            f"{m.code_bytes / 1024:.0f}",
            f"{m.constant_bytes / 2**20:.1f}",
            f"{m.workspace_bytes / 2**20:.2f}",
        ]
        for m in measurements
    ]
    return table(
        ["network", "agreement", "compile s", "library without constants, KiB", "constants MiB", "workspace MiB"], rows
    )


def _strictly(measurements: Sequence[Measurement], plan: Plan) -> list[str]:
    """The mean of the ratios with `--strict`, and each engine's errors in short; nothing where it was not measured."""
    if not any(STRICT in engines for m in measurements for engines in m.latency.values()):
        return []
    errors = {name: [m.error[name] for m in measurements if m.error.get(name)] for name in _engines(measurements)}
    errors_text = [f"{name} {statistics.geometric_mean(of):.1e} ({max(of):.1e})" for name, of in errors.items() if of]
    return [
        f"Geometric mean of the ratios with `--strict`: {_means(measurements, plan, STRICT)}; without it:"
        f" {_means(measurements, plan)}. Geometric mean of the errors (largest): {', '.join(errors_text)}.",
        "",
    ]


def _errors(measurements: Sequence[Measurement], plan: Plan) -> list[str]:
    engines = _engines(measurements)
    rows = [
        [
            m.network,
            *(_number(m.error.get(engine), "{:.1e}") for engine in engines),
            *(_number(m.strictly(threads), "{:.2f}") for threads in plan.threads),
            *(_number(m.ratio(threads, attrgetter("median"), STRICT), "{:.2f}") for threads in plan.threads),
        ]
        for m in measurements
    ]
    counts = [f"{threads} thread{'s' if threads > 1 else ''}" for threads in plan.threads]
    strict = [f"{what}, {count}" for what in ("time", "ratio") for count in counts]
    return table(["network", *(f"error of {engine}" for engine in engines), *strict], rows)


def table(head: Sequence[str], rows: Iterable[Sequence[str]], names: int = 1) -> list[str]:
    """A table of Markdown, whose first columns are names, the others numbers."""
    rule = ["---"] * names + ["---:"] * (len(head) - names)
    return [f"| {' | '.join(cells)} |" for cells in (head, rule, *rows)]
