"""The documentation becomes a site without a warning; the site needs no network."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from chromium import CHROMIUM, Page

import nnefc

ROOT = Path(__file__).parents[2]

pytest.importorskip("sphinx")


def build(folder: Path, *options: str) -> Path:
    pytest.importorskip("myst_nb")
    options = (*options, "--fail-on-warning", "--keep-going", "-q", "-c", str(ROOT / "docs" / "site"))
    command = [sys.executable, "-m", "sphinx", *options, str(ROOT), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, whose notebooks were not run."""
    return build(tmp_path_factory.mktemp("site"), "-D", "nb_execution_mode=off")


@pytest.mark.slow
def test_every_link_leads_somewhere_and_nothing_is_fetched(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 50
    for page in pages:
        fetched = re.findall(r"<(?:script|link|img)\b[^>]*\b(?:src|href)=[\"'](?:https?:)?//[^>]*", page.read_text())
        assert not fetched, f"{page}: {fetched}"


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
def test_pages_are_as_wide_as_the_window(site: Path) -> None:
    too_wide = []
    with Page() as browser:
        for page in sorted(site.rglob("*.html")):
            browser.open(page.as_uri())
            browser.wait_for(f"document.readyState == 'complete' && location.href == {json.dumps(page.as_uri())}")
            for width in (400, 1280, 1440, 1600, 1920):
                metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
                browser.command("Emulation.setDeviceMetricsOverride", **metrics)
                found = browser.value("document.documentElement.scrollWidth")
                if found > width:
                    too_wide.append((page.relative_to(site).as_posix(), width, found))
    assert too_wide == []


@pytest.mark.slow
def test_the_references_have_all_that_is_public(site: Path) -> None:
    reference = site / "docs" / "site" / "reference"
    python, c, cli = ((reference / f"{name}.html").read_text() for name in ("python", "c", "cli"))
    for name in nnefc.__all__:
        assert re.search(rf'id="(?:module-)?nnefc\.{name}"', python), name
    header = (ROOT / "targets" / "runtime" / "nnefc.h").read_text()
    functions = set(re.findall(r"NNEFC_API[^;]*?\b(nnefc_\w+)\(", header))
    assert len(functions) > 15
    for function in functions:
        assert f'id="c.{function}"' in c
    from nnefc.cli import main

    for command in main.commands:
        assert f'id="nnefc-{command}"' in cli


NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
SHOWN = {
    "first_network": ("<caption>Artifact digits", "<caption>Model digits", "a 0, by", "images are read right"),
    "sizes_and_precisions": ("multiples of 8 for", "int8:", "of its size is noise"),
    "where_the_time_goes": ('class="boxes"', "ContractionRule", "pieces", "outside of kernels"),
}
"""What cells show, by notebook."""


def test_notebooks_are_kept_without_what_their_cells_show() -> None:
    assert {path.stem for path in NOTEBOOKS} == set(SHOWN)
    for path in NOTEBOOKS:
        cells = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells), path


@pytest.mark.slow
def test_the_site_shows_what_cells_of_notebooks_show(tmp_path: Path) -> None:
    site = build(tmp_path)
    for name, shown in SHOWN.items():
        page = (site / "examples" / "notebooks" / f"{name}.html").read_text()
        assert [words for words in shown if words not in page] == []


def test_comments_of_a_header_stay_with_what_they_are_about(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "site"))
    from c_header import declarations

    header = """/* The file,
 *
 * in two paragraphs. */
#ifndef X
#define X

#define LIMIT 3 /* at most */

/* Adds *b. */
NNEFC_API int add(int a,
                  int *b);

typedef struct pair {
    int a; /* the first */
} pair;
"""
    found = [(d.kind, d.name, d.comment) for d in declarations(header)]
    assert found == [
        ("", "", "The file,\n\nin two paragraphs."),
        ("macro", "LIMIT", "at most"),
        ("function", "int add(int a, int *b)", "Adds *b."),
        ("struct", "pair", ""),
    ]
