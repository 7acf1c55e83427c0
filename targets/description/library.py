"""What a library says of itself, and the C file that says it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from nnefc.diagnostics import CompileError
from nnefc.targets.description.embedded_metadata import record_of

__all__ = [
    "DEVICES",
    "ELEMENT_TYPES",
    "LibraryDescription",
    "TensorDescription",
    "WeightsFile",
    "c_string",
    "check_description",
    "check_prefix",
    "declarations",
    "functions_of",
    "model_source",
    "public_symbols",
]

PLAIN = "nnefc"  # the prefix of the functions in every library

_FUNCTIONS = {  # name after the prefix → what it returns, its parameters, the arguments of a call
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

_DEVICE_FUNCTIONS = {  # besides those, in libraries for a GPU
    "enqueue": (
        "nnefc_status",
        "nnefc_session *session, const void *const *inputs, void *const *outputs, void *stream",
        "session, inputs, outputs, stream",
    ),
    "synchronize": ("nnefc_status", "nnefc_session *session", "session"),
}

DEVICES = ("cpu", "cuda")
"""What a network may run on."""

_DEVICE_ALIGNMENT = 256  # of tensors in a GPU's memory

# Prefixes with which the functions would take the names of functions of the C library.
_TAKEN = ("cnd", "mtx", "nnefc", "pthread", "sem", "thrd", "timer")

ELEMENT_TYPES = {  # dtype → enumerator of nnefc_type, bytes
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
}


@dataclass(frozen=True)
class TensorDescription:
    """An input, output or state: its name in the model, NumPy's name of its element type (or bfloat16), its extents."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class WeightsFile:
    """Trained values in a file of their own: its name, without a folder, and the checksum of what is in it."""

    name: str
    checksum: int


