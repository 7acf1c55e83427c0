"""Lists the costs of instructions and memory by microarchitecture, under LLVM's names of processors.

Cost models in passes read these numbers, and have none of a processor's own. Sources, by the names used in the table:

- *Agner*: Agner Fog, "Instruction tables" and "The microarchitecture of Intel, AMD and VIA CPUs"
- *uops*: uops.info, measured latencies and throughputs
- *Intel*: Intel 64 and IA-32 Architectures Optimization Reference Manual, the tables of cache parameters
- *AMD*: Software Optimization Guides for families 17h, 19h and 1Ah
- *Arm*: Software Optimization Guides and Technical Reference Manuals of the core
- *LLVM*: the scheduling model of the processor in LLVM
- *measured*: on such a machine, as `benchmarks/peak.py` does

What a core streams from memory depends on the board more than on the core: the orders of magnitude of a typical one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from nnefc.targets.machine.cpu.loop_costs import LOOPS, LoopCosts

__all__ = ["MICROARCHITECTURES", "Costs", "InOrder", "Microarchitecture", "microarchitecture_of"]

_KIB, _MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class InOrder:
    """The issue rules of a core that executes in order, with vectors of 128 bits.

    Attributes:
        floats, integers: cycles until a product is there, products that begin in a cycle, and whether nothing that
            follows may have its result earlier.
        loads: of one, of two and of four vectors by one instruction: cycles until they are there, and until the next
            load begins.
        width: instructions that are issued in a cycle (Arm; Cortex-A510 issues three, of which two use vectors).
    """

    floats: tuple[int, int, bool]
    integers: tuple[int, int, bool]
    loads: tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
    width: int = 2


@dataclass(frozen=True)
class Costs:
    """The throughput of one core per cycle, with vectors of the width that its code uses.

    Attributes:
        multiply_adds: that begin in a cycle; below one where they take several.
        latency: cycles from a multiply-add to one that adds to its result.
        broadcasts: numbers that are loaded into all lanes in a cycle.
        loads, stores: vectors in a cycle, from and to the first cache.
        l1_bytes, l1_ways: data cache of one core, and its associativity.
        l2_bytes: the second cache; of several cores' the share of one.
        l3_bytes: the part of the next, shared cache that one core can use; 0 where there is none.
        l2_bytes_per_cycle: read from the second cache, one line after the other.
        l3_bytes_per_cycle: from the next one; from memory where there is none.
        memory_bytes_per_cycle: from memory.
        launch_cycles: until all threads have begun a kernel and have reported that they have finished it.
        bf16_dots: dot products of pairs of bfloat16 that are made in the time of a multiply-add, if it has any.
        in_order: how instructions wait for those before them; None where they do not.
        line_bytes: of a line of the caches (Intel, AMD, Arm: of all processors with vectors as long, and of nearly all
            others; where lines are longer or shorter, two orders of the same loops differ little).
        cores: that a kernel shall have work for where it leaves a loop over tiles to one (estimate: those of a large
            machine of today that one network runs on).
        loops: what loops cost besides their instructions.
    """

    multiply_adds: float
    latency: int
    broadcasts: float
    loads: float
    stores: float
    l1_bytes: int
    l1_ways: int
    l2_bytes: int
    l3_bytes: int
    l2_bytes_per_cycle: float
    l3_bytes_per_cycle: float
    memory_bytes_per_cycle: float
    launch_cycles: int
    bf16_dots: float = 1.0
    in_order: InOrder | None = None
    line_bytes: int = 64
    cores: int = 32
    loops: LoopCosts = LOOPS

    def of_engine(self, by_llvm: bool) -> Costs:
        """Returns what integers that are multiplied in pairs cost in an engine of WebAssembly.

        Loops in assembler begin two such products in a cycle, as x86 has two pipes for them (uops: `pmaddwd`), and
        those that LLVM wrote one; the next addition follows after four (estimate: a product of three, and an addition).
        """
        return replace(self, multiply_adds=1 if by_llvm else 2, latency=4)

    def bytes_per_cycle(self, size: int) -> float:
        """Returns the bandwidth of reading `size` bytes repeatedly, of the first cache that holds them, or memory."""
        if size <= self.l2_bytes:
            return self.l2_bytes_per_cycle
        return self.l3_bytes_per_cycle if size <= self.l3_bytes else self.memory_bytes_per_cycle


@dataclass(frozen=True)
class Microarchitecture:
    """One row of the table: what a core has, for vectors of any width.

    Attributes:
        name: as its maker calls it, or a family's that is much alike.
        processors: LLVM's names.
        pipes: that can begin a multiply-add, or a multiplication and an addition, in a cycle each.
        pipe_bytes: that all these compute in a cycle.
        load_pipes, load_bytes: the same of loads.
        store_pipes, store_bytes: the same of stores.
        others: as in :class:`Costs`.
    """

    name: str
    processors: tuple[str, ...]
    pipes: int
    pipe_bytes: int
    latency: int
    load_pipes: int
    load_bytes: int
    store_pipes: int
    store_bytes: int
    l1_bytes: int
    l1_ways: int
    l2_bytes: int
    l3_bytes: int
    l2_bytes_per_cycle: float
    l3_bytes_per_cycle: float
    memory_bytes_per_cycle: float
    launch_cycles: int = 2048
    bf16_dots: float = 1.0
    in_order: InOrder | None = None

    def costs(self, vector_bytes: int) -> Costs:
        """Returns the costs for vectors of so many bytes."""
        return Costs(
            multiply_adds=min(self.pipes, self.pipe_bytes / vector_bytes),
            latency=self.latency,
            broadcasts=self.load_pipes,
            loads=min(self.load_pipes, self.load_bytes / vector_bytes),
            stores=min(self.store_pipes, self.store_bytes / vector_bytes),
            l1_bytes=self.l1_bytes,
            l1_ways=self.l1_ways,
            l2_bytes=self.l2_bytes,
            l3_bytes=self.l3_bytes,
            l2_bytes_per_cycle=self.l2_bytes_per_cycle,
            l3_bytes_per_cycle=self.l3_bytes_per_cycle,
            memory_bytes_per_cycle=self.memory_bytes_per_cycle,
            launch_cycles=self.launch_cycles,
            bf16_dots=self.bf16_dots,
            in_order=self.in_order,
        )


# LLVM: its models of these cores. By Arm's guide to Cortex-A55, multiply-adds by element begin once a cycle, not twice
_A53 = InOrder((10, 1, True), (6, 1, True), ((4, 1), (4, 2), (7, 4)))
_A55 = InOrder((4, 1, False), (4, 1, True), ((3, 1), (6, 6), (11, 8)))
_A510 = InOrder((4, 2, True), (4, 2, True), ((2, 1), (3, 1), (4, 1)))

# fmt: off
MICROARCHITECTURES: dict[str, tuple[Microarchitecture, ...]] = {
    # By instruction set; the last row is for all processors that no other one names. After the names: multiply-adds
    # begin in so many pipes, for so many bytes, and take so many cycles; loads and stores likewise; the first cache and
    # its ways; the second and the third one; bytes in a cycle from the second cache, from the third, and from memory.
    "x86_64": (
        # Agner, uops, Intel: multiply-adds on ports 0 and 1, 5 cycles. L2 of 64 bytes a cycle delivers 25 to 29
        Microarchitecture("Haswell", (
            "haswell", "broadwell", "core-avx2", "core_4th_gen_avx", "core_4th_gen_avx_tsx", "core_5th_gen_avx",
            "core_5th_gen_avx_tsx", "x86-64-v3",
        ), 2, 64, 5, 2, 64, 1, 32, 32 * _KIB, 8, 256 * _KIB, 16 * _MIB, 28, 12, 4),
        # Agner, uops, Intel: as before, in 4 cycles
        Microarchitecture("Skylake",
            ("skylake",), 2, 64, 4, 2, 64, 1, 32, 32 * _KIB, 8, 256 * _KIB, 8 * _MIB, 28, 12, 4),
        # Agner, uops, Intel: 512 bits on ports 0 and 5; L2 of 64 bytes a cycle delivers 48
        Microarchitecture("Skylake-X", (
            "skylake-avx512", "skylake_avx512", "skx", "cascadelake", "cooperlake",
        ), 2, 128, 4, 2, 128, 1, 64, 32 * _KIB, 8, _MIB, 16 * _MIB, 48, 10, 4),
        # Agner, uops, Intel: 48 KiB in 12 ways, and two stores of 32 bytes or one of 64
        Microarchitecture("Ice Lake server", (
            "icelake-server", "icelake_server",
        ), 2, 128, 4, 2, 128, 2, 64, 48 * _KIB, 12, 1280 * _KIB, 32 * _MIB, 48, 10, 4),
        # measured on Emerald Rapids: 1.9 multiply-adds a cycle, 112 bytes of L1, 46 of L2, 10 of L3, 5 of memory; a
        # dot product of bfloat16 takes two cycles, for there is the matrix unit; Intel
        Microarchitecture("Golden Cove server", (
            "sapphirerapids", "emeraldrapids", "graniterapids", "graniterapids-d", "graniterapids_d", "diamondrapids",
        ), 2, 128, 4, 2, 128, 2, 64, 48 * _KIB, 12, 2 * _MIB, 32 * _MIB, 46, 10, 5, bf16_dots=0.25),
        # uops, Intel: ports 0 and 1 join for 512 bits, and there is no third such port
        Microarchitecture("Ice Lake client", (
            "cannonlake", "icelake-client", "icelake_client", "rocketlake", "tigerlake",
        ), 2, 64, 4, 2, 128, 2, 64, 48 * _KIB, 12, 512 * _KIB, 8 * _MIB, 48, 16, 6),
        # uops, Intel: the large cores of these; three loads of 32 bytes
        Microarchitecture("Golden Cove", (
            "alderlake", "raptorlake", "meteorlake", "arrowlake", "arrowlake-s", "arrowlake_s", "lunarlake",
            "pantherlake", "wildcatlake", "novalake",
        ), 2, 64, 4, 3, 96, 2, 64, 48 * _KIB, 12, 1280 * _KIB, 16 * _MIB, 48, 16, 8),
        # uops, Intel: 256 bits in two halves
        Microarchitecture("Gracemont", (
            "gracemont", "sierraforest", "grandridge", "clearwaterforest",
        ), 2, 32, 6, 2, 32, 2, 32, 32 * _KIB, 8, 512 * _KIB, 16 * _MIB, 32, 12, 4),
        # Agner, uops, AMD: 256 bits in two halves
        Microarchitecture("Zen 1", ("znver1",), 2, 32, 5, 2, 32, 1, 16, 32 * _KIB, 8, 512 * _KIB, 8 * _MIB, 32, 16, 5),
        # Agner, uops, AMD
        Microarchitecture("Zen 2", ("znver2",), 2, 64, 5, 2, 64, 1, 32, 32 * _KIB, 8, 512 * _KIB, 16 * _MIB, 32, 20, 6),
        # Agner, uops, AMD: three loads in a cycle, but two into registers of vectors
        Microarchitecture("Zen 3", ("znver3",), 2, 64, 4, 2, 64, 2, 32, 32 * _KIB, 8, 512 * _KIB, 32 * _MIB, 32, 20, 6),
        # Agner, uops, AMD: 512 bits in two halves. measured: 6 bytes of memory
        Microarchitecture("Zen 4", ("znver4",), 2, 64, 4, 2, 64, 1, 32, 32 * _KIB, 8, _MIB, 32 * _MIB, 32, 20, 6),
        # AMD, uops: 512 bits whole. measured: 2 multiply-adds or dot products a cycle, of bfloat16 and of bytes, 64
        # bytes of L2, 28 of L3, 9 of memory
        Microarchitecture("Zen 5", ("znver5",), 2, 128, 4, 2, 128, 2, 64, 48 * _KIB, 12, _MIB, 32 * _MIB, 64, 28, 9),
        # any with AVX-512: the smallest of those above
        Microarchitecture("AVX-512", ("x86-64-v4",), 2, 64, 4, 2, 64, 1, 32, 32 * _KIB, 8, _MIB, 16 * _MIB, 32, 10, 4),
        # Agner, Intel: one multiplication and one addition in a cycle, on ports of their own, as from Core 2 on
        Microarchitecture("x86-64", (), 1, 64, 4, 1, 64, 1, 64, 32 * _KIB, 8, 256 * _KIB, 4 * _MIB, 16, 8, 4),
    ),
    "aarch64": (
        # LLVM, Arm: in order; two pipes of 64 bits; a vector is loaded in two cycles
        Microarchitecture("Cortex-A53", (
            "cortex-a34", "cortex-a35", "cortex-a53",
        ), 1, 16, 4, 1, 8, 1, 16, 32 * _KIB, 4, 128 * _KIB, 0, 8, 2, 2, in_order=_A53),
        Microarchitecture("Cortex-A55", (
            "cortex-a55", "cortex-a65", "cortex-a65ae", "cortex-r82", "cortex-r82ae", "neoverse-e1",
        ), 1, 16, 4, 1, 8, 1, 16, 32 * _KIB, 4, 128 * _KIB, _MIB, 8, 4, 3, in_order=_A55),
        # Arm: in order; two pipes of 128 bits, and loads of as many
        Microarchitecture("Cortex-A510", (
            "cortex-a320", "cortex-a510", "cortex-a520", "cortex-a520ae", "c1-nano",
        ), 2, 32, 4, 2, 32, 1, 16, 32 * _KIB, 4, 128 * _KIB, 2 * _MIB, 16, 6, 4, in_order=_A510),
        # Arm: 3 cycles to the next addition; 2 ways; L2 shared by four cores
        Microarchitecture("Cortex-A72", (
            "cortex-a57", "cortex-a72", "cortex-a73", "cortex-a75", "kryo", "falkor",
        ), 1, 16, 3, 1, 16, 1, 16, 32 * _KIB, 2, 256 * _KIB, 0, 8, 3, 3),
        # Arm: F0 and F1, 4 cycles, 2 to the next addition of the same kind; two loads
        Microarchitecture("Cortex-A76", (
            "cortex-a76", "cortex-a76ae", "tsv110", "carmel",
        ), 2, 32, 2, 2, 32, 1, 16, 64 * _KIB, 4, 512 * _KIB, 2 * _MIB, 32, 12, 4),
        Microarchitecture("Cortex-A77", (
            "cortex-a77", "cortex-a78", "cortex-a78ae", "cortex-a78c", "cortex-a710", "cortex-a715", "cortex-a720",
            "cortex-a720ae", "cortex-a725", "c1-pro",
        ), 2, 32, 2, 2, 32, 2, 32, 64 * _KIB, 4, 512 * _KIB, 4 * _MIB, 32, 16, 6),
        # Arm, LLVM: as Cortex-A76, with 1 MiB
        Microarchitecture("Neoverse N1", (
            "neoverse-n1", "ampere1", "ampere1a", "ampere1b", "ampere1c",
        ), 2, 32, 2, 2, 32, 1, 16, 64 * _KIB, 4, _MIB, 16 * _MIB, 32, 12, 6),
        # Arm, LLVM: two pipes, three loads
        Microarchitecture("Neoverse N2", (
            "neoverse-n2", "neoverse-n3",
        ), 2, 32, 2, 3, 48, 2, 32, 64 * _KIB, 4, _MIB, 16 * _MIB, 32, 14, 8),
        # Arm, LLVM: V0 to V3, three loads, two stores
        Microarchitecture("Neoverse V1", (
            "cortex-x1", "cortex-x1c", "neoverse-512tvb", "neoverse-v1",
        ), 4, 64, 2, 3, 48, 2, 32, 64 * _KIB, 4, _MIB, 16 * _MIB, 32, 16, 8),
        Microarchitecture("Neoverse V2", (
            "cortex-x2", "cortex-x3", "cortex-x4", "cortex-x925", "c1-premium", "c1-ultra", "neoverse-v2",
            "neoverse-v3", "neoverse-v3ae", "grace", "gb10", "olympus",
        ), 4, 64, 2, 3, 48, 2, 32, 64 * _KIB, 4, 2 * _MIB, 32 * _MIB, 64, 16, 8),
        # LLVM, and D. Johnson's measurements of Firestorm; L2 shared by four cores
        Microarchitecture("Apple M1", (
            "apple-a14", "apple-a15", "apple-a16", "apple-a17", "apple-m4", "apple-m5", "oryon-1",
        ), 4, 64, 4, 3, 48, 2, 32, 128 * _KIB, 8, 3 * _MIB, 8 * _MIB, 64, 16, 16),
        # any: the smallest of those that are not in order
        Microarchitecture("64-bit Arm", (), 1, 64, 4, 1, 64, 1, 64, 32 * _KIB, 4, 256 * _KIB, 0, 8, 4, 3),
    ),
    "arm": (
        # Arm: one pipe of 64 bits
        Microarchitecture("Cortex-A7", (
            "cortex-a5", "cortex-a7", "cortex-a8", "cortex-a9",
        ), 1, 8, 8, 1, 8, 1, 8, 32 * _KIB, 4, 128 * _KIB, 0, 8, 2, 2),
        # Arm: two pipes of 64 bits
        Microarchitecture("32-bit Arm", (), 1, 16, 4, 1, 16, 1, 16, 32 * _KIB, 4, 128 * _KIB, 0, 8, 3, 3),
    ),
    "riscv64": (
        # SiFive's manual: vectors of 512 bits, half of one in a cycle
        Microarchitecture("X280",
            ("sifive-x280", "sifive-x390"), 1, 32, 4, 1, 32, 1, 32, 32 * _KIB, 4, 256 * _KIB, 2 * _MIB,
                          16, 8, 3),
        # any: a register of the shortest vectors in a cycle
        Microarchitecture("RISC-V", (), 1, 16, 4, 1, 16, 1, 16, 32 * _KIB, 4, 128 * _KIB, 0, 8, 4, 3),
    ),
    # microcontrollers: memory that is read in a cycle, whether by a cache or not
    "thumb": (
        # Arm: half of a vector of 128 bits in a cycle, and as much is loaded or stored in parallel
        Microarchitecture("Cortex-M55", ("cortex-m55",), 1, 8, 4, 1, 8, 1, 8, 64 * _KIB, 4, 256 * _KIB, 0, 8, 8, 4),
        # Arm: two instructions in a cycle
        Microarchitecture("Cortex-M85", ("cortex-m85",), 1, 8, 4, 1, 8, 1, 8, 64 * _KIB, 4, 256 * _KIB, 0, 8, 8, 4),
        Microarchitecture("Cortex-M7", ("cortex-m7",), 1, 4, 3, 1, 8, 1, 4, 64 * _KIB, 4, 256 * _KIB, 0, 8, 8, 4),
        # Arm: one instruction after the other; a word is loaded or stored in a cycle
        Microarchitecture("Cortex-M", (), 1, 4, 3, 1, 4, 1, 4, 64 * _KIB, 4, 256 * _KIB, 0, 4, 4, 4),
    ),
    "riscv32": (Microarchitecture("RISC-V 32", (), 1, 4, 3, 1, 4, 1, 4, 64 * _KIB, 4, 256 * _KIB, 0, 4, 4, 4),),
    # an engine's code, on any processor
    "wasm32": (Microarchitecture("WebAssembly",
            (), 2, 64, 5, 2, 64, 1, 64, 32 * _KIB, 8, 256 * _KIB, 4 * _MIB, 16, 8, 4),),
}
# fmt: on
MICROARCHITECTURES["x86"] = MICROARCHITECTURES["x86_64"]  # in programs of 32 bits


def microarchitecture_of(architecture: str, processor: str) -> Microarchitecture:
    """Returns the row of LLVM's `processor`; the last row of the instruction set, if none names it."""
    *named, other = MICROARCHITECTURES[architecture]
    return next((row for row in named if processor in row.processors), other)
