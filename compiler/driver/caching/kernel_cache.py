"""Caches the machine code of kernels in a folder of the user's: a network compiles only what no other had before.

Another network of the same family, the same with other weights or with one layer more, has most of its kernels in
common with what was compiled before. A file holds what a kernel's function would tell the compiler, a line of JSON,
and the object file. Its name says what the kernel computes for which target (`passes/kernel_contents.py`), and
which compiler has compiled it.

The function that calls the kernels, the entry, is another network's too where all but the trained values is equal. Its
file is the object file.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tvm import tirx
from tvm.ir import PointerType, PrimType

from nnefc.ir.constant_evaluation import external_calls
from nnefc.passes.backend import CompiledKernel, KernelUse, LoweredKernel, Settings
from nnefc.passes.kernel_contents import content_of_entry
from nnefc.support.diagnostics import CompileError
from nnefc.support.file_cache import FileCache
from nnefc.symbolic.dims import Dimension, dimension, is_known
from nnefc.symbolic.formulas import formula_of, size_of
from nnefc.symbolic.named_formulas import read_formula, spelled
from nnefc.targets.codegen.cpu.objects import CodeGenerator

__all__ = ["FileKernelCache"]

_DIGITS = 16
"""Of the digest of the compiler."""


class FileKernelCache:
    """Kernels in files."""

    def __init__(self, files: FileCache, compiler: str) -> None:
        """`compiler` identifies the compiler: its versions, and the state of its files."""
        self._files = files
        self._compiler = hashlib.sha256(compiler.encode()).hexdigest()[:_DIGITS]

    def find(self, use: KernelUse, lower: Callable[[], tirx.PrimFunc]) -> LoweredKernel | None:
        """Returns a kernel that was compiled before; None if it is not there.

        Args:
            use: the kernel, with its symbol.
            lower: lowers it to a function of the host.
        """
        found = self._files.read(self._name(use.symbol))
        if found is None:
            return None
        head, _, content = found.partition(b"\n")
        facts: Mapping[str, Any] = json.loads(head)
        sizes = {str(var.name): dimension(var) for var in use.sizes}
        return LoweredKernel(
            None,
            [PointerType(PrimType(dtype)) for dtype in facts["parameters"]],
            _size(facts["workspace"], sizes),
            facts["scratch"],
            features=facts["features"],
            symbol=use.symbol,
            compiled=CompiledKernel(content, facts["rule"], frozenset(facts["calls"]), lower),
        )

    def objects(
        self,
        generator: CodeGenerator,
        kernels: Iterable[LoweredKernel],
        entries: Sequence[tirx.PrimFunc],
        settings: Settings,
    ) -> tuple[bytes, ...]:
        """Returns the objects of some programs: of their entries, then of their kernels. Adds those that this
        compilation has made; a folder that cannot be written stays as it is.

        Args:
            generator: has the kernels already.
            kernels: of the programs.
            entries: of the programs.
            settings: that these are compiled with.
        """
        digests = [content_of_entry(entry, settings) for entry in entries]
        names = [None if digest is None else self._name(f"entry-{digest}") for digest in digests]
        found = [None if name is None else self._files.read(name) for name in names]
        given = (entry if known is None else known for entry, known in zip(entries, found, strict=True))
        made = generator.finish(*given)
        new = {
            name: content
            for name, known, content in zip(names, found, made, strict=False)
            if name is not None and known is None
        }
        for kernel in kernels:
            head = _head(kernel) if kernel.symbol and kernel.compiled is None else None
            if head is not None:
                new[self._name(kernel.symbol)] = head + b"\n" + generator.object_of(kernel.symbol)
        with contextlib.suppress(CompileError):
            self._files.add_contents(new)
        return made

    def _name(self, symbol: str) -> str:
        return f"{symbol}-{self._compiler}"


def _head(kernel: LoweredKernel) -> bytes | None:
    """Returns what is kept of a kernel besides its object; None if its workspace is no formula of its dimensions."""
    assert kernel.host is not None
    workspace: int | str | None
    if is_known(kernel.workspace_bytes):
        workspace = int(kernel.workspace_bytes)
    else:
        sizes = {var: str(var.name) for var in kernel.host.params[len(kernel.parameters) :]}
        formula = formula_of(kernel.workspace_bytes, sizes)
        workspace = None if formula is None else spelled(formula, str)
        if workspace is None or read_formula(workspace) != formula:
            return None
    facts = {
        "parameters": [str(parameter.element_type.dtype) for parameter in kernel.parameters],
        "workspace": workspace,
        "scratch": kernel.scratch_bytes,
        "features": list(kernel.features),
        "rule": kernel.rule,
        "calls": sorted(external_calls(kernel.host)),
    }
    return json.dumps(facts).encode()


def _size(stored: int | str, sizes: Mapping[str, Dimension]) -> Dimension:
    if isinstance(stored, int):
        return stored
    formula = read_formula(stored)
    assert formula is not None, "formulas are tried before they are stored"
    return size_of(formula, sizes.__getitem__)
