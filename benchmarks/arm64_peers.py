"""Python for 64-bit Arm with peers, and networks as they read them: what `emulated.py --peers FOLDER` counts.

    python benchmarks/arm64_peers.py FOLDER

Takes Debian's packages and wheels from PyPI, on Debian 12. Networks become ncnn's by `pnnx` (20261020), and LiteRT's by
`onnx2tf` (1.29.24) with TensorFlow (2.19.0); the programs are installed first, where they are found. Ten minutes.

    FOLDER/root/       Debian for 64-bit Arm: the C library, Python
    FOLDER/packages/   onnxruntime, ncnn, LiteRT, NumPy
    FOLDER/models/     NETWORK.ncnn.param and .bin, NETWORK.tflite, NETWORK.int8.tflite
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import click
import numpy as np
from emulated import EMULATED
from models.networks import write_twins

_ROOT = Path(__file__).resolve().parents[1]

_SYSTEM = (
    "libc6",
    "libgcc-s1",
    "libstdc++6",
    "libgomp1",
    "zlib1g",
    "libexpat1",
    "libffi8",
    "libssl3",
    "libbz2-1.0",
    "liblzma5",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "python3.11-minimal",
)
"""Of Debian 12, whose Python is 3.11."""

_PACKAGES = (
    "numpy==2.4.6",
    "onnxruntime==1.32.0",
    "ncnn==1.0.20261020",
    "ai-edge-litert==2.3.0",
    "flatbuffers==25.12.19",
    "protobuf==7.36.2",
    "backports.strenum==1.2.8",
    "tqdm==4.70.1",
)
_IMAGES = "calibration_image_sample_data_20x128x128x3_float32.npy"
"""Random ones, that ranges are taken from, under the name that onnx2tf gives to those that it would fetch."""


def system(folder: Path) -> None:
    """Debian's packages for 64-bit Arm, unpacked; lists of packages are kept apart from this machine's own."""
    state = folder / "apt"
    shutil.rmtree(state, ignore_errors=True)
    for part in ("lists/partial", "cache/archives/partial"):
        (state / part).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    options = [
        "APT::Architecture=arm64",
        "APT::Architectures::=arm64",
        "APT::Sandbox::User=root",
        f"Dir::State={state}",
        f"Dir::State::status={state}/status",
        f"Dir::State::lists={state}/lists",
        f"Dir::Cache={state}/cache",
    ]
    apt = ["apt-get", "-q", *(part for option in options for part in ("-o", option))]
    _run([*apt, "update"], folder)
    _run([*apt, "download", *_SYSTEM], state)
    root = folder / "root"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    for package in sorted(state.glob("*.deb")):
        _run(["dpkg", "-x", str(package), str(root)], folder)


def packages(folder: Path) -> None:
    """Wheels for 64-bit Arm, without what only other uses of them need."""
    shutil.rmtree(folder / "packages", ignore_errors=True)  # pip leaves folders that are there
    platforms = [part for n in (17, 26, 27, 28, 34) for part in ("--platform", f"manylinux_2_{n}_aarch64")]
    command = [sys.executable, "-m", "pip", "install", "--no-deps", "--only-binary=:all:", "--python-version", "3.11"]
    _run([*command, *platforms, "--platform", "manylinux2014_aarch64", "--target", "packages", *_PACKAGES], folder)


def models(folder: Path, network: str) -> None:
    """What ncnn and LiteRT read, of a network."""
    made = folder / "models"
    made.mkdir(exist_ok=True)
    source = write_twins(_ROOT / "build" / "models", network).onnx
    copy = Path(shutil.copy(source, made / f"{network}.onnx"))
    _run(["pnnx", copy.name, "fp16=0", "inputshape=[1,3,224,224]"], made)
    np.save(made / _IMAGES, np.random.default_rng(0).random((20, 128, 128, 3), np.float32))
    _run(["onnx2tf", "-i", copy.name, "-o", f"{network}.tf", "-oiqt", "-qt", "per-channel"], made)
    for kind, ending in (("float32", ".tflite"), ("integer_quant", ".int8.tflite")):
        shutil.copy(made / f"{network}.tf" / f"{network}_{kind}.tflite", made / f"{network}{ending}")


def _run(command: Sequence[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path))
def main(folder: Path) -> None:
    """Fill FOLDER."""
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    system(folder)
    packages(folder)
    for network in EMULATED:
        models(folder, network)


if __name__ == "__main__":
    main()
