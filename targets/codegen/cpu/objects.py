"""Compiles TIR functions to machine code for a CPU; LLVM works in other threads while further functions are lowered.

All passes before LLVM run in the thread that adds a function. They make thousands of calls of TVM, each of which
releases Python's interpreter lock: with several threads it would change hands each time, which takes longer than the
passes.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import Context
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

import tvm
import tvm_ffi
from tvm import tirx
from tvm.tirx.build import split_host_device_mods, tir_to_runtime

from nnefc.ir.attributes import DYNAMIC_SHAPES
from nnefc.support.diagnostics import CompileError
from nnefc.support.output_files import temporary_errors
from nnefc.targets.codegen.cpu.checks import Checks, collected_checks
from nnefc.targets.codegen.cpu.fp16_conversions import without_fp16_conversions
from nnefc.targets.codegen.cpu.llvm_options import options_of
from nnefc.targets.machine.cpu.target import Target

__all__ = [
    "CODE_SUFFIXES",
    "CodeGenerator",
    "Compile",
    "MachineCode",
    "bound_to_target",
    "file_content",
    "host_functions",
    "llvm_module",
]

Compile = Callable[[Sequence[tirx.PrimFunc], Path], Callable[[], bytes]]
"""Lowers functions for LLVM, and returns a function that generates the content of a file in any thread. The suffix
of the path says which kind of file; the path may be written to.
"""

CODE_SUFFIXES = {"llvm-ir": "ll", "asm": "s"}
"""The kinds of text that code can be written as, and the suffixes of their files."""

# Kernels in each object, the last number again and again. Threads have work early, and small networks have work for
# several; but an object takes as long as a kernel. The same on every machine, for the same input gives the same bytes.
_PARTS = (4, 8, 16)

_OPEN = 3
"""How many kernels a kernel with dynamic sizes counts for: with tiles of several sizes, LLVM takes this much longer."""


class CodeGenerator:
    """Compiles functions on all processors; a context manager, at whose end the work stops.

    The results are object files; with the suffix "s" assembly, with "ll" LLVM's intermediate representation.

    The entry is compiled separately from the kernels, so that LLVM does not inline these. TVM declares to LLVM that
    buffers never overlap, which holds within a kernel, but not between kernels: they share the workspace. Kernels are
    independent, so that several processors can compile them at the same time, and LLVM needs no interpreter lock.

    Attributes:
        checks: of all kernels, after they have been compiled.
    """

    def __init__(
        self, compile: Compile, suffix: str = "o", threads: ThreadPoolExecutor | None = None, apart: bool = False
    ) -> None:
        """Begin without kernels.

        Args:
            compile: compiles functions.
            suffix: of the kind of results.
            threads: shared by several generators; None: one thread per processor for this generator.
            apart: whether each kernel has an object of its own, which other libraries can share.
        """
        self._compile = compile
        self._suffix = suffix
        self._apart = apart
        self._threads = threads or ThreadPoolExecutor(os.cpu_count())
        self._owns_threads = threads is None
        with temporary_errors():  # one folder of all files: some systems remove folders slowly
            self._folder = tempfile.TemporaryDirectory(prefix="nnefc-", ignore_cleanup_errors=True)
        self._waiting: list[tirx.PrimFunc] = []
        self._parts: list[Future[tuple[bytes, Checks]]] = []
        self._alone: dict[str, Future[tuple[bytes, Checks]]] = {}
        self._all: list[Future[tuple[bytes, Checks]]] = []  # those of entries too
        self.checks = Checks()

    def __enter__(self) -> CodeGenerator:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for one in self._all:
            one.cancel()
        interrupted = kind is not None and not issubclass(kind, Exception)
        if not interrupted:  # else nothing waits for LLVM, which may take long
            wait(self._all)
        if self._owns_threads:
            self._threads.shutdown(not interrupted, cancel_futures=True)
        self._folder.cleanup()

    def add(self, kernel: tirx.PrimFunc | bytes) -> None:
        """Begin to compile `kernel`, a flat function with a symbol, or add the object of a compiled kernel."""
        if isinstance(kernel, bytes):
            self._parts.append(_known(kernel))
            return
        self._waiting.append(kernel)
        if self._apart:
            self._start()
            self._alone[str(kernel.attrs["global_symbol"])] = self._parts[-1]
            return
        size = sum(_OPEN if DYNAMIC_SHAPES in other.attrs else 1 for other in self._waiting)
        if size >= _PARTS[min(len(self._parts), len(_PARTS) - 1)]:
            self._start()

    def finish(self, *entries: tirx.PrimFunc | bytes) -> tuple[bytes, ...]:
        """Return the contents of the files: one for each entry, then those of the kernels.

        Args:
            entries: functions, or their objects if they are compiled already.
        """
        if self._waiting:
            self._start()
        first = [
            _known(entry) if isinstance(entry, bytes) else self._compiled([entry], f"entry{number}")
            for number, entry in enumerate(entries)
        ]
        done = [part.result() for part in (*first, *self._parts)]
        self.checks = sum((checks for _, checks in done), Checks())
        return tuple(content for content, _ in done)

    def object_of(self, symbol: str) -> bytes:
        """Return the object of a kernel that was compiled separately, after :meth:`finish`."""
        return self._alone[symbol].result()[0]

    def _start(self) -> None:
        self._parts.append(self._compiled(self._waiting, f"kernels{len(self._parts)}"))
        self._waiting = []

    def _compiled(self, functions: Sequence[tirx.PrimFunc], name: str) -> Future[tuple[bytes, Checks]]:
        path = Path(self._folder.name) / f"{name}.{self._suffix}"
        # Without what is known around of sizes: code depends on the functions alone.
        generate, checks = Context().run(_lowered, self._compile, functions, path)
        self._all.append(self._threads.submit(lambda: (generate(), checks)))
        return self._all[-1]


@dataclass(frozen=True)
class MachineCode:
    """A network's code for a CPU.

    Attributes:
        objects: object files.
        module: the same code as flat functions, from which texts are generated; None after pickling, since TVM cannot
            serialize modules (0.27 crashes).
        entries: the names of the functions in it that call the others.
        compile: compiles them; None after pickling.
        compiled: kernels that are in the objects but not in `module`: by symbol, a function that lowers them again.
    """

    objects: tuple[bytes, ...] = field(repr=False)
    target: Target
    module: tvm.IRModule | None = field(repr=False)
    entries: tuple[str, ...]
    compile: Compile | None = field(repr=False, compare=False)
    compiled: Mapping[str, Callable[[], tirx.PrimFunc]] = field(default_factory=dict, repr=False, compare=False)

    device = "cpu"
    arrival_bytes = 0
    texts: ClassVar[Mapping[str, Sequence[str]]] = {
        kind: (f"entry*.{suffix}", f"kernels[0-9]*.{suffix}") for kind, suffix in CODE_SUFFIXES.items()
    }

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "module": None, "compile": None, "compiled": {}}

    def write_sources(self, _folder: Path) -> list[Path]:
        """Return nothing: the objects have all code."""
        return []

    def write_text(self, kind: str, folder: Path) -> list[Path]:
        """Write the entries, and the kernels by LLVM module, as text of a kind of CODE_SUFFIXES.

        Raises:
            CompileError: the code was pickled.
        """
        if self.module is None or self.compile is None:
            raise CompileError(
                "a pickled artifact holds machine code only, no text",
                hint="call emit before pickling it, or compile the model again here",
            )
        suffix = CODE_SUFFIXES[kind]
        functions = {gv.name_hint: func for gv, func in self.module.functions.items()}
        functions |= {symbol: lower() for symbol, lower in self.compiled.items() if symbol not in functions}
        with CodeGenerator(self.compile, suffix) as generator:
            for name in sorted(functions.keys() - self.entries):
                generator.add(functions[name])
            texts = generator.finish(*(functions[name] for name in self.entries))
        count = len(self.entries)
        names = ["entry", *(f"entry{number}" for number in range(1, count))]
        names += [f"kernels{number}" for number in range(len(texts) - count)]
        for name, text in zip(names, texts, strict=True):
            (folder / f"{name}.{suffix}").write_bytes(text)
        return [folder / f"{name}.{suffix}" for name in names]

    def summary(self) -> None:
        """Nothing to say."""


def _known(content: bytes) -> Future[tuple[bytes, Checks]]:
    """Return the completed future of an existing file."""
    made: Future[tuple[bytes, Checks]] = Future()
    made.set_result((content, Checks()))
    return made


def _lowered(compile: Compile, functions: Sequence[tirx.PrimFunc], path: Path) -> tuple[Callable[[], bytes], Checks]:
    """Lower functions; return a function that generates the content of their file, and their checks."""
    with collected_checks() as checks:
        return compile(functions, path), checks


def bound_to_target(module: tvm.IRModule, target: Target) -> tvm.IRModule:
    """Return functions with the attribute of their target."""
    machine = target.to_tvm()
    return tirx.transform.BindTarget(machine.with_host(machine.host or machine))(module)


def host_functions(module: tvm.IRModule) -> tvm.IRModule:
    """Return the functions that run on the host, which are all."""
    return split_host_device_mods(module)[0]


def llvm_module(module: tvm.IRModule, target: Target) -> tvm.runtime.Module:
    """Return lowered functions as an LLVM module."""
    machine = target.to_tvm()
    with options_of(target):
        return tir_to_runtime(module, {}, machine.host or machine)


def file_content(module: tvm.runtime.Module, target: Target, path: Path) -> bytes:
    """Return the content of a file of an LLVM module, which is written to `path` and removed."""
    with temporary_errors(), options_of(target):
        made = _rewritten(module, target.vectors.scale, path)
        with _in_memory(path):
            made.write_to_file(str(path), path.suffix[1:])
            return path.read_bytes()


@contextmanager
def _in_memory(path: Path) -> Iterator[None]:
    """Make `path` a link to a file in memory, on systems that have these, and remove it at the end.

    LLVM would end the process if the disk were full.
    """
    memory = os.memfd_create(path.name) if sys.platform == "linux" and os.path.isdir("/proc/self/fd") else None
    try:
        if memory is not None:
            path.symlink_to(f"/proc/self/fd/{memory}")
        yield
    finally:
        path.unlink(missing_ok=True)
        if memory is not None:
            os.close(memory)


_ATTRIBUTES = '"target-cpu"='
"""The attributes of functions that TVM writes for LLVM contain this text, and nothing else does."""

_SHORT = 100_000
"""Characters of a module up to which parsing it is faster than compiling conversions that it does not need."""


def _rewritten(module: tvm.runtime.Module, scale: int, path: Path) -> tvm.runtime.Module:
    """Return a module with changes that TVM cannot express.

    Scalable vectors get a known length, so that LLVM keeps fixed vectors that are longer than NEON's in scalable
    registers. Unused fp16 conversions are dropped.

    Args:
        module: of LLVM.
        scale: length of scalable vectors in units of 128 bits; 0 for machines without them.
        path: of the object file; another file is written next to it, and removed.
    """
    if not scale and path.suffix != ".o":
        return module
    text = path.with_suffix(".known.ll")
    with _in_memory(text):
        module.write_to_file(str(text), "ll")
        source = text.read_text()
        made = without_fp16_conversions(source) if path.suffix == ".o" and len(source) <= _SHORT else source
        if scale:
            if _ATTRIBUTES not in source:
                raise RuntimeError(f"TVM's functions for LLVM have no attribute {_ATTRIBUTES}: another TVM?")
            made = made.replace(_ATTRIBUTES, f"vscale_range({scale},{scale}) {_ATTRIBUTES}")
        if made is source:
            return module
        text.write_text(made)
        return tvm_ffi.load_module(text, keep_module_alive=False)  # TVM's own follows links, and memory has no ending
