"""Compiles a network to static libraries for several microcontrollers, with one header for all of them.

Headers for several processors differ in the sizes of the arena and of the constants. The one of a package has the
largest arena, which is enough for each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from nnefc.driver.packages.networks import Networks
from nnefc.support.diagnostics import CompileError
from nnefc.targets.machine.any_target import parse_any_target

__all__ = ["CORES", "RISCV", "SOFTFP", "libraries_and_header", "one_header"]

CORES = ("cortex-m0plus", "cortex-m3", "cortex-m4", "cortex-m7", "cortex-m33", "cortex-m55", "cortex-m85")
"""Targets with Arm's cores."""

RISCV = "riscv32imc"

SOFTFP: Mapping[str, str] = {
    core: f"llvm -mtriple=thumb-none-eabi -mcpu={core}" for core in ("cortex-m4", "cortex-m7", "cortex-m33")
}
"""Targets with a unit for floats that pass floats in registers for integers, by those that do not."""


def libraries_and_header(
    networks: Networks, more: Mapping[str, str] | None = None, chosen: Sequence[str] | None = None
) -> tuple[dict[str, bytes], bytes]:
    """Returns the static libraries by their targets, and the header.

    Args:
        networks: the model.
        more: further targets, by names for them.
        chosen: the targets of the package that have a library; None: all.

    Raises:
        CompileError: a target with an operating system, or as :func:`nnefc.compile`.
    """
    named = {target: target for target in chosen or networks.targets} | dict(more or {})
    libraries, headers = {}, {}
    for name, target in named.items():
        if parse_any_target(target).host.hosted:
            raise CompileError(
                f"the target {target!r} has an operating system, and the package is for machines without one",
                hint=f"such as {', '.join((*CORES, RISCV))}",
            )
        files = networks.exported(target, f"lib{networks.name}.a", named=True)
        libraries[name] = files[f"lib{networks.name}.a"]
        headers[name] = files[f"{networks.name}.h"].decode()
    return libraries, one_header(headers).encode()


def one_header(headers: Mapping[str, str]) -> str:
    """Returns the header with the largest arena, whose first line names all targets.

    Raises:
        CompileError: the networks differ in more than sizes.
    """
    arenas = {target: int(_ARENA.findall(text)[0]) for target, text in headers.items()}
    if len({_without_sizes(text) for text in headers.values()}) > 1:
        raise CompileError(
            "the functions of the network are not the same for all targets of the package",
            hint="write a package for each: --targets NAME",
        )
    chosen = max(arenas, key=lambda target: arenas[target])
    first, _, tail = headers[chosen].partition("\n")
    return f"{first.rpartition(', for ')[0]}, for {', '.join(headers)} */\n{tail}"


_ARENA = re.compile(r"^#define \w+_ARENA_BYTES (\d+)", re.M)
_SIZES = re.compile(r"^(#define \w+_(?:ARENA|CONSTANT)_BYTES) \d+", re.M)


def _without_sizes(header: str) -> str:
    return _SIZES.sub(r"\1", header.partition("\n")[2])
