"""Detects the machine that the compiler runs on: its triple, its processor's hidden features, and its caches."""

from __future__ import annotations

import platform
from pathlib import Path

from nnefc.support.diagnostics import CompileError
from nnefc.targets.machine.cpu.architecture import architecture_of
from nnefc.targets.machine.cpu.llvm import features_of

__all__ = ["hidden_features", "own_caches", "own_triple", "own_vector_length"]


_OWN_TRIPLES = {
    ("Linux", "x86_64"): "x86_64-linux-gnu",
    ("Linux", "aarch64"): "aarch64-linux-gnu",
    ("Linux", "riscv64"): "riscv64-linux-gnu",
    ("Darwin", "arm64"): "aarch64-macos",
    ("Windows", "AMD64"): "x86_64-windows-gnu",
}


def own_triple(name: str) -> str:
    own = (platform.system(), platform.machine())
    if own not in _OWN_TRIPLES:
        raise CompileError(
            f"target {name!r} is this machine, {own[1]} with {own[0]}, which nnefc does not know",
            hint="name another: `nnefc targets` lists them",
        )
    return _OWN_TRIPLES[own]


def hidden_features(triple: str, cpu: str) -> tuple[str, ...]:
    """Return attributes that switch off features of the CPU model that this machine does not have, as under a
    hypervisor.
    """
    architecture = architecture_of(triple)
    if not architecture.cpuinfo:
        return ()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        shown = set(next(line for line in lines if line.startswith(("flags", "Features"))).split())
    except (OSError, StopIteration):
        return ()
    known, flags = features_of(triple, cpu), architecture.cpuinfo
    return tuple(
        f"-{name}"
        for name in (*architecture.checked, *architecture.tiles)
        if name in known and flags.get(name, name) not in shown
    )


_OWN_LENGTH = Path("/proc/sys/abi/sve_default_vector_length")
"""Where Linux reports the length of SVE vectors in bytes."""


def own_vector_length(triple: str) -> tuple[str, ...]:
    """Return the attributes for the vector length of this machine."""
    try:
        own = f"sve{8 * int(_OWN_LENGTH.read_text())}"
    except (OSError, ValueError):
        own = ""
    return tuple(f"{'+' if length == own else '-'}{length}" for length in architecture_of(triple).lengths)


# Linux's numbers of a processor's caches.
_CACHES = {"l1_bytes": 0, "l2_bytes": 2}


def own_caches() -> dict[str, int]:
    """Returns the sizes of this machine's data caches, as far as Linux reports them."""
    sizes = {}
    for name, index in _CACHES.items():
        try:
            text = Path(f"/sys/devices/system/cpu/cpu0/cache/index{index}/size").read_text().strip()
        except OSError:
            continue
        if text.endswith("K"):
            sizes[name] = int(text.removesuffix("K")) << 10
    return sizes
