"""A GPU to compile for: which architectures of NVIDIA's, how exact, and which machine calls it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

import tvm

from nnefc.diagnostics import CompileError
from nnefc.element_types import bits_of
from nnefc.targets.machine.named import DEFAULT_GPUS
from nnefc.targets.machine.parsing import baseline_target, parse_target
from nnefc.targets.machine.spellings import near
from nnefc.targets.machine.system import FileFormat
from nnefc.targets.machine.target import PRECISIONS, Target

__all__ = ["ARCHITECTURES", "CudaTarget", "parse_cuda_target"]

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

_LEAST_ARCHITECTURES = {"fp32": 0, "tf32": 80, "bf16": 80, "fp16": 70}


@dataclass(frozen=True)
class CudaTarget:
    """NVIDIA GPUs to compile for.

    Attributes:
        name: the whole of it as text, in the library's description.
        host: the CPU that launches the kernels, and that computes the steps that no GPU can.
        architectures: the devices there is code for, ascending; those after the last get it from its PTX.
        precision: one of PRECISIONS that GPUs have.
        load_bytes: what a thread may load or store at once.
    """

    name: str
    host: Target
    architectures: tuple[int, ...] = DEFAULT_GPUS
    precision: str = "fp32"
    keep_wide: tuple[str, ...] = ()
    load_bytes: int = 16

    backend = "cuda"

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

    @property
    def zig_target(self) -> str:
        """The linker's name of the host."""
        return self.host.zig_target

    def with_precision(self, precision: str) -> CudaTarget:
        """The same machine, asked for one of PRECISIONS.

        Raises:
            CompileError: the oldest of the architectures has no tensor cores for it.
        """
        if precision not in _LEAST_ARCHITECTURES:
            raise CompileError(
                f"code for the target {self.name!r} has no precision {precision}",
                hint=f"choose one of {', '.join(_LEAST_ARCHITECTURES)}",
            )
        least = _LEAST_ARCHITECTURES[precision]
        if self.oldest < least:
            raise CompileError(
                f"sm_{self.oldest} has no tensor cores for {precision}", hint=f"name architectures from sm_{least} on"
            )
        name = re.sub(r" -precision=\w+", "", self.name)
        name += f" -precision={precision}" if precision != PRECISIONS[0] else ""
        return replace(self, name=name, precision=precision)

    def with_wide(self, contractions: Sequence[str]) -> CudaTarget:
        """The same GPUs, with contractions that multiply float32 whatever the precision is."""
        return replace(self, keep_wide=tuple(contractions))

    def with_patches(self) -> CudaTarget:
        """GPUs have memory for whole tensors.

        Raises:
            CompileError: always.
        """
        raise CompileError(
            f"code for the target {self.name!r} computes whole tensors",
            hint="patches are for processors: leave the option out",
        )

    def made_small(self) -> CudaTarget:
        """GPUs have no use for small code.

        Raises:
            CompileError: always.
        """
        raise CompileError(
            f"code for the target {self.name!r} is not made small",
            hint="that is for processors: leave the option out",
        )

    def made_reproducible(self) -> CudaTarget:
        """GPUs add in an order of their own.

        Raises:
            CompileError: always.
        """
        raise CompileError(
            f"code for the target {self.name!r} has no reproducible results",
            hint="processors have: leave the option out",
        )

    def lanes(self, dtype: str) -> int:
        """Elements of `dtype` that a thread loads at once."""
        return max(1, self.load_bytes * 8 // bits_of(dtype))

    def to_tvm(self) -> tvm.target.Target:
        """The same machine, as TVM's code generator wants it."""
        config = {
            "kind": "cuda",
            "arch": f"sm_{self.oldest}",
            "max_threads_per_block": self.threads_per_block,
            "max_shared_memory_per_block": self.most_shared_bytes,
            "thread_warp_size": self.threads_per_warp,
        }
        tvm.backend.load("cuda")  # names of CUDA's functions; `import tvm` does it too, unless it is told not to
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


_OPTIONS = "the options are -arch=sm_80,sm_90, -host=NAME of a CPU, and -precision=fp32, tf32, bf16 or fp16"


def parse_cuda_target(text: str) -> CudaTarget:
    """The target `cuda`, with options in TVM's manner: `cuda -arch=sm_80,sm_90 -host=x86-64-v3 -precision=tf32`.

    Without `-arch` the code is for sm_80, sm_86 and sm_90, and by its PTX for all that is newer; without `-host` the
    launches are made by any machine of this one's kind.

    Raises:
        CompileError: an option that there is not, or a value that it cannot have.
    """
    try:
        _, *options = shlex.split(text)
    except ValueError as error:
        raise CompileError(f"target {text!r} ends inside a quotation") from error
    given: dict[str, str] = {}
    for option in options:
        key, _, value = option.partition("=")
        if key not in ("-arch", "-host", "-precision") or not value:
            raise CompileError(f"unknown option {option!r} of target {text!r}", hint=_OPTIONS)
        if key in given:
            raise CompileError(f"target {text!r} has the option {key} twice")
        given[key] = value
    architectures = _architectures(given["-arch"], text) if "-arch" in given else DEFAULT_GPUS
    host = _checked_host(parse_target(given["-host"]) if "-host" in given else baseline_target(text), text)
    precision = given.get("-precision", PRECISIONS[0])
    if precision not in PRECISIONS:
        raise CompileError(
            f"unknown precision {precision!r} of target {text!r}",
            hint=near(precision, PRECISIONS, f"choose one of {', '.join(_LEAST_ARCHITECTURES)}"),
        )
    words = ["cuda", "-arch=" + ",".join(f"sm_{number}" for number in architectures)]
    words += [f"-host={given['-host']}"] if "-host" in given else []
    return CudaTarget(shlex.join(words), host, architectures).with_precision(precision)


def _architectures(names: str, text: str) -> tuple[int, ...]:
    known = [f"sm_{number}" for number in ARCHITECTURES]
    for name in names.split(","):
        if name not in known:
            hint = near(name, known, f"known are {', '.join(known)}")
            raise CompileError(f"unknown architecture {name!r} of target {text!r}", hint=hint)
    return tuple(sorted({int(re.sub(r"\D", "", name)) for name in names.split(",")}))


def _checked_host(host: Target, text: str) -> Target:
    """A machine that NVIDIA has drivers for, and the runtime knows how to load them on."""
    if host.format is not FileFormat.ELF or not host.triple.startswith(("x86_64-", "aarch64-")):
        raise CompileError(
            f"the host {host.name!r} of target {text!r} has no NVIDIA GPU that nnefc can use",
            hint="name an x86-64 or a 64-bit Arm CPU with Linux, such as -host=x86-64 or -host=aarch64-linux-gnu",
        )
    return host
