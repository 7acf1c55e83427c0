"""Pretrained networks whose sizes stay open, at three sizes each: one library for all, beside onnxruntime and OpenVINO.

    python benchmarks/open_networks.py FOLDER [NETWORK ...]

measures FOLDER/NETWORK.onnx for those named, or for all of `SIZES` and then writes benchmarks/results/open.md. No
engine is told a size before it runs: each compiles the model as it is, without an option, and takes all three.
Libraries are written into build/open_networks.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import click
import numpy as np
import onnx
import onnxruntime
from conditions import RESULTS, Watch, page, write_page
from measure import REFERENCE, Measurement, Plan, compare, compile_library, difference
from onnx import numpy_helper
from real_networks import NETWORKS, TYPES, values_like
from report import table as table_of
from report import time_spelled
from worker import EngineError

LIBRARIES = Path(__file__).resolve().parent.parent / "build" / "open_networks"
TITLE = "Pretrained networks of open sizes beside nnefc's peers"
MOST_DIFFERENT = 1e-2
MOST_DIFFERENT_QUANTIZED = 5e-2
"""Of an output's largest value: outputs that differ more from onnxruntime's are another answer, unless its own differ
as much from each other at one of the sizes. Networks that quantize while they run round many numbers the other way for
a last bit of one."""

# By network and input: the shapes of three runs; the values are those of `NETWORKS`.
SIZES: dict[str, dict[str, list[list[int]]]] = {
    "aecmos": {"input": [[1, 3, n, 160] for n in (150, 300, 600)]},
    "basic_pitch": {"serving_default_input_2:0": [[n, 43844, 1] for n in (1, 2, 4)]},
    "bilstm_int8": {"input_ids": [[1, n] for n in (9, 64, 210)]},
    "ddddocr_old": {"input1": [[1, 1, 64, n] for n in (120, 176, 333)]},
    "dnsmos_bak_ovr": {"input_1": [[n, 901, 161] for n in (1, 2, 4)]},
    "dnsmos_v8": {"input_1": [[n, 900, 120] for n in (1, 2, 4)]},
    "gigaam_features": {"waveforms": [[1, n] for n in (16000, 64000, 240000)]},
    "kaldi_features": {"waveforms": [[1, n] for n in (16000, 64000, 240000)]},
    "kaldi_features_conv": {"waveforms": [[1, n] for n in (16000, 64000, 240000)]},
    "kokoro_int8": {"tokens": [[1, n] for n in (12, 48, 120)]},
    "magika": {"bytes": [[n, 2048] for n in (1, 8, 33)]},
    "open_nsfw": {"input_0": [[n, 224, 224, 3] for n in (1, 2, 5)]},
    "piper_joe": {"input": [[1, n] for n in (21, 64, 150)]},
    "piper_tashkeel": {name: [[1, n] for n in (17, 64, 200)] for name in ("char_inputs", "diac_inputs")},
    "ppocr4_det": {"x": [[1, 3, h, w] for h, w in ((320, 320), (736, 480), (960, 1280))]},
    "ppocr4_rec": {"x": [[n, 3, 48, w] for n, w in ((1, 320), (1, 773), (6, 480))]},
    "ppocr6_det": {"x": [[1, 3, h, w] for h, w in ((320, 320), (736, 480), (960, 1280))]},
    "ppocr_cls": {"x": [[n, 3, 48, 192] for n in (1, 2, 6)]},
    "rawi_int8": {"input": [[1, n] for n in (9, 64, 210)]},
    "silero_v6_sequence": {"input": [[n, 576] for n in (1, 60, 313)]},
    "t5_encoder": {name: [[b, n] for b, n in ((1, 16), (1, 128), (4, 77))] for name in ("input_ids", "attention_mask")},
    "voice_embedder_int8": {"mel_window": [[n, 80, 40] for n in (1, 2, 5)]},
    "wake_embedding": {"input_1": [[n, 76, 32, 1] for n in (1, 3, 16)]},
    "wespeaker_features": {"waveforms": [[1, n] for n in (16000, 64000, 240000)]},
    "whisper_features": {"waveforms": [[1, n] for n in (16000, 64000, 240000)]},
}
ENGINES = ("nnefc", REFERENCE, "openvino")
LENGTHS = {"waveforms_lens": ("waveforms",), "input_lengths": ("input", "char_inputs")}
"""Inputs whose value is the last dimension of another one, by the names that it may have."""


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("networks", nargs=-1, type=click.Choice(list(SIZES)))
@click.option("--rounds", default=2, show_default=True, help="Turns of each engine.")
@click.option("--seconds", default=0.2, show_default=True, help="Length of a turn.")
def main(folder: Path, networks: tuple[str, ...], rounds: int, seconds: float) -> None:
    """Measure NETWORKS of FOLDER, or all."""
    plan = Plan(threads=(1,), rounds=rounds, seconds=seconds)
    watch = Watch()
    measurements: dict[str, list[Measurement]] = {}
    failed: dict[str, str] = {}
    for network in networks or SIZES:
        click.echo(f"measuring {network}", err=True)
        try:
            measurements[network] = measure(network, folder / f"{network}.onnx", plan)
        except (EngineError, subprocess.SubprocessError) as error:
            click.echo(f"  failed: {error}", err=True)
            failed[network] = str(error).partition("\n")[0]
    conditions, lines = watch.end(), body(measurements, plan, failed)
    click.echo(page(TITLE, conditions, lines))
    if not networks:
        write_page(RESULTS / "open.md", TITLE, conditions, lines)


def measure(network: str, model: Path, plan: Plan) -> list[Measurement]:
    """Compile one network as it is, and run it at each of its sizes in every engine."""
    if not model.exists():
        raise EngineError(f"no file {model.name}")
    LIBRARIES.mkdir(parents=True, exist_ok=True)
    library = LIBRARIES / f"{network}.so"
    facts = compile_library(model, library)
    found = []
    for number in range(3):
        values = values_at(network, model, number)
        measurement = compare(sizes_spelled(network, number), library, model, values, facts, plan, engines=ENGINES)
        found.append(replace(measurement, error={REFERENCE: own_difference(model, values)}))
        medians = ", ".join(f"{name} {latency.median:.2f}" for name, latency in measurement.latency[1].items())
        click.echo(f"  {measurement.network}: {medians} ms", err=True)
    usual = MOST_DIFFERENT_QUANTIZED if quantizes(model) else MOST_DIFFERENT
    most = max(usual, *(each.error[REFERENCE] for each in found))
    for each in found:
        if each.agreement["nnefc"] > most:
            raise EngineError(f"other results at {each.network}: by {each.agreement['nnefc']:.1e}")
    return found


def own_difference(model: Path, values: dict[str, np.ndarray]) -> float:
    """How much onnxruntime's outputs differ from each other, over their largest value; infinite where their sizes do.

    With and without its optimizations, which round differently. Networks that quantize while they run round many
    numbers the other way for a last bit of one: these also with one thread and two, for it quantizes what each thread
    computes by itself, and with the trained reals moved to the next ones, by 1e-7 of them.
    """
    plain, single, two = (onnxruntime.SessionOptions() for _ in range(3))
    plain.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    single.intra_op_num_threads, two.intra_op_num_threads = 1, 2
    ways = [(str(model), single), (str(model), plain)]
    if not quantizes(model):
        return _largest_difference(ways, values)
    with tempfile.TemporaryDirectory() as folder:
        moved = Path(folder) / model.name
        onnx.save(with_next_reals(onnx.load(model)), moved)
        return _largest_difference([*ways, (str(model), two), (str(moved), single)], values)


def _largest_difference(ways: list[tuple[str, onnxruntime.SessionOptions]], values: dict[str, np.ndarray]) -> float:
    """Between the outputs of the first model and options, and those of the others."""
    answers = [
        onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, values)
        for model, options in ways
    ]
    return max(difference(answer, answers[0]) for answer in answers[1:])


def with_next_reals(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the next larger number in place of each float32 of its tensors; single ones stay."""
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.float32 and array.size > 1:
            tensor.CopyFrom(numpy_helper.from_array(np.nextafter(array, np.float32(np.inf)), tensor.name))
    return model


