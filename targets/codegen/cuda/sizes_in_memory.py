"""Lets kernels read data-dependent sizes from the device's memory, instead of taking them as arguments.

    __global__ void f(float *x, int n) {        __global__ void f(float *x, const int64_t *nnefc_count_size0, …) {
      …                                    →      const int64_t nnefc_size0 = nnefc_size_of(nnefc_count_size0, …);
                                                  if ((int64_t)blockIdx.x >= (nnefc_size0 + 255) / 256) return;
                                                  const int n = (int)(nnefc_size0);
                                                  …

It is launched with as many blocks as the largest size needs. Those beyond the size end at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from nnefc.targets.codegen.cuda.device_functions import DeviceCode, DeviceFunction, EncodedMap, Launch, Scalar
from nnefc.targets.codegen.cuda.formulas import FUNCTIONS, Number
from nnefc.targets.codegen.cuda.prelude import PRELUDE

__all__ = ["reads_counts", "size_arguments", "taken_by_kernel", "with_counts"]

_OF_COUNT = ("count", "factor", "added")
_NAMED = re.compile(r"\bsize\d+\b")
_DEVICE_FUNCTIONS = f"""\
#ifndef INT64_C
#define INT64_C(number) number##LL
#endif
{FUNCTIONS.replace("static inline", "static __device__ __forceinline__")}
static __device__ __forceinline__ int64_t nnefc_size_of(
    const int64_t *count, int64_t factor, int64_t added, int64_t limit) {{
  return nnefc_minimum(*count * factor + added, limit);
}}
"""


def reads_counts(function: DeviceFunction) -> bool:
    """Whether the launches of a function can read sizes from memory: the host needs them to encode tensor maps, and
    blocks that count each other must all run."""
    maps = (isinstance(argument, EncodedMap) for launch in function.launches for argument in launch.arguments)
    arrivals = (parameter.counts_arrivals for parameter in function.parameters)
    return not any(maps) and not any(arrivals)


def with_counts(code: DeviceCode, positions: Mapping[str, Sequence[int]], counts: int) -> DeviceCode:
    """Returns code whose functions read some of their sizes from memory.

    Args:
        positions: of these among a function's sizes, by its name.
        counts: how many of them a session has.
    """
    functions = tuple(
        replace(function, in_memory=tuple(function.sizes[position] for position in positions.get(function.name, ())))
        for function in code.functions
    )
    source = code.source
    for function in functions:
        for launch in function.launches:
            if _reads_sizes(function, launch):
                source = _with_counts(source, function, launch)
    if source is not code.source:
        source = source.replace(PRELUDE, PRELUDE + _DEVICE_FUNCTIONS, 1)
    return replace(code, source=source, functions=functions, counts=counts)


def taken_by_kernel(function: DeviceFunction, launch: Launch) -> tuple[int, ...]:
    """Returns the positions of the arguments that a kernel computes from counts; they are not passed to it."""
    names = _names_in_memory(function)
    return tuple(
        position
        for position, argument in enumerate(launch.arguments)
        if isinstance(argument, Scalar) and _mentions(argument.value, names)
    )


def size_arguments(function: DeviceFunction, launch: Launch) -> list[str]:
    """Returns the C variables of the launching function that are passed to a kernel, behind all others."""
    if not _reads_sizes(function, launch):
        return []
    return [*(f"{part}_{size}" for size in function.in_memory for part in _OF_COUNT), *function.sizes]


def _reads_sizes(function: DeviceFunction, launch: Launch) -> bool:
    return bool(taken_by_kernel(function, launch)) or _mentions(launch.grid[0], _names_in_memory(function))


def _names_in_memory(function: DeviceFunction) -> set[str]:
    """Returns the sizes that are in memory, and those that follow from them."""
    found = set(function.in_memory)
    for name, value in function.named:
        if _mentions(value, found):
            found.add(name)
    return found


def _mentions(number: Number, names: set[str]) -> bool:
    return not names.isdisjoint(_NAMED.findall(str(number)))


def _with_counts(source: str, function: DeviceFunction, launch: Launch) -> str:
    taken = taken_by_kernel(function, launch)
    types = {"count": "const int64_t *", "factor": "int64_t ", "added": "int64_t "}
    added = [f"{types[part]}nnefc_{part}_{size}" for size in function.in_memory for part in _OF_COUNT]
    added += [f"int64_t nnefc_limit_{size}" for size in function.sizes]

    def changed(match: re.Match[str]) -> str:
        given = [parameter.strip() for parameter in match[1].split(",")]
        kept = [parameter for position, parameter in enumerate(given) if position not in taken]
        lines = _beginning(function, launch, given, taken) if match[2] == "{" else []
        return f"{launch.kernel}({', '.join([*kept, *added])}) {match[2]}" + "".join(f"\n  {line}" for line in lines)

    source, count = re.subn(rf"\b{launch.kernel}\(([^)]*)\)\s*([;{{])", changed, source)
    if not count:
        raise RuntimeError(f"TVM's CUDA source has no kernel {launch.kernel}")
    return source


def _beginning(function: DeviceFunction, launch: Launch, given: Sequence[str], taken: Sequence[int]) -> list[str]:
    """Returns the statements that a kernel begins with."""
    lines = []
    for size in function.sizes:
        value = f"nnefc_limit_{size}"
        if size in function.in_memory:
            value = f"nnefc_size_of({', '.join(f'nnefc_{part}_{size}' for part in _OF_COUNT)}, {value})"
        lines.append(f"const int64_t nnefc_{size} = {value};")
    lines += [f"const int64_t nnefc_{name} = {_on_device(value)};" for name, value in function.named]
    if _mentions(launch.grid[0], _names_in_memory(function)):
        lines.append(f"if ((int64_t)blockIdx.x >= {_on_device(launch.grid[0])}) return;")
    for position in taken:
        scalar = launch.arguments[position]
        assert isinstance(scalar, Scalar)
        kind, _, name = given[position].removeprefix("const ").rpartition(" ")
        lines.append(f"const {kind} {name} = ({kind})({_on_device(scalar.value)});")
    return lines


def _on_device(number: Number) -> str:
    return _NAMED.sub(lambda match: f"nnefc_{match[0]}", str(number))
