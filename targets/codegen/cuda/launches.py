"""Writes the C file between a network's entry and the runtime: a function per kernel, and the tables of the module.

    int32_t nnefc_kernel_softmax(uint8_t *p0, uint8_t *p1, uint8_t *workspace) {
        uint8_t *own0 = workspace + 0;
        return launch(4, (const uint32_t[7]){200, 1, 1, 32, 1, 1, 0}, (void *[]){&p0, &own0}) ||
               launch(5, (const uint32_t[7]){200, 1, 1, 32, 1, 1, 0}, (void *[]){&p0, &own0, &p1});
    }

Dynamic dimensions are further parameters, from which grids and offsets in the workspace are computed.

See `runtime/cuda.h`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from nnefc.targets.codegen.cuda.device_functions import DeviceFunction, EncodedMap, Launch, Scalar, Version
from nnefc.targets.codegen.cuda.formulas import C_REALS, FUNCTIONS, Number
from nnefc.targets.codegen.cuda.sizes_in_memory import size_arguments, taken_by_kernel

__all__ = ["IMAGE", "Access", "HostKernel", "HostOperand", "launches_source"]

IMAGE = "nnefc_cuda_image"
"""The symbol of the fat binary."""


class Access(Enum):
    """How a host kernel accesses an operand; the values are C's."""

    READ = "NNEFC_CUDA_READ"
    WRITE = "NNEFC_CUDA_WRITE"
    BOTH = "NNEFC_CUDA_READ | NNEFC_CUDA_WRITE"
    NONE = "0"


@dataclass(frozen=True)
class HostOperand:
    """Memory that a kernel of the host is given; with the access NONE, for itself."""

    bytes: Number
    access: Access


@dataclass(frozen=True)
class HostKernel:
    """A kernel that the host runs, on copies of what the device has.

    Attributes:
        symbol: the function of the host's code.
        operands: of the kernel, in order, then its workspace if it has one.
        sizes: what formulas call the sizes that are its last arguments.
    """

    name: str
    symbol: str
    operands: tuple[HostOperand, ...]
    sizes: tuple[str, ...] = ()


def launches_source(
    functions: Sequence[DeviceFunction],
    host_kernels: Sequence[HostKernel],
    *,
    image_bytes: int,
    architectures: Sequence[int],
    capturable: bool,
    readers: Mapping[str, str],
    messages: Sequence[str] = (),
    arrival_bytes: int = 0,
    counts_offset: int = 0,
    output_counts: Sequence[tuple[int, int, int] | None] = (),
) -> str:
    """Returns the C file.

    Args:
        functions: what is launched.
        host_kernels: what the host computes.
        image_bytes: size of the fat binary, which the symbol IMAGE names.
        architectures: those of the machine code in it.
        capturable: whether the entry never waits for the device.
        readers: the names of the functions that read one number of a type, for the entry.
        messages: what kernels may report, as C writes it between quotation marks.
        arrival_bytes: what launches need to count the blocks that have arrived, and the counts of a run behind that.
        counts_offset: where the counts begin.
        output_counts: for each data-dependent dimension of the outputs, the number of the count that it follows from,
            what this is multiplied with, and what is added; None where the entry writes the size. Empty if it writes
            all of them.
    """
    launches = list({launch.kernel: launch for function in functions for launch in function.launches}.values())
    number = {launch.kernel: index for index, launch in enumerate(launches)}
    names = [f'"{launch.kernel}"' for launch in launches]
    shared = [str(launch.shared_bytes) for launch in launches]
    parts = [
        '#include <stddef.h>\n#include "cuda.h"\n',
        *([FUNCTIONS] if any(each.sizes for each in functions) or any(each.sizes for each in host_kernels) else []),
        f"extern const uint8_t {IMAGE}[];",
        *(_host_kernel(kernel) for kernel in host_kernels),
        *_array("const char *const", "kernels", names),
        *_array("const uint32_t", "dynamic_shared", shared),
        *_array("const char *const", "messages", [f'"{message}"' for message in messages]),
        *_array("const uint32_t", "architectures", [str(number) for number in architectures]),
        *_array(
            "const nnefc_cuda_host_kernel",
            "host_kernels",
            [f"{{call_{k.name}, operands_{k.name}, {len(k.operands)}}}" for k in host_kernels],
        ),
        *_array("const nnefc_cuda_output_count", "output_counts", list(map(_output_count, output_counts))),
        *(_launcher(function, number) for function in functions),
        *(_host_launcher(kernel, index) for index, kernel in enumerate(host_kernels)),
        *(_reader(dtype, name) for dtype, name in readers.items()),
    ]
    members = {
        "image": IMAGE,
        "bytes": f"UINT64_C({image_bytes})",
        "kernels": "kernels" if names else "NULL",
        "kernel_count": len(names),
        "dynamic_shared": "dynamic_shared" if names else "NULL",
        "messages": "messages" if messages else "NULL",
        "message_count": len(messages),
        "arrival_bytes": f"UINT64_C({arrival_bytes})",
        "counts_offset": f"UINT64_C({counts_offset})",
        "output_counts": "output_counts" if output_counts else "NULL",
        "host_kernels": "host_kernels" if host_kernels else "NULL",
        "host_kernel_count": len(host_kernels),
        "capturable": int(capturable),
        "architectures": "architectures",
        "architecture_count": len(architectures),
    }
    parts += [
        "const nnefc_cuda_module nnefc_cuda_this_module = {",
        *(f"    .{name} = {value}," for name, value in members.items()),
        "};",
        "",
    ]
    return "\n".join(parts)


