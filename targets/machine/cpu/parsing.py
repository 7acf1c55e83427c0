"""Parses targets from their names, from TVM's target options, and from files."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from tvm.target import codegen

from nnefc.support.diagnostics import CompileError, warn
from nnefc.targets.machine.cpu.architecture import ARCHITECTURES, Architecture, architecture_of
from nnefc.targets.machine.cpu.costs import microarchitecture_of
from nnefc.targets.machine.cpu.llvm import (
    checked_attributes,
    cpus_of,
    features_of,
    length_of_vectors,
    own_features,
    switched_off,
)
from nnefc.targets.machine.cpu.target import CPU_PRECISIONS, Target
from nnefc.targets.machine.cpu.this_machine import hidden_features, own_caches, own_triple, own_vector_length
from nnefc.targets.machine.llvm_quirks import is_unrolled_too_far, prefers_half_vectors
from nnefc.targets.machine.named_targets import NAMED_TARGETS
from nnefc.targets.machine.system import System, system_of, zig_target
from nnefc.targets.machine.target_hints import instead_of, near

__all__ = ["baseline_target", "of_processor", "parse_target"]


def parse_target(text: str) -> Target:
    """Returns the target called `text`.

    It is `llvm` or `native` (this machine, all its features), a name of `nnefc targets`, LLVM's name of a processor, a
    string in TVM's manner such as `llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+dotprod`, or the name of a
    JSON file, see :func:`_from_file`. `-precision=bf16` may follow each of these.

    Raises:
        CompileError: no such target, CPU or feature.
    """
    text, precision, asked = text.partition(" -precision=")
    if precision:
        if asked not in CPU_PRECISIONS:
            raise CompileError(
                f"unknown precision {asked!r} of target {text!r}",
                hint=near(asked, CPU_PRECISIONS, f"choose one of {', '.join(CPU_PRECISIONS)}"),
            )
        return parse_target(text).with_precision(asked)
    if text.endswith(".json"):
        return _from_file(text)
    try:
        kind, *options = shlex.split(text) or [""]
    except ValueError as error:
        raise CompileError(f"target {text!r} ends inside a quotation") from error
    if kind in ("llvm", "native"):
        return _from_options(text, options)
    if options:
        raise CompileError(f"unknown target {text!r}", hint="options such as -mcpu=NAME follow the word llvm")
    for known in NAMED_TARGETS:
        if known.name == kind:
            return _cross(text, known.triple, known.cpu, known.attributes)
    for architecture in ARCHITECTURES:  # the first that has such a processor
        if (
            architecture.hosted
            and kind != architecture.cpu
            and kind in cpus_of(f"{architecture.llvm}-unknown-linux-gnu")
        ):
            return _cross(text, f"{architecture.llvm}-linux-gnu", kind)
    raise CompileError(f"unknown target {text!r}", hint=_hint(kind))


def _hint(name: str) -> str:
    """Suggests a target for a name that is not one."""
    if _is_triple(name):
        return f'triples follow an option: say "llvm -mtriple={name}"'
    processors = [cpu for each in ARCHITECTURES for cpu in cpus_of(f"{each.llvm}-unknown-linux-gnu")]
    names = ["llvm", "native", "cuda", *(known.name for known in NAMED_TARGETS), *processors]
    return instead_of(name) or near(name, names, "`nnefc targets` lists them; 'llvm' is this machine")


def _is_triple(name: str) -> bool:
    try:
        return bool(architecture_of(name) and system_of(name))
    except CompileError:
        return False


def baseline_target(name: str) -> Target:
    """Every machine of this one's instruction set and system, the oldest too.

    Raises:
        CompileError: nnefc does not know this machine.
    """
    return _cross(name, own_triple(name), "")


def of_processor(target: Target, name: str, cpu: str, attributes: tuple[str, ...] = ()) -> Target:
    """Another processor, LLVM's `cpu` with `attributes`, of the same instruction set under the same system."""
    return replace(_cross(name, target.triple, cpu, attributes), triple=target.triple, zig_target=target.zig_target)


