"""From functions of TIR to machine code for a CPU, while the functions that follow are still being made."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir import register_op_attr

from nnefc.diagnostics import CompileError
from nnefc.ir.attributes import CHECKED, CONDITIONAL_VALUES, DYNAMIC_SHAPES
from nnefc.output_files import temporary_errors
from nnefc.targets.codegen.cpu.checks import Checks, counted_checks, with_checks
from nnefc.targets.codegen.cpu.masks import with_masks
from nnefc.targets.codegen.cpu.plain_arithmetic import (
    check_functions,
    with_fences,
    with_plain_conversions,
    with_plain_functions,
)
from nnefc.targets.codegen.cpu.truth_vectors import with_plain_truth_vectors
from nnefc.targets.machine.cpu.target import Target

__all__ = ["CODE_SUFFIXES", "CodeGenerator", "MachineCode", "pipeline_of"]

CODE_SUFFIXES = {"llvm-ir": "ll", "asm": "s"}
"""Texts that the code may be written as, and how their files end."""

# Kernels in each object, the last number again and again. Threads have work early, and small networks have work for
# several; but an object takes as long as a kernel. The same on every machine, for the same input gives the same bytes.
_PARTS = (4, 8, 16)

_OPEN = 3
"""Kernels that one of open sizes counts for: with tiles of several sizes, it takes LLVM as long as so many."""


class CodeGenerator:
    """Compiles functions on all processors; a context, on whose end the work stops.

    What comes out are object files; with the suffix "s" assembly, with "ll" LLVM's intermediate representation.

    The entry is apart from the kernels so that LLVM does not inline them into it. TVM tells LLVM that two buffers never
    overlap, which holds within a kernel, but not from one kernel to the next: they share the workspace. The kernels
    know nothing of each other, so that several processors can compile them at the same time, and LLVM needs no lock
    of Python's.

    Attributes:
        checks: those of the kernels, when all have become code.
    """

    def __init__(self, target: Target, suffix: str = "o", threads: ThreadPoolExecutor | None = None) -> None:
        """`threads` are those of several generators, of which each would else have as many as there are processors."""
        self._target = target
        self._suffix = suffix
        self._threads = threads or ThreadPoolExecutor(os.cpu_count())
        self._owns_threads = threads is None
        with temporary_errors():  # one folder of all files: some systems remove folders slowly
            self._folder = tempfile.TemporaryDirectory(prefix="nnefc-", ignore_cleanup_errors=True)
        self._waiting: list[tirx.PrimFunc] = []
        self._parts: list[Future[tuple[bytes, Checks]]] = []
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

    def add(self, kernel: tirx.PrimFunc) -> None:
        """Compile `kernel`, a flat function with a symbol, some time before :meth:`finish` returns."""
        self._waiting.append(kernel)
        size = sum(_OPEN if DYNAMIC_SHAPES in other.attrs else 1 for other in self._waiting)
        if size >= _PARTS[min(len(self._parts), len(_PARTS) - 1)]:
            self._start()

    def finish(self, *entries: tirx.PrimFunc) -> tuple[bytes, ...]:
        """The files' contents: first those of the entries, one each, then those of the kernels."""
        if self._waiting:
            self._start()
        first = [self._compiled([entry], f"entry{number}") for number, entry in enumerate(entries)]
        done = [part.result() for part in (*first, *self._parts)]
        self.checks = sum((checks for _, checks in done), Checks())
        return tuple(content for content, _ in done)

    def _start(self) -> None:
        self._parts.append(self._compiled(self._waiting, f"kernels{len(self._parts)}"))
        self._waiting = []

    def _compiled(self, functions: Sequence[tirx.PrimFunc], name: str) -> Future[tuple[bytes, Checks]]:
        path = Path(self._folder.name) / f"{name}.{self._suffix}"
        self._all.append(self._threads.submit(_compiled, functions, self._target, path))
        return self._all[-1]


