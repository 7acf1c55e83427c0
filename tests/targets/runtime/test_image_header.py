"""The C++ header for images, compared with matrices of weights in float64."""

from __future__ import annotations

import ctypes
import itertools
import subprocess
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from runtime_samples import C_SOURCES, CPP

from nnefc.targets.link.toolchain import RUNTIME

PIXELS = ("rgb", "bgr", "rgba", "bgra", "gray", "nv12", "nv21", "yuyv")
FITS = ("stretch", "letterbox", "letterbox_top_left", "cover")
RESAMPLINGS = ("bilinear", "area", "nearest")
TYPES = (np.float32, np.float16, np.int8, np.uint8)
YUV = {  # what red takes of V, green of U and V, blue of U; the luma of black, and its range
    "bt601": (1.402, -0.344136, -0.714136, 1.772, 16, 219),
    "bt601_full": (1.402, -0.344136, -0.714136, 1.772, 0, 255),
    "bt709": (1.5748, -0.187324, -0.468124, 1.8556, 16, 219),
    "bt709_full": (1.5748, -0.187324, -0.468124, 1.8556, 0, 255),
}

Array = npt.NDArray[Any]
Numbers = Sequence[float]


class Request(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int32) for name in ("width", "height", "pixels", "yuv")),
        ("crop", ctypes.c_int32 * 4),
        *((name, ctypes.c_int32) for name in ("fit", "resampling", "color", "layout", "type", "columns", "rows")),
        ("stride", ctypes.c_int64),
        ("chroma_stride", ctypes.c_int64),
        *((name, ctypes.c_float * 3) for name in ("mean", "scale", "padding")),
        ("placement", ctypes.c_double * 6),
    )


