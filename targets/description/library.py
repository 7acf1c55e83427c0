"""Defines the metadata of a library."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.named_formulas import Formula

__all__ = [
    "DEFAULT_PREFIX",
    "DEVICES",
    "ELEMENT_TYPES",
    "DimensionDescription",
    "FormulaDescription",
    "KernelDescription",
    "LibraryDescription",
    "OwnDimension",
    "SpecializationDescription",
    "TensorDescription",
    "check_description",
    "check_prefix",
    "tensor_bytes",
]

DEFAULT_PREFIX = "nnefc"  # the prefix of the functions in every library


_STREAM_FUNCTIONS = {  # besides those, in libraries for a GPU
    "enqueue": (
        "nnefc_status",
        "nnefc_session *session, const void *const *inputs, void *const *outputs, void *stream",
        "session, inputs, outputs, stream",
    ),
    "synchronize": ("nnefc_status", "nnefc_session *session", "session"),
}


@dataclass(frozen=True)
class Device:
    """A kind of device that networks run on, as far as libraries differ by it.

    Attributes:
        functions: further functions of the library: name after the prefix → return type, parameters, arguments of a
            call.
        alignment: of tensors in the device's memory; 0 if it is host memory.
        module: the symbol of its code for `nnefc_model` in `runtime/model.h`; NULL if that is the entry.
        noted: whether the embedded metadata name the device; without a name a library is for a CPU.
        max_elements: of a tensor with dynamic dimensions.
    """

    functions: Mapping[str, tuple[str, str, str]]
    alignment: int
    module: str
    noted: bool
    max_elements: int


DEVICES = {
    "cpu": Device(functions={}, alignment=0, module="NULL", noted=False, max_elements=(1 << 31) - 1),
    "cuda": Device(
        functions=_STREAM_FUNCTIONS,
        alignment=256,
        module="&nnefc_cuda_this_module",
        noted=True,
        max_elements=1 << 30,
    ),
}
"""What a network may run on."""

# Prefixes with which the functions would take the names of functions of the C library.
_TAKEN = ("cnd", "mtx", "nnefc", "pthread", "sem", "thrd", "timer")

ELEMENT_TYPES = {  # dtype → enumerator of nnefc_type, bytes; of strings those of machines with pointers of 64 bits
    "bool": ("NNEFC_BOOL", 1),
    "int8": ("NNEFC_INT8", 1),
    "int16": ("NNEFC_INT16", 2),
    "int32": ("NNEFC_INT32", 4),
    "int64": ("NNEFC_INT64", 8),
    "uint8": ("NNEFC_UINT8", 1),
    "uint16": ("NNEFC_UINT16", 2),
    "uint32": ("NNEFC_UINT32", 4),
    "uint64": ("NNEFC_UINT64", 8),
    "float16": ("NNEFC_FLOAT16", 2),
    "bfloat16": ("NNEFC_BFLOAT16", 2),
    "float32": ("NNEFC_FLOAT32", 4),
    "float64": ("NNEFC_FLOAT64", 8),
    "string": ("NNEFC_STRING", 16),
}


@dataclass(frozen=True)
class TensorDescription:
    """An input, output or state.

    Attributes:
        name: in the model.
        dtype: NumPy's name of the element type, "bfloat16" or "string".
        shape: sizes, or names of dynamic dimensions.
        scale, zero_point: of quantized integers, which stand for `(integer - zero_point) · scale`. Files do not have
            them.
        limits: upper bounds of an output's sizes, if all its data-dependent sizes have bounds; else empty.
    """

    name: str
    dtype: str
    shape: tuple[int | str, ...]
    scale: float | None = field(default=None, compare=False)
    zero_point: int = field(default=0, compare=False)
    limits: tuple[int, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class DimensionDescription:
    """A dynamic dimension: its name, the minimum, maximum and common divisor of its sizes, and the size hint."""

    name: str
    minimum: int
    maximum: int
    multiple: int
    size_hint: int


@dataclass(frozen=True)
class FormulaDescription:
    """A dynamic dimension that is computed from others.

    Attributes:
        name: of the dimension.
        formula: of other dimensions, by name.
        solved: the dimension in the formula that no input has, and that is computed by solving the formula; None if all
            are known, and the formula is checked.
        factor: of the solved dimension in the formula.
    """

    name: str
    formula: Formula
    solved: str | None = None
    factor: int = 1


@dataclass(frozen=True)
class OwnDimension:
    """A dynamic dimension of a specialized program: its index in the library, and its sizes in that program.

    `number` is None for a derived dimension that the program itself does not use.
    """

    number: int | None
    minimum: int
    maximum: int
    multiple: int


@dataclass(frozen=True)
class SpecializationDescription:
    """A specialized program.

    Attributes:
        sizes: of the dynamic dimensions, in their order; None for those that remain dynamic.
        workspace_bytes: of the program, if no dimension remains dynamic.
        dimensions: the dynamic dimensions of the program.
        storages: the number of its storages, which follow those of the previous programs.
        limits: formulas of the dimensions, each with a minimum and a maximum.
        outputs: the shapes of the outputs if their ranks differ from the library's: for each size a number, or None for
            a dynamic one. None: as in the library.
    """

    sizes: tuple[int | None, ...]
    workspace_bytes: int
    dimensions: tuple[OwnDimension, ...] = ()
    storages: int = 0
    limits: tuple[tuple[Formula, int, int], ...] = ()
    outputs: tuple[tuple[int | None, ...], ...] | None = None

    @property
    def is_dynamic(self) -> bool:
        """Whether a dimension remains dynamic."""
        return bool(self.dimensions)

    @property
    def has_sizes(self) -> bool:
        """Whether the program is for known sizes; else it is for equal sizes."""
        return any(size is not None for size in self.sizes)


@dataclass(frozen=True)
class OperandDescription:
    """An operand of a kernel: its area (`workspace`, `input`, `output`, `state` or `constant`), the index in it, the
    offset (None if known at run time only), the bytes (0 if known at run time only), and the type.
    """

    base: str
    index: int
    offset: int | None
    bytes: int
    type: str


@dataclass(frozen=True)
class KernelDescription:
    """A kernel at one position in a network that times its kernels.

    Attributes:
        kernel: its name.
        tensors: of the model, that the kernel computes or was made for.
        rule: the schedule rule that was applied to it.
        operations, bytes: arithmetic operations and memory traffic of one call; 0 if unknown.
        operators: of the model, whose results the tensors are.
        reads, writes: its operands.
        operation_formula: the arithmetic operations of one call as a formula of dynamic dimensions; empty if unknown.
    """

    kernel: str
    tensors: tuple[str, ...]
    rule: str
    operations: int
    bytes: int
    operators: tuple[str, ...] = ()
    reads: tuple[OperandDescription, ...] = ()
    writes: tuple[OperandDescription, ...] = ()
    operation_formula: str = ""


@dataclass(frozen=True)
class CallDescription:
    """A call before which a run may be ended, or which a run may skip.

    Attributes:
        kernel: its name; empty for a branch or loop.
        tensors: of the model, that the kernel computes or was made for.
        rule: the schedule rule of the kernel.
        operations, bytes: of one call; 0 if unknown.
        served: a bit set of the outputs that need the call; one bit more is set for calls that every run needs.
    """

    kernel: str
    tensors: tuple[str, ...]
    rule: str
    operations: int
    bytes: int
    served: int


@dataclass(frozen=True)
class LibraryDescription:
    """The metadata of a library, and the features that its runtime must provide.

    Args:
        model: the network's name.
        target: the machine, as the user named it.
        compiler: the compiler and its version.
        inputs, outputs, states: in the order of the entry's arguments.
        sequence_axes: of each state the axis of token positions, if its first axis is that of the sequences; 0 if a
            sequence has one value, -1 if the state does not belong to sequences. Empty if no state does.
        workspace_bytes: memory between kernels, aligned to 64 bytes.
        scratch_bytes: maximum memory of one worker from TVMBackendAllocWorkspace, each block rounded up to 64.
        constant_bytes: size of the constants.
        state_bytes: size of all states.
        state_initial_offset: offset in the constants of the states' initial values; beyond the end of the constants
            they are zeros.
        cpu_features: instruction sets, by LLVM's names, that the network's objects use.
        variables: the model's names of its trained values.
        index_limits: the inputs that the network uses as indices, with their exclusive upper bounds.
        source: `sha256:` and the digest of the model's files; empty if it was compiled from none.
        prefix: of the functions' names in object files and archives; a shared library also has the names with `nnefc`.
        checksum: of the constants, as :attr:`Constants.checksum`.
        weights: the name of the file with the constants, without a folder; empty if they are in the library.
        device: on which the network runs, a key of DEVICES. For "cuda" one of the objects defines
            `nnefc_cuda_this_module`, see `runtime/cuda.h`.
        arrival_bytes: of a session on a GPU, memory in which launches count the blocks that have arrived.
        dimensions: the dynamic dimensions, whose names are in the shapes of inputs.
        formulas: of the derived dimensions, in an order in which each needs only dimensions that are known before.
        lifetimes: of the storages in the workspace of a network with dynamic dimensions: the first and the last step.
        specializations: the specialized programs.
        only_specialized: whether there is no general program.
        dynamic_workspaces: bytes of the workspace at the size hints, and at the maximum.
        data_dependent: the data-dependent dimensions of outputs, as index of the output and axis.
        labels: the classes that the columns of an output stand for, by output.
        metadata: of the model, keys and values.
        has_text: whether the code computes with strings.
        has_vocabulary: whether the library has the tokenizer of a language model.
        has_chat: whether it has a compiled chat template.
        parts: the part of each storage in the workspace: 0 is laid out when the sizes of the inputs are known, each
            further one when a data-dependent size without an upper bound is known. Empty: all 0.
        output_parts: of each output, the part with which its shape is known. Empty: all 0.
        part_dimensions: the indices in `dimensions` for which each part from 1 on waits. They are the last ones, and no
            input has them.
        kernels: in the order of their positions, if the library times them.
        checked: whether its kernels check the index of each access.
        reproducible: whether its results have the same bits on all processors.
        small: whether it is compiled for size: one thread, no messages, no names of trained values.
        is_called: whether the network's code calls the runtime, to report a failure or to ask for one.
        cancellable: whether the entry reads a flag before each kernel, by which the runtime ends the run, skips the
            kernel or measures times.
        calls: before which the flag is read, by number.
        memory_users: of each output the outputs for whose computation its memory is used, as `CallDescription.served`.
        logs: whether it calls a log function of the program.
        warms_up: whether engines of WebAssembly may compile its kernels by a run before its trained values have
            arrived.
        levels: the descriptions of the ISA levels, from the oldest processors on, if the library has several. This
            description is then that of the oldest level, except for the target and for the memory, the maximum of all
            levels.
    """

    model: str
    target: str
    compiler: str
    inputs: tuple[TensorDescription, ...]
    outputs: tuple[TensorDescription, ...]
    states: tuple[TensorDescription, ...] = ()
    sequence_axes: tuple[int, ...] = ()
    workspace_bytes: int = 0
    scratch_bytes: int = 0
    constant_bytes: int = 0
    state_bytes: int = 0
    state_initial_offset: int = 0
    cpu_features: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    index_limits: tuple[tuple[str, int], ...] = ()
    source: str = ""
    prefix: str = DEFAULT_PREFIX
    checksum: int = 0
    weights: str = ""
    device: str = "cpu"
    arrival_bytes: int = 0
    dimensions: tuple[DimensionDescription, ...] = ()
    formulas: tuple[FormulaDescription, ...] = ()
    lifetimes: tuple[tuple[int, int], ...] = ()
    specializations: tuple[SpecializationDescription, ...] = ()
    only_specialized: bool = False
    dynamic_workspaces: tuple[int, int] = (0, 0)
    data_dependent: tuple[tuple[int, int], ...] = ()
    labels: tuple[tuple[str, tuple[int | str, ...]], ...] = ()
    metadata: tuple[tuple[str, str], ...] = ()
    has_text: bool = False
    has_vocabulary: bool = False
    has_chat: bool = False
    parts: tuple[int, ...] = ()
    output_parts: tuple[int, ...] = ()
    part_dimensions: tuple[int, ...] = ()
    kernels: tuple[KernelDescription, ...] = ()
    checked: bool = False
    reproducible: bool = False
    small: bool = False
    is_called: bool = True
    cancellable: bool = False
    calls: tuple[CallDescription, ...] = ()
    memory_users: tuple[int, ...] = ()
    logs: bool = False
    warms_up: bool = False
    levels: tuple[LibraryDescription, ...] = ()

    @property
    def is_dynamic(self) -> bool:
        """Whether any size is known at run time only."""
        return bool(self.dimensions or self.data_dependent)

    @property
    def selects(self) -> bool:
        """Whether runs can compute some of the outputs only."""
        return self.cancellable and (len(self.outputs) > 1 or bool(self.states))

    @property
    def device_bytes(self) -> int:
        """The device memory of a session: workspace, states, and copies of all inputs and outputs."""
        alignment = DEVICES[self.device].alignment
        if not alignment:
            return 0
        sizes = [self.workspace_bytes, self.state_bytes, self.arrival_bytes]
        sizes += map(tensor_bytes, (*self.inputs, *self.outputs))
        return sum(-(-size // alignment) * alignment for size in sizes)


def check_prefix(prefix: str) -> None:
    """Check that names with a prefix are valid in C.

    Raises:
        CompileError: they are not.
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", prefix):
        raise CompileError(
            f"{prefix!r} cannot begin the names of C functions",
            hint="take letters, digits and underscores, not a digit first, 64 characters at most",
        )
    if prefix != DEFAULT_PREFIX and (prefix in _TAKEN or prefix.startswith(("nnefc_", "TVM", "__"))):
        raise CompileError(f"functions of other libraries begin with {prefix!r}", hint="choose another name")


