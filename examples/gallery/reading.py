"""The text in an image: PP-OCR, a network that finds lines and one that reads them, both for images of all sizes.

python reading.py [photo.png]
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import skimage
from compiled import compiled
from PIL import Image
from scipy import ndimage

Box = tuple[int, int, int, int]  # left, top, right, bottom


def models() -> Path:
    """The folder with the networks of the package rapidocr-onnxruntime, which is not imported: it would need OpenCV."""
    package = find_spec("rapidocr_onnxruntime")
    assert package is not None and package.origin is not None
    return Path(package.origin).parent / "models"


def planes(image: Image.Image) -> np.ndarray:
    """float32[1, 3, h, w] in -1..1, blue first."""
    return np.asarray(image, np.float32)[..., ::-1].transpose(2, 0, 1)[None] / 127.5 - 1


def lines(image: Image.Image) -> Iterator[Box]:
    """Where there is text, from top to bottom."""
    finder = compiled(models() / "ch_PP-OCRv4_det_infer.onnx", shape={"x": (1, 3, "32..2048:32", "32..2048:32")})
    width, height = (max(32, round(side / 32) * 32) for side in image.size)
    (((likely,),),) = (finder(planes(image.resize((width, height)))),)
    positions, _ = ndimage.label(likely > 0.3)
    for rows, columns in ndimage.find_objects(positions):
        if rows.stop - rows.start < 3 or likely[rows, columns].max() < 0.6:
            continue
        margin = 0.4 * (rows.stop - rows.start)  # the network marks the middle of a line
        sides = columns.start - margin, rows.start - margin, columns.stop + margin, rows.stop + margin
        scales = (image.width / width, image.height / height) * 2
        left, top, right, bottom = (round(side * scale) for side, scale in zip(sides, scales, strict=True))
        yield max(left, 0), max(top, 0), min(right, image.width), min(bottom, image.height)


def read(image: Image.Image) -> Iterator[tuple[Box, str]]:
    """The lines of text in an image, and where they are."""
    model = models() / "ch_PP-OCRv4_rec_infer.onnx"
    reader = compiled(model, shape={"x": (1, 3, 48, "32..4096")})
    (characters,) = (each.value for each in onnx.load(model).metadata_props if each.key == "character")
    alphabet = ["", *characters.splitlines(), " "]
    for box in lines(image):
        line = image.crop(box)
        line = line.resize((max(48, line.width * 48 // line.height), 48), Image.Resampling.BICUBIC)
        best = reader(planes(line))[0].argmax(axis=-1)
        changes = np.flatnonzero(np.diff(best, prepend=0))  # a character that is seen twice in a row is one
        yield box, "".join(alphabet[best[position]] for position in changes)


if __name__ == "__main__":
    path = sys.argv[1] if len(sys.argv) > 1 else Path(skimage.__file__).parent / "data" / "page.png"
    for (left, top, _, _), text in read(Image.open(path).convert("RGB")):
        print(f"{left:5}, {top:4}  {text}")
