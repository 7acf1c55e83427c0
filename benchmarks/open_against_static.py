"""Networks of dynamic sizes against themselves, compiled for each size; and compared with onnxruntime.

    python benchmarks/open_against_static.py [NETWORK ...] [--quick]

compiles each network once for all sizes of a sweep, and once for each size alone. A row is one size: milliseconds of
both libraries and of onnxruntime, which has the model of dynamic sizes, on one thread; and seconds that compiling took.
Without names it measures all networks and writes results/PROCESSOR/open_against_static.md.
"""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
import onnx
from conditions import Watch, page, write_page
from exact import errors
from measure import REFERENCE, Latency, Plan, answers_of, compile_library, start, take_turns
from models.networks import input_of, write_twins
from onnx import numpy_helper
from peers import STATIC
from report import table, time_spelled
from size_changes import seconds_of_change
from worker import EngineError

MODELS = Path(__file__).resolve().parent.parent / "build" / "models"
LIBRARIES = MODELS.parent / "open_against_static"
TITLE = "Networks of dynamic sizes against those of known sizes"
MAX_DIFFERENT = 1e-3
"""Of an output's largest value: outputs that differ more from onnxruntime's are another answer."""

# By the axes of the input that are open, and their names: the sizes of a sweep.
_IMAGES = {
    ("batch",): [(1,), (2,), (3,), (7,)],
    ("", "", "height", "width"): [(224, 224), (225, 225), (160, 160), (97, 97)],
}
_SENTENCES = {("", "sequence"): [(1,), (5,), (16,), (77,), (128,), (333,)]}
NETWORKS: dict[str, Mapping[tuple[str, ...], Sequence[tuple[int, ...]]]] = {
    "squeezenet": _IMAGES,
    "resnet18_batch8": _IMAGES,
    "resnet50": _IMAGES,
    "mobilenet_v2": _IMAGES,
    "bert_base": _SENTENCES,
}


@dataclass(frozen=True)
class Row:
    """What was found at one size.

    Attributes:
        names, sizes: of the dynamic dimensions.
        latency: by engine.
        dynamic_seconds, static_seconds: of compiling for all sizes, and for this one.
        change_seconds: of a change of sizes, of this library.
    """

    network: str
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    latency: Mapping[str, Latency]
    dynamic_seconds: float
    static_seconds: float
    change_seconds: float

    @property
    def ratio(self) -> float:
        """The time of the library for this size over that of the one for all sizes: below 1 this one is slower."""
        return self.latency[STATIC].median / self.latency["nnefc"].median

    @property
    def ahead(self) -> float:
        """The time of onnxruntime over that of the library for all sizes: below 1 onnxruntime is faster."""
        return self.latency[REFERENCE].median / self.latency["nnefc"].median

    @property
    def compile_ratio(self) -> float:
        """How many times as long it takes to compile for all sizes as for this one."""
        return self.dynamic_seconds / self.static_seconds


