"""Runs CUDA source on the CPU: scheduled kernels and whole cuda libraries, without a GPU.

    run_kernel(func, (x, weights, y), target)      # func: a scheduled tirx.PrimFunc, its loops bound to threads

changes the arrays in place: those that the function writes hold its results. Arrays are C-contiguous, in the order
of the function's parameters; what it needs between launches is made here, and begins as NaN. Fill results with NaN
before. It raises `EmulationError`, which names kernel, block, thread and what it was about, for

- a launch that the hardware would refuse: sizes of grids, blocks (also against `__launch_bounds__`), shared memory;
- a barrier that not all threads of a block reach, a shuffle whose lanes never all arrive;
- an access outside of the given arrays, the block's shared memory and the thread's own arrays, also by an index into an
  array of known size; a write to an array that is read-only (`array.flags.writeable = False`);
- an access at an address that is not aligned for its vector type;
- a race: two threads touch the same bytes, one of them writes something new, and no `__syncthreads` (or `__syncwarp`
  within a warp) lies between; or they are of different blocks, and the first has not made its writes visible
  (`__syncthreads`, `__threadfence`, an atomic operation) before the second has found out by an atomic operation at the
  same address, with a `__threadfence` behind it;
- a result that depends on the order of the threads (they run forward, backward and shuffled), or on which lanes of a
  warp `__activemask()` finds together (all, or every other one).

Shared memory begins as NaN in every block, a shuffle from a lane that takes no part gives NaN, and what an asynchronous
copy (`cp.async`) overwrites is NaN until its thread has waited for it. So are accumulators of products of warpgroups
(`wgmma`). Errors besides: no `wgmma.fence` since the last wait; accumulators that change before the wait, or are never
waited for; operands that a thread wrote without `fence.proxy.async` and a barrier after it, or that change before the
wait. What a bulk copy (`cp.async.bulk.tensor`) writes is NaN until all threads wait, or until they run the next time.
Errors are: a wait at an `mbarrier` that never ends, with the arrivals and bytes that it lacks; a load or a `wgmma`
whose threads have not waited for the copy's phase; a copy to what `wgmma` or a load may still read, or another copy
writes; barriers and memory without `fence.proxy.async` between threads and copies; a copy that no thread waits for;
`setmaxnreg` of threads that are no whole warpgroup, or for registers that no other warpgroup gives back. Source with
`tcgen05` instructions is for a device that has them, all other source for one with `wgmma`. Sums in tensor memory are
NaN until the commit of their product has arrived. Errors are: tensor memory that is used without being allocated, or
never freed; products and loads that no commit, wait and `tcgen05.fence` order; descriptors that there are not.
Dynamic shared memory is aligned as the source declares it, and no better.

The same in steps, for source from elsewhere:

    kernels = emulate(source, folder)                          # source: CUDA C++ as TVM makes it
    kernels.launch("add_kernel", (a, b, out), grid=(4,), block=(128,), shared_bytes=0)

A whole library: `emulate_library(source, folder)` makes a shared object (without checks of memory: no caller declares
what its pointers point to) that exports `void emulated_NAME(void **arguments, const unsigned grid[3], const unsigned
block[3], unsigned shared_bytes)` and `const unsigned emulated_NAME_parameters[]` (how many it has, then the bytes of
each) for each kernel, and `const char *emulator_error(void)`, null unless the last launch
failed. The fake driver finds it by the environment variable NNEFC_EMULATED_KERNELS.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import hashlib
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from inline_assembly import without_assembly
from runtime_samples import ZIG_CC
from tvm import tirx

from nnefc.backends.cuda_passes import DEVICE
from nnefc.backends.kernel_context import KernelContext
from nnefc.passes.manager import Phase
from nnefc.targets.codegen.cuda.device_functions import DeviceCode, DeviceFunction, EncodedMap
from nnefc.targets.codegen.cuda.kernels import device_kernel, joined
from nnefc.targets.machine.cuda.target import CudaTarget

HERE = Path(__file__).parent
_CHECKS = ("-fsanitize=thread", "-fsanitize=array-bounds,alignment", "-fno-sanitize-recover=all")
_OPTIONS = (
    "-std=c++17",
    "-fno-exceptions",
    "-fno-rtti",
    "-fPIC",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fwrapv",
    "-fno-vectorize",
    "-fno-slp-vectorize",
    "-fvisibility=hidden",
    "-w",
)


class EmulationError(Exception):
    """What would be an error, or undefined, on the GPU."""


class _TensorMap(ctypes.Structure):
    """`emulator_tensor_map` of machine.h."""

    _fields_ = (
        ("magic", ctypes.c_uint64),
        ("address", ctypes.c_uint64),
        ("strides", ctypes.c_uint64 * 4),
        ("sizes", ctypes.c_uint32 * 5),
        ("box", ctypes.c_uint32 * 5),
        ("rank", ctypes.c_uint32),
        ("element_bytes", ctypes.c_uint32),
        ("swizzle", ctypes.c_uint32),
        ("steps", ctypes.c_uint32 * 5),
        ("unused", ctypes.c_uint8 * (128 - 16 - 32 - 40 - 12 - 20)),
    )


@dataclass(frozen=True)
class TensorMapArgument:
    """A tensor map of an array, which is an argument before it."""

    array: np.ndarray
    map: EncodedMap

    def encoded(self, address: int) -> _TensorMap:
        """Returns what the host encodes for the array at an address."""
        of, each = self.map, self.map.element_bytes
        strides = (ctypes.c_uint64 * 4)(*of.strides)
        fetched = (-(-extent // step) for extent, step in zip(of.box, of.steps, strict=True))
        sizes, box, steps = ((ctypes.c_uint32 * 5)(*numbers) for numbers in (of.sizes, fetched, of.steps))
        return _TensorMap(_MAGIC, address + of.first, strides, sizes, box, len(of.sizes), each, of.row_vectors, steps)


_MAGIC = int.from_bytes(b"nnefcbox", "big")


@dataclass(frozen=True)
class EmulatedKernels:
    """A shared object with kernels in it.

    Attributes:
        path: the shared object.
        names: the kernels in it.
    """

    path: Path
    names: tuple[str, ...]

    @functools.cached_property
    def _library(self) -> ctypes.CDLL:
        library = ctypes.CDLL(str(self.path))
        library.emulator_error.restype = ctypes.c_char_p
        library.emulator_memory.argtypes = [ctypes.c_void_p, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_int]
        return library

    def launch(
        self,
        name: str,
        arguments: Sequence[np.ndarray | int | float | TensorMapArgument],
        grid: Sequence[int],
        block: Sequence[int],
        shared_bytes: int = 0,
        *,
        order: int = 0,
    ) -> None:
        """Run a kernel on arrays, which it changes in place.

        Args:
            name: the kernel.
            arguments: in order: C-contiguous arrays for pointers, int for int32, float for float32, tensor maps.
            grid: how many blocks in x, y and z; missing ones are 1.
            block: how many threads of a block.
            shared_bytes: dynamic shared memory of a block.
            order: in which order threads run: 0 forward, 1 backward, others shuffled.

        Raises:
            EmulationError: what the kernel does is wrong; the message says what, where.
        """
        library = self._library
        values: list[ctypes._SimpleCData[object] | _TensorMap] = []
        copies: list[tuple[np.ndarray, np.ndarray]] = []
        library.emulator_forget()
        for number, argument in enumerate(arguments):
            match argument:
                case np.ndarray():
                    assert argument.flags.c_contiguous, f"argument {number} is not contiguous"
                    copy = _aligned_copy(argument)
                    copies.append((argument, copy))
                    values.append(ctypes.c_void_p(copy.ctypes.data))
                    library.emulator_memory(
                        copy.ctypes.data, copy.nbytes, _label(number), int(argument.flags.writeable)
                    )
                case TensorMapArgument():
                    at = next(copy.ctypes.data for array, copy in copies if array is argument.array)
                    values.append(argument.encoded(at))
                case bool() | int():
                    values.append(ctypes.c_int32(argument))
                case float():
                    values.append(ctypes.c_float(argument))
        pointers = (ctypes.c_void_p * len(values))(*[ctypes.addressof(value) for value in values])
        library.emulator_order(order)
        getattr(library, f"emulated_{name}")(pointers, _three(grid), _three(block), ctypes.c_uint(shared_bytes))
        library.emulator_forget()
        for array, copy in copies:
            if array.flags.writeable:
                array.reshape(-1).view(np.uint8)[...] = copy
        error = library.emulator_error()
        if error is not None:
            raise EmulationError(error.decode())

    def launch_in_orders(
        self,
        name: str,
        arguments: Sequence[np.ndarray | int | float | TensorMapArgument],
        grid: Sequence[int],
        block: Sequence[int],
        shared_bytes: int = 0,
        *,
        orders: Sequence[int] = (0, 1, 2),
    ) -> None:
        """`launch` several times from the same arguments; `arguments` hold the results of the last.

        Raises:
            EmulationError: also if two orders of the threads give different bytes.
        """
        before = [np.copy(a) if isinstance(a, np.ndarray) else a for a in arguments]
        first: list[bytes] | None = None
        for order in orders:
            for argument, old in zip(arguments, before, strict=True):
                if isinstance(argument, np.ndarray) and argument.flags.writeable:
                    argument[...] = old
            self.launch(name, arguments, grid, block, shared_bytes, order=order)
            results = [a.tobytes() for a in arguments if isinstance(a, np.ndarray)]
            if first is not None and results != first:
                raise EmulationError(
                    f"kernel {name}: threads in order {order} give another result than in order {orders[0]}"
                )
            first = results


def device_code(kernels: Sequence[tirx.PrimFunc], target: CudaTarget) -> DeviceCode:
    """Returns the CUDA source of some scheduled kernels, called by their symbols, or `kernel0`, `kernel1`, …

    The backend's passes of the phase `blocks` run over them first.

    Raises:
        NotOnDevice: see `device_kernel`.
    """
    lowered = []
    for number, kernel in enumerate(kernels):
        name = str(kernel.attrs["global_symbol"]) if "global_symbol" in kernel.attrs else f"kernel{number}"
        context = KernelContext(manager=None, use=None, machine=target, rules=(), on_host=False)
        for step in DEVICE:
            if step.phase is Phase.BLOCKS:
                kernel = step.run(kernel, context)
        lowered.append(device_kernel(name, kernel, len(context.own), target))
    return joined(lowered, target)


def run_kernel(
    func: tirx.PrimFunc, arrays: Sequence[np.ndarray], target: CudaTarget, *, checks: bool = True
) -> DeviceFunction:
    """Run a scheduled kernel on arrays, one for each parameter, which it changes in place.

    Args:
        func: the kernel; all of its loops are bound to blocks and threads.
        arrays: its arguments.
        target: what source is made for.
        checks: whether accesses to memory are checked and threads run in several orders; thirty times slower.

    Returns:
        How it was launched.

    Raises:
        EmulationError: what the kernel does is wrong.
        NotOnDevice: it has statements outside of bound loops.
    """
    code = device_code([func], target)
    (function,) = code.functions
    kernels = emulate(code.source, _folder(), checks=checks)
    run_function(kernels, function, arrays, orders=(0, 1, 2) if checks else (0,))
    return function


def run_function(
    kernels: EmulatedKernels, function: DeviceFunction, arrays: Sequence[np.ndarray], *, orders: Sequence[int] = (0,)
) -> None:
    """Launch what a function has become on arrays for its parameters; errors as of `run_kernel`."""
    own = [parameter for parameter in function.parameters if parameter.offset is not None or parameter.counts_arrivals]
    assert len(arrays) == len(function.parameters) - len(own), "one array for each parameter"
    for array, parameter in zip(arrays, function.parameters, strict=False):
        assert array.nbytes == parameter.bytes, (
            f"{parameter.name} has {parameter.bytes} bytes, its array {array.nbytes}"
        )
    made = [np.full(parameter.bytes, 0 if parameter.counts_arrivals else 0xFF, np.uint8) for parameter in own]
    buffers = [*arrays, *made]
    for launch in function.launches:
        failure = np.zeros(1, np.int32)
        arguments = [
            *(
                TensorMapArgument(buffers[given.parameter], given) if isinstance(given, EncodedMap) else buffers[given]
                for given in launch.arguments
            ),
            *[failure] * launch.reports,
        ]
        kernels.launch_in_orders(
            launch.kernel, arguments, launch.grid, launch.block, launch.shared_bytes, orders=orders
        )
        if failure[0]:
            raise EmulationError(f"kernel {launch.kernel} reports message {failure[0]}")
        if any(memory.any() for parameter, memory in zip(own, made, strict=True) if parameter.counts_arrivals):
            raise EmulationError(f"kernel {launch.kernel} leaves a counter of arrivals that is not 0")


def _aligned_copy(array: np.ndarray) -> np.ndarray:
    """An array's bytes where device memory would be: at a multiple of 256."""
    memory = np.empty(array.nbytes + 256, np.uint8)
    start = -memory.ctypes.data % 256
    memory[start : start + array.nbytes] = array.reshape(-1).view(np.uint8)
    return memory[start : start + array.nbytes]


