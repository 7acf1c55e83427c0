"""The page of examples/browser, in headless Chromium, with and without memory that workers share."""

from __future__ import annotations

import importlib.util
import re
import struct
import threading
import zlib
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from chromium import CHROMIUM, Page

EXAMPLE = Path(__file__).parents[2] / "examples" / "browser"
COLOURS = ("red", "green", "blue")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs: chromium")


def part(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"browser_{name}", EXAMPLE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page with a network for images whose classes are the colours that images have most of."""
    folder = tmp_path_factory.mktemp("site")
    document = folder / "colours.nnef"
    document.write_text(
        "version 1.0; extension KHR_enable_operator_expressions; graph colours(image) -> (share) {"
        " image = external<scalar>(shape = [1, 3, 64, 64]);"
        " mean = mean_reduce(image, axes = [2, 3]); flat = squeeze(mean, axes = [2, 3]);"
        " share = softmax(flat * 8.0, axes = [1]); }"
    )
    (folder / "labels.txt").write_text("\n".join(COLOURS))
    pixels = np.full((64, 64, 3), 40, np.uint8)
    pixels[:, :, 1] = 200
    (folder / "sample.png").write_bytes(png(pixels))
    part("build").build(folder / "site", document, folder / "labels.txt", samples=[folder / "sample.png"])
    return folder / "site"


@pytest.fixture(scope="module", params=["isolated", "not isolated"])
def page(request: pytest.FixtureRequest, site: Path) -> Iterator[Page]:
    serve = part("serve")
    with serve.server(site, 0) as server, pytest.MonkeyPatch.context() as patch:
        if request.param != "isolated":
            patch.setattr(serve.Isolated, "end_headers", SimpleHTTPRequestHandler.end_headers)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with Page() as opened:
            opened.open(f"http://127.0.0.1:{server.server_port}/")
            ready = opened.wait_for("document.body?.dataset.ready")
            text = opened.value("document.getElementById('engine').textContent")
            assert ready == "yes", text
            assert ("shared with workers" in text) == (request.param == "isolated"), text
            yield opened
        server.shutdown()


def first(page: Page, section: str) -> str:
    return str(page.wait_for(f"document.querySelector('#{section} .results span')?.textContent"))


@pytest.mark.parametrize(
    ("strokes", "digit"),
    [
        pytest.param([[(128, 40), (128, 120), (128, 215)]], "1", id="one"),
        pytest.param(
            [[(128 + 50 * np.sin(t), 128 - 85 * np.cos(t)) for t in np.linspace(0, 2 * np.pi, 25)]], "0", id="zero"
        ),
    ],
)
@pytest.mark.sample(2)
def test_a_digit_that_is_drawn_is_recognized(page: Page, strokes: list[list[tuple[float, float]]], digit: str) -> None:
    page.value("document.querySelector('#digits .clear').click()")
    x, y = page.value("(({x, y}) => [x, y])(document.querySelector('#digits > canvas').getBoundingClientRect())")
    for stroke in strokes:
        page.drag([(x + dx, y + dy) for dx, dy in stroke])
    assert first(page, "digits") == digit


def test_samples_show_a_result_at_first_sight_and_when_they_are_chosen(page: Page) -> None:
    page.open(page.value("location.href"))
    page.wait_for("document.body?.dataset.ready")
    assert first(page, "digits") == "0" and first(page, "images") == "green"
    assert re.search(
        r"[\d.]+ ms a run, [\d,]+ runs a second", page.value("document.querySelector('output').textContent")
    )
    assert page.value("document.querySelectorAll('#digits .samples button').length") == 10
    page.value("document.querySelectorAll('#digits .samples button')[7].click()")
    assert first(page, "digits") == "7"
    assert "camera" in page.value("document.querySelector('#images .camera').textContent")


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.sample(2)
def test_an_image_that_is_chosen_is_classified(page: Page, colour: str, tmp_path: Path) -> None:
    pixels = np.full((48, 80, 3), 40, np.uint8)
    pixels[:, :, COLOURS.index(colour)] = 220
    (tmp_path / "images.png").write_bytes(png(pixels))
    page.value("document.querySelector('#images .results').replaceChildren()")
    page.choose_file("#images input", tmp_path / "images.png")
    assert first(page, "images") == colour


def png(pixels: np.ndarray) -> bytes:
    """An image, uint8 [height, width, 3], as a file of PNG."""

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    height, width, _ = pixels.shape
    lines = b"".join(b"\0" + line.tobytes() for line in pixels)
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
