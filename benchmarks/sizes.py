"""How large libraries are, as they are by default and compiled for size, and what that costs in time.

    python benchmarks/sizes.py [NETWORK ...] [--target x86-64-v3]

compiles each network both ways, says what the files have: code, trained values, and the rest, and compares the times of
runs on one thread. Without names it takes all and writes results/PROCESSOR/sizes.md. Seven minutes.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
import numpy as np
from conditions import Watch, page, write_page
from models.networks import write_twins
from report import table
from tiny_networks import NETWORKS as TINY
from tiny_networks import write_int8

import nnefc
from nnefc.driver.artifact import Artifact
from nnefc.targets.link.elf_file import DYNAMIC, ElfFile

_ROOT = Path(__file__).resolve().parents[1]
_MODELS = _ROOT / "build" / "models"
_DIGITS = _ROOT / "examples" / "digits"
TITLE = "Sizes of libraries"
_EXECUTABLE, _LOAD = 1, 1  # a flag and a type of segments
_SECONDS, _REPEATS = 0.15, 5

_HEAD = [
    "Bytes of shared libraries for Linux. *Values* are the trained values as they are stored, *code* what is executed,",
    "*besides the values* all else than these: code, tables, names, headers. *Time* is that of a run of the small",
    "library over that of the default one, on one thread, the smallest of five turns. Small libraries are those of",
    "[`nnefc compile --small`](../../../docs/deployment.md#small-libraries).",
    "",
]


@dataclass(frozen=True)
class Size:
    """Bytes of a library: of the file, of its trained values, of its code."""

    file: int
    values: int
    code: int

    @classmethod
    def of(cls, artifact: Artifact, path: Path) -> Size:
        """That of an artifact, written to `path`."""
        artifact.export(path)
        image = np.fromfile(path, np.uint8)
        segments = ElfFile(image, DYNAMIC).segments
        code = segments[(segments["type"] == _LOAD) & (segments["flags"] & _EXECUTABLE != 0)]["stored"].sum()
        return cls(len(image), artifact.description.constant_bytes, int(code))


@dataclass(frozen=True)
class Network:
    """A network of the page: how its model is written into a folder, and how it is compiled."""

    model: Callable[[Path], Path]
    options: Mapping[str, object]


def _tiny(name: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = folder / "network.onnx"
        write_int8(name, path)
        return path

    return write


def _twin(name: str) -> Callable[[Path], Path]:
    return lambda _folder: write_twins(_MODELS, name).nnef


def _digits(_folder: Path) -> Path:
    return _DIGITS / "model.nnef"


def _samples() -> dict[str, np.ndarray]:
    return {"image": np.load(_DIGITS / "test.npz")["images"][:64].reshape(-1, 1, 1, 8, 8) / np.float32(16)}


NETWORKS: Mapping[str, Network] = {
    "digits": Network(_digits, {}),
    "digits, --precision fp16": Network(_digits, {"precision": "fp16"}),
    "digits, --precision int8": Network(_digits, {"precision": "int8", "calibrate": _samples()}),
    **{f"{name}, int8": Network(_tiny(name), {"io": "int8"}) for name in TINY},
    "MobileNet v2": Network(_twin("mobilenet_v2"), {}),
    "EfficientNet-B0": Network(_twin("efficientnet_b0"), {}),
    "DenseNet-121": Network(_twin("densenet121"), {}),
    "ResNet-50": Network(_twin("resnet50"), {}),
    "ViT-B/16": Network(_twin("vit_b16"), {}),
}


def row(name: str, target: str) -> list[str]:
    """A line of the table."""
    network = NETWORKS[name]
    with tempfile.TemporaryDirectory() as position:
        folder = Path(position)
        model = network.model(folder)
        made = [nnefc.compile(model, target, small=small, **network.options) for small in (False, True)]  # type: ignore[arg-type]
        paths = [folder / f"{kind}.so" for kind in ("default", "small")]
        default, small = (Size.of(artifact, path) for artifact, path in zip(made, paths, strict=True))
        slower = f"{_slower(made[0], paths):.2f}"
    cells = [cell for size in (default, small) for cell in (size.file, size.values, size.code, size.file - size.values)]
    return [name, *(f"{cell:,}" for cell in cells), slower]


def _slower(artifact: Artifact, paths: list[Path]) -> float:
    """The time of a run of the second library over that of the first."""
    random = np.random.default_rng(0)
    data = {given.name: _random(random, given.dtype, given.shape) for given in artifact.inputs}
    models = [nnefc.load(path, threads=1) for path in paths]
    minimum = [float("inf")] * len(models)
    for _ in range(_REPEATS):
        for index, model in enumerate(models):
            end, model_minimum = time.perf_counter() + _SECONDS, minimum[index]
            while (begin := time.perf_counter()) < end:
                model.run(data)
                model_minimum = min(model_minimum, time.perf_counter() - begin)
            minimum[index] = model_minimum
    for model in models:
        model.close()
    return minimum[1] / minimum[0]


def _random(random: np.random.Generator, dtype: str, shape: tuple[int | str, ...]) -> np.ndarray:
    sizes = tuple(map(int, shape))
    return random.integers(-128, 128, sizes, np.int8) if dtype == "int8" else random.random(sizes, np.float32)


@click.command()
@click.argument("networks", nargs=-1, type=click.Choice(list(NETWORKS)))
@click.option(
    "--target", default="x86-64-v3", help="A kind of processor that this machine is of.  [default: x86-64-v3]"
)
def main(networks: tuple[str, ...], target: str) -> None:
    """Measure NETWORKS, or all."""
    head = ["network", "file", "values", "code", "besides the values"]
    head += ["small: file", "values", "code", "besides the values", "time"]
    rows, watch = [], Watch()
    for name in networks or NETWORKS:
        rows.append(row(name, target))
        click.echo(" | ".join(rows[-1]), err=True)
    lines = [*_HEAD, f"Compiled for `{target}`.", "", *table(head, rows)]
    conditions = watch.end()
    click.echo(page(TITLE, conditions, lines))
    if not networks:
        write_page("sizes", TITLE, conditions, lines)


if __name__ == "__main__":
    main()