@dataclass(frozen=True)
class MachineCode:
    """A network's code for a CPU.

    Attributes:
        objects: object files.
        module: the same as flat functions, from which texts are made; None where it was pickled, for TVM cannot write
            modules down (0.27 crashes).
        entries: the names of the functions in it that call the others.
    """

    objects: tuple[bytes, ...] = field(repr=False)
    target: Target
    module: tvm.IRModule | None = field(repr=False)
    entries: tuple[str, ...]

    device = "cpu"
    texts: ClassVar[Mapping[str, Sequence[str]]] = {
        kind: (f"entry*.{suffix}", f"kernels[0-9]*.{suffix}") for kind, suffix in CODE_SUFFIXES.items()
    }

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "module": None}

    def write_sources(self, _folder: Path) -> list[Path]:
        """Nothing: all is in the objects."""
        return []

    def write_text(self, kind: str, folder: Path) -> list[Path]:
        """Write the entries, and the kernels by modules of LLVM's, as text of a kind of CODE_SUFFIXES.

        Raises:
            CompileError: this was pickled.
        """
        if self.module is None:
            raise CompileError(
                "a pickled artifact holds machine code only, no text",
                hint="call emit before pickling it, or compile the model again here",
            )
        suffix = CODE_SUFFIXES[kind]
        with CodeGenerator(self.target, suffix) as generator:
            for name in sorted(gv.name_hint for gv in self.module.functions if gv.name_hint not in self.entries):
                generator.add(self.module[name])
            texts = generator.finish(*(self.module[name] for name in self.entries))
        count = len(self.entries)
        names = ["entry", *(f"entry{number}" for number in range(1, count))]
        names += [f"kernels{number}" for number in range(len(texts) - count)]
        for name, text in zip(names, texts, strict=True):
            (folder / f"{name}.{suffix}").write_bytes(text)
        return [folder / f"{name}.{suffix}" for name in names]

    def summary(self) -> None:
        """Nothing to say."""


def _compiled(functions: Iterable[tirx.PrimFunc], target: Target, path: Path) -> tuple[bytes, Checks]:
    """The content of a file of these functions, which is written to `path` and removed, and the checks in it."""
    module = tvm.IRModule({str(func.attrs["global_symbol"]): func for func in functions})
    is_open = any(DYNAMIC_SHAPES in func.attrs for func in module.functions.values())
    is_checked = any(CHECKED in func.attrs for func in module.functions.values())
    pipeline = pipeline_of(target, is_open, is_checked)
    if target.reproducible:
        check_functions(functions)
    with counted_checks() as checks:
        library = tvm.compile(module, target=target.to_tvm(), tir_pipeline=pipeline)
    with temporary_errors():
        made = _of_length(library.mod, target.scale, path) if target.scale else library.mod
        with _in_memory(path):
            made.write_to_file(str(path), path.suffix[1:])
            return path.read_bytes(), checks


