"""Writes kernels as CUDA source, by TVM's code generator, and what that cannot say."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence

import tvm

from nnefc.targets.codegen.cuda.prelude import PRELUDE, replace_prelude
from nnefc.targets.machine.cuda.capabilities import SPECIFIC_FEATURES
from nnefc.targets.machine.cuda.target import CudaTarget

__all__ = ["is_one_of", "source_of"]

_CALLBACK = "tvm_callback_cuda_compile"
_GENERATING = threading.Lock()  # the callback is one for the process


def source_of(modules: tvm.IRModule, target: CudaTarget, conditions: Mapping[str, str]) -> str:
    """Returns the device's functions as CUDA source.

    Args:
        conditions: of C's preprocessor, by the names of kernels: an architecture for which they do not hold has the
            kernel without statements. The driver finds it, and the host does not launch it.
    """
    if not modules.functions:
        return PRELUDE
    with _GENERATING:
        compiler = tvm.get_global_func(_CALLBACK, allow_missing=True)
        tvm.register_global_func(_CALLBACK, lambda _source, _target: b"", override=True)
        try:
            text = str(tvm.get_global_func("target.build.cuda")(modules, target.to_tvm()).inspect_source())
        finally:
            if compiler is not None:
                tvm.register_global_func(_CALLBACK, compiler, override=True)
    declared = _with_tensor_map_type(_with_names_by_type(replace_prelude(text)))
    return _under_conditions(_with_clusters(_with_aligned_tiles(declared)), conditions)


_TENSOR_MAP = "struct alignas(64) CUtensorMap { uint64_t opaque[16]; };  // as cuda.h has it\n"


def _with_tensor_map_type(source: str) -> str:
    """Declares the type of tensor maps where kernels have such parameters; NVRTC has no header of the driver's."""
    return source.replace(PRELUDE, PRELUDE + _TENSOR_MAP, 1) if "CUtensorMap" in source else source


_DYNAMIC = re.compile(r"extern __shared__ __align__\(64\) ([\w ]+?) (\w+)\[\];")
_FUNCTION = re.compile(r'^(?=extern "C" __global__ void )', re.MULTILINE)


def _with_names_by_type(source: str) -> str:
    """Gives dynamic shared memory the name of its elements' type: C++ has one type for a name in all kernels."""

    def renamed(function: str) -> str:
        for dtype, name in _DYNAMIC.findall(function):
            function = re.sub(rf"\b{name}\b", f"{name}_of_{dtype.replace(' ', '_')}", function)
        return function

    return "".join(map(renamed, _FUNCTION.split(source))) if len(set(_DYNAMIC.findall(source))) > 1 else source


_SHARED, _ALIGNED_SHARED = "extern __shared__ __align__(64)", "extern __shared__ __align__(1024)"


def _with_aligned_tiles(source: str) -> str:
    """Aligns shared memory where matrix descriptors name tiles in it: the widest swizzle repeats after 1,024 bytes.

    Raises:
        RuntimeError: TVM declares dynamic shared memory in another way than TVM 0.27.
    """
    if not any(macro in source for macro in SPECIFIC_FEATURES.values()):
        return source
    if _SHARED not in source:
        raise RuntimeError(f"TVM's CUDA source has products of warpgroups, and no {_SHARED!r}")
    return source.replace(_SHARED, _ALIGNED_SHARED)


_KERNEL = re.compile(r'extern "C" __global__ void (?=__launch_bounds__\([\d, ]+\) (\w+)\()')
_MEETS_IN_PAIR = "nnefc_meet_in_pair("
_NO_CLUSTERS = """\
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900  // has none
#undef __cluster_dims__
#define __cluster_dims__(...)
#endif
"""


def _with_clusters(source: str) -> str:
    """Launches kernels in clusters of two blocks where these meet (`pair_launch.py`)."""
    if _MEETS_IN_PAIR not in source:
        return source
    functions = (function for function in _FUNCTION.split(source) if _MEETS_IN_PAIR in function)
    pairs = {kernel[1] for kernel in map(_KERNEL.match, functions) if kernel is not None}
    source = source.replace(PRELUDE, PRELUDE + _NO_CLUSTERS, 1)
    return _KERNEL.sub(lambda it: it[0] + ("__cluster_dims__(2, 1, 1) " if it[1] in pairs else ""), source)


_BODY = re.compile(
    r'^(extern "C" __global__ void (?:__\w+\([\d, ]+\) )*(\w+)\([^;{}]*\) \{)(.*?)\n\}\n', re.MULTILINE | re.DOTALL
)


def _under_conditions(source: str, conditions: Mapping[str, str]) -> str:
    """Puts the statements of kernels under conditions."""

    def guarded(match: re.Match[str]) -> str:
        condition = conditions.get(match[2])
        return match[0] if condition is None else f"{match[1]}\n#if {condition}{match[3]}\n#endif\n}}\n"

    return _BODY.sub(guarded, source) if conditions else source


def is_one_of(architectures: Sequence[int]) -> str:
    """Returns the condition of C's preprocessor for machine code of one of these architectures."""
    return " || ".join(f"defined({SPECIFIC_FEATURES[number]})" for number in architectures)
