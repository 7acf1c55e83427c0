"""Describes a GPU target: architectures, the device to tune for, precision, and the host CPU."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

import tvm

from nnefc.support.diagnostics import CompileError
from nnefc.support.element_types import bits_of
from nnefc.targets.machine.cpu.parsing import baseline_target, parse_target
from nnefc.targets.machine.cpu.target import PRECISIONS, Target
from nnefc.targets.machine.cuda.capabilities import (
    ASYNCHRONOUS_COPIES,
    CAPABILITIES,
    MATRIX_INSTRUCTIONS,
    SPECIFIC_FEATURES,
    capability_of,
    default_gpu,
)
from nnefc.targets.machine.gpu.description import LOAD_BYTES, WARP, Gpu
from nnefc.targets.machine.gpu.devices import GPUS
from nnefc.targets.machine.named_targets import DEFAULT_GPUS
from nnefc.targets.machine.system import FileFormat
from nnefc.targets.machine.target_hints import near

__all__ = ["CudaTarget", "parse_cuda_target"]

_MIN_ARCHITECTURES = {"fp32": 0, "tf32": 80, "bf16": 80, "fp16": 70}


_NEWEST_OF_TVM = 80
"""The architecture that TVM is given for all newer ones: for these it writes floats of 8 bits as classes of a header,
where bytes are enough. It makes no other difference."""

_TENSOR_CORE_TYPES = {"tf32": "float32", "bf16": "bfloat16", "fp16": "float16"}


@dataclass(frozen=True)
class CudaTarget:
    """NVIDIA GPUs to compile for.

    Attributes:
        name: the whole of it as text, in the library's description.
        host: the CPU that launches the kernels, and that computes the steps that no GPU can.
        architectures: the devices there is code for, ascending; those after the last get it from its PTX.
        precision: one of PRECISIONS that GPUs have.
        keep_wide: contractions that multiply float32 whatever the precision is, as of `Target`.
        load_bytes: what a thread may load or store at once.
        device: the one that the code is tuned for; None: the first device of the oldest architecture.
    """

    name: str
    host: Target
    architectures: tuple[int, ...] = DEFAULT_GPUS
    precision: str = "fp32"
    keep_wide: tuple[str, ...] = ()
    load_bytes: int = LOAD_BYTES
    device: Gpu | None = None

    backend = "cuda"

    threads_per_warp = WARP

    @property
    def gpu(self) -> Gpu:
        """The device that tiles and blocks are chosen for. The code runs on all devices of the architectures."""
        return self.device or default_gpu(self.oldest)

    @property
    def threads_per_block(self) -> int:
        """Threads that a block may have on every one of the architectures."""
        return min(CAPABILITIES[number].architecture.threads_per_block for number in self.architectures)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block on every one of the architectures, without asking for more."""
        return min(CAPABILITIES[number].architecture.static_shared_bytes for number in self.architectures)

    @property
    def oldest(self) -> int:
        """The architecture whose instructions all the others have too: the source is the same for all."""
        return min(self.architectures)

    @property
    def max_shared_bytes(self) -> int:
        """Shared memory that a block may ask for on every one of the architectures."""
        return min(CAPABILITIES[number].architecture.shared_bytes_per_block for number in self.architectures)

    @property
    def has_asynchronous_copies(self) -> bool:
        """Whether threads of all architectures copy to shared memory past the registers."""
        return self.oldest >= ASYNCHRONOUS_COPIES

    @property
    def has_warpgroup_products(self) -> bool:
        """Whether all architectures multiply by warpgroups."""
        return all(CAPABILITIES[number].has_warpgroup_products for number in self.architectures)

    @property
    def has_tensor_memory(self) -> bool:
        """Whether all architectures keep sums of products in tensor memory."""
        return all(CAPABILITIES[number].has_tensor_memory for number in self.architectures)

    @property
    def has_tensor_memory_of_integers(self) -> bool:
        """Whether they do so of products of integers."""
        return all(CAPABILITIES[number].has_tensor_memory_of_integers for number in self.architectures)

    @property
    def multiplies_boxes(self) -> bool:
        """Whether tensor cores of all architectures multiply what bulk copies fetch to shared memory."""
        return self.has_warpgroup_products or self.has_tensor_memory

    @property
    def parts(self) -> tuple[CudaTarget, ...]:
        """The architectures that multiply by instructions which not all of the target's have, those with the same ones
        as a target. It is empty where all have them."""
        if self.multiplies_boxes:
            return ()
        capabilities = [CAPABILITIES[number] for number in self.architectures]
        groups = (
            [each.number for each in capabilities if each.has_warpgroup_products],
            [each.number for each in capabilities if each.has_tensor_memory],
        )
        return tuple(self._part(group) for group in groups if group)

    def _part(self, architectures: Sequence[int]) -> CudaTarget:
        is_own = self.device is not None and capability_of(self.device).number in architectures
        return replace(self, architectures=tuple(architectures), device=self.device if is_own else None)

    @property
    def longest_attention(self) -> int:
        """Elements of the longest queries and values whose attention a block has registers and shared memory for.

        Tiles of 32 keys and values of 256 elements of float32 are 66 KiB, and 16 queries 17 KiB.
        """
        return 256 if self.max_shared_bytes >= 96 << 10 else 128

    @property
    def format(self) -> FileFormat:
        """Returns the file format of its libraries."""
        return self.host.format

    @property
    def zig_target(self) -> str:
        """The linker's name of the host."""
        return self.host.zig_target

    def with_precision(self, precision: str) -> CudaTarget:
        """Returns the same machine, asked for one of PRECISIONS.

        Raises:
            CompileError: the oldest of the architectures has no tensor cores for it.
        """
        if precision not in _MIN_ARCHITECTURES:
            raise CompileError(
                f"code for the target {self.name!r} has no precision {precision}",
                hint=f"choose one of {', '.join(_MIN_ARCHITECTURES)}",
            )
        minimum = _MIN_ARCHITECTURES[precision]
        if self.oldest < minimum:
            raise CompileError(
                f"sm_{self.oldest} has no tensor cores for {precision}", hint=f"name architectures from sm_{minimum} on"
            )
        name = re.sub(r" -precision=\w+", "", self.name)
        name += f" -precision={precision}" if precision != PRECISIONS[0] else ""
        return replace(self, name=name, precision=precision)

    def with_wide(self, contractions: Sequence[str]) -> CudaTarget:
        """Returns the same GPUs, with contractions that multiply float32 whatever the precision is."""
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

    @property
    def tensor_core_type(self) -> str | None:
        """The type that tensor cores multiply with this precision; None if they are not used."""
        dtype = _TENSOR_CORE_TYPES.get(self.precision)
        return dtype if dtype is not None and self.oldest >= MATRIX_INSTRUCTIONS[dtype].oldest else None

    @property
    def has_byte_products(self) -> bool:
        """Whether tensor cores multiply bytes, by instructions that all architectures have."""
        return self.oldest >= MATRIX_INSTRUCTIONS["int8"].oldest

    @property
    def has_float8_products(self) -> bool:
        """Whether tensor cores multiply floats of 8 bits, by instructions that all architectures have."""
        return self.oldest >= MATRIX_INSTRUCTIONS["float8_e4m3fn"].oldest

    def channels_of_a_block(self, has_bytes: bool) -> int:
        """Channels that lie side by side in the layout for tensor cores: what a thread loads at once of the narrowest
        operands, for several types may meet in one network.
        """
        return self.lanes("int8" if has_bytes else "float16")

    def lanes(self, dtype: str) -> int:
        """Elements of `dtype` that a thread loads at once."""
        return max(1, self.load_bytes * 8 // bits_of(dtype))

    def to_tvm(self) -> tvm.target.Target:
        """Returns the same machine, as TVM's code generator wants it."""
        config = {
            "kind": "cuda",
            "arch": f"sm_{min(self.oldest, _NEWEST_OF_TVM)}",
            "max_threads_per_block": self.threads_per_block,
            "max_shared_memory_per_block": self.max_shared_bytes,
            "thread_warp_size": self.threads_per_warp,
        }
        tvm.backend.load("cuda")  # names of CUDA's functions; `import tvm` does it too, unless that is disabled
        return tvm.target.Target(config, host=self.host.to_tvm())


_OPTIONS = (
    "the options are -arch=sm_80,sm_90, -device=NAME of a GPU, -host=NAME of a CPU, and -precision=fp32, tf32, bf16 "
    "or fp16"
)


def parse_cuda_target(text: str) -> CudaTarget:
    """Returns the target `cuda`, with options in TVM's manner: `cuda -arch=sm_80,sm_90 -host=x86-64-v3
    -precision=tf32`.

    Without `-arch` the code is for sm_80, sm_86 and sm_90, and by its PTX for all that is newer; without `-host` the
    launches are made by any machine of this one's kind. `-device=h200` names the GPU that the code is tuned for; the
    code is for its architecture then, unless `-arch` names others.

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
        if key not in ("-arch", "-device", "-host", "-precision") or not value:
            raise CompileError(f"unknown option {option!r} of target {text!r}", hint=_OPTIONS)
        if key in given:
            raise CompileError(f"target {text!r} has the option {key} twice")
        given[key] = value
    device = _device(given["-device"], text) if "-device" in given else None
    default = DEFAULT_GPUS if device is None else (capability_of(device).number,)
    architectures = _architectures(given["-arch"], text) if "-arch" in given else default
    if device is not None and capability_of(device).number not in architectures:
        raise CompileError(
            f"the device {device.name} of target {text!r} has none of its architectures",
            hint=f"leave out -arch, or name sm_{capability_of(device).number} in it",
        )
    host = _checked_host(parse_target(given["-host"]) if "-host" in given else baseline_target(text), text)
    precision = given.get("-precision", PRECISIONS[0])
    if precision not in PRECISIONS:
        raise CompileError(
            f"unknown precision {precision!r} of target {text!r}",
            hint=near(precision, PRECISIONS, f"choose one of {', '.join(_MIN_ARCHITECTURES)}"),
        )
    words = ["cuda", "-arch=" + ",".join(f"sm_{number}" for number in architectures)]
    words += [f"-device={device.name}"] if device is not None else []
    words += [f"-host={given['-host']}"] if "-host" in given else []
    return CudaTarget(shlex.join(words), host, architectures, device=device).with_precision(precision)


def _device(name: str, text: str) -> Gpu:
    found = next((gpu for gpu in GPUS if gpu.name == name), None)
    if found is None:
        known = [gpu.name for gpu in GPUS]
        hint = near(name, known, f"known are {', '.join(known)}; -arch alone is for all others")
        raise CompileError(f"unknown device {name!r} of target {text!r}", hint=hint)
    return found


def _architectures(names: str, text: str) -> tuple[int, ...]:
    known = [f"sm_{number}" for number in CAPABILITIES]
    specific = [f"sm_{number}a" for number in SPECIFIC_FEATURES]  # other names of these: the code is the same
    for name in names.split(","):
        if name not in (*known, *specific):
            hint = near(name, known, f"known are {', '.join(known)}")
            raise CompileError(f"unknown architecture {name!r} of target {text!r}", hint=hint)
    return tuple(sorted({int(re.sub(r"\D", "", name)) for name in names.split(",")}))


def _checked_host(host: Target, text: str) -> Target:
    """Returns a machine that NVIDIA has drivers for, and the runtime knows how to load them on."""
    if host.format is not FileFormat.ELF or not host.triple.startswith(("x86_64-", "aarch64-")):
        raise CompileError(
            f"the host {host.name!r} of target {text!r} has no NVIDIA GPU that nnefc can use",
            hint="name an x86-64 or a 64-bit Arm CPU with Linux, such as -host=x86-64 or -host=aarch64-linux-gnu",
        )
    return host
