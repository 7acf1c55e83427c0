"""Pretrained networks compared with onnxruntime, OpenVINO and tract, on one thread, their dynamic dimensions fixed.

    python benchmarks/real_networks.py FOLDER [NETWORK ...]

measures FOLDER/NETWORK.onnx for those named, or for all of `NETWORKS` and then writes results/PROCESSOR/real.md.
Libraries and models of fixed sizes are written into build/real_networks.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import click
import numpy as np
import onnx
import onnxruntime
from conditions import Watch, page, write_page
from measure import Measurement, Plan, compare, compile_library
from onnx import helper
from report import tables
from worker import EngineError

LIBRARIES = Path(__file__).resolve().parent.parent / "build" / "real_networks"
TITLE = "Pretrained networks compared with nnefc's peers"

# By network and input: the shape, and the values: "audio" in -1..1, "image" in 0..1, "features" (normal), an integer n
# for whole numbers below n, or a list of one number, which all elements are, or of them all. The scales of a voice's
# noise are 0: no two engines draw the same noise.
NETWORKS = {
    "aecmos": {"input": ([1, 3, 300, 160], "features"), "h0": ([4, 1, 64], [0])},
    "basic_pitch": {"serving_default_input_2:0": ([2, 43844, 1], "audio")},
    "bilstm_int8": {"input_ids": ([1, 64], 40)},
    "ddddocr_det": {"images": ([1, 3, 416, 416], "image")},
    "ddddocr_old": {"input1": ([1, 1, 64, 176], "image")},
    "dnsmos_bak_ovr": {"input_1": ([1, 901, 161], "features")},
    "dnsmos_v8": {"input_1": ([1, 900, 120], "features")},
    "gigaam_features": {"waveforms": ([1, 64000], "audio"), "waveforms_lens": ([1], [64000])},
    "kaldi_features": {"waveforms": ([1, 64000], "audio"), "waveforms_lens": ([1], [64000])},
    "kaldi_features_conv": {"waveforms": ([1, 64000], "audio"), "waveforms_lens": ([1], [64000])},
    "kokoro_int8": {"tokens": ([1, 48], 150), "style": ([1, 256], [0.0]), "speed": ([1], [1])},
    "magika": {"bytes": ([8, 2048], 256)},
    "open_nsfw": {"input_0": ([1, 224, 224, 3], "image")},
    "piper_joe": {"input": ([1, 64], 120), "input_lengths": ([1], [64]), "scales": ([3], [0.0, 1.0, 0.0])},
    "piper_tashkeel": {"char_inputs": ([1, 64], 36), "diac_inputs": ([1, 64], [0]), "input_lengths": ([1], [64])},
    "ppocr4_det": {"x": ([1, 3, 736, 480], "features")},
    "ppocr4_rec": {"x": ([1, 3, 48, 773], "features")},
    "ppocr6_det": {"x": ([1, 3, 736, 480], "features")},
    "ppocr_cls": {"x": ([1, 3, 48, 192], "features")},
    "rawi_int8": {"input": ([1, 64], 40)},
    "silero_half": {"input": ([1, 576], "audio"), "state": ([2, 1, 128], [0])},
    "silero_ifless": {"input": ([1, 576], "audio"), "state": ([2, 1, 128], [0]), "sr": ([], [16000])},
    "silero_op15": {"input": ([1, 576], "audio"), "state": ([2, 1, 128], [0]), "sr": ([], [16000])},
    "silero_static": {"input": ([1, 576], "audio"), "state": ([2, 1, 128], [0])},
    "silero_v5": {"input": ([1, 576], "audio"), "state": ([2, 1, 128], [0]), "sr": ([], [16000])},
    "silero_v6_sequence": {"input": ([60, 576], "audio"), "h": ([1, 1, 128], [0]), "c": ([1, 1, 128], [0])},
    "silero_vad": {"input": ([1, 576], "audio"), "state": ([2, 1, 128], [0]), "sr": ([], [16000])},
    "t5_encoder": {"input_ids": ([1, 128], 32000), "attention_mask": ([1, 128], [1])},
    "voice_embedder_int8": {"mel_window": ([2, 80, 40], "features")},
    "wake_alexa": {"onnx::Flatten_0": ([1, 16, 96], "features")},
    "wake_embedding": {"input_1": ([3, 76, 32, 1], "features")},
    "wake_timer": {"onnx::Flatten_0": ([1, 34, 96], "features")},
    "wespeaker_features": {"waveforms": ([1, 64000], "audio"), "waveforms_lens": ([1], [64000])},
    "whisper_features": {"waveforms": ([1, 64000], "audio"), "waveforms_lens": ([1], [64000])},
}
TYPES = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
}


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("networks", nargs=-1, type=click.Choice(list(NETWORKS)))
@click.option("--repeats", default=Plan.repeats, show_default=True, help="Turns of each engine.")
@click.option("--seconds", default=Plan.seconds, show_default=True, help="Length of a turn.")
def main(folder: Path, networks: tuple[str, ...], repeats: int, seconds: float) -> None:
    """Measure NETWORKS of FOLDER, or all."""
    plan = Plan(threads=(1,), repeats=repeats, seconds=seconds, maximum=2.0)
    watch = Watch()
    measurements: list[Measurement] = []
    failed: dict[str, str] = {}
    for network in networks or NETWORKS:
        click.echo(f"measuring {network}", err=True)
        model = folder / f"{network}.onnx"
        try:
            if not model.exists():
                raise EngineError(f"no file {model.name}")
            measurements.append(measure(network, model, plan))
        except (EngineError, subprocess.SubprocessError) as error:
            click.echo(f"  failed: {error}", err=True)
            failed[network] = str(error).partition("\n")[0]
            continue
        medians = ", ".join(f"{name} {latency.median:.2f}" for name, latency in measurements[-1].latency[1].items())
        click.echo(f"  {medians} ms", err=True)
    conditions, lines = watch.end(), body(measurements, plan, failed)
    click.echo(page(TITLE, conditions, lines))
    if not networks:
        write_page("real", TITLE, conditions, lines)
    if failed:
        raise click.ClickException(f"not measured: {', '.join(failed)}")


def measure(network: str, model: Path, plan: Plan) -> Measurement:
    """Compile one network for the sizes of its inputs, and run it in every engine."""
    LIBRARIES.mkdir(parents=True, exist_ok=True)
    library = LIBRARIES / f"{network}.so"
    values = values_of(network, model)
    numbers = {name: value.item() for name, value in values.items() if value.ndim == 0}  # choose a part of the network
    shapes = {name: value.shape for name, value in values.items() if name not in numbers}
    facts = compile_library(model, library, {"shape": shapes, "values": numbers} if numbers else {"shape": shapes})
    return compare(network, library, fixed(model, values), values, facts, plan)


def fixed(model: Path, values: Mapping[str, np.ndarray]) -> Path:
    """The model with its inputs of these sizes, to optimize for; as it is if onnxruntime refuses that."""
    proto = onnx.load(model)
    for port in proto.graph.input:
        if port.name in values:
            kind = port.type.tensor_type.elem_type
            port.CopyFrom(helper.make_tensor_value_info(port.name, kind, values[port.name].shape))
    result = LIBRARIES / model.name
    onnx.save(proto, result)
    try:
        onnxruntime.InferenceSession(str(result), providers=["CPUExecutionProvider"])
    except (
        Exception
    ):  # onnxruntime's errors have no other class: branches that are never taken may contradict the sizes
        return model
    return result


def values_of(network: str, model: Path) -> dict[str, np.ndarray]:
    """Values for the inputs that the model has, in its order; the same in every run."""
    rng = np.random.default_rng(0)
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    return {
        given.name: values_like(rng, *NETWORKS[network][given.name]).astype(TYPES[given.type])
        for given in session.get_inputs()
    }


def values_like(rng: np.random.Generator, shape: list[int], kind: object) -> np.ndarray:
    match kind:
        case "audio":
            return np.asarray(rng.uniform(-1.0, 1.0, shape))
        case "image":
            return np.asarray(rng.uniform(0.0, 1.0, shape))
        case "features":
            return np.asarray(rng.standard_normal(shape))
        case int():
            return rng.integers(0, kind, shape)
        case list(numbers):
            return np.resize(numbers, shape)
    raise ValueError(f"no such values: {kind!r}")


def body(measurements: list[Measurement], plan: Plan, failed: dict[str, str]) -> list[str]:
    """The lines of the page."""
    versions = {name: version for m in measurements for name, version in m.versions.items()}
    sizes = [
        f"- {m.network}: " + ", ".join(f"{name} {shape}" for name, (shape, _) in NETWORKS[m.network].items())
        for m in measurements
    ]
    return [
        ", ".join(f"{name} {version}" for name, version in versions.items()) + ".",
        "",
        "Networks that packages of PyPI ship inside themselves, with their trained values. nnefc compiles each for the"
        " sizes below; its peers get the model with its inputs of these sizes; one that cannot run it has no time."
        f" Each engine in a process of its own, held to one processor; warmed up, then in turns, {plan.repeats} of"
        f" at least {plan.seconds} s; no run begins after {plan.maximum} s of a turn. Milliseconds: median (minimum).",
        "*Ratio*: the faster peer's time over nnefc's, likewise; above 1 nnefc is faster. *Share* and *roofline* as in"
        " [the comparison on random weights](cpu.md).",
        "",
        *tables(measurements, plan, failed),
        "",
        "Sizes:",
        "",
        *sizes,
    ]


if __name__ == "__main__":
    sys.exit(main())
