"""Pretrained networks whose sizes stay open, at three sizes each: one library for all, compared with onnxruntime and
OpenVINO.

    python benchmarks/open_networks.py FOLDER [NETWORK ...]

measures FOLDER/NETWORK.onnx for those named, or for all of `SIZES` and then writes results/PROCESSOR/open.md. No engine
knows a size before it runs: each compiles the model as it is, without an option, and takes all three.
Libraries are written into build/open_networks.
"""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click
import numpy as np
import onnx
import onnxruntime
from conditions import Watch, page, write_page
from forced import forced_difference
from measure import (
    REFERENCE,
    Latency,
    Plan,
    answers_of,
    compile_library,
    difference,
    difference_spelled,
    reference_answers,
    start,
    take_turns,
)
from peers.onnxruntime_session import exact_options
from real_networks import NETWORKS, values_like
from report import table as table_of
from report import time_spelled
from worker import EngineError, Worker

LIBRARIES = Path(__file__).resolve().parent.parent / "build" / "open_networks"
TITLE = "Pretrained networks of dynamic sizes compared with nnefc's peers"
MAX_DIFFERENT = 1e-2
"""Of an output's largest value: outputs that differ more from onnxruntime's are another answer, unless its own differ
as much from each other."""
MAX_FORCED = 1e-4
"""Of a tensor's largest value, where every quantization in the network is given onnxruntime's numbers. What agrees so,
is the same network, however far the outputs are from each other after many quantizations."""

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


@dataclass(frozen=True)
class Measured:
    """What was found for a network at one of its sizes.

    Attributes:
        size: the shape of its first dynamic input.
        latency: by engine.
        agreement: the largest difference of nnefc's outputs from onnxruntime's, over the largest value.
        own: that of onnxruntime's outputs without its optimizations.
        elements: of nnefc's outputs, over those of onnxruntime's; not 1 where data-dependent sizes differ.
        compile_seconds: of nnefc, once for all sizes.
        versions: of the engines.
        forced: as `agreement`, where every quantization in the network is given onnxruntime's numbers; None if that was
            not needed.
    """

    size: str
    latency: Mapping[str, Latency]
    agreement: float
    own: float
    elements: float
    compile_seconds: float
    versions: Mapping[str, str]
    forced: float | None = None

    @property
    def ratio(self) -> float | None:
        """The faster peer's time over nnefc's; None without a peer."""
        times = [each.median for name, each in self.latency.items() if name != "nnefc"]
        return min(times) / self.latency["nnefc"].median if times else None


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("networks", nargs=-1, type=click.Choice(list(SIZES)))
@click.option("--repeats", default=2, show_default=True, help="Turns of each engine.")
@click.option("--seconds", default=0.2, show_default=True, help="Length of a turn.")
@click.option("--maximum", default=1.0, show_default=True, help="Seconds after which a turn has no further run.")
def main(folder: Path, networks: tuple[str, ...], repeats: int, seconds: float, maximum: float) -> None:
    """Measure NETWORKS of FOLDER, or all."""
    plan = Plan(threads=(1,), repeats=repeats, seconds=seconds, maximum=maximum)
    watch = Watch()
    measurements: dict[str, list[Measured]] = {}
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
        write_page("open", TITLE, conditions, lines)


def measure(network: str, model: Path, plan: Plan) -> list[Measured]:
    """Compile one network as it is, and run it at each of its sizes in every engine, each in one process for all."""
    if not model.exists():
        raise EngineError(f"no file {model.name}")
    LIBRARIES.mkdir(parents=True, exist_ok=True)
    library = LIBRARIES / f"{network}.so"
    facts = compile_library(model, library)
    proto = onnx.load(model)
    sizes = [values_at(network, proto, number) for number in range(3)]
    own = own_differences(model, sizes)
    given = library.with_suffix(".npz")
    np.savez(given, **sizes[0])
    workers = start({name: library if name == "nnefc" else model for name in ENGINES}, given, 1)
    found = []
    try:
        versions = {worker.peer: worker.version for worker in workers}
        for number, (values, error) in enumerate(zip(sizes, own, strict=True)):
            np.savez(given, **values)
            latency, agreement, elements = _at(workers, given, plan, reference_answers(model, values))
            spelled = sizes_spelled(network, number)
            found.append(Measured(spelled, latency, agreement, error, elements, facts["seconds"], versions))
            medians = ", ".join(f"{name} {each.median:.2f}" for name, each in latency.items())
            click.echo(f"  {spelled}: {medians} ms", err=True)
    finally:
        for worker in workers:
            worker.close()
    maximum = max(MAX_DIFFERENT, *own)
    if maximum < max(each.agreement for each in found) and quantizes(proto):  # infinite where rounding changes a size
        worst = max(range(3), key=lambda number: found[number].agreement)
        forced = forced_difference(proto, sizes[worst], LIBRARIES / f"{network}.forced.onnx")
        click.echo(f"  with onnxruntime's numbers in every quantization: {forced:.1e}", err=True)
        found = [replace(each, forced=forced) for each in found]
        maximum = math.inf if forced <= MAX_FORCED else maximum
    for each in found:
        if each.agreement > maximum:
            raise EngineError(f"other results at {each.size}: by {each.agreement:.1e}")
    return found


