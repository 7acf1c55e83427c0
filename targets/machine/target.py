"""What the code is for: a machine's instruction set, its vector registers and caches, and how to link for it.

Passes and schedule rules ask a :class:`Target`; nothing in the compiler assumes the machine that it runs on.
"""

from __future__ import annotations

import functools
import json
import platform
import re
import shlex
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import tvm
from tvm.target import codegen

from nnefc.diagnostics import CompileError
from nnefc.element_types import bits_of
from nnefc.targets.machine.architecture import ARCHITECTURES, Architecture, architecture_of
from nnefc.targets.machine.costs import Costs, microarchitecture_of
from nnefc.targets.machine.named import NAMED_TARGETS
from nnefc.targets.machine.spellings import instead_of, near
from nnefc.targets.machine.system import FileFormat, System, format_of, system_of, zig_target

__all__ = ["HALF_FLOATS", "KEPT_WIDE", "PRECISIONS", "Target", "baseline_target", "of_processor", "parse_target"]

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
"""What contractions multiply, where a machine has a choice; all sums are float32."""

_OWN_PRECISIONS = ("fp32", "bf16", "fp16")  # those of CPUs

HALF_FLOATS = {"bf16": "bfloat16", "fp16": "float16"}
"""The types of operands of the narrow precisions."""

KEPT_WIDE = ("first", "last")
"""Contractions that may be left out of a narrow precision, besides those that are named."""


_WIDEN_HALVES = ("f16c", "avx512f", "vfp4", "fp-armv8", "zvfhmin")
"""Features with instructions that convert vectors of float16 to float32; all of 64-bit Arm has them."""


_PAIR_BYTES, _PAIRS = 8, 5
"""Of registers for integers and addresses, two at a time: of 13, some hold what is multiplied, and where it is."""

_ENGINE_SUMS = 13
"""Registers of an engine of WebAssembly that sums of integers, their operands, and what each of them is scaled by after
the loop may take: the others hold products on their way, and limits."""

_ENGINE_PRODUCTS, _ENGINE_LATENCY = 1, 4
"""Products of integers that it begins in a cycle, with what widens them, and cycles until the next addition."""