def _output_count(count: tuple[int, int, int] | None) -> str:
    number, factor, added = (-1, 0, 0) if count is None else count
    return f"{{{number}, INT64_C({factor}), INT64_C({added})}}"


def _array(kind: str, name: str, elements: Sequence[str]) -> list[str]:
    """Returns a table; nothing for none, for C has no empty arrays."""
    return (
        ["\n".join([f"static {kind} {name}[] = {{", *(f"    {element}," for element in elements), "};"])]
        if elements
        else []
    )


def _launcher(function: DeviceFunction, number: Mapping[str, int]) -> str:
    names: list[str] = []
    given: list[str] = []
    own: dict[str, Number] = {}
    for position, parameter in enumerate(function.parameters):
        if parameter.counts_arrivals:
            names.append("arrivals")
        elif parameter.offset is None:
            names.append(f"p{position}")
            given.append(names[-1])
        else:
            names.append(f"own{len(own)}")
            own[names[-1]] = parameter.offset
    maps: list[EncodedMap] = []
    calls = [_call(function, launch, number[launch.kernel], names, maps) for launch in function.launches]
    more = [f"{part}_{size}" for size in function.in_memory for part in ("number", "factor", "added")]
    has_workspace = bool(own) or any(version.has_workspace for version in function.versions)
    return _function(
        f"nnefc_kernel_{function.name}",
        [*given, *(["workspace"] if has_workspace else [])],
        [_version(version, given, function.sizes) for version in function.versions]
        + [f"const int64_t {name} = {value};" for name, value in function.named]
        + [f"uint8_t *{name} = workspace + {_constant(offset)};" for name, offset in own.items()]
        + [
            f"const int64_t *count_{size} = nnefc_cuda_kept_count((uint32_t)number_{size});"
            for size in function.in_memory
        ]
        + ["uint32_t *arrivals = nnefc_cuda_arrivals();"] * ("arrivals" in names)
        + [f"(void){name};" for name in (*given, *function.sizes, *dict(function.named), *more)]
        + ["(void)workspace;"] * has_workspace
        + [f"nnefc_cuda_tensor_map map{index};" for index in range(len(maps))]
        + ["int32_t *failure = nnefc_cuda_failure();"] * any(launch.reports for launch in function.launches)
        + [f"return {' || '.join(calls) or '0'};"],
        [*function.sizes, *more],
    )


def _version(version: Version, given: Sequence[str], sizes: Sequence[str]) -> str:
    values = dict(version.values)
    conditions = [f"{size} == {value}" for size, value in values.items()]
    if version.architectures:
        devices = " || ".join(f"nnefc_cuda_capability() == {number}" for number in version.architectures)
        conditions.append(devices if len(version.architectures) == 1 else f"({devices})")
    condition = " && ".join(conditions)
    arguments = [*given, *["workspace"] * version.has_workspace, *(size for size in sizes if size not in values)]
    return f"if ({condition}) return nnefc_kernel_{version.name}({', '.join(arguments)});"


def _constant(number: Number) -> str:
    return f"UINT64_C({number})" if isinstance(number, int) else str(number)


def _function(symbol: str, parameters: Sequence[str], body: Sequence[str], sizes: Sequence[str] = ()) -> str:
    pointers, numbers = [f"uint8_t *{name}" for name in parameters], [f"int64_t {name}" for name in sizes]
    declared = ", ".join([*pointers, *numbers]) or "void"
    return "\n".join(
        [f"int32_t {symbol}({declared});", f"int32_t {symbol}({declared}) {{", *(f"    {line}" for line in body), "}"]
    )