@functools.cache
def _label(number: int) -> bytes:
    """What the emulator calls an argument; it keeps a pointer to the text."""
    return f"argument {number}".encode()


def emulate(source: str, folder: Path, *, checks: bool = True, capability: int = 0) -> EmulatedKernels:
    """Compile CUDA source for the CPU into `folder`.

    Args:
        source: CUDA C++ with kernels declared `extern "C" __global__ void NAME(...)`.
        folder: where to put the shared object.
        checks: whether accesses to memory are checked; ten times slower.
        capability: the compute capability of the device that is played, as 80; of 90 and 100 with their own
            instructions. 0 is for 100 where the source has such, else for 90.

    Raises:
        EmulationError: the source uses something that the emulator does not know; with the compiler's messages.
    """
    names, text = _prepare(source, capability)
    digest = hashlib.sha256(f"{checks}{_own_text()}{text}".encode()).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"emulated_{digest}.so"
    if not path.exists():
        code, objects, partial = (
            folder / f"emulated_{digest}.cpp",
            folder / f"emulated_{digest}.o",
            path.with_suffix(".part"),
        )
        code.write_text(text)
        include = ("-nostdinc", "-I", str(HERE), "-I", str(HERE / "include"))
        _run(
            *_OPTIONS,
            *include,
            "-O1",
            *(_CHECKS if checks else ("-fno-sanitize=all",)),
            "-x",
            "c++",
            "-c",
            str(code),
            "-o",
            str(objects),
        )
        _run("-shared", "-fno-sanitize=all", str(objects), str(_machine()), "-lm", "-lpthread", "-o", str(partial))
        partial.rename(path)
    return EmulatedKernels(path, names)


