"""Tests of the cache of libraries: where it is, its limit, when a library is found, and what a session imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from click.testing import CliRunner

import nnefc
from nnefc.cli import main
from nnefc.driver.caching import cache as library_cache_module
from nnefc.driver.caching.user_cache import Cache, library_cache

MODEL = "version 1.0; graph g(x) -> (y) { x = external<scalar>(shape = [2]); y = mul(x, 3.0); }"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "my model.nnef"
    path.write_text(MODEL)
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("NNEFC_CACHE")
    return tmp_path / "home" / "nnefc" / "libraries"


@pytest.mark.parametrize("off", ["0", "off", "No"])
def test_the_environment_chooses_the_folder(home: Path, monkeypatch: pytest.MonkeyPatch, off: str) -> None:
    def folder(cache: Cache) -> Path | None:
        found = library_cache(cache)
        return None if found is None else found.folder

    assert folder(None) == folder(True) == home
    assert folder(False) is None and folder("here") == Path("here")
    monkeypatch.setenv("NNEFC_CACHE", "there")
    assert folder(None) == Path("there") and folder("here") == Path("here") and folder(False) is None
    monkeypatch.setenv("NNEFC_CACHE", off)
    assert folder(None) is None and folder(True) is None and folder("here") == Path("here")


@pytest.mark.parametrize(("text", "size"), [("", 4 << 30), ("100", 100), ("3k", 3 << 10), ("2GiB", 2 << 30)])
def test_the_environment_limits_the_size(monkeypatch: pytest.MonkeyPatch, text: str, size: int) -> None:
    monkeypatch.setenv("NNEFC_CACHE_SIZE", text)
    cache = library_cache("here")
    assert cache is not None and cache.max_bytes == size


@pytest.mark.parametrize("text", ["much", "-1", "1.5G", "9" * 20])
def test_other_sizes_are_refused(model: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("NNEFC_CACHE_SIZE", text)
    with pytest.raises(nnefc.CompileError, match="NNEFC_CACHE_SIZE is") as error:
        nnefc.InferenceSession(model, cache="here")
    assert "500M" in str(error.value.hint)


def test_a_library_is_compiled_again_when_anything_changes(
    home: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = []
    monkeypatch.setattr(
        library_cache_module, "_compiled", lambda *given: compiled.append(given) or nnefc.compile(given[0])
    )
    expected = [np.float32([3, 6])]

    def runs() -> int:
        compiled.clear()
        np.testing.assert_array_equal(nnefc.InferenceSession(model).run(None, {"x": np.float32([1, 2])}), expected)
        return len(compiled)

    assert (runs(), runs()) == (1, 0)
    monkeypatch.setattr(library_cache_module, "_processor", lambda target: "another one")
    assert (runs(), runs()) == (1, 0)
    monkeypatch.setattr(library_cache_module, "compiler_state", lambda: "another one")
    assert (runs(), runs()) == (1, 0)
    (library,) = (file.path for file in library_cache().files()[-1:])  # type: ignore[union-attr]
    assert library.parent == home
    for file in home.glob("*.so"):
        content = file.read_bytes()
        file.unlink()  # sessions of this process have mapped it
        file.write_bytes(content[:-1] + b"?")
    assert (runs(), runs()) == (1, 0)
    model.write_text(MODEL.replace("3.0", "4.0"))
    expected = [np.float32([4, 8])]
    assert (runs(), runs()) == (1, 0)


@pytest.mark.slow
def test_the_command_shows_and_empties_the_cache(home: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def printed(*words: str) -> str:
        return CliRunner().invoke(main, ["cache", *words], catch_exceptions=False).output

    def lines(*words: str) -> list[str]:
        return [" ".join(line.split()) for line in printed(*words).splitlines()]

    kernels = home.with_name("kernels")
    empty = [f"libraries 0, 0 bytes of 4.3 GB in {home}", f"kernels 0, 0 bytes of 537 MB in {kernels}"]
    assert lines() == lines("info") == empty
    nnefc.InferenceSession(model)
    kept = ("libraries 1", home), ("kernels 2", kernels)  # the kernel, and the function that calls it
    for (what, folder), line in zip(kept, lines(), strict=True):
        assert line.startswith(f"{what}, ") and line.endswith(f" in {folder}")
    assert [line.split()[1] for line in lines("clear")] == ["1,", "2,"]
    assert list(home.iterdir()) == list(kernels.iterdir()) == [] and lines() == empty
    monkeypatch.setenv("NNEFC_CACHE", "0")
    assert printed() == "the cache is off\n"


SLOW = {"concurrent.futures", "difflib", "email", "importlib.metadata", "onnx", "tempfile", "tvm", "zipfile"}
"""Modules that take longer to import than a small network to run."""


def test_a_session_of_a_cached_library_needs_no_compiler(home: Path, model: Path) -> None:
    nnefc.InferenceSession(model)
    program = (
        f"import sys, nnefc, numpy; s = nnefc.InferenceSession({str(model)!r}); "
        f"print(s.run(None, {{'x': numpy.float32([1, 2])}})[0], {SLOW!r} & {{*sys.modules}})"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ, check=True)
    assert done.stdout == "[3. 6.] set()\n"


def test_errors_of_runs_name_the_model(home: Path, tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["" : 13]> g (float[3] x, int64[1] i) => (float[1] y) { y = Gather (x, i) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "gather.onnx")
    for _ in ("compiled", "found"):
        session = nnefc.InferenceSession(tmp_path / "gather.onnx")
        with pytest.raises(nnefc.RunError, match=r"the model gather\.onnx: ") as error:
            session.run(None, {"x": np.zeros(3, np.float32), "i": np.int64([7])})
        assert str(home) not in str(error.value)