def _from_options(text: str, options: Sequence[str]) -> Target:
    given = {}
    for option in options:
        key, _, value = option.partition("=")
        if key not in ("-mtriple", "-mcpu", "-mattr") or not value:
            raise CompileError(
                f"unknown option {option!r} of target {text!r}",
                hint="the options are -mtriple=TRIPLE, -mcpu=NAME, -mattr=+FEATURE,-FEATURE and -precision=bf16",
            )
        if key in given:
            raise CompileError(
                f"the target {text!r} says {key} twice", hint="say it once; features are -mattr=+FEATURE,-FEATURE"
            )
        given[key] = value
    attributes = tuple(given["-mattr"].split(",")) if "-mattr" in given else ()
    if "-mtriple" in given:
        return _cross(text, given["-mtriple"], given.get("-mcpu", ""), attributes)
    triple = own_triple(text)
    if "-mcpu" in given:
        return _cross(text, triple, given["-mcpu"], attributes)
    cpu = codegen.llvm_get_system_cpu()
    own = (*hidden_features(triple, cpu), *own_vector_length(triple))
    return _with_caches(_cross(text, triple, cpu, (*own, *attributes)), own_caches())


_LARGEST_FILE = 64 << 10

_MEMBERS: dict[str, type] = {
    "name": str,
    "triple": str,
    "cpu": str,
    "attributes": list,
    "l1_bytes": int,
    "l2_bytes": int,
}


