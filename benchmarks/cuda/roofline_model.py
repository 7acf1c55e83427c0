"""The roofline model of launches on a GPU.

It is Williams' ("Roofline: an insightful visual performance model", 2009), of a launch on a device of
`targets/machine/gpu/devices.py`:

    memory     its buffers, each read or written once, at the bandwidth of the device's memory; a gather counts as if
               it read all rows
    products   its multiply-adds, at the rate of tensor cores for `tcgen05.mma`, `wgmma` or `mma.sync` where the kernel
               has it, else of float32
    issue      instructions of the main loop for its multiply-adds, at one a cycle of each scheduler, or those of its
               busiest pipe for arithmetic (`execution_pipes.py`)
    fetches    what the main loop copies for its multiply-adds, at the rate of the second cache
    operands   accesses of the main loop to shared memory, with bank conflicts, at the 128 bytes of a cycle, and
               what `wgmma` and `tcgen05.mma` read from shared memory for its multiply-adds, for the latter also what
               copies write there. Each instruction reads all its columns, and its rows unless the one before has kept
               them; of a pair of blocks, a processor has half of the columns
    balance    the mean number of blocks of a processor, as a part of the largest; blocks that are resident hide waiting

    predicted = max(memory, max(products, issue, fetches, operands) / balance) + the launch
    roofline  = max(memory, products)
"""

from __future__ import annotations

from dataclasses import dataclass

from machine_code import Loop

from nnefc.targets.machine.gpu.description import SCHEDULERS, Gpu


@dataclass(frozen=True)
class Prediction:
    """The cycles of a launch.

    Attributes:
        memory, products, issue, fetches, operands: what each alone takes.
        balance: the mean number of blocks of a processor, as a part of the largest.
        resident: blocks of a processor at once.
    """

    kernel: str
    memory: float
    products: float
    issue: float
    fetches: float
    operands: float
    balance: float
    resident: int

    @property
    def roofline(self) -> float:
        """What no schedule is faster than."""
        return max(self.memory, self.products)

    @property
    def cycles(self) -> float:
        """The prediction, without the launch."""
        return max(self.memory, max(self.products, self.issue, self.fetches, self.operands) / self.balance)

    @property
    def bound(self) -> str:
        """What takes longest."""
        parts = {name: getattr(self, name) for name in ("memory", "products", "issue", "fetches", "operands")}
        return max(parts, key=lambda name: parts[name])


@dataclass(frozen=True)
class Work:
    """What a launch does.

    Attributes:
        multiply_adds, bytes: how many it computes and moves.
        has_matrices, has_warpgroups, has_tensor_memory: whether tensor cores multiply, whether by `wgmma`, and whether
            by `tcgen05.mma`.
        element_bytes: of what they multiply: 4 for TF32.
        has_float8: whether elements of 8 bits are floats.
        loop: the main loop of these, if it is known.
    """

    multiply_adds: float
    bytes: float
    has_matrices: bool
    has_warpgroups: bool
    has_tensor_memory: bool
    element_bytes: int
    has_float8: bool
    loop: Loop | None


def predict(kernel: str, work: Work, blocks: int, resident: int, gpu: Gpu) -> Prediction:
    """Predicts a launch of so many blocks on a device."""
    gpu = gpu.for_float8 if work.has_float8 else gpu
    rate = gpu.tensor_core_rate(work.element_bytes) if work.has_matrices else gpu.architecture.multiply_adds
    rate = gpu.warpgroup_multiply_adds * 2 / work.element_bytes if work.has_warpgroups else rate
    rate = gpu.tensor_memory_multiply_adds * 2 / work.element_bytes if work.has_tensor_memory else rate
    cycles = {}
    if work.loop is not None and work.loop.multiply_adds:
        iterations = work.multiply_adds / work.loop.multiply_adds / (SCHEDULERS * gpu.processors)
        cycles = {pipe: iterations * each for pipe, each in work.loop.cycles(gpu, rate).items()}
    return Prediction(
        kernel,
        memory=work.bytes / gpu.memory_bytes_per_cycle,
        products=work.multiply_adds / (gpu.processors * rate),
        issue=max((cycles[pipe] for pipe in cycles if pipe not in ("tensor", "shared", "fetch")), default=0.0),
        fetches=cycles.get("fetch", 0.0),
        operands=cycles.get("shared", 0.0),
        balance=blocks / (-(-blocks // gpu.processors) * gpu.processors),
        resident=resident,
    )
