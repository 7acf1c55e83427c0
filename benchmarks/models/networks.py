"""All networks of the benchmarks, by name: those of the zoo, and those of the documents next to this file.

    python benchmarks/models/networks.py FOLDER [NAME ...]

writes FOLDER/NAME.onnx and FOLDER/NAME.nnef/, the same trained values in both.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import nnef
import onnx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # as a program

from models import image_networks, onnx_graph, sequence_networks, zoo
from models.onnx_graph import OnnxGraph
from models.zoo import Twins, input_of

__all__ = ["DOCUMENTS", "NAMES", "Twins", "build", "input_of", "write_twins"]

HERE = Path(__file__).resolve().parent

DOCUMENTS: dict[str, Callable[[], tuple[OnnxGraph, str]]] = {
    "mobilenet_v1": image_networks.mobilenet_v1,
    "mobilenet_v2": image_networks.mobilenet_v2,
    "efficientnet_b0": image_networks.efficientnet_b0,
    "yolov4_tiny": image_networks.yolov4_tiny,
    "resnet18_batch8": image_networks.resnet18_batch8,
    "unet": image_networks.unet,
    "bert_base": sequence_networks.bert_base,
    "vit_b16": sequence_networks.vit_b16,
    "lstm": sequence_networks.lstm,
    "gru": sequence_networks.gru,
    "mlp": sequence_networks.mlp,
}

MODULES = (image_networks, sequence_networks, onnx_graph)

NAMES = (*zoo.NAMES, *DOCUMENTS)


def build(name: str) -> tuple[onnx.ModelProto, OnnxGraph]:
    """The ONNX twin of a document, and the graph that it was made from."""
    graph, output = DOCUMENTS[name]()
    return graph.model(output), graph


def write_twins(folder: Path, name: str, *, divide: int = 1) -> Twins:
    """Write one network both ways, unless it is there already, and return the paths. `divide` is for the zoo's."""
    if name in zoo.NAMES:
        return zoo.write_twins(folder, name, divide=divide)
    if divide != 1:
        raise ValueError(f"{name} comes in one size")
    folder.mkdir(parents=True, exist_ok=True)
    twins = Twins((folder / f"{name}.onnx", folder / f"{name}.nnef"))
    document = HERE / f"{name}.nnef"
    if not _is_current(twins, document):
        _write(twins, document)
    return twins


def _is_current(twins: Twins, document: Path) -> bool:
    """Whether both are there and newer than what they are made from."""
    graph = twins.nnef / "graph.nnef"  # written last
    if not (twins.onnx.exists() and graph.exists()):
        return False
    sources = [document, *(Path(module.__file__ or "") for module in MODULES)]
    return all(graph.stat().st_mtime >= source.stat().st_mtime for source in sources)


def _write(twins: Twins, document: Path) -> None:
    model, graph = build(document.stem)
    shutil.rmtree(twins.nnef, ignore_errors=True)
    onnx.save(model, twins.onnx)
    for label, value in graph.weights.items():
        file = twins.nnef / f"{label}.dat"
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("wb") as opened:
            nnef.write_tensor(opened, value)
    shutil.copyfile(document, twins.nnef / "graph.nnef")


def main() -> int:
    parser = argparse.ArgumentParser(description="Write networks as ONNX and NNEF.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME", help=", ".join(NAMES))
    arguments = parser.parse_args()
    for name in arguments.names:
        print(*write_twins(arguments.folder, name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