def emulate_library(source: str, folder: Path) -> Path:
    """The shared object for NNEFC_EMULATED_KERNELS that has all kernels of `source`; errors as of `emulate`."""
    return emulate(source, folder, checks=False).path


# One definition of a kernel: attributes such as __launch_bounds__(256) may stand before its name.
_KERNEL = re.compile(r'extern\s+"C"\s+__global__\s+void\s+((?:__\w+__\s*\([^)]*\)\s*)*)(\w+)\s*\(([^)]*)\)\s*([;{])')
_STATIC_SHARED = re.compile(r"__shared__\s+((?:alignas|__align__)\s*\(\s*\d+\s*\))?")
_DYNAMIC_SHARED = re.compile(
    r"extern\s+__shared__\s+(?:(?:alignas|__align__)\s*\(\s*(\d+)\s*\)\s*)?([\w\s]+?)\s*(\w+)\s*\[\s*\]\s*;"
)
_COOPERATION = re.compile(
    r"__sync|__shfl|__ballot|__activemask|__any_sync|__all_sync|__reduce_|tvm_builtin|ptx_|wmma|emulator_|"
    r"nnefc_is_last|nnefc_rank"
)
_VECTOR_ACCESS = re.compile(r"\*\(\s*(?:const\s+)?(\w+)\s*\*\)\(")
_BOUND = re.compile(r"__launch_bounds__\s*\(\s*(\d+)")
_CLUSTER = re.compile(r"__cluster_dims__\s*\(\s*(\d+)\s*,\s*1\s*,\s*1\s*\)")


