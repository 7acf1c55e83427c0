"""Devices and their memory, in the form of onnxruntime: the host's processors and NVIDIA's GPUs."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from typing import Any, NoReturn

from .enums import (
    OrtAllocatorType,
    OrtDeviceMemoryType,
    OrtDeviceVendorId,
    OrtHardwareDeviceType,
    OrtMemoryInfoDeviceType,
    OrtMemType,
)
from .errors import NotImplemented, refusal
from .fields import ignored
from .providers import CPU, CUDA, available_providers

__all__ = [
    "OrtArenaCfg",
    "OrtDevice",
    "OrtEpDevice",
    "OrtExternalInitializerInfo",
    "OrtHardwareDevice",
    "OrtMemoryInfo",
    "OrtSyncStream",
    "RawOrtDevice",
    "check_device",
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
    "get_ep_devices",
]

_TYPES = {"cpu": 0, "cuda": 1, "hip": 1, "dml": 1, "webgpu": 1, "gpu": 1, "fpga": 2, "cann": 3, "npu": 3}
"""onnxruntime's numbers of kinds of devices by the names that programs use."""

_VENDORS = {
    "cann": OrtDeviceVendorId.HUAWEI,
    "cuda": OrtDeviceVendorId.NVIDIA,
    "dml": OrtDeviceVendorId.MICROSOFT,
    "hip": OrtDeviceVendorId.AMD,
}


class RawOrtDevice:
    """A device by its numbers: `OrtDevice` of onnxruntime's module of C++ classes."""

    def __init__(self, device_type: int, memory_type: int, vendor_id: int, device_id: int = 0) -> None:
        self._numbers = (device_type, memory_type, vendor_id, device_id)

    @staticmethod
    def cpu() -> int:
        """Returns the number of processors."""
        return 0

    @staticmethod
    def cuda() -> int:
        """Returns the number of NVIDIA's GPUs."""
        return 1

    @staticmethod
    def gpu() -> int:
        """Returns the number of GPUs."""
        return 1

    @staticmethod
    def dml() -> int:
        """Returns the number of devices of DirectML."""
        return 1

    @staticmethod
    def webgpu() -> int:
        """Returns the number of devices of WebGPU."""
        return 1

    @staticmethod
    def fpga() -> int:
        """Returns the number of FPGAs."""
        return 2

    @staticmethod
    def npu() -> int:
        """Returns the number of NPUs."""
        return 3

    @staticmethod
    def cann() -> int:
        """Returns the number of NPUs of Huawei."""
        return 3

    @staticmethod
    def default_memory() -> int:
        """Returns the number of a device's own memory."""
        return 0

    def device_type(self) -> int:
        """Returns the number of the kind of device."""
        return self._numbers[0]

    def mem_type(self) -> int:
        """Returns the number of the kind of memory."""
        return self._numbers[1]

    def vendor_id(self) -> int:
        """Returns the number of the vendor."""
        return self._numbers[2]

    def device_id(self) -> int:
        """Returns the number of the device."""
        return self._numbers[3]


class OrtDevice:
    """A device."""

    def __init__(self, c_ort_device: RawOrtDevice) -> None:
        if not isinstance(c_ort_device, RawOrtDevice):
            raise ValueError(f"a device is made by OrtDevice.make, and not of a {type(c_ort_device).__name__}")
        self._ort_device = c_ort_device

    @staticmethod
    def make(ort_device_name: str, device_id: int, vendor_id: int | OrtDeviceVendorId = -1) -> OrtDevice:
        """Returns a device by the name of its kind and its number.

        Raises:
            Exception: there is no such kind.
        """
        kind, name = _type_number(ort_device_name), ort_device_name.lower()
        vendor = _VENDORS.get(name, OrtDeviceVendorId.NONE) if vendor_id < 0 else vendor_id
        return OrtDevice(RawOrtDevice(kind, 0, int(vendor), device_id))

    def _get_c_device(self) -> RawOrtDevice:
        return self._ort_device

    def device_id(self) -> int:
        """Returns the number of the device."""
        return self._ort_device.device_id()

    def device_type(self) -> int:
        """Returns the number of the kind of device: 0 for processors, 1 for GPUs."""
        return self._ort_device.device_type()

    def device_vendor_id(self) -> int:
        """Returns the number of the vendor."""
        return self._ort_device.vendor_id()

    def device_mem_type(self) -> int:
        """Returns the number of the kind of memory."""
        return self._ort_device.mem_type()


def _type_number(name: str) -> int:
    if name.lower() not in _TYPES:
        raise Exception(f"there are no devices of the kind {name}; there are {', '.join(_TYPES)}")  # as onnxruntime
    return _TYPES[name.lower()]


def check_device(name: str) -> str:
    """Returns "cpu" or "cuda" for the name of a device whose memory values can be in.

    Raises:
        Exception: there is no such kind of device.
        RuntimeError: this machine has none of them.
    """
    if _type_number(name) == 0:
        return "cpu"
    if name.lower() == "cuda" and CUDA in available_providers():
        return "cuda"
    raise RuntimeError(f"memory of a {name} device cannot be allocated: this machine has {available_providers()}")


