"""Writes trained values to a separate file, whose format `runtime/weights.c` documents and reads.

Images for machines without files have the format of `description/weights_image.py`.
"""

from __future__ import annotations

import struct
from pathlib import Path

from nnefc.targets.description.weights_image import WeightsImage
from nnefc.targets.link.constants import Constants

__all__ = ["write_image", "write_weights"]

_MAGIC, _VERSION, _HEADER_BYTES, _NAME_BYTES = b"NNEFCWTS", 2, 4096, 256
_BLOCK = 64


def write_weights(constants: Constants, model: str, path: Path) -> None:
    """Write the weights file `path` of the network called `model`."""
    name = model.encode()[: _NAME_BYTES - 1].decode(errors="ignore").encode()
    with path.open("wb") as file:
        file.seek(_HEADER_BYTES)
        constants.write(file)
        file.truncate(_HEADER_BYTES + -(-constants.size // _BLOCK) * _BLOCK)
        file.seek(0)
        file.write(struct.pack("<8sIIQQ", _MAGIC, _VERSION, _HEADER_BYTES, constants.size, constants.checksum) + name)


def write_image(constants: Constants, image: WeightsImage, path: Path) -> None:
    """Write the weights image `path`, for code that expects `image`."""
    with path.open("wb") as file:
        file.write(image.header(constants.pieces()))
        constants.write(file)
