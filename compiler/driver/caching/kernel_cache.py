"""Caches the machine code of kernels in a folder of the user's: a network compiles only what no other had before.

Another network of the same family, the same with other weights or with one layer more, has most of its kernels in
common with what was compiled before. A file holds what a kernel's function would tell the compiler, a line of JSON,
and the object file. Its name says what the kernel computes for which target (`passes/kernel_contents.py`), and
which compiler has compiled it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tvm import tirx
from tvm.ir import PointerType, PrimType

from nnefc.ir.constant_evaluation import external_calls
from nnefc.passes.backend import CompiledKernel, KernelUse, LoweredKernel
from nnefc.support.diagnostics import CompileError
from nnefc.support.file_cache import FileCache
from nnefc.symbolic.dims import Dimension, dimension, is_known
from nnefc.symbolic.formulas import formula_of, size_of
from nnefc.symbolic.named_formulas import read_formula, spelled

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

    def add(self, kernels: Iterable[LoweredKernel], object_of: Callable[[str], bytes]) -> None:
        """Adds kernels that this compilation has lowered; a folder that cannot be written stays as it is.

        Args:
            kernels: of a program.
            object_of: returns the object of a kernel by its symbol.
        """
        contents = {}
        for kernel in kernels:
            head = _head(kernel) if kernel.symbol and kernel.compiled is None else None
            if head is not None:
                contents[self._name(kernel.symbol)] = head + b"\n" + object_of(kernel.symbol)
        with contextlib.suppress(CompileError):
            self._files.add_contents(contents)

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
