"""Lets commands that run libraries also accept models, which are compiled, or whose libraries come from the cache."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from nnefc.driver.model_format import is_model
from nnefc.support.diagnostics import CompileError
from nnefc.support.output_files import temporary_folder

__all__ = ["Libraries", "opened_libraries"]


class Libraries:
    """Returns the library of each file: the file itself, or if it is a model, its library for this machine."""

    def __init__(self, folder: Path, key: Path | None, options: Mapping[str, Any]) -> None:
        """Prepare to compile models; :func:`opened_libraries` has the other arguments.

        Args:
            folder: for libraries that are not in the cache.
            key: of signed libraries; None: signatures are not checked.
            options: of :func:`nnefc.compile`.
        """
        self._folder = folder
        self._key = key
        self._options = options
        self._count = 0

    def __call__(self, file: Path) -> Path:
        """Return the library of a file.

        Raises:
            CompileError: the file is a model that cannot be compiled, or only signed libraries are allowed.
        """
        if not is_model(file):
            return file
        if self._key is not None:
            raise CompileError(
                f"{file} is a model, and only libraries are signed",
                hint=f"nnefc compile {file} -o {file.name.partition('.')[0]}.so, then sign that, or leave out --key",
            )
        from nnefc.driver.caching.cache import library_of
        from nnefc.driver.option_keywords import compile_options
        from nnefc.driver.terminal_progress import command_progress

        options = compile_options("nnefc.compile", self._options, "llvm")
        self._count += 1
        folder = self._folder / str(self._count)
        folder.mkdir()
        return library_of(file, options, folder, progress=command_progress())


@contextmanager
def opened_libraries(key: Path | None = None, **options: Any) -> Iterator[Libraries]:
    """Yield a :class:`Libraries`; libraries that are not in the cache exist only while the body runs.

    Args:
        key: the public key by which libraries must be signed; None: signatures are not checked.
        options: of :func:`nnefc.compile`, for models.
    """
    with temporary_folder("nnefc-libraries-") as folder:
        yield Libraries(folder, key, options)
