"""Writes the program as text after each pass that changes it."""

from __future__ import annotations

import hashlib
import os
import sys
import threading
from collections.abc import Collection
from pathlib import Path
from typing import Any, TextIO

import tvm
from tvm import tirx

from nnefc.passes.manager import PassRun, Phase
from nnefc.support.output_files import check_folder, output_folder, write_text

__all__ = ["STANDARD_OUTPUT", "Dump", "dump_of"]

_LONGEST_NAME = 120  # bytes of a folder's name: file systems allow 255, those that encrypt names 143

STANDARD_OUTPUT = "-"
"""The folder that stands for standard output."""

_KERNEL = (Phase.SCHEDULE, Phase.BLOCKS, Phase.FLAT, Phase.POINTERS)


class Dump:
    """An observer of passes that writes programs into a folder, with constants as references only.

    DIR/000_network.py                           what the front end returned
    DIR/008_fold_affine.py                       the network after the eighth pass of --print-passes
    DIR/main.body0/…                             a body of a branch or a loop in it
    DIR/kernels/conv2d/031_schedule.py           a kernel
    DIR/objects/kernels0/090_vectorize.py        the functions of an object file
    """

    def __init__(self, folder: Path | None, only: Collection[str] = ()) -> None:
        """Checks the folder, which is made when there is something to write.

        Args:
            folder: where to write; None for standard output.
            only: names of the passes after which programs are written; all if there are none.

        Raises:
            CompileError: the folder cannot be made.
        """
        self._folder, self._only = folder, frozenset(only)
        self._units: set[Path] = set()
        self._last = 0
        self._lock = threading.Lock()
        self._stream: TextIO = sys.stdout
        if folder is not None:
            check_folder(folder)

    def __call__(self, run: PassRun) -> None:
        unit = _folder_of(run)
        with self._lock:
            is_first = unit not in self._units
            self._units.add(unit)
            self._last = max(self._last, run.number) if run.step.phase is not Phase.OBJECT else self._last
        if is_first and not self._only:
            self._write(unit, f"000_{_first_name(run)}.py", _text_of(run.before))
        name = f"{run.number:03d}_{run.step.name.replace(' ', '_')}.py"
        if self._only and run.step.name not in self._only:
            return
        if run.changed:
            self._write(unit, name, _text_of(run.after))
        elif self._folder is not None:  # TVM has failed on a first attempt with this kernel
            (self._folder / unit / name).unlink(missing_ok=True)

    def text(self, name: str, text: str) -> None:
        """Writes a text that is no program of TVM, such as the entry's object, numbered after the passes so far."""
        if not self._only:
            self._last += 1
            self._write(Path(), f"{self._last:03d}_{name}", text)

    def _write(self, unit: Path, name: str, text: str | None) -> None:
        if text is None:
            return
        if self._folder is None:
            with self._lock:
                self._stream.write(f"# {unit / name}\n{text}\n")
            return
        with output_folder(self._folder / unit) as folder:
            write_text(folder / name, text)


def dump_of(folder: str | os.PathLike[str] | None, only: Collection[str]) -> Dump | None:
    """Returns the observer that writes programs into a folder, or to standard output; None without `--dump`.

    Args:
        folder: `-` for standard output, which also is the default where passes are named.
        only: names of passes; all if there are none.
    """
    if folder is None and not only:
        return None
    return Dump(None if folder is None or os.fspath(folder) == STANDARD_OUTPUT else Path(folder), only)


def _folder_of(run: PassRun) -> Path:
    if run.step.phase in _KERNEL:
        return Path("kernels") / _file_name(run.unit)
    if run.step.phase is Phase.OBJECT:
        return Path("objects") / run.unit
    return Path() if run.unit == "main" else Path(run.unit)


def _file_name(kernel: str) -> str:
    """Returns the name of a kernel, shortened where a file name must not be so long."""
    if len(kernel) <= _LONGEST_NAME:
        return kernel
    digest = hashlib.sha256(kernel.encode()).hexdigest()[:8]
    return f"{kernel[: _LONGEST_NAME - 9]}_{digest}"


def _first_name(run: PassRun) -> str:
    if run.step.phase in _KERNEL:
        return "kernel"
    return "functions" if run.step.phase is Phase.OBJECT else "network"


def _text_of(program: Any) -> str | None:
    """Returns a program as text; None for machine code and other forms without a text."""
    if isinstance(program, tvm.IRModule | tirx.PrimFunc):
        return f"{program.script()}\n"
    if isinstance(program, tvm.runtime.Module):  # LLVM IR: to read an attribute of it would look up a function in it
        return None
    module = getattr(program, "module", None)  # of the program of a network
    return f"{module.script()}\n" if isinstance(module, tvm.IRModule) and module.functions else None