def _from_file(path: str) -> Target:
    """Returns a target from a JSON file: an object with `triple` and, as wanted, `name`, `cpu`, `attributes` and cache
    sizes.

    {"name": "our board", "triple": "aarch64-linux-gnu", "cpu": "cortex-a76", "attributes": ["-dotprod"]}
    """
    try:
        with Path(path).open("rb") as file:
            content = file.read(_LARGEST_FILE + 1)
        members: Any = json.loads(content) if len(content) <= _LARGEST_FILE else None
    except OSError as error:
        raise CompileError(f"cannot read the target {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise CompileError(f"the target {path} is not JSON: {error}") from error
    if not isinstance(members, dict):
        raise CompileError(f"the target {path} is not one JSON object", hint='write {"triple": "aarch64-linux-gnu"}')
    for name, value in members.items():
        if name not in _MEMBERS:
            raise CompileError(f"unknown member {name!r} of the target {path}", hint=near(name, list(_MEMBERS), ""))
        if type(value) is not _MEMBERS[name] or (isinstance(value, list) and any(type(v) is not str for v in value)):
            wanted = {str: "a string", list: "a list of strings", int: "a whole number"}[_MEMBERS[name]]
            raise CompileError(f"{name} of the target {path} is not {wanted}")
    if "triple" not in members:
        raise CompileError(f"the target {path} has no triple", hint='such as "triple": "aarch64-linux-gnu"')
    sizes = {name: members[name] for name in ("l1_bytes", "l2_bytes") if name in members}
    for name, size in sizes.items():
        if not 1 << 10 <= size <= 1 << 30:
            raise CompileError(f"{name} of the target {path} is {size}, not a number of bytes from 1 KiB to 1 GiB")
    name = members.get("name", Path(path).stem)
    found = _cross(name, members["triple"], members.get("cpu", ""), tuple(members.get("attributes", ())))
    return _with_caches(found, sizes)


def _with_caches(target: Target, sizes: Mapping[str, int]) -> Target:
    """`target` with `l1_bytes` or `l2_bytes` of its own."""
    costs = target.costs
    l1_bytes, l2_bytes = sizes.get("l1_bytes", costs.l1_bytes), sizes.get("l2_bytes", costs.l2_bytes)
    return replace(target, costs=replace(costs, l1_bytes=l1_bytes, l2_bytes=l2_bytes))


def _cross(name: str, triple: str, cpu: str, attributes: tuple[str, ...] = ()) -> Target:
    """Returns the machine of `triple` with LLVM's processor `cpu`, "" for the oldest and features on or off."""
    architecture, system = architecture_of(triple), system_of(triple)
    if architecture.hosted != system.hosted:
        raise CompileError(
            f"nnefc knows no {architecture.name} {'without' if architecture.hosted else 'with'} an operating system, "
            f"as in the triple {triple!r}",
            hint="triples without one are thumb-none-eabihf, thumb-none-eabi and riscv32-none-elf",
        )
    llvm_triple = f"{architecture.llvm}-{system.llvm}"
    cpu = cpu or architecture.cpu
    known = cpus_of(llvm_triple)
    if cpu not in known:
        raise CompileError(
            f"unknown CPU {cpu!r} in target {name!r}",
            hint=near(cpu, known, f"use LLVM's names, such as {architecture.cpu}"),
        )
    if cpu == architecture.cpu:
        attributes = (*architecture.attributes, *attributes)
    length, attributes = length_of_vectors(name, architecture, cpu, attributes)
    own, attributes = own_features(name, architecture, attributes)
    available = features_of(
        llvm_triple, cpu, checked_attributes(name, architecture, llvm_triple, cpu, attributes), architecture.abi
    )
    available |= own
    if length in architecture.lengths:
        available |= {length}
    missing = [feature for feature in architecture.required if feature not in available]
    if missing:
        raise CompileError(
            f"target {name!r} lacks {', '.join(missing)}, which nnefc's code needs", hint=instead_of(cpu) or None
        )
    vectors = architecture.vectors(available)
    if not vectors.scale:
        available -= {length}
    features = tuple(feature for feature in architecture.checked if feature in available)
    surely_there = (*architecture.attributes, *(f"+{feature}" for feature in architecture.known_to_llvm(features)))
    tiles = tuple(name for name in architecture.tiles if name in available and system.name.startswith("linux"))
    _warn_of_unused(name, architecture, attributes, {*features, *tiles, *architecture.required})
    costs = microarchitecture_of(architecture.name, cpu).costs(vectors.bytes)
    if is_unrolled_too_far(architecture.name, cpu):
        cpu, attributes = architecture.cpu, surely_there
    surely_there += tuple(f"+{name}" for name in tiles)
    attributes += switched_off(architecture, llvm_triple, cpu, attributes, surely_there)
    if prefers_half_vectors(architecture.name, vectors.bytes):
        attributes += ("-prefer-256-bit",)
    return Target(
        name=name,
        triple=llvm_triple,
        cpu=cpu,
        attributes=attributes,
        features=features,
        vectors=vectors,
        costs=costs,
        threads=system.threads or _SHARED_MEMORY in features,
        hosted=system.hosted,
        zig_cpu=_runtime_cpu(system, cpu, attributes, available, _tried(architecture, own)),
        pointer_bits=architecture.pointer_bits,
        zig_target=zig_target(architecture.name, system),
        abi=architecture.abi,
        tiles=tiles,
    )


def _warn_of_unused(name: str, architecture: Architecture, attributes: Sequence[str], used: Set[str]) -> None:
    """Warns of features that a target asks for and no code here uses, such as pointer authentication of Arm."""
    asked = {attribute[1:] for attribute in attributes if attribute[:1] == "+"}
    asked -= {attribute[1:] for attribute in architecture.attributes}
    asked -= {newer for newer, older in architecture.includes.items() if older in used}
    unused = sorted(each for each in asked - used if not re.fullmatch(architecture.tuning, each))
    if unused:
        warn(f"target {name!r}: no code uses {', '.join(unused)} yet; the library is as it would be without")


_SHARED_MEMORY = "atomics"
"""The feature of WebAssembly that lets several instances of a module, each a thread, work on one memory."""


def _tried(architecture: Architecture, own: Set[str]) -> tuple[str, ...]:
    """Features of LLVM's with the instructions that tell whether a machine has those of our own."""
    return (*architecture.required, *sorted({architecture.own[name] for name in own})) if own else ()


def _runtime_cpu(
    system: System, cpu: str, attributes: tuple[str, ...], available: Set[str], tried: Sequence[str]
) -> str:
    """zig's name of the oldest processor that the runtime shall run on.

    Args:
        tried: features whose instructions the runtime tries out.
    """
    if not system.hosted:
        return _zig_cpu(cpu, attributes, "vfp2sp" in available)
    memory = f"+{_SHARED_MEMORY}+bulk_memory" if _SHARED_MEMORY in available else ""
    return _zig_cpu(f"baseline{memory}", tuple(f"+{name}" for name in tried), False)


def _zig_cpu(cpu: str, attributes: tuple[str, ...], has_floats: bool) -> str:
    """zig's name of a processor with these features; both have underscores where LLVM's names have others.

    Its processors come without their units for floats.
    """
    words = [cpu.replace("-", "_"), *["+vfp4d16sp"] * has_floats]
    return "".join([*words, *(re.sub(r"(?<=.)[-.]", "_", attribute) for attribute in attributes)])