def check_description(description: LibraryDescription, size: int) -> None:
    """Check that a description is consistent, and that the library does not read beyond its constants of `size` bytes.

    Raises:
        CompileError: it is not.
    """
    if size != description.constant_bytes:
        raise CompileError(f"the constants have {size} bytes, but the description says {description.constant_bytes}")
    sizes = ("workspace_bytes", "scratch_bytes", "constant_bytes", "state_bytes", "state_initial_offset")
    for name in sizes:
        if not 0 <= getattr(description, name) < 1 << 63:
            raise CompileError(f"{name} is {getattr(description, name)}, not a size")
    check_prefix(description.prefix)
    if description.device not in DEVICES:
        raise CompileError(f"the device is {description.device!r}, none of {', '.join(DEVICES)}")
    if description.state_initial_offset > size:
        raise CompileError("the states' initial image lies beyond the constants")
    for tensor in (*description.inputs, *description.outputs, *description.states):
        if tensor.dtype not in ELEMENT_TYPES:
            raise CompileError(f'"{tensor.name}" has type {tensor.dtype}, which a library cannot take or give')
        if tensor.dtype == "string" and not description.has_text:
            raise CompileError(f'"{tensor.name}" has strings, and the library has no code for them')
        if any(isinstance(size, int) and size < 0 for size in tensor.shape) or tensor_bytes(tensor) >= 1 << 63:
            raise CompileError(f'"{tensor.name}" has the shape {list(tensor.shape)}, which is not a shape')
    known = {dimension.name for dimension in description.dimensions}
    for tensor in (*description.inputs, *description.states):
        if any(isinstance(size, str) and size not in known for size in tensor.shape):
            raise CompileError(f'"{tensor.name}" has the shape {list(tensor.shape)}, which no session could read')
    for level in description.levels:
        check_description(level, size)
    for role in ("inputs", "outputs", "states"):
        names = [tensor.name for tensor in getattr(description, role)]
        if len(set(names)) != len(names):
            raise CompileError(f"two {role} have the same name")


def tensor_bytes(tensor: TensorDescription) -> int:
    """Return the bytes of a tensor; 0 if a dimension is dynamic."""
    if any(isinstance(size, str) for size in tensor.shape):
        return 0
    return math.prod(map(int, tensor.shape)) * ELEMENT_TYPES[tensor.dtype][1]