@dataclass(frozen=True)
class LibraryDescription:
    """What a library says of itself, and what its runtime has to provide.

    Args:
        model: the network's name.
        target: the machine, as the user named it.
        compiler: the compiler and its version.
        inputs, outputs, states: in the order of the entry's arguments.
        workspace_bytes: memory between kernels, aligned to 64 bytes.
        scratch_bytes: what one worker may hold at a time from TVMBackendAllocWorkspace, each block rounded up to 64.
        constant_bytes: size of the constants' file.
        state_bytes: size of all states.
        state_initial_offset: where in the constants the states' initial image starts.
        cpu_features: instruction sets, by LLVM's names, that the network's objects use.
        variables: what the model calls its trained values.
        index_limits: inputs that the network uses as positions, and the number that they must be below.
        source: `sha256:` and the digest of the model's files; empty if it came from none.
        prefix: what the names of the functions begin with, in object files and archives; a shared library has them
            besides those that begin with `nnefc`.
        weights: the file with the trained values, if they are not in the library.
        device: what the network runs on, one of DEVICES. For "cuda" one of the objects defines
            `nnefc_cuda_this_module`, see `runtime/cuda.h`.
    """

    model: str
    target: str
    compiler: str
    inputs: tuple[TensorDescription, ...]
    outputs: tuple[TensorDescription, ...]
    states: tuple[TensorDescription, ...] = ()
    workspace_bytes: int = 0
    scratch_bytes: int = 0
    constant_bytes: int = 0
    state_bytes: int = 0
    state_initial_offset: int = 0
    cpu_features: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    index_limits: tuple[tuple[str, int], ...] = ()
    source: str = ""
    prefix: str = PLAIN
    weights: WeightsFile | None = None
    device: str = "cpu"

    @property
    def device_bytes(self) -> int:
        """Memory of the device that a session takes: workspace, states, and room for all inputs and outputs."""
        if self.device == "cpu":
            return 0
        sizes = [self.workspace_bytes, self.state_bytes, *map(_bytes, (*self.inputs, *self.outputs))]
        return sum(-(-size // _DEVICE_ALIGNMENT) * _DEVICE_ALIGNMENT for size in sizes)


def functions_of(device: str) -> dict[str, tuple[str, str, str]]:
    """The functions of a library: name after the prefix → what it returns, its parameters, the arguments of a call."""
    return _FUNCTIONS if device == "cpu" else dict(sorted({**_FUNCTIONS, **_DEVICE_FUNCTIONS}.items()))


def public_symbols(prefix: str = PLAIN, device: str = "cpu") -> tuple[str, ...]:
    """The names of the functions of `nnefc.h`, sorted, with another prefix if one is given."""
    return tuple(f"{prefix}_{name}" for name in functions_of(device))


def declarations(prefix: str, device: str = "cpu") -> str:
    """The prototypes of the functions with this prefix, in C."""
    return "".join(
        f"NNEFC_API {result}{'' if result.endswith('*') else ' '}{prefix}_{name}({parameters});\n"
        for name, (result, parameters, _) in functions_of(device).items()
    )


def check_prefix(prefix: str) -> None:
    """Refuse what C could not call a function."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]{0,63}", prefix):
        raise CompileError(
            f"{prefix!r} cannot begin the names of C functions",
            hint="take letters, digits and underscores, not a digit first, 64 characters at most",
        )
    if prefix != PLAIN and (prefix in _TAKEN or prefix.startswith(("nnefc_", "TVM", "__"))):
        raise CompileError(f"functions of other libraries begin with {prefix!r}", hint="choose another name")


def check_description(description: LibraryDescription, size: int) -> None:
    """Refuse descriptions that would make a library lie or read beyond its constants, which have `size` bytes."""
    if size != description.constant_bytes:
        raise CompileError(f"the constants have {size} bytes, but the description says {description.constant_bytes}")
    sizes = ("workspace_bytes", "scratch_bytes", "constant_bytes", "state_bytes", "state_initial_offset")
    for name in sizes:
        if not 0 <= getattr(description, name) < 1 << 63:
            raise CompileError(f"{name} is {getattr(description, name)}, not a size")
    check_prefix(description.prefix)
    if description.device not in DEVICES:
        raise CompileError(f"the device is {description.device!r}, none of {', '.join(DEVICES)}")
    if description.state_bytes and description.state_initial_offset + description.state_bytes > size:
        raise CompileError("the states' initial image lies beyond the constants")
    for tensor in (*description.inputs, *description.outputs, *description.states):
        if tensor.dtype not in ELEMENT_TYPES:
            raise CompileError(f'"{tensor.name}" has type {tensor.dtype}, which a library cannot take or give')
        if any(extent < 0 for extent in tensor.shape) or _bytes(tensor) >= 1 << 63:
            raise CompileError(f'"{tensor.name}" has the shape {list(tensor.shape)}, which is none')
    for role in ("inputs", "outputs", "states"):
        names = [tensor.name for tensor in getattr(description, role)]
        if len(set(names)) != len(names):
            raise CompileError(f"two {role} have the same name")


def _bytes(tensor: TensorDescription) -> int:
    return math.prod(tensor.shape) * ELEMENT_TYPES[tensor.dtype][1]


def c_string(text: bytes) -> str:
    """The inside of a C string literal, printable ASCII as it is; octal, for it ends after three digits."""
    plain = bytes(c for c in range(32, 127) if c not in b'"\\?')
    return "".join(chr(c) if c in plain else f"\\{c:03o}" for c in text)


def _string(text: str) -> str:
    if "\0" in text:
        raise CompileError(f"the name {text!r} holds a null character")
    try:
        return f'"{c_string(text.encode())}"'
    except UnicodeEncodeError:
        raise CompileError(f"the name {text!r} is no text that UTF-8 can hold") from None


def _tensor_table(role: str, tensors: tuple[TensorDescription, ...]) -> str:
    """The shapes and the array of nnefc_tensor called `role`; nothing for none, for C has no empty arrays."""
    lines = []
    for i, tensor in enumerate(tensors):
        if tensor.shape:
            extents = ", ".join(f"INT64_C({extent})" for extent in tensor.shape)
            lines.append(f"static const int64_t {role}_shape_{i}[] = {{{extents}}};")
    if tensors:
        lines.append(f"static const nnefc_tensor {role}[] = {{")
        for i, tensor in enumerate(tensors):
            shape = f"{role}_shape_{i}" if tensor.shape else "NULL"
            kind, rank, size = ELEMENT_TYPES[tensor.dtype][0], len(tensor.shape), _bytes(tensor)
            lines.append(f"    {{{_string(tensor.name)}, {kind}, {rank}, {shape}, UINT64_C({size})}},")
        lines.append("};")
    return "\n".join(lines)


def model_source(description: LibraryDescription) -> str:
    """The C file of one network: its description and the call of its entry."""
    counts = len(description.inputs), len(description.outputs)
    pointers = ["void *"] * sum(counts) + ["uint8_t *", "uint8_t *", "const uint8_t *"]
    arguments = [f"(void *)in[{i}]" for i in range(counts[0])] + [f"out[{i}]" for i in range(counts[1])]
    features = ", ".join(_string(feature) for feature in description.cpu_features)
    variables = ", ".join(_string(variable) for variable in description.variables)
    has_constants = description.constant_bytes > 0 and description.weights is None
    tables = [
        _tensor_table("inputs", description.inputs),
        _tensor_table("outputs", description.outputs),
        _tensor_table("states", description.states),
        f"static const char *const features[] = {{{features}}};" if features else "",
        f"static const char *const variables[] = {{{variables}}};" if variables else "",
    ]
    members = {
        "abi_version": "NNEFC_ABI_VERSION",
        "struct_size": "sizeof(nnefc_description)",
        "model": _string(description.model),
        "target": _string(description.target),
        "compiler": _string(description.compiler),
        "inputs": "inputs" if description.inputs else "NULL",
        "outputs": "outputs" if description.outputs else "NULL",
        "states": "states" if description.states else "NULL",
        "input_count": counts[0],
        "output_count": counts[1],
        "state_count": len(description.states),
        "cpu_feature_count": len(description.cpu_features),
        "cpu_features": "features" if features else "NULL",
        "workspace_bytes": f"UINT64_C({description.workspace_bytes})",
        "scratch_bytes": f"UINT64_C({description.scratch_bytes})",
        "constant_bytes": f"UINT64_C({description.constant_bytes})",
        "state_bytes": f"UINT64_C({description.state_bytes})",
        "variable_count": len(description.variables),
        "variables": "variables" if variables else "NULL",
        "source": _string(description.source),
        "weights": _string(description.weights.name) if description.weights is not None else "NULL",
        "device": _string(description.device),
        "device_bytes": f"UINT64_C({description.device_bytes})",
    }
    return "\n".join(
        [
            "#include <stddef.h>",
            '#include "model.h"',
            f"int32_t nnefc_network({', '.join(pointers)});",
            "extern const uint8_t nnefc_constants[];" if has_constants else "",
            *tables,
            *_weights(description),
            f"static const uint8_t record[] = {{{', '.join(map(str, record_of(description)))}}};",
            "static int32_t call(const void *const *in, void *const *out, uint8_t *state, uint8_t *workspace,",
            "                    const uint8_t *constants) {",
            "    (void)in, (void)out;",
            f"    return nnefc_network({', '.join([*arguments, 'state', 'workspace', 'constants'])});",
            "}",
            "const nnefc_model nnefc_this_model = {",
            "    .description = {",
            *(f"        .{name} = {value}," for name, value in members.items()),
            "    },",
            f"    .constants = {'nnefc_constants' if has_constants else 'NULL'},",
            f"    .weights = {'&weights' if description.weights is not None else 'NULL'},",
            f"    .state_initial_offset = UINT64_C({description.state_initial_offset}),",
            "    .call = call,",
            "    .record = record,",
            f"    .cuda = {'NULL' if description.device == 'cpu' else '&nnefc_cuda_this_module'},",
            "};",
            *_aliases(description.prefix, description.device),
            "",
        ]
    )


def _weights(description: LibraryDescription) -> list[str]:
    file = description.weights
    if file is None:
        return []
    sizes = f"UINT64_C({description.constant_bytes}), UINT64_C({file.checksum})"
    functions = "nnefc_weights_map, nnefc_weights_unmap"
    return [f"static const nnefc_weights weights = {{{_string(file.name)}, {sizes}, {functions}}};"]


def _aliases(prefix: str, device: str) -> list[str]:
    """The functions by the network's own names; the runtime is the same for every network and has the plain ones."""
    if prefix == PLAIN:
        return []
    return [
        declarations(prefix, device),
        *(
            f"{result} {prefix}_{name}({parameters}) {{ return {PLAIN}_{name}({arguments}); }}"
            for name, (result, parameters, arguments) in functions_of(device).items()
        ),
    ]
