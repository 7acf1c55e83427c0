"""Defines onnxruntime's enumerations. Their members are integers, and print as onnxruntime's do."""

from __future__ import annotations

from enum import IntEnum

__all__ = [
    "ArenaExtendStrategy",
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "ModelPackageWriteMode",
    "OrtAllocatorType",
    "OrtCompileApiFlags",
    "OrtCompiledModelCompatibility",
    "OrtDeviceEpIncompatibilityReason",
    "OrtDeviceMemoryType",
    "OrtDeviceVendorId",
    "OrtExecutionProviderDevicePolicy",
    "OrtHardwareDeviceType",
    "OrtMemType",
    "OrtMemoryInfoDeviceType",
    "OrtSparseFormat",
]


class _Enumeration(IntEnum):
    def __str__(self) -> str:
        return f"{type(self).__name__}.{self.name}"


class GraphOptimizationLevel(_Enumeration):
    """How far a graph is optimized. A network is compiled with all optimizations, whatever the level."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(_Enumeration):
    """Whether nodes run one after the other. The order of kernels is fixed when a network is compiled."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(_Enumeration):
    """The order of nodes. The order of kernels is fixed when a network is compiled."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class OrtAllocatorType(_Enumeration):
    """The kind of an allocator."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtMemType(_Enumeration):
    """Who accesses memory."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtDeviceMemoryType(_Enumeration):
    """Whether the host can access a device's memory."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtMemoryInfoDeviceType(_Enumeration):
    """The kind of device that memory belongs to."""

    CPU = 0
    GPU = 1
    NPU = 3
    FPGA = 2


class OrtHardwareDeviceType(_Enumeration):
    """The kind of a hardware device."""

    CPU = 0
    GPU = 1
    NPU = 2


class OrtDeviceVendorId(IntEnum):
    """PCI identifiers of the vendors of devices."""

    NONE = 0
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086


class OrtSparseFormat(_Enumeration):
    """The format of a sparse tensor."""

    ORT_SPARSE_UNDEFINED = 0
    ORT_SPARSE_COO = 1
    ORT_SPARSE_CSRC = 2
    ORT_SPARSE_BLOCK_SPARSE = 4


class ArenaExtendStrategy(_Enumeration):
    """How an arena of memory grows."""

    kNextPowerOfTwo = 0
    kSameAsRequested = 1


class OrtCompileApiFlags(_Enumeration):
    """Flags of `ModelCompiler`."""

    NONE = 0
    ERROR_IF_NO_NODES_COMPILED = 1
    ERROR_IF_OUTPUT_FILE_EXISTS = 2


class OrtCompiledModelCompatibility(_Enumeration):
    """Whether a compiled model fits a device."""

    EP_NOT_APPLICABLE = 0
    EP_SUPPORTED_OPTIMAL = 1
    EP_SUPPORTED_PREFER_RECOMPILATION = 2
    EP_UNSUPPORTED = 3


class OrtDeviceEpIncompatibilityReason(_Enumeration):
    """Why an execution provider does not fit a device."""

    UNKNOWN = -2147483648
    NONE = 0
    DRIVER_INCOMPATIBLE = 1
    DEVICE_INCOMPATIBLE = 2
    MISSING_DEPENDENCY = 4


class OrtExecutionProviderDevicePolicy(_Enumeration):
    """Which devices are preferred."""

    DEFAULT = 0
    PREFER_CPU = 1
    PREFER_NPU = 2
    PREFER_GPU = 3
    MAX_PERFORMANCE = 4
    MAX_EFFICIENCY = 5
    MIN_OVERALL_POWER = 6


class ModelPackageWriteMode(_Enumeration):
    """How a model package is written."""

    PRESERVE = 0
    DENSE = 1
