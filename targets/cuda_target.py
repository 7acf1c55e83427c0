"""A GPU to compile for: which architectures of NVIDIA's, how exact, and which machine calls it."""

from __future__ import annotations

from dataclasses import dataclass

import tvm

from nnefc.targets.system import FileFormat
from nnefc.targets.target import Target

__all__ = ["ARCHITECTURES", "PRECISIONS", "CudaTarget"]

ARCHITECTURES = {
    70: "Volta: V100",
    72: "Volta: Jetson Xavier",
    75: "Turing: T4, RTX 20",
    80: "Ampere: A100",
    86: "Ampere: RTX 30, A10",
    87: "Ampere: Jetson Orin",
    89: "Ada: RTX 40, L4, L40",
    90: "Hopper: H100, H200",
    100: "Blackwell: B200",
    103: "Blackwell: B300",
    110: "Blackwell: Jetson Thor",
    120: "Blackwell: RTX 50",
    121: "Blackwell: DGX Spark",
}
"""Compute capabilities, ten times the number that NVIDIA writes, and well-known devices that have them."""

PRECISIONS = ("fp32", "tf32", "fp16")
"""What contractions multiply; all sums are float32."""


@dataclass(frozen=True)
class CudaTarget:
    """GPUs of NVIDIA's to compile for.

    Attributes:
        name: how the user called it, in the library's description.
        host: the CPU that launches the kernels, and that computes the steps that no GPU can.
        architectures: the devices there is code for, ascending; those after the last get it from its PTX.
        precision: one of PRECISIONS.
        load_bytes: what a thread may load or store at once.
    """

    name: str
    host: Target
    architectures: tuple[int, ...] = (80, 86, 90)
    precision: str = "fp32"
    load_bytes: int = 16

    threads_per_warp = 32
    threads_per_block = 1024
    registers_per_thread = 255
    shared_bytes = 48 << 10  # of a block, without asking for more

    @property
    def oldest(self) -> int:
        """The architecture whose instructions all the others have too: the source is the same for all."""
        return min(self.architectures)

    @property
    def most_shared_bytes(self) -> int:
        """Shared memory that a block may ask for on every one of the architectures."""
        return min(_MOST_SHARED.get(number, 99 << 10) for number in self.architectures)

    @property
    def format(self) -> FileFormat:
        """How its libraries are stored."""
        return self.host.format

    def lanes(self, dtype: str) -> int:
        """Elements of `dtype` that a thread loads at once."""
        return max(1, self.load_bytes * 8 // int(tvm.DataType(dtype).bits))

    def to_tvm(self) -> tvm.target.Target:
        """The same machine, as TVM's code generator wants it."""
        config = {
            "kind": "cuda",
            "arch": f"sm_{self.oldest}",
            "max_threads_per_block": self.threads_per_block,
            "max_shared_memory_per_block": self.most_shared_bytes,
            "thread_warp_size": self.threads_per_warp,
        }
        return tvm.target.Target(config, host=self.host.to_tvm())


# Bytes, from the table of compute capabilities in the CUDA C++ programming guide.
_MOST_SHARED = {
    70: 96 << 10,
    72: 96 << 10,
    75: 64 << 10,
    80: 163 << 10,
    87: 163 << 10,
    90: 227 << 10,
    100: 227 << 10,
    103: 227 << 10,
    110: 227 << 10,
}