def _call(function: DeviceFunction, launch: Launch, number: int, names: Sequence[str], maps: list[EncodedMap]) -> str:
    """Returns the launch, behind the calls that encode its tensor maps; these are added to `maps`."""
    blocks, *others = launch.grid
    grid = [str(blocks) if isinstance(blocks, int) else f"(uint32_t){blocks}", *map(str, others)]
    geometry = ", ".join([*grid, *map(str, (*launch.block, launch.shared_bytes))])
    given, encoded, taken = [], [], taken_by_kernel(function, launch)
    for position, argument in enumerate(launch.arguments):
        if position in taken:
            continue
        match argument:
            case Scalar():
                given.append(f"({_c_type(argument)}[1]){{({_c_type(argument)}){argument.value}}}")
            case EncodedMap():
                given.append(f"&map{len(maps)}")
                encoded.append(_encode(argument, f"map{len(maps)}", names))
                maps.append(argument)
            case _:
                given.append(f"&{names[argument]}")
    sizes = (f"&{name}" for name in size_arguments(function, launch))
    arguments = ", ".join([*given, *["&failure"] * launch.reports, *sizes])
    called = f"nnefc_cuda_launch({number}, (const uint32_t[7]){{{geometry}}}, (void *[]){{{arguments}}})"
    return " || ".join([*encoded, called])


def _encode(given: EncodedMap, name: str, names: Sequence[str]) -> str:
    each, rank = given.element_bytes, len(given.sizes)
    extent, steps = (", ".join(map(str, numbers)) for numbers in (given.box, given.steps))
    sizes = ", ".join(f"(uint64_t){size}" for size in given.sizes)
    strides = ", ".join(f"(uint64_t){stride}" for stride in given.strides)
    box = f"{{{each}, {given.row_vectors}, {rank}, {{{sizes}}}, {{{strides}}}, {{{extent}}}, {{{steps}}}}}"
    return f"nnefc_cuda_encode(&{name}, {names[given.parameter]} + {given.first}, &(const nnefc_cuda_box){box})"


def _c_type(number: Scalar) -> str:
    return C_REALS.get(number.dtype, f"{number.dtype}_t")


def _host_kernel(kernel: HostKernel) -> str:
    types = ", ".join([*("void *" for _ in kernel.operands), *("int64_t" for _ in kernel.sizes)])
    arguments = [*(f"operands[{i}]" for i in range(len(kernel.operands)))]
    arguments += [f"sizes[{i}]" for i in range(len(kernel.sizes))]
    operands = ", ".join(
        f"{{{_constant(0 if kernel.sizes else operand.bytes)}, {operand.access.value}}}" for operand in kernel.operands
    )
    return (
        f"int32_t {kernel.symbol}({types});\n"
        f"static int32_t call_{kernel.name}(void *const *operands, const int64_t *sizes) {{\n"
        f"    (void)sizes;\n"
        f"    return {kernel.symbol}({', '.join(arguments)});\n"
        f"}}\n"
        f"static const nnefc_cuda_operand operands_{kernel.name}[] = {{{operands}}};"
    )


def _host_launcher(kernel: HostKernel, index: int) -> str:
    given = [f"p{i}" for i, operand in enumerate(kernel.operands) if operand.access is not Access.NONE]
    operands = ", ".join([*given, *["NULL"] * (len(kernel.operands) - len(given))])
    arguments = f"&host_kernels[{index}], (void *const[]){{{operands}}}"
    call = f"nnefc_cuda_host_step({arguments})"
    if kernel.sizes:
        sizes = ", ".join(kernel.sizes)
        numbers = ", ".join(_constant(operand.bytes) for operand in kernel.operands)
        call = f"nnefc_cuda_sized_host_step({arguments}, (const uint64_t[]){{{numbers}}}, (const int64_t[]){{{sizes}}})"
    return _function(f"nnefc_kernel_{kernel.name}", given, [f"return {call};"], kernel.sizes)


def _reader(dtype: str, name: str) -> str:
    return (
        f"{dtype}_t {name}(const void *device);\n{dtype}_t {name}(const void *device) {{\n"
        f"    {dtype}_t value = 0;\n    nnefc_cuda_read(&value, device, sizeof value);\n    return value;\n}}"
    )
