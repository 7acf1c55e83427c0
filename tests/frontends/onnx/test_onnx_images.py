"""Images that a network decodes. What they have to look like is by Pillow 12, or made together with the file."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import nnefc
from nnefc.loader import Model, RunError
from nnefc.support.diagnostics import CompileError

FILES = Path(__file__).parents[2] / "data" / "images.npz"
with np.load(FILES) as _files:
    BY_PILLOW = {name: (_files[name], _files[f"pixels of {name}"]) for name in _files if "pixels" not in name}
RNG = np.random.default_rng(11)


def model(path: Path, forms: dict[str, str], shape: list[int | str]) -> Path:
    nodes = [helper.make_node("ImageDecoder", ["file"], [y], pixel_format=form) for y, form in forms.items()]
    file = helper.make_tensor_value_info("file", TensorProto.UINT8, shape)
    results = [helper.make_tensor_value_info(y, TensorProto.UINT8, [f"{y}h", f"{y}w", f"{y}c"]) for y in forms]
    graph = helper.make_graph(nodes, "g", [file], results)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    return path


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    forms = {"rgb": "RGB", "bgr": "BGR", "gray": "Grayscale"}
    path = model(tmp_path_factory.mktemp("images") / "model.onnx", forms, ["n"])
    with nnefc.compile(path).load(threads=1) as made:
        yield made


def rgb(library: Model, file: bytes | np.ndarray) -> np.ndarray:
    made: np.ndarray = library(np.frombuffer(bytes(file), np.uint8))[0]
    return made


@pytest.mark.parametrize("name", BY_PILLOW)
def test_images_have_the_pixels_that_pillow_finds(library: Model, name: str) -> None:
    file, pixels = BY_PILLOW[name]
    np.testing.assert_array_equal(rgb(library, file), pixels)


def test_channels_are_in_the_order_that_the_model_asks_for(library: Model) -> None:
    file, pixels = BY_PILLOW["full.jpg"]
    _, bgr, gray = library(file)
    np.testing.assert_array_equal(bgr, pixels[..., ::-1])
    wanted = (pixels.astype(np.uint32) @ np.array([19595, 38470, 7471], np.uint32) + 32768) >> 16
    np.testing.assert_array_equal(gray, wanted[..., None])


def png(pixels: np.ndarray, depth: int, colour: int, interlaced: bool) -> bytes:
    """Of `[h, w, channels]`, with the filter of each row by its number."""
    parts = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    data = b""
    for x, y, dx, dy in parts if interlaced else [(0, 0, 1, 1)]:
        part = pixels[y::dy, x::dx]
        if not part.size:
            continue
        flat = part.reshape(len(part), -1)
        rows = flat.astype(">u2").view(np.uint8) if depth == 16 else np.packbits(np.unpackbits(
            flat.astype(np.uint8)[..., None], axis=-1)[..., 8 - depth :].reshape(len(part), -1), axis=-1)  # fmt: skip
        step = max(1, pixels.shape[2] * depth // 8)
        for number, row in enumerate(rows.astype(np.int64)):
            above = rows[number - 1].astype(np.int64) if number else np.zeros_like(row)
            left, corner = (np.concatenate([np.zeros(step, np.int64), line])[: len(row)] for line in (row, above))
            guess = left + above - corner
            far = np.abs(np.stack([guess - left, guess - above, guess - corner]))
            nearest = np.choose(np.argmin(far, 0), [left, above, corner])
            filters = [0 * row, left, above, (left + above) // 2, nearest]
            data += bytes([number % 5]) + (row - filters[number % 5]).astype(np.uint8).tobytes()
    head = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], depth, colour, 0, 0, interlaced)
    packed = zlib.compress(data)
    chunks = [(b"IHDR", head), (b"IDAT", packed[:50]), (b"IDAT", packed[50:]), (b"IEND", b"")]
    made = [
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(made)


@pytest.mark.parametrize("interlaced", [False, True])
@pytest.mark.parametrize(("depth", "colour", "channels"), [(8, 2, 3), (16, 2, 3), (2, 0, 1), (16, 4, 2), (8, 6, 4)])
def test_png_of_each_kind(library: Model, depth: int, colour: int, channels: int, interlaced: bool) -> None:
    for height, width in ((11, 13), (1, 3), (9, 2)):
        pixels = RNG.integers(0, 1 << depth, (height, width, channels))
        made = rgb(library, png(pixels, depth, colour, interlaced))
        seen = pixels >> 8 if depth == 16 else pixels * 255 // ((1 << depth) - 1)
        np.testing.assert_array_equal(made, np.broadcast_to(seen[..., : 3 if channels > 2 else 1], (height, width, 3)))


def test_files_of_other_forms(library: Model) -> None:
    pixels = RNG.integers(0, 256, (3, 5, 3), np.uint8)
    text = b"P3 # a comment\n5 3\n255\n" + " ".join(map(str, pixels.reshape(-1))).encode()
    np.testing.assert_array_equal(rgb(library, text), pixels)
    np.testing.assert_array_equal(rgb(library, b"P1 2 1 01"), [[[255] * 3, [0] * 3]])
    wide = b"P6 5 3 65535\n" + (pixels.astype(">u2") * 257).tobytes()
    np.testing.assert_array_equal(rgb(library, wide), pixels)
    five = pixels // 8
    packed = (five[..., 0].astype("<u2") << 10) | (five[..., 1].astype("<u2") << 5) | five[..., 2]
    rows = b"".join(row.tobytes() + bytes(2) for row in packed)  # from the top, to whole words
    bmp = b"BM" + struct.pack("<IIIIiiHHIIiiII", 54 + len(rows), 0, 54, 40, 5, -3, 1, 16, 0, 0, 0, 0, 0, 0) + rows
    np.testing.assert_array_equal(rgb(library, bmp), five.astype(int) * 255 // 31)
    fields = [(256, 5), (257, 3), (258, 8), (262, 2), (273, 120), (277, 3), (278, 3), (279, 45)]
    entries = b"".join(struct.pack(">HHIHH", tag, 3, 1, value, 0) for tag, value in fields)
    tiff = b"MM\0*" + struct.pack(">IH", 8, len(fields)) + entries
    np.testing.assert_array_equal(rgb(library, tiff.ljust(120, b"\0") + pixels.tobytes()), pixels)


def test_what_is_no_image_has_no_pixels(library: Model) -> None:
    cut = [file[: len(file) // 2] for file, _ in BY_PILLOW.values()]
    huge = b"P6 60000 60000 255\n" + bytes(100)
    for file in (b"x", b"\xff\xd8\xff", b"BM", b"P6", b"P6 0 5 255\n", huge, *cut):
        made = library(np.frombuffer(bytes(file), np.uint8))
        assert [array.shape for array in made] == [(0, 0, 3), (0, 0, 3), (0, 0, 1)]


def test_a_kind_that_is_not_decoded_fails_the_run(library: Model) -> None:
    for file in (b"RIFF\0\0\0\0WEBPVP8 ", b"\0\0\0\x0cjP  \r\n\x87\n"):
        with pytest.raises(RunError, match="an image is of a kind that is not decoded: JPEG without arithmetic"):
            rgb(library, file)
    assert rgb(library, BY_PILLOW["small.jpg"][0]).shape == (5, 3, 3)


def test_pixels_are_what_follows_computes_with(tmp_path: Path) -> None:
    path = model(tmp_path / "model.onnx", {"y": "RGB"}, ["n"])
    proto = onnx.load(path)
    proto.graph.node.append(helper.make_node("Cast", ["y"], ["z"], to=TensorProto.FLOAT))
    proto.graph.node.append(helper.make_node("Transpose", ["z"], ["planes"], perm=[2, 0, 1]))
    proto.graph.output[0].CopyFrom(helper.make_tensor_value_info("planes", TensorProto.FLOAT, [3, "h", "w"]))
    onnx.save(proto, path)
    with nnefc.compile(path).load(threads=1) as made:
        for file, pixels in list(BY_PILLOW.values())[:3]:
            np.testing.assert_array_equal(made(file), pixels.transpose(2, 0, 1).astype(np.float32))


def test_other_orders_of_channels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="the pixel_format 'YUV' is not known"):
        nnefc.compile(model(tmp_path / "model.onnx", {"y": "YUV"}, [100]))
