"""Write the page with its networks into a folder: files that any server can serve.

    python build.py [FOLDER]
    python build.py [FOLDER] --images squeezenet.onnx --labels labels.txt --samples cat.jpg dog.jpg

Digits and their samples come from examples/digits. A network for images takes one image,
[1, channels, height, width] in float32, whose pixels have the mean and the deviation of ImageNet's, and gives a number
for each class; labels are one a line, and samples are images to click.
Each network is compiled twice: with relaxed SIMD and threads for the browsers that have these, and without.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import nnefc
from nnefc.targets.link.toolchain import RUNTIME

HERE = Path(__file__).resolve().parent
DIGITS = HERE.parent / "digits" / "model.nnef"
DRAWN = HERE.parent / "digits" / "test.npz"
"""Images of digits that the network has not learned from, with their labels."""
PAGE = ("index.html", "style.css", "app.mjs")
LOADER = ("nnefc.mjs", "nnefc_module.mjs", "nnefc_text.mjs")
TARGETS = {"wasm32-relaxed-threads": ["relaxed-simd", "atomics"], "wasm32-wasi": []}
"""What each needs of a browser, the fastest first."""


def compiled(model: Path, name: str, folder: Path) -> list[dict[str, object]]:
    """The modules of a network, in the order in which the page tries them."""
    files: list[dict[str, object]] = []
    for target, needs in TARGETS.items():
        file = f"{name}.{target}.wasm"
        nnefc.compile(model, target).export(folder / file)
        files.append({"source": file, "needs": needs})
    return files


def drawn_digits() -> list[list[float]]:
    """Returns a sample of each digit: 64 numbers from 0 to 1."""
    data = np.load(DRAWN)
    chosen = [int(np.flatnonzero(data["labels"] == digit)[0]) for digit in range(10)]
    return [(data["images"][index].reshape(-1) / 16).round(3).tolist() for index in chosen]


def build(
    folder: Path,
    images: Path | None = None,
    labels: Path | None = None,
    mean: tuple[float, ...] = (0.485, 0.456, 0.406),
    deviation: tuple[float, ...] = (0.229, 0.224, 0.225),
    samples: Sequence[Path] = (),
) -> None:
    """Write all files."""
    folder.mkdir(parents=True, exist_ok=True)
    for source in (*(HERE / name for name in PAGE), *(RUNTIME / name for name in LOADER)):
        shutil.copy(source, folder)
    networks: dict[str, object] = {"digits": {"files": compiled(DIGITS, "digits", folder), "samples": drawn_digits()}}
    if images is not None:
        names = labels.read_text(encoding="utf-8").splitlines() if labels is not None else []
        files = compiled(images, "images", folder)
        copies = [Path(shutil.copy(sample, folder)).name for sample in samples]
        networks["images"] = {
            "files": files,
            "labels": names,
            "mean": mean,
            "deviation": deviation,
            "samples": copies,
        }
    (folder / "networks.json").write_text(json.dumps(networks), encoding="utf-8")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=Path("site"))
    parser.add_argument("--images", type=Path, metavar="MODEL")
    parser.add_argument("--labels", type=Path, metavar="FILE")
    parser.add_argument("--samples", type=Path, metavar="IMAGE", nargs="+", default=())
    arguments = parser.parse_args()
    build(arguments.folder, arguments.images, arguments.labels, samples=arguments.samples)


if __name__ == "__main__":
    main()
