"""Any machine that nnefc compiles for: a CPU, or GPUs with the CPU that launches their kernels."""

from __future__ import annotations

from typing import TypeAlias

from nnefc.targets.machine.cuda_target import CudaTarget, parse_cuda_target
from nnefc.targets.machine.target import Target, parse_target

__all__ = ["AnyTarget", "parse_any_target"]

AnyTarget: TypeAlias = Target | CudaTarget


def parse_any_target(text: str) -> AnyTarget:
    """The machine called `text`: see :func:`parse_target` and, for `cuda …`, :func:`parse_cuda_target`.

    Raises:
        CompileError: there is no such machine.
    """
    return parse_cuda_target(text) if text.split()[:1] == ["cuda"] else parse_target(text)
