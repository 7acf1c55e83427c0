"""Models in place of libraries: `nnefc run`, `bench` and `profile` compile them, and cache their libraries."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import nnefc
from nnefc.cli import main
from nnefc.cli.commands.serve import _loadable
from nnefc.cli.models import opened_libraries
from nnefc.driver.caching.user_cache import library_cache
from nnefc.serving.settings import Policy

MODEL = "version 1.0; graph g(x) -> (y) { x = external<scalar>(shape = [2]); y = relu(x); }"


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "net.nnef"
    folder.mkdir()
    (folder / "graph.nnef").write_text(MODEL)
    return folder


def invoked(*words: object) -> Result:
    return CliRunner().invoke(main, [str(word) for word in words])


def test_commands_take_models(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NNEFC_CACHE", str(tmp_path / "cache"))
    first, second = (invoked("run", model, "--random", 0) for _ in range(2))
    assert first.exit_code == 0 and first.stdout == second.stdout and "float32  [2]" in first.stdout
    assert invoked("bench", model, "--runs", 1).exit_code == 0
    cache = library_cache()
    assert cache is not None and sum(file.path.suffix != ".json" for file in cache.files()) == 1
    profiled = invoked("profile", model, "--runs", 1)
    assert profiled.exit_code == 0, profiled.output  # kernels are timed, as --profile has it
    assert sum(file.path.suffix != ".json" for file in cache.files()) == 2


def test_without_a_cache_the_library_is_temporary(model: Path) -> None:
    with opened_libraries() as found:
        library = found(model)
        assert library.name == "net.so" and library.is_file()
        assert found(library) == library
    assert not library.parent.exists()


def test_models_are_not_signed(model: Path, tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    key.touch()
    result = invoked("run", model, "--random", 0, "--key", key)
    assert result.exit_code == 1 and "is a model, and only libraries are signed" in result.stderr


def test_a_model_that_cannot_be_compiled(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(b"not a model")
    result = invoked("run", path, "--random", 0)
    assert result.exit_code == 1 and "net.onnx" in result.stderr and "Traceback" not in result.stderr
    with opened_libraries() as found, pytest.raises(nnefc.LoadError, match=r"net\.onnx cannot be compiled: "):
        replace(Policy(), library=_loadable(found)).library(path)


@pytest.mark.parametrize("command", ["chat", "serve"])
def test_caches_of_models_that_are_compiled_first(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`chat` and `serve` pass options of language models on to the compiler."""
    given: dict[str, object] = {}

    def opened(key: Path | None = None, **options: object) -> None:
        given.update(options)
        raise nnefc.CompileError("seen")

    monkeypatch.setattr(f"nnefc.cli.commands.{command}.opened_libraries", opened)
    words = ["--openai"] if command == "serve" else []
    result = invoked(command, *words, "m.gguf", "--cache", "q8", "--context", 64, "--rewind", 0)
    assert result.exit_code == 1 and "seen" in result.stderr, result.output
    assert given.items() >= {"kv_cache": "q8", "context": 64, "rewind": 0}.items()
    assert given.get("all_logits", False) == (command == "serve")
    assert "'q9' is not one of" in invoked(command, *words, "m.gguf", "--cache", "q9").stderr
