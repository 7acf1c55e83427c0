"""Looks up LLVM's names of processors and features, and configures code generation for them."""

from __future__ import annotations

import functools
import re
from typing import Any

import tvm
from tvm.target import codegen

from nnefc.support.diagnostics import CompileError
from nnefc.targets.machine.cpu.architecture import Architecture
from nnefc.targets.machine.llvm_quirks import needs_hard_floats
from nnefc.targets.machine.target_hints import near

__all__ = [
    "checked_attributes",
    "cpus_of",
    "features_of",
    "length_of_vectors",
    "llvm_config",
    "own_features",
    "switched_off",
]


def checked_attributes(
    name: str, architecture: Architecture, triple: str, cpu: str, attributes: tuple[str, ...]
) -> tuple[str, ...]:
    """Checks that each attribute is `+` or `-` and a feature that LLVM knows: LLVM ignores others."""
    for attribute in attributes:
        if attribute[:1] not in ("+", "-") or not attribute[1:].replace("-", "").replace(".", "").isalnum():
            raise CompileError(
                f"attribute {attribute!r} of target {name!r} is not of the form +FEATURE or -FEATURE",
                hint=f"say +{attribute} or -{attribute}" if attribute[:1].isalnum() else None,
            )
        if attribute[1:] not in features_of(triple, cpu, (f"+{attribute[1:]}",), architecture.abi):
            known = {feature for each in cpus_of(triple) for feature in features_of(triple, each, (), architecture.abi)}
            raise CompileError(
                f"unknown feature {attribute[1:]!r} in target {name!r}",
                hint=near(attribute[1:], sorted(known), "use LLVM's names"),
            )
    return attributes


def length_of_vectors(
    name: str, architecture: Architecture, cpu: str, attributes: tuple[str, ...]
) -> tuple[str, tuple[str, ...]]:
    """Returns the vector length that code is made for, "" for any or if all are alike, and LLVM's attributes."""
    lengths = architecture.lengths
    asked = {attribute[1:]: attribute[:1] for attribute in attributes if attribute[1:] in lengths}
    tail = tuple(attribute for attribute in attributes if attribute[1:] not in lengths)
    named = [length for length, sign in asked.items() if sign == "+"]
    if len(named) > 1:
        raise CompileError(
            f"target {name!r} has vectors of several lengths, {' and '.join(named)}", hint="say one of these"
        )
    own = [length for length, cpus in lengths.items() if cpu in cpus and length not in asked]
    return (*named, *own, "")[0], (*tail, *["+sve"] * bool(named))


def own_features(
    name: str, architecture: Architecture, attributes: tuple[str, ...]
) -> tuple[set[str], tuple[str, ...]]:
    """Returns the requested feature that LLVM does not know, if any, and LLVM's attributes with what it needs.

    Raises:
        CompileError: one is switched off, or several are asked for, of which no machine has two.
    """
    off = next((each[1:] for each in attributes if each[:1] == "-" and each[1:] in architecture.own), None)
    if off is not None:
        raise CompileError(
            f"target {name!r} switches off {off}, which no machine is known to have", hint=f"leave out -{off}"
        )
    asked = [each[1:] for each in attributes if each[:1] == "+" and each[1:] in architecture.own]
    if len(set(asked)) > 1:
        raise CompileError(
            f"target {name!r} has {' and '.join(sorted(set(asked)))}, of which no machine has two",
            hint="say one of these",
        )
    tail = tuple(attribute for attribute in attributes if attribute[1:] not in architecture.own)
    return set(asked), tuple(dict.fromkeys((*tail, *(f"+{architecture.own[each]}" for each in asked))))


def switched_off(
    architecture: Architecture, triple: str, cpu: str, attributes: tuple[str, ...], surely_there: tuple[str, ...]
) -> tuple[str, ...]:
    """Returns attributes that switch off what LLVM could use on a processor and the library does not check.

    What a machine has that passed the check is what the oldest one has, what was checked, and what these imply.
    """
    safe = features_of(triple, architecture.cpu, surely_there, architecture.abi)
    others = features_of(triple, cpu, attributes, architecture.abi) - safe
    return tuple(f"-{name}" for name in sorted(others) if not re.fullmatch(architecture.tuning, name))


def llvm_config(triple: str, cpu: str = "", attributes: tuple[str, ...] = (), abi: str = "") -> dict[str, Any]:
    config: dict[str, Any] = {"kind": "llvm", "mtriple": triple}
    if cpu:
        config["mcpu"] = cpu
    if attributes:
        config["mattr"] = list(attributes)
    if abi:
        config["mabi"] = abi
    if needs_hard_floats(triple):
        config["mfloat-abi"] = "hard"
    return config


@functools.cache
def cpus_of(triple: str) -> tuple[str, ...]:
    return tuple(str(name) for name in codegen.llvm_get_cpu_archlist(tvm.target.Target(llvm_config(triple))))


@functools.lru_cache(1024)  # users choose the attributes
def features_of(triple: str, cpu: str, attributes: tuple[str, ...] = (), abi: str = "") -> frozenset[str]:
    machine = tvm.target.Target(llvm_config(triple, cpu, attributes, abi))
    return frozenset(str(name) for name in codegen.llvm_get_cpu_features(machine))