def _at(
    workers: Sequence[Worker], given: Path, plan: Plan, wanted: Sequence[np.ndarray]
) -> tuple[dict[str, Latency], float, float]:
    """The latency of each engine at a size, how much nnefc's outputs differ from those that are wanted, and how many
    elements they have, over those of these."""
    for worker in workers:
        worker.take(given)
    answers = answers_of(workers, LIBRARIES)
    found = answers["nnefc"]
    elements = sum(array.size for array in found) / sum(array.size for array in wanted)
    return take_turns(workers, plan), difference(found, wanted), elements


def own_differences(model: Path, sizes: Sequence[Mapping[str, np.ndarray]]) -> list[float]:
    """At each size, how much onnxruntime's outputs with its optimizations differ from those without.

    Over their largest value; infinite where their sizes differ.
    """
    answers = []
    for level in ("ORT_ENABLE_ALL", "ORT_DISABLE_ALL"):
        options = exact_options()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
        session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        answers.append([session.run(None, dict(values)) for values in sizes])
    return [difference(reference, usual) for usual, reference in zip(*answers, strict=True)]


def quantizes(model: onnx.ModelProto) -> bool:
    """Whether a network computes scales while it runs."""
    return any(node.op_type.startswith("DynamicQuantize") for node in model.graph.node)


def values_at(network: str, model: onnx.ModelProto, number: int) -> dict[str, np.ndarray]:
    """Values for the inputs that the model has, in its order, of one of its sizes; the same in every run."""
    rng = np.random.default_rng(0)
    constants = {tensor.name for tensor in model.graph.initializer}
    values: dict[str, np.ndarray] = {}
    for given in (each for each in model.graph.input if each.name not in constants):
        shape, kind = NETWORKS[network][given.name]
        if given.name in SIZES[network]:
            shape = SIZES[network][given.name][number]
        for name in LENGTHS.get(given.name, ()):
            if name in SIZES[network]:
                kind = [SIZES[network][name][number][-1]]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(given.type.tensor_type.elem_type)
        values[given.name] = values_like(rng, shape, kind).astype(dtype)
    return values


def sizes_spelled(network: str, number: int) -> str:
    """The shape of the first input that has dynamic sizes."""
    return "×".join(map(str, next(iter(SIZES[network].values()))[number]))


def body(found: dict[str, list[Measured]], plan: Plan, failed: dict[str, str]) -> list[str]:
    """The lines of the page."""
    all_of = [m for of_network in found.values() for m in of_network]
    versions = {name: version for m in all_of for name, version in m.versions.items()}
    ratios = [ratio for m in all_of if (ratio := m.ratio) is not None]
    mean = f"{statistics.geometric_mean(ratios):.2f}" if ratios else "-"
    return [
        ", ".join(f"{name} {version}" for name, version in versions.items()) + ".",
        "",
        "Networks that packages of PyPI ship inside themselves, with their trained values and as they are: no engine"
        " knows a size before it runs, and each takes all three sizes with one compiled network. An engine that cannot"
        f" run it has no time. Each in a process of its own, held to one processor; warmed up, then in turns,"
        f" {plan.repeats} of at least {plan.seconds} s and three runs, but with no further run after {plan.maximum} s."
        " Milliseconds: median.",
        "*Ratio*: the faster peer's time over nnefc's; above 1 nnefc is faster. *Agreement*: the largest difference"
        " from onnxruntime's output over its largest value; of a session with `session.x64quantprecision`, without"
        " which products of bytes saturate on processors without VNNI; *other sizes* where the data say how long an"
        " output is, such as rounded durations of sounds, and one is rounded the other way: in parentheses how many"
        " times the elements of onnxruntime's outputs nnefc computes in its time."
        " *Its own*: that of onnxruntime's output without"
        " its optimizations. *Forced*, for networks that quantize while they run and differ more: every quantization is"
        " given onnxruntime's numbers, and so is each sine of many turns; what is computed between these is compared,"
        " recurrent layers step by step, and coordinates in place of their angles, at the size that differs "
        "most: such"
        " networks round many numbers the other way for a last bit of one."
        " *Compiled*: seconds that nnefc took, once for all sizes.",
        "",
        f"Geometric mean of the ratios: {mean}, over {len(ratios)} sizes of {len(found)} networks;"
        f" {sum(ratio < 1 for ratio in ratios)} below 1.",
        "",
        *table_of(
            ["network", "size", *ENGINES, "ratio", "agreement", "its own", "forced", "compiled"],
            [_row(network, m) for network, of_network in found.items() for m in of_network]
            + [[name, f"failed: {reason}"] for name, reason in failed.items()],
        ),
    ]


def _row(network: str, m: Measured) -> list[str]:
    times = [m.latency.get(engine) for engine in ENGINES]
    return [
        network,
        m.size,
        *("-" if each is None else time_spelled(each.median) for each in times),
        "-" if m.ratio is None else f"{m.ratio:.2f}",
        difference_spelled(m.agreement) + (f" (× {m.elements:.2f})" if math.isinf(m.agreement) else ""),
        difference_spelled(m.own),
        "" if m.forced is None else f"{m.forced:.1e}",
        f"{m.compile_seconds:.1f}",
    ]


if __name__ == "__main__":
    sys.exit(main())