@dataclass(frozen=True)
class Target:
    """A CPU to compile for.

    Attributes:
        name: how the user called it, in the library's description.
        triple: LLVM's name of the machine.
        cpu: LLVM's name of the processor that code is made for.
        attributes: LLVM features switched on (`+x`) or off (`-x`) besides those of `cpu`.
        features: LLVM features that the code may use beyond what every machine of the architecture has; a library
            refuses a machine that lacks one.
        vector_bytes: width of a vector register.
        vector_registers: how many there are.
        kept_registers: of these, those that hold sums, their operands, and what is read behind their loop; where these
            need more, sums are spilled in each round. 0 if what is read behind takes none.
        fused: whether one instruction multiplies and adds.
        by_lane: whether it multiplies a vector by any one lane of another.
        by_scalar: whether it multiplies a vector by a number from a register that is none of vectors.
        long_products: whether one instruction multiplies vectors of bytes to numbers of 16 bits, and one adds these to
            numbers of 32.
        group: registers of the machine that a vector register is made of.
        costs: what instructions on such vectors, and memory, cost on its cores.
        threads: whether the system has threads.
        pointer_bits: size of a pointer, and of C's size_t.
        hosted: whether it has an operating system.
        zig_target: the linker's name of the machine.
        zig_cpu: its name of the oldest processor that the runtime shall run on.
        abi: LLVM's name of the calling convention, where the triple does not tell.
        precision: what contractions multiply, one of PRECISIONS.
        keep_wide: contractions that multiply float32 nevertheless: some of KEPT_WIDE, and patterns of the names of
            their results.
        scale: as of :class:`Vectors`.
        tiles: LLVM features of its unit that multiplies matrices, if it has one: kernels that use it need them, besides
            `features`.
        emulates_tiles: whether functions in C stand for that unit's instructions, for tests on machines without it.
        block_bytes: width of the blocks of numbers that layouts are made of, at least that of a vector register; 0 for
            one as wide.
        small: whether code shall be small rather than fast.
        patches: whether the first layers are computed a few rows at a time, for less memory.
        reproducible: whether results shall have the same bits as on every other machine: see `machine/common.py`.
        levels: if a library shall have code for several kinds of processors, each of them, from the oldest on.
    """

    name: str
    triple: str
    cpu: str
    attributes: tuple[str, ...]
    features: tuple[str, ...]
    vector_bytes: int
    vector_registers: int
    zig_target: str
    costs: Costs
    kept_registers: int = 0
    fused: bool = True
    by_lane: bool = False
    by_scalar: bool = False
    long_products: bool = False
    group: int = 1
    scale: int = 0
    threads: bool = True
    hosted: bool = True
    zig_cpu: str = "baseline"
    pointer_bits: int = 64
    abi: str = ""
    precision: str = PRECISIONS[0]
    keep_wide: tuple[str, ...] = ()
    tiles: tuple[str, ...] = ()
    emulates_tiles: bool = False
    block_bytes: int = 0
    small: bool = False
    patches: bool = False
    reproducible: bool = False
    levels: tuple[Target, ...] = ()

    backend = "cpu"

    @property
    def host(self) -> Target:
        """The CPU that runs the library: this one."""
        return self

    @property
    def format(self) -> FileFormat:
        """How its libraries are stored."""
        return format_of(self.zig_target)

    @property
    def size_type(self) -> str:
        """The type of C's size_t; signed, for TVM has few uses for others."""
        return f"int{self.pointer_bits}"

    def lanes(self, dtype: str) -> int:
        """Elements of `dtype` in one vector register."""
        return max(1, self.vector_bytes * 8 // bits_of(dtype))

    @property
    def summed_bytes(self) -> int:
        """Bytes that one instruction multiplies with as many others, adding the products to one sum; 0 without any."""
        return self.vector_bytes if "mve" in self.features else 0

    def block_lanes(self, dtype: str) -> int:
        """Elements of `dtype` in one block of a layout: whole vector registers."""
        return max(self.lanes(dtype), self.block_bytes * 8 // bits_of(dtype))

    def for_vectors(self, size: int) -> Target:
        """The same machine, of whose vectors `size` bytes are used: where they are groups, it has more smaller ones."""
        less = max(1, min(self.vector_bytes // size, self.group)) if size else 1  # sums may be wider than vectors
        return replace(
            self,
            vector_bytes=self.vector_bytes // less,
            vector_registers=self.vector_registers * less,
            group=self.group // less,
        )

    def for_sums(self, dtype: str, count: int = 1) -> Target:
        """The same machine, with the registers that hold sums of `dtype`, for integers may have others than floats;
        a vector of sums takes `count` of them."""
        if count > 1:
            return replace(self, vector_registers=self.vector_registers // count)
        if self.format is FileFormat.WASM and dtype == "int32":
            costs = replace(self.costs, multiply_adds=_ENGINE_PRODUCTS, latency=_ENGINE_LATENCY)
            return replace(self, kept_registers=_ENGINE_SUMS, costs=costs)
        if self.hosted or "mve" in self.features or dtype != "int32":
            return self
        return replace(self, vector_bytes=_PAIR_BYTES, vector_registers=_PAIRS, fused=True)

    def with_precision(self, precision: str) -> Target:
        """The same machine, asked for one of PRECISIONS.

        Raises:
            CompileError: CPUs do not have it.
        """
        if precision not in _OWN_PRECISIONS:
            raise CompileError(
                f"code for the target {self.name!r} has no precision {precision}",
                hint=f"that is for the target cuda: choose one of {', '.join(_OWN_PRECISIONS)}",
            )
        name = re.sub(r" -precision=\w+", "", self.name)
        name += f" -precision={precision}" if precision != PRECISIONS[0] else ""
        levels = tuple(level.with_precision(precision) for level in self.levels)
        return replace(self, name=name, precision=precision, levels=levels)

    @property
    def half_float(self) -> str | None:
        """The type that contractions multiply, if that is narrower than float32."""
        return HALF_FLOATS.get(self.precision)

    def with_wide(self, contractions: Sequence[str]) -> Target:
        """The same machine, with contractions that multiply float32 whatever its precision is."""
        levels = tuple(level.with_wide(contractions) for level in self.levels)
        return replace(self, keep_wide=tuple(contractions), levels=levels)

    def made_small(self) -> Target:
        """The same machine, for which code shall be small rather than fast.

        Raises:
            CompileError: a machine whose libraries are there for threads.
        """
        if "+atomics" in self.zig_cpu:
            raise CompileError(
                f"small libraries have one thread, and those for {self.name} have several",
                hint="choose the target without threads",
            )
        return replace(self, small=True, levels=tuple(level.made_small() for level in self.levels))

    def with_patches(self) -> Target:
        """The same machine, on which the first layers are computed a few rows at a time."""
        return replace(self, patches=True, levels=tuple(level.with_patches() for level in self.levels))

    def made_reproducible(self) -> Target:
        """The same machine, for code whose results have the same bits on all machines.

        Raises:
            CompileError: there is no such code for it.
        """
        if not self.hosted:
            raise CompileError(
                f"libraries for the target {self.name} have no reproducible results: it has no operating system",
                hint="processors of x86-64, Arm, RISC-V and WebAssembly with one have",
            )
        if self.small:
            raise CompileError("a small library has no reproducible results", hint="leave out one of the two options")
        # Vectors of 32-bit Arm take subnormal numbers for zero whatever the mode is.
        attributes = ("-neon",) if self.triple.startswith("armv7") else ()
        levels = tuple(level.made_reproducible() for level in self.levels)
        return replace(self, reproducible=True, attributes=(*self.attributes, *attributes), levels=levels)

    @property
    def runs_alone(self) -> bool:
        """Whether its libraries have one thread, and their code nothing of a runtime's."""
        return self.small or not self.hosted

    def widens(self, dtype: str) -> bool:
        """Whether vectors of `dtype`, at most 16 bits wide, become float32 in one or two instructions."""
        return dtype != "float16" or self.triple.startswith("aarch64") or any(f in self.features for f in _WIDEN_HALVES)

    @property
    def rounds(self) -> bool:
        """Whether one instruction rounds a vector of float32 to whole numbers, or LLVM knows another way."""
        needed = {"armv7a": "fp-armv8", "x86_64": "sse4.1"}.get(self.triple.split("-")[0])
        return needed is None or needed in self.features

    @property
    def rounds_products_once(self) -> bool:
        """Whether a multiply-add rounds once: engines of WebAssembly may round the product too."""
        return self.fused and self.format is not FileFormat.WASM

    @property
    def maps_constants(self) -> bool:
        """Whether constants cost nothing until they are read. Modules of WebAssembly come over a network, and an engine
        copies what is in them."""
        return self.format is not FileFormat.WASM

    @property
    def spills_totals(self) -> bool:
        """Whether what is kept during a loop takes registers from its sums: engines of WebAssembly spill those."""
        return self.format is FileFormat.WASM

    @property
    def assembles_sums(self) -> bool:
        """Whether loops of sums in registers are written in assembler, for LLVM's order of the instructions needs more
        registers: see `passes/tir/assembled_tiles.py`."""
        return self.by_lane or (self.format is FileFormat.WASM and not self.small and not self.kept_registers)

    @property
    def narrows_pairs(self) -> bool:
        """Whether two vectors become one of numbers half as wide: LLVM takes a single one apart on WebAssembly."""
        return self.format is FileFormat.WASM

    @property
    def float_extremes(self) -> bool:
        """Whether one instruction takes the greater of two floats, which is no number where one of them is none."""
        return self.triple.startswith(("aarch64", "armv7a"))

    @property
    def converts_rounding(self) -> str | None:
        """LLVM's name of the instruction set, if its instructions round float32 to even while they become int32."""
        name = self.triple.split("-")[0]
        known = (
            name == "x86_64" or (name == "aarch64" and not self.scale) or (name == "riscv64" and "v" in self.features)
        )
        return name if known else None

    @property
    def parallel_grain(self) -> int:
        """Elements to go through, the reduced ones included, that are worth waking another thread.

        Vector after vector, whose operands come from the second cache, takes about two cycles for each.
        """
        return self.costs.launch_cycles * self.lanes("float32") // 2

    @property
    def resident(self) -> int:
        """Sums in float32 that stay in the first cache while their operands pass by: a sixteenth of it."""
        return self.costs.l1_bytes // 16 // 4

    def to_tvm(self) -> tvm.target.Target:
        """The same machine, as TVM's code generator wants it."""
        # Kernels come scheduled: level 3 makes them no faster, and LLVM 22 then vectorizes some loops with computed
        # indices wrongly for 512 bits. Level 1 copies no loops and joins no scalars to vectors, which takes less room.
        config = {**_llvm(self.triple, self.cpu, self.attributes, self.abi), "opt-level": 1 if self.small else 2}
        if (
            self.format is FileFormat.WASM or not self.hosted
        ):  # TVM takes the same, but says so on stderr for each object
            config["vector-width"] = 8 * self.vector_bytes
        return tvm.target.Target(config)


def parse_target(text: str) -> Target:
    """The target called `text`.

    It is `llvm` or `native` (this machine, all its features), a name of `nnefc targets`, LLVM's name of a processor, a
    string in TVM's manner such as `llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+dotprod`, or the name of a
    JSON file, see :func:`_from_file`. `-precision=bf16` may follow each of these; so may `-emulate=amx`, for tests of
    code for processors with AMX on others.

    Raises:
        CompileError: no such target, CPU or feature.
    """
    text, emulated, unit = text.partition(_EMULATE)
    if emulated:
        return _emulated(parse_target(text + unit))
    text, precision, asked = text.partition(" -precision=")
    if precision:
        if asked not in _OWN_PRECISIONS:
            raise CompileError(
                f"unknown precision {asked!r} of target {text!r}",
                hint=near(asked, _OWN_PRECISIONS, f"choose one of {', '.join(_OWN_PRECISIONS)}"),
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
        if architecture.hosted and kind != architecture.cpu and kind in _cpus(f"{architecture.llvm}-unknown-linux-gnu"):
            return _cross(text, f"{architecture.llvm}-linux-gnu", kind)
    raise CompileError(f"unknown target {text!r}", hint=_hint(kind))


_EMULATE = " -emulate=amx"


def _emulated(target: Target) -> Target:
    if not target.tiles:
        raise CompileError(
            f"the target {target.name!r} has no matrix unit to emulate", hint="such as sapphirerapids -emulate=amx"
        )
    return replace(target, name=target.name + _EMULATE, emulates_tiles=True)


def _hint(name: str) -> str:
    """What may have been meant by a name that is no target."""
    if _is_triple(name):
        return f'triples follow an option: say "llvm -mtriple={name}"'
    processors = [cpu for each in ARCHITECTURES for cpu in _cpus(f"{each.llvm}-unknown-linux-gnu")]
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
    return _cross(name, _own_triple(name), "")


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
        given[key] = value
    attributes = tuple(given["-mattr"].split(",")) if "-mattr" in given else ()
    if "-mtriple" in given:
        return _cross(text, given["-mtriple"], given.get("-mcpu", ""), attributes)
    triple = _own_triple(text)
    if "-mcpu" in given:
        return _cross(text, triple, given["-mcpu"], attributes)
    cpu = codegen.llvm_get_system_cpu()
    own = (*_hidden_features(triple, cpu), *_own_length(triple))
    return _with_caches(_cross(text, triple, cpu, (*own, *attributes)), _own_caches())


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
    """A target from a JSON file: an object with `triple` and, as wanted, `name`, `cpu`, `attributes` and cache sizes.

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
    """The machine of `triple` with LLVM's processor `cpu`, "" for the oldest, with features switched on or off."""
    architecture, system = architecture_of(triple), system_of(triple)
    if architecture.hosted != system.hosted:
        raise CompileError(
            f"nnefc knows no {architecture.name} {'without' if architecture.hosted else 'with'} an operating system, "
            f"as in the triple {triple!r}",
            hint="triples without one are thumb-none-eabihf, thumb-none-eabi and riscv32-none-elf",
        )
    llvm_triple = f"{architecture.llvm}-{system.llvm}"
    cpu = cpu or architecture.cpu
    known = _cpus(llvm_triple)
    if cpu not in known:
        raise CompileError(
            f"unknown CPU {cpu!r} in target {name!r}",
            hint=near(cpu, known, f"use LLVM's names, such as {architecture.cpu}"),
        )
    if cpu == architecture.cpu:
        attributes = (*architecture.attributes, *attributes)
    length, attributes = _length(name, architecture, cpu, attributes)
    available = _features(
        llvm_triple, cpu, _checked(name, architecture, llvm_triple, cpu, attributes), architecture.abi
    )
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
    known_to_llvm = (f"+{feature}" for feature in features if feature not in architecture.lengths)
    surely_there = (*architecture.attributes, *known_to_llvm)
    tiles = tuple(name for name in architecture.tiles if name in available and system.name.startswith("linux"))
    costs = microarchitecture_of(architecture.name, cpu).costs(vectors.bytes)
    if re.fullmatch(architecture.unrolled, cpu):
        cpu, attributes = architecture.cpu, surely_there
    surely_there += tuple(f"+{name}" for name in tiles)
    attributes += _switched_off(architecture, llvm_triple, cpu, attributes, surely_there)
    if vectors.bytes == 64 and architecture.name == "x86_64":  # LLVM prefers 256 bits on some CPUs that have 512
        attributes += ("-prefer-256-bit",)
    return Target(
        name=name,
        triple=llvm_triple,
        cpu=cpu,
        attributes=attributes,
        features=features,
        vector_bytes=vectors.bytes,
        vector_registers=vectors.registers,
        fused=vectors.fused,
        by_lane=vectors.by_lane,
        by_scalar=vectors.by_scalar,
        long_products=vectors.long_products,
        group=vectors.group,
        scale=vectors.scale,
        costs=costs,
        threads=system.threads or _SHARED_MEMORY in features,
        hosted=system.hosted,
        zig_cpu=_runtime_cpu(system, cpu, attributes, available),
        pointer_bits=architecture.pointer_bits,
        zig_target=zig_target(architecture.name, system),
        abi=architecture.abi,
        tiles=tiles,
    )


_SHARED_MEMORY = "atomics"
"""The feature of WebAssembly that lets several instances of a module, each a thread, work on one memory."""


def _runtime_cpu(system: System, cpu: str, attributes: tuple[str, ...], available: Set[str]) -> str:
    """zig's name of the oldest processor that the runtime shall run on."""
    if not system.hosted:
        return _zig_cpu(cpu, attributes, "vfp2sp" in available)
    return f"baseline+{_SHARED_MEMORY}+bulk_memory" if _SHARED_MEMORY in available else "baseline"


def _zig_cpu(cpu: str, attributes: tuple[str, ...], has_floats: bool) -> str:
    """zig's name of a processor with these features; both have underscores where LLVM's names have others.

    Its processors come without their units for floats.
    """
    words = [cpu.replace("-", "_"), *["+vfp4d16sp"] * has_floats]
    return "".join([*words, *(re.sub(r"(?<=.)[-.]", "_", attribute) for attribute in attributes)])


def _checked(
    name: str, architecture: Architecture, triple: str, cpu: str, attributes: tuple[str, ...]
) -> tuple[str, ...]:
    """The attributes, of which each says `+` or `-` and is a feature that LLVM knows; it ignores others."""
    for attribute in attributes:
        if attribute[:1] not in ("+", "-") or not attribute[1:].replace("-", "").replace(".", "").isalnum():
            raise CompileError(
                f"attribute {attribute!r} of target {name!r} is not of the form +FEATURE or -FEATURE",
                hint=f"say +{attribute} or -{attribute}" if attribute[:1].isalnum() else None,
            )
        if attribute[1:] not in _features(triple, cpu, (f"+{attribute[1:]}",), architecture.abi):
            known = {feature for each in _cpus(triple) for feature in _features(triple, each, (), architecture.abi)}
            raise CompileError(
                f"unknown feature {attribute[1:]!r} in target {name!r}",
                hint=near(attribute[1:], sorted(known), "use LLVM's names"),
            )
    return attributes


def _length(
    name: str, architecture: Architecture, cpu: str, attributes: tuple[str, ...]
) -> tuple[str, tuple[str, ...]]:
    """The vector length that code is made for, "" for any or for vectors of one length; and LLVM's attributes."""
    lengths = architecture.lengths
    asked = {attribute[1:]: attribute[:1] for attribute in attributes if attribute[1:] in lengths}
    rest = tuple(attribute for attribute in attributes if attribute[1:] not in lengths)
    named = [length for length, sign in asked.items() if sign == "+"]
    if len(named) > 1:
        raise CompileError(
            f"target {name!r} has vectors of several lengths, {' and '.join(named)}", hint="say one of these"
        )
    own = [length for length, cpus in lengths.items() if cpu in cpus and length not in asked]
    return (*named, *own, "")[0], (*rest, *["+sve"] * bool(named))


def _switched_off(
    architecture: Architecture, triple: str, cpu: str, attributes: tuple[str, ...], surely_there: tuple[str, ...]
) -> tuple[str, ...]:
    """Attributes against everything that LLVM could use on a processor and that nobody would have checked for.

    What a machine has that passed the check is what the oldest one has, what was checked, and what these imply.
    """
    safe = _features(triple, architecture.cpu, surely_there, architecture.abi)
    others = _features(triple, cpu, attributes, architecture.abi) - safe
    return tuple(f"-{name}" for name in sorted(others) if not re.fullmatch(architecture.tuning, name))


def _llvm(triple: str, cpu: str = "", attributes: tuple[str, ...] = (), abi: str = "") -> dict[str, Any]:
    config: dict[str, Any] = {"kind": "llvm", "mtriple": triple}
    if cpu:
        config["mcpu"] = cpu
    if attributes:
        config["mattr"] = list(attributes)
    if abi:
        config["mabi"] = abi
    if triple.endswith("none-eabihf"):  # TVM passes floats otherwise in the registers of integers
        config["mfloat-abi"] = "hard"
    return config


@functools.cache
def _cpus(triple: str) -> tuple[str, ...]:
    return tuple(str(name) for name in codegen.llvm_get_cpu_archlist(tvm.target.Target(_llvm(triple))))


@functools.lru_cache(1024)  # users choose the attributes
def _features(triple: str, cpu: str, attributes: tuple[str, ...] = (), abi: str = "") -> frozenset[str]:
    machine = tvm.target.Target(_llvm(triple, cpu, attributes, abi))
    return frozenset(str(name) for name in codegen.llvm_get_cpu_features(machine))


_OWN_TRIPLES = {
    ("Linux", "x86_64"): "x86_64-linux-gnu",
    ("Linux", "aarch64"): "aarch64-linux-gnu",
    ("Linux", "riscv64"): "riscv64-linux-gnu",
    ("Darwin", "arm64"): "aarch64-macos",
    ("Windows", "AMD64"): "x86_64-windows-gnu",
}


def _own_triple(name: str) -> str:
    own = (platform.system(), platform.machine())
    if own not in _OWN_TRIPLES:
        raise CompileError(
            f"target {name!r} is this machine, {own[1]} with {own[0]}, which nnefc does not know",
            hint="name another: `nnefc targets` lists them",
        )
    return _OWN_TRIPLES[own]


# How /proc/cpuinfo calls features that it does not call as LLVM does.
_FLAGS = {
    "x86_64": {
        "sse3": "pni",
        "sse4.1": "sse4_1",
        "sse4.2": "sse4_2",
        "bmi": "bmi1",
        "lzcnt": "abm",
        "avxvnni": "avx_vnni",
        **{f"amx-{n}": f"amx_{n}" for n in ("tile", "bf16", "int8")},
        **{f"avx512{n}": f"avx512_{n}" for n in ("vnni", "bf16", "vbmi2", "bitalg", "vpopcntdq", "fp16")},
    },
    "aarch64": {
        "dotprod": "asimddp",
        "fullfp16": "asimdhp",
        "fp16fml": "asimdfhm",
        "lse": "atomics",
        "rdm": "asimdrdm",
    },
}


def _hidden_features(triple: str, cpu: str) -> tuple[str, ...]:
    """Features that the CPU's model has and this machine does not show, as a hypervisor may decide."""
    architecture = architecture_of(triple)
    if architecture.name not in _FLAGS:
        return ()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        shown = set(next(line for line in lines if line.startswith(("flags", "Features"))).split())
    except (OSError, StopIteration):
        return ()
    known, flags = _features(triple, cpu), _FLAGS[architecture.name]
    return tuple(
        f"-{name}"
        for name in (*architecture.checked, *architecture.tiles)
        if name in known and flags.get(name, name) not in shown
    )


_OWN_LENGTH = Path("/proc/sys/abi/sve_default_vector_length")
"""Where Linux says how many bytes vectors of this machine have, if their length is not the same on all machines."""


def _own_length(triple: str) -> tuple[str, ...]:
    """Attributes for the vector length of this machine."""
    try:
        own = f"sve{8 * int(_OWN_LENGTH.read_text())}"
    except (OSError, ValueError):
        own = ""
    return tuple(f"{'+' if length == own else '-'}{length}" for length in architecture_of(triple).lengths)


# Linux's numbers of a processor's caches.
_CACHES = {"l1_bytes": 0, "l2_bytes": 2}


def _own_caches() -> dict[str, int]:
    """The sizes of this machine's data caches, as far as it says them."""
    sizes = {}
    for name, index in _CACHES.items():
        try:
            text = Path(f"/sys/devices/system/cpu/cpu0/cache/index{index}/size").read_text().strip()
        except OSError:
            continue
        if text.endswith("K"):
            sizes[name] = int(text.removesuffix("K")) << 10
    return sizes