class OrtMemoryInfo:
    """Describes an allocator.

    Attributes:
        name: of the memory, "Cpu" or "Cuda".
        allocator_type, mem_type, device_id, device_mem_type, device_vendor_id: what it is.
    """

    def __init__(self, name: str, allocator_type: OrtAllocatorType, device_id: int, mem_type: OrtMemType) -> None:
        if name not in ("Cpu", "Cuda", "CudaPinned"):
            raise RuntimeError(f"there is no memory of the name {name!r}: it is Cpu, Cuda or CudaPinned")
        self.name, self.allocator_type, self.device_id, self.mem_type = name, allocator_type, device_id, mem_type
        is_pinned = name == "CudaPinned"
        self.device_mem_type = OrtDeviceMemoryType.HOST_ACCESSIBLE if is_pinned else OrtDeviceMemoryType.DEFAULT
        self.device_vendor_id = int(OrtDeviceVendorId.NONE if name == "Cpu" else OrtDeviceVendorId.NVIDIA)

    @staticmethod
    def create_v2(
        name: str,
        device_type: OrtMemoryInfoDeviceType,
        vendor_id: int,
        device_id: int,
        device_mem_type: OrtDeviceMemoryType,
        alignment: int,
        allocator_type: OrtAllocatorType,
    ) -> OrtMemoryInfo:
        """Returns a description of memory with any name."""
        made = OrtMemoryInfo("Cuda" if device_type else "Cpu", allocator_type, device_id, OrtMemType.DEFAULT)
        made.name, made.device_vendor_id, made.device_mem_type = name, vendor_id, device_mem_type
        return made


class OrtArenaCfg:
    """Sizes of an arena. They have no effect: the memory of a compiled network is planned."""

    def __init__(self, *numbers: Any) -> None:
        """Takes four numbers, or a mapping of the names of attributes."""
        names = ("max_mem", "arena_extend_strategy", "initial_chunk_size_bytes", "max_dead_bytes_per_chunk")
        if len(numbers) == 1 and isinstance(numbers[0], dict):
            given = numbers[0]
        elif len(numbers) == len(names):
            given = dict(zip(names, numbers, strict=True))
        else:
            raise TypeError(f"OrtArenaCfg takes a mapping, or {', '.join(names)}")
        self.max_mem = int(given.get("max_mem", 0))
        self.arena_extend_strategy = int(given.get("arena_extend_strategy", -1))
        self.initial_chunk_size_bytes = int(given.get("initial_chunk_size_bytes", -1))
        self.max_dead_bytes_per_chunk = int(given.get("max_dead_bytes_per_chunk", -1))
        self.initial_growth_chunk_size_bytes = int(given.get("initial_growth_chunk_size_bytes", -1))
        self.max_power_of_two_extend_bytes = int(given.get("max_power_of_two_extend_bytes", -1))


@dataclass(frozen=True)
class OrtExternalInitializerInfo:
    """Where the data of an initializer are: a file, the offset in it and the size in bytes."""

    filepath: str
    file_offset: int
    byte_size: int


@dataclass(frozen=True)
class OrtHardwareDevice:
    """A device of this machine.

    Attributes:
        type, vendor, vendor_id, device_id: what it is.
        metadata: what else is known of it, as texts.
    """

    type: OrtHardwareDeviceType
    vendor: str
    vendor_id: int
    device_id: int
    metadata: dict[str, str]


@dataclass(frozen=True)
class OrtEpDevice:
    """A device and the execution provider that uses it.

    Attributes:
        ep_name, ep_vendor, ep_metadata, ep_options: of the execution provider.
        device: the device.
    """

    ep_name: str
    ep_vendor: str
    ep_metadata: dict[str, str]
    ep_options: dict[str, str]
    device: OrtHardwareDevice

    def memory_info(self, memory_type: OrtDeviceMemoryType, /) -> OrtMemoryInfo:
        """Returns the device's memory."""
        name = "Cuda" if self.ep_name == CUDA else "Cpu"
        return OrtMemoryInfo(name, OrtAllocatorType.ORT_DEVICE_ALLOCATOR, 0, OrtMemType.DEFAULT)

    def create_sync_stream(self) -> NoReturn:
        """Refuses streams: `nnefc.load` takes those of CUDA."""
        raise OrtSyncStream._refusal()


class OrtSyncStream:
    """A stream of a device, which sessions do not take."""

    _reason = "a session has no streams: nnefc.load(library)(array, stream=...) runs on a stream of CUDA"

    def __init__(self) -> None:
        raise self._refusal()

    @staticmethod
    def _refusal() -> Exception:
        """Returns the error that names the other way."""
        return refusal(NotImplemented, OrtSyncStream._reason)


def get_ep_devices() -> list[OrtEpDevice]:
    """Returns the devices of this machine with their execution providers."""
    processor = OrtHardwareDevice(OrtHardwareDeviceType.CPU, platform.processor() or platform.machine(), 0, 0, {})
    found = [OrtEpDevice(CPU, "nnefc", {}, {}, processor)]
    if CUDA in available_providers():
        gpu = OrtHardwareDevice(OrtHardwareDeviceType.GPU, "NVIDIA", int(OrtDeviceVendorId.NVIDIA), 0, {})
        found.append(OrtEpDevice(CUDA, "nnefc", {}, {"device_id": "0"}, gpu))
    return found


def create_and_register_allocator(memory_info: OrtMemoryInfo, arena: OrtArenaCfg | None, /) -> None:
    """Is accepted, and has no effect: the memory of a compiled network is planned."""
    ignored("create_and_register_allocator")


def create_and_register_allocator_v2(
    provider: str, memory_info: OrtMemoryInfo, options: dict[str, str], arena: OrtArenaCfg | None, /
) -> None:
    """Is accepted, and has no effect: the memory of a compiled network is planned."""
    ignored("create_and_register_allocator_v2")
