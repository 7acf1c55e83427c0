"""Write the images of pages in docs/how-to/pictures, as headless Chromium shows them.

    python docs/screenshots.py [NAME...]

Of `nnefc view`, of `nnefc profile` and of examples/browser. The networks are in the repository.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from click.testing import CliRunner

import nnefc
from nnefc.cli import main

ROOT = Path(__file__).parents[1]
sys.path += [str(ROOT / "tests" / "helpers"), str(ROOT / "examples" / "browser")]

from chromium import Page  # noqa: E402

__all__ = ["FOLDER", "IMAGES"]

FOLDER = ROOT / "docs" / "how-to" / "pictures"
_DIGITS = ROOT / "examples" / "digits" / "model.nnef"
_NETWORK = ROOT / "benchmarks" / "models" / "mobilenet_v1.nnef"


def view(folder: Path) -> bytes:
    page = folder / "view.html"
    _nnefc("view", _DIGITS, "-o", page, "--after", "compiled")
    with Page(1100, 640) as browser:
        browser.open(f"{page.as_uri()}#find=conv")
        browser.wait_for("!!document.querySelector('.chosen')")
        return browser.image()


def _show_profile(browser: Page, folder: Path) -> None:
    browser.command("Emulation.setScrollbarsHidden", hidden=True)
    browser.open(_profiled(folder).as_uri())
    browser.wait_for("document.querySelector('.span')?.textContent")


def profile(folder: Path) -> bytes:
    with Page(1060, 2080) as browser:
        _show_profile(browser, folder)
        return browser.image()


def timeline(folder: Path) -> bytes:
    with Page(1060, 420) as browser:
        _show_profile(browser, folder)
        part = "document.querySelector('.time')"
        x, y = browser.value(
            f"(() => {{ {part}.closest('section').scrollIntoView(); const svg = {part}.querySelector('svg');"
            " const { x, y, width } = svg.getBoundingClientRect(); return [x + width / 3, y + 30]; })()"
        )
        browser.command("Input.dispatchMouseEvent", type="mouseWheel", x=x, y=y, deltaX=0, deltaY=-900)
        browser.wait_for(f"{part}.querySelector('svg').viewBox.baseVal.width < 999")
        return browser.image()


def browser(folder: Path) -> bytes:
    import build
    import serve

    build.build(folder / "site")
    with serve.server(folder / "site", 0) as server, Page(760, 620) as page:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page.open(f"http://127.0.0.1:{server.server_port}/")
        page.wait_for("document.body?.dataset.ready")
        corner = "(({x, y}) => [x, y])(document.querySelector('#digits > canvas').getBoundingClientRect())"
        x, y = page.value(corner)
        seven = [(60, 60), (120, 60), (190, 60), (165, 110), (140, 160), (120, 215)]
        page.drag([(x + dx, y + dy) for dx, dy in seven])
        page.wait_for("document.querySelector('#digits .results span')?.textContent")
        found = page.image()
        server.shutdown()
    return found


IMAGES: Mapping[str, Callable[[Path], bytes]] = {
    "view": view,
    "profile": profile,
    "timeline": timeline,
    "browser": browser,
}


def _profiled(folder: Path) -> Path:
    """The page of a network's profile."""
    page = folder / "profile.html"
    if not page.exists():
        library = folder / "mobilenet_v1.so"
        nnefc.compile(_NETWORK, profile=True, random_weights=0).export(library)
        _nnefc("profile", library, "--threads", 2, "--seconds", 1, "--html", page)
    return page


def _nnefc(*arguments: object) -> None:
    result = CliRunner().invoke(main, list(map(str, arguments)), catch_exceptions=False)
    if result.exit_code:
        raise SystemExit(result.output)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        for image in sys.argv[1:] or IMAGES:
            (FOLDER / f"{image}.png").write_bytes(IMAGES[image](Path(name)))