def _prepare(source: str, capability: int) -> tuple[tuple[str, ...], str]:
    """The kernels' names; the source as C++, shared arrays in sections, assembly as calls, an entry for each."""
    source = without_assembly(source)
    definitions = [match for match in _KERNEL.finditer(source) if match[4] == "{"]
    if not definitions:
        raise EmulationError("the source defines no kernel")
    capability = capability or (100 if "SM100_ALL" in source else 90)
    parts = [
        f'#define EMULATOR_CAPABILITY {capability}\n#include "emulator.h"\n#line 1 "kernels.cu"\n',
        source[: definitions[0].start()],
    ]
    entries = []
    for definition, following in zip(definitions, [*definitions[1:], None], strict=True):
        name = definition[2]
        body = source[definition.start() : following.start() if following else len(source)]
        shared = f'static __attribute__((section("shared_{name}"), used)) '
        alignment = max((int(match[1] or 16) for match in _DYNAMIC_SHARED.finditer(body)), default=16)
        body = _DYNAMIC_SHARED.sub(r"\2 *\3 = (\2 *)emulator_dynamic_shared;", body)
        body = _VECTOR_ACCESS.sub(r"*emulator_aligned<\1>(", body)
        body, arrays = _STATIC_SHARED.subn(lambda match, shared=shared: f"{match[1] or ''} {shared}", body)
        parts.append(body)
        bound = _BOUND.search(definition[1])
        cooperates = bool(_COOPERATION.search(body))
        cluster = _CLUSTER.search(definition[1])
        blocks = int(cluster[1]) if cluster else 1
        entries.append(_entry(name, int(bound[1]) if bound else 0, arrays > 0, cooperates, alignment, blocks))
    return tuple(match[2] for match in definitions), "".join(parts + entries)