@contextmanager
def _in_memory(path: Path) -> Iterator[None]:
    """Make the path of a file that does not exist a link to memory, where the system can; and remove it in the end.

    LLVM ends the process where the disk is full.
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
"""What attributes of functions that TVM makes for LLVM hold, and nothing else does."""


def _of_length(module: tvm.runtime.Module, scale: int, path: Path) -> tvm.runtime.Module:
    """The same code, of which LLVM knows how long scalable vectors are, before it chooses instructions: fixed vectors
    that are longer than NEON's are such then, and stay in registers. TVM has no way to tell it.

    Args:
        scale: times 128 bits.
        path: beside this, a file is written and removed again.
    """
    text = path.with_suffix(".known.ll")
    with _in_memory(text):
        module.write_to_file(str(text), "ll")
        text.write_text(text.read_text().replace(_ATTRIBUTES, f"vscale_range({scale},{scale}) {_ATTRIBUTES}"))
        return tvm_ffi.load_module(text, keep_module_alive=False)  # TVM's own follows links, and memory has no ending


def pipeline_of(target: Target, is_open: bool = False, is_checked: bool = False) -> str:
    """What TVM calls the way of flat functions to LLVM."""
    return _PIPELINES[target.pointer_bits, is_open, is_checked, target.reproducible]


def _lowering(
    pointer_bits: int, is_open: bool, is_checked: bool, is_reproducible: bool
) -> tuple[tvm.transform.Pass, object, object]:
    """TVM's own way from TIR to LLVM, without the passes that know nothing to do for flat kernels of a CPU.

    Indices become as wide as pointers, where TVM would take 32 bits. LLVM 22 makes narrower ones wide by itself, and
    then its loop vectorizer takes some that are computed by divisions, under a condition, for neighbours.

    The kernels are scheduled and their memory is planned: TVM must not plan it once more. Loops are unrolled before
    others become vectors: TVM finds out that `2 == 1`, so that a formula chosen by the place in a tile is not there for
    every place, but not that sixteen of them are.

    Kernels of open sizes have several times as many statements, in tiles of several sizes. Theirs go without what LLVM
    does too, in less time: conditions moved out of loops, and what has no effect. Where no value depends on a
    condition, no formula is chosen by a place either: their loops become vectors, and are simplified, before others are
    unrolled, once for all copies. Nor are there common expressions that LLVM would not find: those behind conditions,
    as which channel a place of a block holds.
    """
    unrolled = tirx.transform.UnrollLoop()
    first = tvm.ir.transform.Sequential([unrolled, tirx.transform.StmtSimplify()])
    common = tvm.ir.transform.Sequential([tirx.transform.CommonSubexprElim(), _each(with_plain_truth_vectors)])
    passes = [
        tirx.transform.BF16ComputeLegalize(),
        tirx.transform.NarrowDataType(pointer_bits),
        s_tir.transform.LoopPartition(),
        _where(True, first) if is_open else first,
        tirx.transform.prim_func_pass(_vectorize, opt_level=0),
        *([] if is_open else [s_tir.transform.HoistIfThenElse()]),
        s_tir.transform.RenormalizeSplitPattern(),
        tirx.transform.StmtSimplify(),
        *([_where(False, unrolled)] if is_open else [tirx.transform.RemoveNoOp()]),
        s_tir.transform.RewriteUnsafeSelect(),
        _where(True, common) if is_open else common,
        *([tirx.transform.prim_func_pass(_check, opt_level=0)] if is_checked else []),
        tirx.transform.SplitHostDevice(),
        tirx.transform.MakePackedAPI(),
        tirx.transform.BF16StorageLegalize(),
    ]

    def last() -> tvm.transform.Pass:
        builtins, intrinsics = tirx.transform.LowerTVMBuiltin(), tirx.transform.LowerIntrin()
        if not is_reproducible:
            return tvm.ir.transform.Sequential([builtins, intrinsics])
        plain = map(_each, (with_plain_conversions, with_plain_functions, with_fences))
        return tvm.ir.transform.Sequential([builtins, *plain, intrinsics])  # the last would make multiply-adds

    return tvm.ir.transform.Sequential(passes), last, last


def _each(change: Callable[[tirx.PrimFunc], tirx.PrimFunc]) -> tvm.transform.Pass:
    """A pass over each function."""
    return tirx.transform.prim_func_pass(lambda func, _module, _context: change(func), opt_level=0)


def _where(chooses: bool, change: tvm.transform.Pass) -> tvm.transform.Pass:
    """A pass over the functions in which values depend on conditions, and over those that do not say; or the others."""

    def changed(func: tirx.PrimFunc, _module: tvm.IRModule, _context: tvm.transform.PassContext) -> tirx.PrimFunc:
        concerned = bool(func.attrs.get(CONDITIONAL_VALUES, True)) == chooses
        return change(tvm.IRModule({"kernel": func}))["kernel"] if concerned else func

    return tirx.transform.prim_func_pass(changed, opt_level=0)


_FIXED_LENGTHS = tvm.target.Target("llvm")  # of vectors: it has no scalable ones

# LLVM compares vectors with themselves, too. TVM else takes a vector apart for it, and loses the values that a
# reduction of pairs binds to names.
register_op_attr("tirx.isnan", "TVectorizable", True)


def _vectorize(func: tirx.PrimFunc, module: tvm.IRModule, context: tvm.transform.PassContext) -> tirx.PrimFunc:
    """TVM's own pass, which would else make vectors of unknown length for RISC-V: those do not stay in registers."""
    target = func.attrs["target"]
    fixed = tvm.IRModule({"kernel": func.with_attr("target", _FIXED_LENGTHS)})
    return with_masks(tirx.transform.VectorizeLoop(True)(fixed)["kernel"].with_attr("target", target))


def _check(func: tirx.PrimFunc, _module: tvm.IRModule, _context: tvm.transform.PassContext) -> tirx.PrimFunc:
    return with_checks(func) if CHECKED in func.attrs else func


_PIPELINES = {
    (bits, is_open, is_checked, is_reproducible): f"nnefc{bits}{is_open}{is_checked}{is_reproducible}"
    for bits in (32, 64)
    for is_open in (False, True)
    for is_checked in (False, True)
    for is_reproducible in (False, True)
}
for _key, _name in _PIPELINES.items():
    tirx.register_tir_pipeline(_name, functools.partial(_lowering, *_key))
