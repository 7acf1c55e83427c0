"""Describes processors for which networks are C source: any that a C compiler generates code for.

    generic-c                    no instructions that C has no operators for
    generic-c -mcpu=cortex-m4    the DSP instructions of Arm, behind one macro

Kernels are scheduled for a processor with scalar registers, 32-bit addresses and one thread: the code is the same for
all.
"""

from __future__ import annotations

from dataclasses import replace

from nnefc.support.diagnostics import CompileError
from nnefc.targets.machine.cpu.architecture import Vectors
from nnefc.targets.machine.cpu.parsing import parse_target
from nnefc.targets.machine.cpu.target import Target
from nnefc.targets.machine.named_targets import C_SOURCE, NAMED_TARGETS
from nnefc.targets.machine.target_hints import near

__all__ = ["c_target_of", "parse_c_target"]

_MODEL = "cortex-m4"
"""The processor whose costs schedules are made for."""

_REGISTERS = Vectors(16, 8, fused=False, are_scalars=True)
"""32 scalar registers, four of them at a time."""

_OPTION = "-mcpu="
_DSP = "dsp"


def parse_c_target(text: str) -> Target:
    """Returns the machine of `generic-c`, with `-mcpu=NAME` for a microcontroller's own instructions.

    Raises:
        CompileError: another option, or a processor that is no microcontroller.
    """
    _, *options = text.split()
    for option in options:
        if not option.startswith(_OPTION):
            raise CompileError(
                f"unknown option {option!r} of target {text!r}", hint=f"the option is {_OPTION}cortex-m4"
            )
    if len(options) > 1:
        raise CompileError(f"the target {text!r} says {_OPTION} twice", hint="say it once")
    cpu = options[0].removeprefix(_OPTION) if options else ""
    features = () if not cpu else _features(text, cpu)
    return replace(
        parse_target(_MODEL), name=text, features=features, vectors=_REGISTERS, c_source=True, zig_cpu="baseline"
    )


def _features(text: str, cpu: str) -> tuple[str, ...]:
    """Returns the features of a microcontroller that C source may use."""
    known = {target.name: target for target in NAMED_TARGETS if not target.hosted}
    if cpu not in known:
        raise CompileError(
            f"C source has no instructions of {cpu!r}, in the target {text!r}",
            hint=near(cpu, sorted(known), f"choose one of {', '.join(sorted(known))}, or {C_SOURCE} alone"),
        )
    return (_DSP,) if _DSP in known[cpu].features else ()


def c_target_of(target: str | None) -> str:
    """Returns the target of C source for a target as users name it: `cortex-m4` is `generic-c -mcpu=cortex-m4`.

    Args:
        target: None for none, which any C compiler takes.

    Raises:
        CompileError: a machine whose code is not C source.
    """
    if target is None or target.split()[:1] == [C_SOURCE]:
        return target or C_SOURCE
    if any(known.name == target and not known.hosted for known in NAMED_TARGETS):
        return f"{C_SOURCE} {_OPTION}{target}"
    raise CompileError(
        f"C source has no instructions of the target {target!r}",
        hint=f"leave the target out, for code that any C compiler takes: {C_SOURCE}",
    )