def _entry(name: str, bound: int, has_shared: bool, cooperative: bool, alignment: int, cluster: int) -> str:
    begin, end = (f"__start_shared_{name}", f"__stop_shared_{name}") if has_shared else ("nullptr", "nullptr")
    symbols = f'extern "C" __attribute__((weak, visibility("hidden"))) char {begin}[], {end}[];' if has_shared else ""
    parameters = f"emulator_parameters<decltype(&{name})> emulated_{name}_parameters"
    record = f'"{name}", call, {bound}u, {begin}, {end}, {"true" if cooperative else "false"}, {alignment}u, {cluster}u'
    return f"""
{symbols}
extern "C" __attribute__((visibility("default"))) const {parameters} = {{}};
extern "C" __attribute__((visibility("default"))) void emulated_{name}(void **arguments, const unsigned *grid,
    const unsigned *block, unsigned shared_bytes) {{
  auto call = [](void **values) EMULATOR_UNRECORDED {{ emulator_call({name}, values); }};
  static const emulator_kernel kernel = {{{record}}};
  emulator_launch(&kernel, arguments, grid, block, shared_bytes);
}}
"""


def _three(sizes: Sequence[int]) -> ctypes.Array[ctypes.c_uint]:
    return (ctypes.c_uint * 3)(*sizes, *[1] * (3 - len(sizes)))


@functools.cache
def _folder() -> Path:
    """Of temporary shared objects; until the process ends."""
    folder = tempfile.mkdtemp(prefix="emulator-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@functools.cache
def _own_text() -> str:
    return "".join(
        (HERE / name).read_text()
        for name in (
            "emulate.py",
            "emulator.h",
            "machine.h",
            "bulk_copies.h",
            "clusters.h",
            "registers.h",
            "tensor_memory.h",
            "runtime.cpp",
        )
    )


@functools.cache
def _machine() -> Path:
    """The emulator's own part, compiled once in a process."""
    path = _folder() / "runtime.o"
    _run(
        *_OPTIONS,
        "-O2",
        "-fno-sanitize=all",
        "-nostdinc++",
        "-x",
        "c++",
        "-c",
        str(HERE / "runtime.cpp"),
        "-o",
        str(path),
    )
    return path


def _run(*options: str) -> None:
    command = [*ZIG_CC, *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise EmulationError(f"the emulator does not compile this source:\n{done.stderr[:4000]}")
