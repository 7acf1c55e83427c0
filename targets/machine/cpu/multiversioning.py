"""Describes targets whose libraries have code for several ISA levels (multiversioning).

    nnefc compile model.onnx --target x86-64 --multi -o model.so

makes a library with a program for each of them, which read the same constants. It runs the last one whose instructions
the processor has: see `targets/runtime/levels/`.
"""

from __future__ import annotations

from dataclasses import replace

from nnefc.support.diagnostics import CompileError, silence
from nnefc.targets.machine.cpu.architecture import architecture_of
from nnefc.targets.machine.cpu.isa_levels import LEVELS
from nnefc.targets.machine.cpu.parsing import of_processor
from nnefc.targets.machine.cpu.target import Target

__all__ = ["MULTI", "with_levels"]

MULTI = "-multi"
"""What asks for ISA levels among the words of a target."""


def with_levels(target: Target) -> Target:
    """Returns a target whose libraries have code for all ISA levels that have its features: the first of these is the
    oldest processor that they run on.

    Blocks of layouts are as wide as the widest vectors, so that all read equal constants.

    Raises:
        CompileError: nnefc knows no levels of the instruction set, or none that has these features.
    """
    architecture = architecture_of(target.triple).name
    if architecture not in LEVELS or not target.hosted:
        raise CompileError(
            f"the target {target.name!r} has no levels that one library could have code for",
            hint=f"those of {', '.join(LEVELS)} have",
        )
    off = _left_out(target)
    with silence():  # of levels with features that others, which are switched off, imply
        made = [
            of_processor(target, level.name, level.cpu, (*level.attributes, *off)).with_precision(target.precision)
            for level in LEVELS[architecture]
        ]
    made = [own for own in made if set(own.features) >= set(target.features)]
    if len(made) < 2:
        raise CompileError(
            f"no level above the target {target.name!r} is known",
            hint="name an older processor, the oldest that the library shall run on",
        )
    widest = max(own.vectors.bytes for own in made)
    levels = tuple(replace(own, block_bytes=widest) for own in made)
    return replace(target, name=f"{target.name} {MULTI}", levels=levels)


def _left_out(target: Target) -> tuple[str, ...]:
    """Returns the features that no level shall use: those that the user switched off, not what this machine's system
    hides.
    """
    words = target.name.split()
    own = words[:1] in (["llvm"], ["native"]) and not any(word.startswith("-mattr") for word in words)
    return () if own else tuple(feature for feature in target.attributes if feature.startswith("-"))
