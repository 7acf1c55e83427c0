"""Compiles a model in another process, which shares no lock with this one: runs go on at full speed meanwhile.

The child gets a pickled request on its standard input and writes a line of JSON to a file next to the library: the
path of the library, or what is wrong with the model.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from nnefc.driver.caching.cache import library_of
from nnefc.driver.caching.user_cache import Cache
from nnefc.driver.options import CompileOptions
from nnefc.support.diagnostics import CompileError

__all__ = ["Background", "serve"]

_CHILD = """
import gc
gc.disable()
from nnefc.support.blas_threads import sleep_when_idle
sleep_when_idle()
from nnefc.support.minimal_tvm import import_tvm
import_tvm()
from nnefc.driver.caching.background import serve
serve()
from nnefc.support.process_end import end_process
end_process(0)
"""

_ANSWER = "answer.json"


@dataclass(frozen=True)
class _Request:
    """What a child compiles.

    Attributes:
        model: its file.
        options: how it is compiled.
        folder: for a library that is not cached, and for the answer.
        cache: where libraries are cached.
    """

    model: Path
    options: CompileOptions
    folder: Path
    cache: Cache


class Background:
    """A compilation in another process."""

    def __init__(self, model: Path, options: CompileOptions, cache: Cache) -> None:
        """Starts it. The process goes on if this one ends, and its library is in the cache for the next one.

        Args:
            model: its file, which must stay there.
            options: how it is compiled; without passes and observers.
            cache: where libraries are cached.

        Raises:
            OSError: no process can be started.
        """
        self._folder = TemporaryDirectory(prefix="nnefc-background-", ignore_cleanup_errors=True)
        request = _Request(model.resolve(), options, Path(self._folder.name), cache)
        self._process = subprocess.Popen([sys.executable, "-c", _CHILD], stdin=subprocess.PIPE)
        assert self._process.stdin is not None
        with self._process.stdin as pipe:
            pickle.dump(request, pipe)

    def library(self) -> Path:
        """Waits for the library, and returns its file, which is there until :meth:`close`.

        Raises:
            CompileError: the model cannot be compiled, or the process has ended.
        """
        status = self._process.wait()
        try:
            answer = json.loads((Path(self._folder.name) / _ANSWER).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            raise CompileError(f"the process that compiles the model has ended with status {status}") from None
        if "library" in answer:
            return Path(answer["library"])
        raise CompileError(answer["error"], hint=answer["hint"])

    def close(self) -> None:
        """Removes the files of the compilation that are not in the cache."""
        self._folder.cleanup()


def serve() -> None:
    """Compiles what the standard input asks for: the program of the child."""
    request: _Request = pickle.load(sys.stdin.buffer)
    answer: dict[str, str | None]
    try:
        answer = {"library": os.fspath(library_of(request.model, request.options, request.folder, cache=request.cache))}
    except CompileError as error:
        answer = {"error": error.message, "hint": error.hint}
    try:
        new = request.folder / f"{_ANSWER}.new"
        new.write_text(json.dumps(answer), encoding="utf-8")
        new.replace(request.folder / _ANSWER)
    except OSError:
        pass  # the process that has asked is gone, with its folder
