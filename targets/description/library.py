"""Defines the metadata of a library, and the names of its functions."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.named_formulas import Formula

__all__ = [
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
    "declarations",
    "functions_of",
    "public_symbols",
    "tensor_bytes",
]

DEFAULT_PREFIX = "nnefc"  # the prefix of the functions in every library

_FUNCTIONS = {  # name after the prefix → what it returns, its parameters, the arguments of a call
    "check": ("nnefc_status", "void", ""),
    "create": ("nnefc_status", "const nnefc_options *options, nnefc_session **session", "options, session"),
    "describe": ("const nnefc_description *", "void", ""),
    "destroy": ("nnefc_status", "nnefc_session *session", "session"),
    "last_error": ("const char *", "const nnefc_session *session", "session"),
    "reset": ("nnefc_status", "nnefc_session *session", "session"),
    "run": (
        "nnefc_status",
        "nnefc_session *session, const void *const *inputs, void *const *outputs",
        "session, inputs, outputs",
    ),
    "status_name": ("const char *", "nnefc_status status", "status"),
}

_DYNAMIC_FUNCTIONS = {  # besides those, in libraries with dynamic dimensions
    "output_shape": ("const int64_t *", "const nnefc_session *session, uint32_t output", "session, output"),
    "reserve": (
        "nnefc_status",
        "nnefc_session *session, const int64_t *sizes, int32_t outputs",
        "session, sizes, outputs",
    ),
    "resize": (
        "nnefc_status",
        "nnefc_session *session, const int64_t *const *input_shapes",
        "session, input_shapes",
    ),
    "run_sized": (
        "nnefc_status",
        "nnefc_session *session, const nnefc_input *inputs, nnefc_output *outputs",
        "session, inputs, outputs",
    ),
}

_STATE_FUNCTIONS = {  # besides those, in libraries of networks with states
    "copy_states": ("nnefc_status", "nnefc_session *session, nnefc_session *other", "session, other"),
    "get_state": ("nnefc_status", "nnefc_session *session, uint32_t state, void *data", "session, state, data"),
    "set_state": ("nnefc_status", "nnefc_session *session, uint32_t state, const void *data", "session, state, data"),
}

_SEQUENCE_FUNCTIONS = {  # besides those, in libraries of networks that keep sequences of tokens
    "copy_sequence": (
        "nnefc_status",
        "nnefc_session *session, int64_t sequence, nnefc_session *other, int64_t from, int64_t positions",
        "session, sequence, other, from, positions",
    ),
    "measure_states": ("nnefc_status", "nnefc_session *session, nnefc_state_bytes *bytes", "session, bytes"),
}

_VOCABULARY_FUNCTIONS = {  # besides those, in libraries with a tokenizer
    "detokenize": (
        "nnefc_status",
        "const int64_t *tokens, size_t count, uint32_t flags, char *text, size_t room, size_t *size",
        "tokens, count, flags, text, room, size",
    ),
    "tokenize": (
        "nnefc_status",
        "const char *text, size_t size, uint32_t flags, int64_t *tokens, size_t room, size_t *count",
        "text, size, flags, tokens, room, count",
    ),
}

_CHAT_FUNCTIONS = {  # besides those, in libraries with a chat template
    "chat": (
        "nnefc_status",
        "const nnefc_message *messages, size_t count, const nnefc_chat_options *options, char *text, size_t room, "
        "size_t *size",
        "messages, count, options, text, room, size",
    ),
}

_PROFILE_FUNCTIONS = {  # besides those, in libraries that time their kernels
    "profile": ("uint32_t", "nnefc_kernel_times *times, uint32_t count", "times, count"),
    "profile_reset": ("void", "void", ""),
    "profile_trace": ("uint64_t", "nnefc_piece *pieces, uint64_t room", "pieces, room"),
}

_CONTROL_FUNCTIONS = {  # besides those, in libraries whose runs ask the runtime between two kernels
    "cancel": ("nnefc_status", "nnefc_session *session", "session"),
    "run_async": (
        "nnefc_status",
        "nnefc_session *session, const void *const *inputs, void *const *outputs, nnefc_done *done, void *context",
        "session, inputs, outputs, done, context",
    ),
    "session_times": (
        "uint32_t",
        "const nnefc_session *session, nnefc_kernel_times *times, uint32_t count",
        "session, times, count",
    ),
    "set_time_limit": ("nnefc_status", "nnefc_session *session, int64_t nanoseconds", "session, nanoseconds"),
    "threads_count": ("uint32_t", "const nnefc_threads *threads", "threads"),
    "threads_create": ("nnefc_status", "const nnefc_options *options, nnefc_threads **threads", "options, threads"),
    "threads_destroy": ("nnefc_status", "nnefc_threads *threads", "threads"),
    "threads_run": (
        "void",
        "void *threads, uint32_t count, void (*task)(void *context, uint32_t i), void *context",
        "threads, count, task, context",
    ),
    "time_kernels": ("nnefc_status", "nnefc_session *session, int32_t on", "session, on"),
}

_SELECTION_FUNCTIONS = {  # besides those, in libraries that may leave out outputs
    "select_outputs": ("nnefc_status", "nnefc_session *session, const uint8_t *outputs", "session, outputs"),
}

_SIZED_CONTROL_FUNCTIONS = {  # besides those, with dynamic dimensions
    "run_sized_async": (
        "nnefc_status",
        "nnefc_session *session, const nnefc_input *inputs, nnefc_output *outputs, nnefc_done *done, void *context",
        "session, inputs, outputs, done, context",
    ),
}

_LOG_FUNCTIONS = {  # besides those, in libraries that log
    "set_log": ("void", "nnefc_log *log, void *context, int32_t level", "log, context, level"),
}

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
    """The device of a network, as far as its library depends on it.

    Attributes:
        functions: the library has besides those of all libraries: name after the prefix → what it returns, its
            parameters, the arguments of a call.
        alignment: of tensors in memory of its own; 0 if it computes in the host's.
        module: the symbol of its code, as `nnefc_model` in `runtime/model.h` has it; NULL if that is the entry.
        noted: whether the embedded metadata name it; without a name a library is for a CPU.
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
    """An input, output or state: its name in the model, NumPy's name of its element type (or bfloat16), its sizes.

    Integers of which `scale` is known stand for `(integer - zero_point) · scale`; files do not say it. The `limits` of
    an output are the maxima of its sizes, where those that depend on the data have maxima; else they are empty.
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
    """A dynamic dimension: its name, the sizes that it may have, multiples of a number, and one for estimates."""

    name: str
    minimum: int
    maximum: int
    multiple: int
    size_hint: int


@dataclass(frozen=True)
class FormulaDescription:
    """A dynamic dimension that follows from others.

    Attributes:
        name: of the dimension.
        formula: of the others, by their names.
        solved: the one of them that no input has: it is found with this. None if all are known: then it is checked.
        factor: what the value of that is multiplied with in the formula.
    """

    name: str
    formula: Formula
    solved: str | None = None
    factor: int = 1


@dataclass(frozen=True)
class OwnDimension:
    """A dynamic dimension of a program for some sizes: its number among those of the library, its sizes in that
    program.

    `number` is None for one that follows from others, and that the program does not use itself.
    """

    number: int | None
    minimum: int
    maximum: int
    multiple: int


@dataclass(frozen=True)
class SpecializationDescription:
    """Code of its own for some sizes.

    Attributes:
        sizes: of the dynamic dimensions, in their order; None for those that stay open.
        workspace_bytes: that it needs, if none stays open.
        dimensions: of the program, if any stays open.
        storages: of them, how many follow those of the programs before it.
        limits: formulas of the dimensions, and the smallest and the largest that each may be.
        outputs: the shapes of its outputs, if these have not the ranks of those of the library: a number, or None for
            each size that is known when the dimensions are. None if they are as the library's.
    """

    sizes: tuple[int | None, ...]
    workspace_bytes: int
    dimensions: tuple[OwnDimension, ...] = ()
    storages: int = 0
    limits: tuple[tuple[Formula, int, int], ...] = ()
    outputs: tuple[tuple[int | None, ...], ...] | None = None

    @property
    def is_dynamic(self) -> bool:
        """Whether a dimension stays open."""
        return bool(self.dimensions)

    @property
    def has_sizes(self) -> bool:
        """Whether it is for known sizes; else it is for equal ones."""
        return any(size is not None for size in self.sizes)


@dataclass(frozen=True)
class OperandDescription:
    """Where an operand of a kernel lies: in the `workspace`, an `input`, `output`, `state` or `constant`, with which of
    them, at an offset, None if that is known at run time alone; its bytes, 0 likewise; and its type."""

    base: str
    index: int
    offset: int | None
    bytes: int
    type: str


@dataclass(frozen=True)
class KernelDescription:
    """A kernel at one position of a network that times its kernels.

    Attributes:
        kernel: its name.
        tensors: of the model, that it computes or was made for.
        rule: the schedule rule that it got.
        operations, bytes: the arithmetic of one call, and what it reads and writes; 0 where they are not known.
        operators: of the model, that the tensors are the results of.
        reads, writes: its operands.
        operation_formula: the arithmetic of one call by the names of dynamic dimensions; empty if it is not known so.
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
    """A call before which a run may end, or that a run may skip.

    Attributes:
        kernel: its name; empty for a branch or loop.
        tensors: of the model, that it computes or was made for.
        rule: the schedule rule that the kernel got.
        operations, bytes: of one call; 0 if they are not known.
        served: the outputs that need it, a bit for each; the bit behind them is of calls that every run needs.
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
        sequence_axes: of each state the axis of positions, where its first axis is that of sequences of tokens; 0 where
            a sequence has one value, -1 where it is of no sequence. Empty if no state is of sequences.
        workspace_bytes: memory between kernels, aligned to 64 bytes.
        scratch_bytes: what one worker may hold at a time from TVMBackendAllocWorkspace, each block rounded up to 64.
        constant_bytes: size of the constants' file.
        state_bytes: size of all states.
        state_initial_offset: where in the constants the states' initial image starts; beyond their end are zeros.
        cpu_features: instruction sets, by LLVM's names, that the network's objects use.
        variables: what the model calls its trained values.
        index_limits: inputs that the network uses as positions, and the number that they must be below.
        source: `sha256:` and the digest of the model's files; empty if it came from none.
        prefix: what the names of the functions begin with, in object files and archives; a shared library has them
            besides those that begin with `nnefc`.
        checksum: of the constants, as :attr:`Constants.checksum` has it.
        weights: the name of the file with the constants, without a folder; empty if they are in the library.
        device: what the network runs on, one of DEVICES. For "cuda" one of the objects defines
            `nnefc_cuda_this_module`, see `runtime/cuda.h`.
        arrival_bytes: of a session on a GPU, in which launches count the blocks that have arrived.
        dimensions: the open ones; they stand by their names in the shapes of inputs.
        formulas: of those that follow from others, in an order in which each needs only what those before it tell.
        lifetimes: of what lies in the workspace of a network with dynamic dimensions: the first and the last step.
        specializations: sizes that it has code of its own for.
        only_specialized: whether it has no code for others.
        dynamic_workspaces: the bytes of its workspace at size hints, and at the greatest.
        data_dependent: the data-dependent dimensions of outputs: the output's number, and the axis.
        labels: outputs whose columns stand for classes, and what these are called.
        metadata: what the model says of itself, keys and values.
        has_text: whether its code computes with strings.
        has_vocabulary: whether it has the tokenizer of a language model.
        has_chat: whether it has the program of a chat template.
        parts: of what lies in the workspace, the part: 0 for what is laid out for the inputs' sizes, else a number from
            1 on for what is laid out when a data-dependent size is known and that has no limit. Empty: all 0.
        output_parts: of each output, the part with which its shape is known. Empty: all is 0.
        part_dimensions: which of `dimensions` each part from 1 on waits for. They are the last ones, and of no input.
        kernels: in the order of their positions, if the library times them.
        checked: whether its kernels look at every position that they read or write.
        reproducible: whether its results have the same bits on all processors.
        small: whether it is compiled for size: one thread, no messages, no names of trained values.
        is_called: whether the network's code calls the runtime, to say that it has failed or to ask whether.
        cancellable: whether the entry reads a flag before each kernel, by which the runtime ends the run, skips the
            kernel or takes times.
        calls: before which it reads that flag, by their numbers.
        memory_users: of each output the outputs for which a run uses its memory, as `CallDescription.served` has them.
        logs: whether it calls a function of the program's with what happens.
        warms_up: whether a module of WebAssembly has engines compile its kernels before its trained values are there.
        levels: if the library has code for several kinds of processors, what it says of itself on each, from the oldest
            on. What it says itself is what it says on the oldest, but for the target and the memory, the maximum of
            all.
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
        """Whether any size is known only at run time."""
        return bool(self.dimensions or self.data_dependent)

    @property
    def selects(self) -> bool:
        """Whether runs may compute some outputs only, or states alone."""
        return self.cancellable and (len(self.outputs) > 1 or bool(self.states))

    @property
    def device_bytes(self) -> int:
        """Memory of the device that a session takes: workspace, states, and room for all inputs and outputs."""
        alignment = DEVICES[self.device].alignment
        if not alignment:
            return 0
        sizes = [self.workspace_bytes, self.state_bytes, self.arrival_bytes]
        sizes += map(tensor_bytes, (*self.inputs, *self.outputs))
        return sum(-(-size // alignment) * alignment for size in sizes)


def functions_of(description: LibraryDescription) -> dict[str, tuple[str, str, str]]:
    """Returns the functions of a library: name after the prefix → what it returns, its parameters, the arguments of a
    call.
    """
    own = {**_FUNCTIONS, **DEVICES[description.device].functions}
    own |= _DYNAMIC_FUNCTIONS if description.is_dynamic else {}
    own |= _STATE_FUNCTIONS if description.states else {}
    own |= _SEQUENCE_FUNCTIONS if description.sequence_axes else {}
    own |= _CONTROL_FUNCTIONS if description.cancellable else {}
    own |= _SIZED_CONTROL_FUNCTIONS if description.cancellable and description.is_dynamic else {}
    own |= _SELECTION_FUNCTIONS if description.selects else {}
    own |= _LOG_FUNCTIONS if description.logs else {}
    own |= _VOCABULARY_FUNCTIONS if description.has_vocabulary else {}
    own |= _CHAT_FUNCTIONS if description.has_chat else {}
    own |= _PROFILE_FUNCTIONS if description.kernels else {}
    return dict(sorted(own.items()))


def public_symbols(description: LibraryDescription, prefix: str = DEFAULT_PREFIX) -> tuple[str, ...]:
    """Returns the names of a library's functions, sorted, with another prefix if one is given."""
    return tuple(f"{prefix}_{name}" for name in functions_of(description))


def declarations(description: LibraryDescription) -> str:
    """Returns the prototypes of the functions with the description's prefix, in C."""
    return "".join(
        f"NNEFC_API {result}{'' if result.endswith('*') else ' '}{description.prefix}_{name}({parameters});\n"
        for name, (result, parameters, _) in functions_of(description).items()
    )


def check_prefix(prefix: str) -> None:
    """Rejects what C could not call a function."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", prefix):
        raise CompileError(
            f"{prefix!r} cannot begin the names of C functions",
            hint="take letters, digits and underscores, not a digit first, 64 characters at most",
        )
    if prefix != DEFAULT_PREFIX and (prefix in _TAKEN or prefix.startswith(("nnefc_", "TVM", "__"))):
        raise CompileError(f"functions of other libraries begin with {prefix!r}", hint="choose another name")


def check_description(description: LibraryDescription, size: int) -> None:
    """Rejects descriptions that would make a library lie or read beyond its constants, which have `size` bytes."""
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
    """Returns the bytes of a tensor of this type and shape; 0 if a dimension is open."""
    if any(isinstance(size, str) for size in tensor.shape):
        return 0
    return math.prod(map(int, tensor.shape)) * ELEMENT_TYPES[tensor.dtype][1]