def opened(model: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """The model with these names instead of sizes of its input's first axes, but for axes with an empty name.

    Where a Reshape repeats such a size at its position, it takes the size of its operand instead; an average over all
    that the known sizes give is one over all that there is.
    """
    (data,) = (value for value in model.graph.input if value.name not in _initialized(model))
    dims = data.type.tensor_type.shape.dim
    before = {axis: dims[axis].dim_value for axis, name in enumerate(names) if name}
    shapes = {value.name: _shape(value) for value in model.graph.value_info}
    for node in model.graph.node:
        if node.op_type == "AveragePool" and _covers(node, shapes[node.input[0]]):
            node.op_type = "GlobalAveragePool"
            del node.attribute[:]
    targets = {node.input[1] for node in model.graph.node if node.op_type == "Reshape"}
    for tensor in model.graph.initializer:
        if tensor.name in targets:
            sizes = numpy_helper.to_array(tensor).copy()
            for axis, size in before.items():
                if axis < len(sizes) and sizes[axis] == size:
                    sizes[axis] = 0
            tensor.CopyFrom(numpy_helper.from_array(sizes, tensor.name))
    for axis in before:
        dims[axis].dim_param = names[axis]
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    return model


def _initialized(model: onnx.ModelProto) -> set[str]:
    return {tensor.name for tensor in model.graph.initializer}


def _shape(value: onnx.ValueInfoProto) -> list[int]:
    return [dim.dim_value for dim in value.type.tensor_type.shape.dim]


def _covers(node: onnx.NodeProto, shape: Sequence[int]) -> bool:
    """Whether a window has the size of what it slides over."""
    sizes = [list(attribute.ints) for attribute in node.attribute if attribute.name == "kernel_shape"]
    return sizes == [list(shape[2:])]


def measure(network: str, plan: Plan, max_sizes: int | None) -> Iterator[Row]:
    """Compile a network with each choice of dynamic dimensions, and run it at each size of the sweep."""
    model = write_twins(MODELS, network).onnx
    LIBRARIES.mkdir(parents=True, exist_ok=True)
    for names, sweep in NETWORKS[network].items():
        path = LIBRARIES / f"{network}-{'-'.join(filter(None, names))}.onnx"
        onnx.save(opened(onnx.load(model), names), path)
        library, static = path.with_suffix(".so"), path.with_suffix(".static.so")
        own = tuple(filter(None, names))
        dynamic_seconds = compile_library(path, library)["seconds"]
        change = seconds_of_change(library, [_shapes(path, dict(zip(own, sizes, strict=True))) for sizes in sweep])
        for sizes in sweep[:max_sizes]:
            known = dict(zip(own, sizes, strict=True))
            seconds = compile_library(path, static, {"shape": known})["seconds"]
            latency = _run(path, {"nnefc": library, STATIC: static, REFERENCE: path}, known, plan)
            yield Row(network, own, sizes, latency, dynamic_seconds, seconds, change)


def _run(model: Path, engines: Mapping[str, Path], sizes: Mapping[str, int], plan: Plan) -> dict[str, Latency]:
    """The times of each engine at these sizes.

    Raises:
        EngineError: an output is not onnxruntime's.
    """
    file = model.with_suffix(".npz")
    np.savez(file, **_values(model, sizes))
    workers = start(engines, file, 1)
    try:
        answers = answers_of(workers, model.parent)
        for name, found in answers.items():
            difference = max(errors(a, b)[0] for a, b in zip(found, answers[REFERENCE], strict=True))
            if difference > MAX_DIFFERENT:
                raise EngineError(f"other results of {name} at {sizes}: by {difference:.1e}")
        return take_turns(workers, plan)
    finally:
        for worker in workers:
            worker.close()


def _shapes(model: Path, sizes: Mapping[str, int]) -> list[tuple[int, ...]]:
    return [array.shape for array in _values(model, sizes).values()]


def _values(model: Path, sizes: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Values for the input at these sizes."""
    proto = onnx.load(model, load_external_data=False)
    for value in proto.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
    return input_of(proto)


@click.command()
@click.argument("networks", nargs=-1, type=click.Choice(list(NETWORKS)))
@click.option("--repeats", default=2, show_default=True, help="Turns of each engine.")
@click.option("--seconds", default=0.2, show_default=True, help="Length of a turn.")
@click.option("--quick", is_flag=True, help="Two sizes of each sweep, in short turns; nothing is written.")
def main(networks: tuple[str, ...], repeats: int, seconds: float, quick: bool) -> None:
    """Measure NETWORKS, or all of them."""
    plan = Plan(threads=(1,), repeats=repeats, seconds=0.05 if quick else seconds)
    watch = Watch()
    rows: list[Row] = []
    failed: dict[str, str] = {}
    for network in networks or NETWORKS:
        click.echo(f"measuring {network}", err=True)
        try:
            for row in measure(network, plan, 2 if quick else None):
                rows.append(row)
                click.echo("  " + " ".join(_cells(row)), err=True)
        except (EngineError, subprocess.SubprocessError) as error:
            click.echo(f"  failed: {error}", err=True)
            failed[network] = str(error).partition("\n")[0]
    conditions, lines = watch.end(), body(rows, plan, failed)
    click.echo(page(TITLE, conditions, lines))
    if not networks and not quick:
        write_page("open_against_static", TITLE, conditions, lines)
    if failed:
        raise click.ClickException(f"not measured: {', '.join(failed)}")


def body(rows: Sequence[Row], plan: Plan, failed: Mapping[str, str]) -> list[str]:
    """The lines of the page."""
    return [
        "Networks with random weights on one thread. *Open*: one library for all sizes, compiled without any range."
        " *Static*: a library for the one size. onnxruntime has the model of dynamic sizes. Each in a process "
        "of its own,"
        f" held to one processor; warmed up, then in turns, {plan.repeats} of at least {plan.seconds} s."
        " Milliseconds: median.",
        "*Ratio*: static time over open time; below 1 the library for all sizes is slower. *Ahead*: onnxruntime's time"
        " over open time. *Compiled*: seconds for all sizes and for this one alone, and the first over the second."
        " *Change*: microseconds of `nnefc_resize` from one size of the sweep to the next, median.",
        "",
        f"Geometric means: ratio {_mean([row.ratio for row in rows])}, ahead {_mean([row.ahead for row in rows])}"
        f" ({sum(row.ahead < 1 for row in rows)} of {len(rows)} below 1), compile ratio"
        f" {_mean([row.compile_ratio for row in rows])} (at most"
        f" {max((row.compile_ratio for row in rows), default=math.nan):.2f}).",
        "",
        *table(
            ["network", "dynamic dimensions", "ratio", "minimum", "ahead", "minimum", "compile ratio", "change"],
            [_summary(rows, *key) for key in dict.fromkeys((row.network, row.names) for row in rows)],
        ),
        "",
        *table(
            ["network", "open", "size", "static", "open", "ratio", REFERENCE, "ahead", "open s", "static s", "ratio"],
            [*map(_cells, rows), *([name, f"failed: {reason}"] for name, reason in failed.items())],
        ),
    ]


def _summary(rows: Sequence[Row], network: str, names: tuple[str, ...]) -> list[str]:
    """One sweep in a line."""
    own = [row for row in rows if (row.network, row.names) == (network, names)]
    ratios, ahead = [row.ratio for row in own], [row.ahead for row in own]
    means = [_mean(ratios), f"{min(ratios):.2f}", _mean(ahead), f"{min(ahead):.2f}"]
    change = f"{own[0].change_seconds * 1e6:.1f}"
    return [network, ", ".join(names), *means, _mean([row.compile_ratio for row in own]), change]


def _mean(ratios: Sequence[float]) -> str:
    return f"{statistics.geometric_mean(ratios):.2f}" if ratios else "-"


def _cells(row: Row) -> list[str]:
    times = {name: time_spelled(latency.median) for name, latency in row.latency.items()}
    return [
        row.network,
        ", ".join(row.names),
        "×".join(map(str, row.sizes)),
        times[STATIC],
        times["nnefc"],
        f"{row.ratio:.2f}",
        times[REFERENCE],
        f"{row.ahead:.2f}",
        f"{row.dynamic_seconds:.1f}",
        f"{row.static_seconds:.1f}",
        f"{row.compile_ratio:.2f}",
    ]


if __name__ == "__main__":
    sys.exit(main())
