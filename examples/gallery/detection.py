"""Boxes around what a detector finds: YOLOX with the choice of the best boxes inside the library.

The model gives a score and an offset at each of 3,549 positions. This script appends what turns them into boxes, with
ONNX's NonMaxSuppression: how many there are depends on the image, and the library returns just these.

python detection.py [photo.png]
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
from compiled import OUT, compiled
from onnx import TensorProto, compose, helper, numpy_helper
from PIL import Image, ImageDraw, ImageFont

SIDE = 416


def with_boxes(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with two outputs: boxes as float32[n, 4] (left, top, right, bottom in pixels), and their scores."""
    sides = [(SIDE // step, step) for step in (8, 16, 32)]
    grid = np.concatenate([np.stack(np.meshgrid(range(n), range(n)), -1).reshape(-1, 2) for n, _ in sides])
    steps = np.concatenate([np.full((n * n, 1), step) for n, step in sides])
    values = {
        "grid": grid.astype(np.float32),
        "steps": steps.astype(np.float32),
        "sizes": np.array([2, 2, 1, 1], np.int64),
        "upper": np.array([100], np.int64),
        "overlap": np.array([0.45], np.float32),
        "lower": np.array([0.3], np.float32),
        "half": np.array(0.5, np.float32),
        "two": np.array(2, np.int64),
        "flat": np.array([-1], np.int64),
    }
    nodes = [
        helper.make_node("Split", ["found", "sizes"], ["offset", "logarithm", "object", "kind"], axis=2),
        helper.make_node("Add", ["offset", "grid"], ["cell"]),
        helper.make_node("Mul", ["cell", "steps"], ["centre"]),
        helper.make_node("Exp", ["logarithm"], ["extent"]),
        helper.make_node("Mul", ["extent", "steps"], ["size"]),
        helper.make_node("Mul", ["size", "half"], ["reach"]),
        helper.make_node("Sub", ["centre", "reach"], ["first"]),
        helper.make_node("Add", ["centre", "reach"], ["last"]),
        helper.make_node("Concat", ["first", "last"], ["corners"], axis=2),
        helper.make_node("Mul", ["object", "kind"], ["score"]),
        helper.make_node("Transpose", ["score"], ["by_class"], perm=[0, 2, 1]),
        helper.make_node("NonMaxSuppression", ["corners", "by_class", "upper", "overlap", "lower"], ["chosen"]),
        helper.make_node("Gather", ["chosen", "two"], ["number"], axis=1),
        helper.make_node("Squeeze", ["corners"], ["all"]),
        helper.make_node("Gather", ["all", "number"], ["boxes"]),
        helper.make_node("Reshape", ["score", "flat"], ["each"]),
        helper.make_node("Gather", ["each", "number"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "boxes",
        [helper.make_tensor_value_info("found", TensorProto.FLOAT, [1, len(grid), 6])],
        [
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, ["n", 4]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n"]),
        ],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    model = onnx.version_converter.convert_version(model, 13)
    more = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    return compose.merge_models(model, compose.add_prefix(more, "nms/"), [(model.graph.output[0].name, "nms/found")])


def detected(image: Image.Image) -> list[tuple[float, tuple[float, ...]]]:
    """Scores and boxes of an image, in its own pixels."""
    path = OUT / "detector.onnx"
    if not path.exists():
        OUT.mkdir(exist_ok=True)
        package = find_spec("ddddocr")  # not imported: its own runtime is not needed
        assert package is not None and package.origin is not None
        onnx.save(with_boxes(onnx.load(Path(package.origin).parent / "common_det.onnx")), path)
    scale = SIDE / max(image.size)
    frame = Image.new("RGB", (SIDE, SIDE), (114, 114, 114))
    frame.paste(image.resize((round(image.width * scale), round(image.height * scale))))
    boxes, scores = compiled(path)(np.asarray(frame, np.float32)[..., ::-1].transpose(2, 0, 1)[None].copy())
    return [(float(score), tuple(box / scale)) for score, box in zip(scores, boxes, strict=True)]


def sample() -> Image.Image:
    """An image with six characters here and there."""
    image = Image.new("RGB", (360, 200), (225, 225, 210))
    draw = ImageDraw.Draw(image)
    for number, (x, y) in enumerate([(20, 30), (85, 110), (140, 25), (200, 120), (250, 40), (305, 110)]):
        draw.text((x, y), "nnefc7"[number], fill=(30, 20 + 30 * number, 120), font=ImageFont.load_default(48))
    return image


if __name__ == "__main__":
    image = Image.open(sys.argv[1]).convert("RGB") if len(sys.argv) > 1 else sample()
    for score, (left, top, right, bottom) in detected(image):
        print(f"{score:6.1%}  from ({left:.0f}, {top:.0f}) to ({right:.0f}, {bottom:.0f})")