@pytest.fixture(scope="module")
def header(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    """The header's functions, compiled without exceptions and types at run time."""
    path = tmp_path_factory.mktemp("images") / "images.so"
    command = [*CPP, "-std=c++17", "-fPIC", "-shared", "-fno-exceptions", "-fno-rtti", f"-I{RUNTIME}"]
    command += ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
    made = subprocess.run(
        [*command, str(C_SOURCES / "image_tensors.cpp"), "-o", str(path)], capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    return ctypes.CDLL(str(path))


class Frame:
    """An image of random bytes, and the same as red, green and blue in floats."""

    def __init__(self, pixels: str, width: int, height: int, gap: int = 0, yuv: str = "bt601") -> None:
        self.pixels, self.yuv, self.width, self.height = pixels, yuv, width, height
        random = np.random.default_rng(width * 1000 + height)
        per_row = {"rgb": 3, "bgr": 3, "rgba": 4, "bgra": 4}.get(pixels, 1) * width
        per_row = (width + 1) // 2 * 4 if pixels == "yuyv" else per_row
        self.data = random.integers(0, 256, (height, per_row + gap), np.uint8)
        self.chroma: Array | None = None
        if pixels in ("nv12", "nv21"):
            self.chroma = random.integers(0, 256, ((height + 1) // 2, (width + 1) // 2 * 2 + gap), np.uint8)
        self.colors = self._colors(self.data[:, :per_row].astype(np.float64))

    def _colors(self, rows: Array) -> Array:
        if self.pixels == "gray":
            return np.repeat(rows[..., None], 3, axis=2)
        if self.pixels in ("nv12", "nv21"):
            assert self.chroma is not None
            pairs = self.chroma[:, : (self.width + 1) // 2 * 2].reshape(-1, (self.width + 1) // 2, 2).astype(np.float64)
            chroma = pairs.repeat(2, axis=0).repeat(2, axis=1)[: self.height, : self.width]
            u, v = (chroma[..., i] for i in ((0, 1) if self.pixels == "nv12" else (1, 0)))
            return self._from_yuv(rows, u, v)
        if self.pixels == "yuyv":
            pairs = rows.reshape(self.height, -1, 4)
            luma = pairs[..., ::2].reshape(self.height, -1)[:, : self.width]
            u, v = (pairs[..., i].repeat(2, axis=1)[:, : self.width] for i in (1, 3))
            return self._from_yuv(luma, u, v)
        channels = rows.reshape(self.height, self.width, -1)[..., :3]
        return channels[..., ::-1] if self.pixels.startswith("bgr") else channels

    def _from_yuv(self, luma: Array, u: Array, v: Array) -> Array:
        red, green_u, green_v, blue, black, extent = YUV[self.yuv]
        y, chroma = (luma - black) / extent * 255, 255 / 224 if black else 1.0
        u, v = (u - 128) * chroma, (v - 128) * chroma
        colors = np.stack([y + red * v, y + green_u * u + green_v * v, y + blue * u], axis=-1)
        return np.clip(np.rint(colors), 0, 255)


def weights(size: int, start: float, extent: float, made: int, resampling: str) -> Array:
    """A matrix that makes so many pixels of a row: a hat over each center, or the share that each pixel has."""
    step = extent / made
    begin, pixels = start + np.arange(made)[:, None] * step, np.arange(size)[None]
    if resampling == "nearest":
        return (pixels == np.clip(np.floor(begin + step / 2), 0, size - 1)).astype(np.float64)
    if resampling == "area" and step > 1:
        return np.clip(np.minimum(begin + step, pixels + 1) - np.maximum(begin, pixels), 0, None) / step
    return np.clip(1 - np.abs(np.clip(begin + step / 2 - 0.5, 0, size - 1) - pixels), 0, None)


def area_of(width: int, height: int, columns: int, rows: int, fit: str) -> tuple[tuple[int, ...], Numbers]:
    """Where the image lies in the tensor, left, top, width and height; and which part of it that is."""
    scale = (max if fit == "cover" else min)(columns / width, rows / height)
    if fit == "cover":
        inner = min(columns / scale, width), min(rows / scale, height)
        return (0, 0, columns, rows), ((width - inner[0]) / 2, (height - inner[1]) / 2, *inner)
    if fit == "stretch":
        return (0, 0, columns, rows), (0, 0, width, height)
    made = (max(int(width * scale + 0.5), 1), max(int(height * scale + 0.5), 1))
    left, top = (0, 0) if fit == "letterbox_top_left" else ((columns - made[0]) // 2, (rows - made[1]) // 2)
    return (left, top, *made), (0, 0, width, height)


def expected(
    frame: Frame, columns: int, rows: int, fit: str, resampling: str, crop: Sequence[int], padding: Numbers
) -> Array:
    """Red, green and blue of the tensor, in rows of pixels."""
    x, y, width, height = crop
    (left, top, across, down), (from_x, from_y, extent_x, extent_y) = area_of(width, height, columns, rows, fit)
    horizontal = weights(width, from_x, extent_x, across, resampling)
    vertical = weights(height, from_y, extent_y, down, resampling)
    made = np.broadcast_to(np.asarray(padding, np.float64), (rows, columns, 3)).copy()
    part = frame.colors[y : y + height, x : x + width]
    made[top : top + down, left : left + across] = np.einsum("yh,hwc,xw->yxc", vertical, part, horizontal)
    return made


def request_of(frame: Frame, columns: int, rows: int, **options: Any) -> Request:
    request = Request(frame.width, frame.height, PIXELS.index(frame.pixels), list(YUV).index(frame.yuv))
    request.columns, request.rows = columns, rows
    request.stride = frame.data.strides[0]
    request.chroma_stride = 0 if frame.chroma is None else frame.chroma.strides[0]
    request.scale[:] = (1, 1, 1)
    for name, value in options.items():
        if isinstance(value, Sequence):
            getattr(request, name)[:] = value
        else:
            setattr(request, name, value)
    return request


def convert(header: ctypes.CDLL, frame: Frame, request: Request) -> Array | None:
    """The tensor that the header makes; None if it refuses."""
    channels = 1 if request.color == 2 else 3
    planes = (channels, request.rows, request.columns)
    made = np.full(planes if request.layout == 0 else (*planes[1:], channels), 77, TYPES[request.type])
    chroma = None if frame.chroma is None else ctypes.c_void_p(frame.chroma.ctypes.data)
    done = header.convert(
        ctypes.byref(request), ctypes.c_void_p(frame.data.ctypes.data), chroma, ctypes.c_void_p(made.ctypes.data)
    )
    return made if done else None


@pytest.mark.parametrize("pixels", PIXELS)
def test_images_become_tensors(header: ctypes.CDLL, pixels: str) -> None:
    padding = (114, 7, 200)
    for fit, resampling, (width, height), (columns, rows) in itertools.product(
        FITS, RESAMPLINGS, ((13, 9), (6, 31)), ((5, 5), (17, 11))
    ):
        frame = Frame(pixels, width, height, gap=width % 5)
        request = request_of(
            frame, columns, rows, fit=FITS.index(fit), resampling=RESAMPLINGS.index(resampling), padding=padding
        )
        wanted = expected(frame, columns, rows, fit, resampling, (0, 0, width, height), padding)
        made = convert(header, frame, request)
        tolerance = 1.01 if frame.pixels in ("nv12", "nv21", "yuyv") else 1e-3  # a rounding that goes the other way
        assert made is not None
        difference = np.abs(made - wanted.transpose(2, 0, 1))
        assert difference.max() < tolerance, (fit, resampling, width, height, columns, rows)
        assert (difference > 0.02).mean() < 0.05


@pytest.mark.parametrize("yuv", YUV)
def test_matrices_of_yuv(header: ctypes.CDLL, yuv: str) -> None:
    frame = Frame("yuyv", 64, 64, yuv=yuv)
    made = convert(header, frame, request_of(frame, 64, 64))
    assert made is not None
    assert np.abs(made - frame.colors.transpose(2, 0, 1)).max() <= 1
    assert (made != frame.colors.transpose(2, 0, 1)).mean() < 1e-3


@pytest.mark.parametrize("pixels", ["rgb", "nv12", "yuyv"])
def test_parts_of_images(header: ctypes.CDLL, pixels: str) -> None:
    frame = Frame(pixels, 21, 18)
    for crop in ((0, 0, 21, 18), (3, 5, 7, 9), (20, 17, 1, 1), (0, 9, 21, 1)):
        wanted = expected(frame, 8, 6, "stretch", "bilinear", crop, (0, 0, 0))
        made = convert(header, frame, request_of(frame, 8, 6, crop=crop))
        assert made is not None
        assert np.abs(made - wanted.transpose(2, 0, 1)).max() < 1.01


@pytest.mark.parametrize("kind", range(len(TYPES)))
@pytest.mark.parametrize("color", ["rgb", "bgr", "gray"])
def test_elements_layouts_and_channels(header: ctypes.CDLL, kind: int, color: str) -> None:
    frame, mean, scale = Frame("rgb", 10, 7), (10.0, 20.0, 140.0), (0.5, 0.25, 1.5)
    pixels = expected(frame, 9, 8, "letterbox", "bilinear", (0, 0, 10, 7), (1, 2, 3))
    chosen = {"rgb": pixels, "bgr": pixels[..., ::-1], "gray": pixels @ [[0.299], [0.587], [0.114]]}[color]
    (_, top, _, down), _ = area_of(10, 7, 9, 8, "letterbox")
    channels = chosen.shape[2]
    chosen = chosen.copy()
    chosen[:top], chosen[top + down :] = (1, 2, 3)[:channels], (1, 2, 3)[:channels]  # by the tensor's channels
    wanted = (chosen - mean[:channels]) * scale[:channels]
    if kind > 1:
        limits = np.iinfo(TYPES[kind])
        wanted = np.clip(np.rint(wanted), limits.min, limits.max)
    for layout, axes in enumerate(((2, 0, 1), (0, 1, 2))):
        numbers = {"color": ("rgb", "bgr", "gray").index(color), "layout": layout, "type": kind, "fit": 1}
        made = convert(header, frame, request_of(frame, 9, 8, mean=mean, scale=scale, padding=(1, 2, 3), **numbers))
        assert made is not None
        difference = np.abs(made.astype(np.float64) - wanted.transpose(axes))
        assert difference.max() <= (1e-3, 0.13, 1, 1)[kind]
        assert (difference > 1e-3).mean() < (0.01, 1, 0.01, 0.01)[kind]


def test_positions_in_the_image(header: ctypes.CDLL) -> None:
    frame = Frame("rgb", 40, 20)
    request = request_of(frame, 10, 10, fit=1, crop=(4, 2, 20, 10))
    assert convert(header, frame, request) is not None
    assert list(request.placement) == [0.5, 0.5, 0, 2, 4, -2]  # 0, 0 is above the part
    request = request_of(frame, 10, 10, fit=3)
    assert convert(header, frame, request) is not None
    assert list(request.placement) == [0.5, 0.5, -5, 0, 10, 0]


def test_rows_from_the_bottom_up(header: ctypes.CDLL) -> None:
    frame = Frame("gray", 5, 4)
    flipped = Frame("gray", 5, 4)
    flipped.data = flipped.data[::-1]
    made, wanted = (convert(header, each, request_of(each, 7, 3)) for each in (flipped, frame))
    assert made is not None and wanted is not None
    np.testing.assert_allclose(made, wanted[:, ::-1], atol=1e-3)


@pytest.mark.parametrize(
    "options",
    [
        {"width": 0}, {"height": -1}, {"stride": 4}, {"columns": 0}, {"rows": -3}, {"crop": (0, 0, 6, 1)},
        {"crop": (3, 0, 3, 1)}, {"crop": (-1, 0, 2, 2)}, {"crop": (0, 0, 0, 2)}, {"crop": (2**31 - 1, 0, 1, 1)},
        {"pixels": 5, "chroma_stride": 3}, {"pixels": 5, "stride": -5},
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(header: ctypes.CDLL, options: dict[str, Any]) -> None:
    frame = Frame("gray", 5, 4)
    request, tensor = request_of(frame, **({"columns": 2, "rows": 2} | options)), np.zeros(64, np.float32)
    data, output = (ctypes.c_void_p(array.ctypes.data) for array in (frame.data, tensor))
    assert header.convert(ctypes.byref(request), data, None, output) == 0
    assert not tensor.any()


def test_float16_is_the_nearest(header: ctypes.CDLL) -> None:
    random = np.random.default_rng(0)
    bits = random.integers(0, 1 << 32, 200_000, np.uint32)
    bits[::2] = (bits[::2] & 0x8FFFFFFF) | 0x30000000  # near the range of float16
    edges = np.float32([0, -0.0, 65504, 65519.996, 65520, -65520, 2.0**-24, 2.0**-25, 1.5 * 2.0**-25, np.inf, 6.1e-5])
    values = np.concatenate([edges, bits.view(np.float32)])
    made = np.empty(values.size, np.uint16)
    header.to_float16(
        ctypes.c_void_p(values.ctypes.data), ctypes.c_void_p(made.ctypes.data), ctypes.c_int64(values.size)
    )
    with np.errstate(over="ignore"):
        wanted = values.astype(np.float16)
    is_number = ~np.isnan(values)
    np.testing.assert_array_equal(made[is_number], wanted.view(np.uint16)[is_number])
    assert np.isnan(made.view(np.float16)[~is_number]).all()