def quantizes(model: Path) -> bool:
    """Whether a network computes scales while it runs."""
    nodes = onnx.load(model, load_external_data=False).graph.node
    return any(node.op_type.startswith("DynamicQuantize") for node in nodes)


def values_at(network: str, model: Path, number: int) -> dict[str, np.ndarray]:
    """Values for the inputs that the model has, in its order, of one of its sizes; the same in every run."""
    rng = np.random.default_rng(0)
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    values: dict[str, np.ndarray] = {}
    for given in session.get_inputs():
        shape, kind = NETWORKS[network][given.name]
        if given.name in SIZES[network]:
            shape = SIZES[network][given.name][number]
        for name in LENGTHS.get(given.name, ()):
            if name in SIZES[network]:
                kind = [SIZES[network][name][number][-1]]
        values[given.name] = values_like(rng, shape, kind).astype(TYPES[given.type])
    return values


def sizes_spelled(network: str, number: int) -> str:
    """The shape of the first input that has open sizes."""
    return "×".join(map(str, next(iter(SIZES[network].values()))[number]))


def body(found: dict[str, list[Measurement]], plan: Plan, failed: dict[str, str]) -> list[str]:
    """The lines of the page."""
    all_of = [m for of_network in found.values() for m in of_network]
    versions = {name: version for m in all_of for name, version in m.versions.items()}
    ratios = [ratio for m in all_of if (ratio := m.ratio(1, attrgetter("median"))) is not None]
    mean = f"{statistics.geometric_mean(ratios):.2f}" if ratios else "-"
    return [
        ", ".join(f"{name} {version}" for name, version in versions.items()) + ".",
        "",
        "Networks that packages of PyPI ship inside themselves, with their trained values and as they are: no engine is"
        " told a size before it runs, and each takes all three sizes with one compiled network. An engine that cannot"
        f" run it has no time. Each in a process of its own, held to one processor; warmed up, then in turns,"
        f" {plan.rounds} of at least {plan.seconds} s. Milliseconds: median.",
        "*Ratio*: the faster peer's time over nnefc's; above 1 nnefc is faster. *Agreement*: the largest difference"
        " from onnxruntime's output over its largest value. *Its own*: that of onnxruntime's output without its"
        " optimizations, and for networks that quantize while they run also with two threads, or with trained values"
        " that differ in their last bit: such networks take another way for the last bit of a number. *Compiled*:"
        " seconds that nnefc took,"
        " once for all sizes.",
        "",
        f"Geometric mean of the ratios: {mean}, over {len(ratios)} sizes of {len(found)} networks;"
        f" {sum(ratio < 1 for ratio in ratios)} below 1.",
        "",
        *table_of(
            ["network", "size", *ENGINES, "ratio", "agreement", "its own", "compiled"],
            [_row(network, m) for network, of_network in found.items() for m in of_network]
            + [[name, f"failed: {reason}"] for name, reason in failed.items()],
        ),
    ]


def _row(network: str, m: Measurement) -> list[str]:
    times = [m.latency[1].get(engine) for engine in ENGINES]
    ratio = m.ratio(1, attrgetter("median"))
    return [
        network,
        m.network,
        *("-" if each is None else time_spelled(each.median) for each in times),
        "-" if ratio is None else f"{ratio:.2f}",
        f"{m.agreement['nnefc']:.1e}",
        f"{m.error[REFERENCE]:.1e}",
        f"{m.compile_seconds:.1f}",
    ]


if __name__ == "__main__":
    sys.exit(main())
