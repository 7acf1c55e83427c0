"""Load a compiled network and run it from Python.

This file needs NumPy and nothing else: copy it beside the library and import it.

    model = load("resnet50.so")
    probabilities = model(image)                       # one output: an array; several: a tuple
    probabilities = model.run({"data": image})["prob"]  # by name
    model(image, out=buffer)                            # into an existing array
    model.reserve({"batch": 64})                        # memory for all batches up to 64, if sizes are open

Inputs are NumPy arrays, or anything with `__dlpack__`, `__array__` or the buffer protocol. They must have the model's
element type and shape: nothing is converted silently. Dense row-major arrays are read in place; others are copied
first. bfloat16, which NumPy lacks, is passed as uint16 bit patterns or as arrays of ml_dtypes' bfloat16. Strings go in
as arrays of `str_`, StringDType or objects (str, or bytes of UTF-8), and come out as arrays of objects, which are str.

A network compiled for NVIDIA GPUs also takes arrays in the GPU's memory, with `__dlpack__` or
`__cuda_array_interface__`, and leaves its outputs there on request:

    model = load("resnet50.so", device=1)              # the second GPU; the default is 0, the first
    logits = model(tensor, out="device")               # a DeviceArray, for torch.from_dlpack or CuPy
    logits = model(tensor, stream=stream)              # starts the run on a CUDA stream and returns

A `Model` may be used from several threads: its calls take turns. To run in parallel, give each thread its own session,
`model.session(threads=1)`, which has its own states, workspace and threads and shares the constants.
"""

from __future__ import annotations

import _ctypes
import ctypes
import json
import math
import mmap
import os
import platform
import struct
import sys
import sysconfig
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from ctypes import (
    CFUNCTYPE,
    POINTER,
    PYFUNCTYPE,
    Structure,
    byref,
    c_char,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    py_object,
    pythonapi,
)
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

__all__ = ["DeviceArray", "Dimension", "LoadError", "Model", "RunError", "Tensor", "load"]

_ABI_VERSION, _OPEN_ABI_VERSION = 1, 2
_COUNTED = 1 - (1 << 63)  # in the shape of an output: only a run tells

_OK, _UNSUPPORTED_CPU, _BUSY = 0, 3, 6  # of nnefc_status, those that need words of their own

_TYPES = {  # nnefc_type → the name of the element type, NumPy's type for it
    1: ("bool", np.dtype(np.bool_)),
    2: ("int8", np.dtype(np.int8)),
    3: ("int16", np.dtype(np.int16)),
    4: ("int32", np.dtype(np.int32)),
    5: ("int64", np.dtype(np.int64)),
    6: ("uint8", np.dtype(np.uint8)),
    7: ("uint16", np.dtype(np.uint16)),
    8: ("uint32", np.dtype(np.uint32)),
    9: ("uint64", np.dtype(np.uint64)),
    10: ("float16", np.dtype(np.float16)),
    11: ("bfloat16", np.dtype(np.uint16)),
    12: ("float32", np.dtype(np.float32)),
    13: ("float64", np.dtype(np.float64)),
    14: ("string", np.dtype(np.object_)),
}

_DTYPES = dict(_TYPES.values())

_MOST_THREADS = 1024  # of a session

_UNDECODABLE = "surrogateescape"  # how bytes that are no UTF-8 go through str and come out as they were

_DENSE = 0x001 | 0x100  # NumPy's flags C_CONTIGUOUS and ALIGNED

_MACHINES = {  # e_machine of ELF → bits → what Python's platform.machine() calls it
    3: {32: "i686"},
    40: {32: "armv7l"},
    62: {64: "x86_64"},
    183: {64: "aarch64"},
    243: {32: "riscv32", 64: "riscv64"},
    258: {64: "loongarch64"},
}


class LoadError(Exception):
    """A library that cannot be loaded here. The message says why, and what to do."""


class RunError(RuntimeError):
    """A run that fails: arrays that do not fit the model, a closed model, a failure of the network's code."""


@dataclass(frozen=True)
class Dimension:
    """An open dimension: its name, the sizes that it may have, which are multiples of a number, and a typical one."""

    name: str
    least: int
    most: int
    multiple: int
    typical: int

    def __str__(self) -> str:
        of = f" in steps of {self.multiple}" if self.multiple > 1 else ""
        return f"{self.name}: {self.least} to {self.most}{of}"


@dataclass(frozen=True)
class Tensor:
    """An input, output or state: its name, its element type (NumPy's name, or bfloat16) and its shape."""

    name: str
    dtype: str
    shape: tuple[Any, ...]

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class _Sized:
    """The sizes of a session with open dimensions: the inputs' shapes, and inputs and outputs as they are with them."""

    shapes: list[tuple[int, ...]]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


class _TensorStruct(Structure):
    _fields_ = (
        ("name", c_char_p),
        ("type", c_int32),
        ("rank", c_int32),
        ("shape", POINTER(c_int64)),
        ("bytes", c_uint64),
    )


class _DimensionStruct(Structure):
    _fields_ = (
        ("name", c_char_p),
        ("least", c_int64),
        ("most", c_int64),
        ("multiple", c_int64),
        ("typical", c_int64),
    )


class _DescriptionStruct(Structure):
    _fields_ = (
        ("abi_version", c_uint32),
        ("struct_size", c_uint32),
        ("model", c_char_p),
        ("target", c_char_p),
        ("compiler", c_char_p),
        ("inputs", POINTER(_TensorStruct)),
        ("outputs", POINTER(_TensorStruct)),
        ("states", POINTER(_TensorStruct)),
        ("input_count", c_uint32),
        ("output_count", c_uint32),
        ("state_count", c_uint32),
        ("cpu_feature_count", c_uint32),
        ("cpu_features", POINTER(c_char_p)),
        ("workspace_bytes", c_uint64),
        ("scratch_bytes", c_uint64),
        ("constant_bytes", c_uint64),
        ("state_bytes", c_uint64),
        ("variable_count", c_uint32),
        ("variables", POINTER(c_char_p)),
        ("source", c_char_p),
        ("weights", c_char_p),
        ("device", c_char_p),
        ("device_bytes", c_uint64),
        ("dimension_count", c_uint32),
        ("dimensions", POINTER(_DimensionStruct)),
    )


class _InputStruct(Structure):
    _fields_ = (("data", c_void_p), ("bytes", c_uint64), ("shape", c_void_p))


class _OutputStruct(Structure):
    _fields_ = (
        ("memory", c_void_p),
        ("capacity", c_uint64),
        ("data", c_void_p),
        ("bytes", c_uint64),
        ("shape", POINTER(c_int64)),
    )


_DESCRIPTION_BYTES = _DescriptionStruct.source.offset  # what the first libraries have; later ones may have more


class _OptionsStruct(Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("threads", c_int32),
        ("workspace", c_void_p),
        ("workspace_bytes", c_uint64),
        ("weights", c_char_p),
        ("device", c_int64),
        ("keep_subnormals", c_int32),
    )


_OPTIONS_BYTES = _OptionsStruct.weights.offset  # what all libraries take


def load(
    path: str | os.PathLike[str],
    *,
    threads: int | None = None,
    weights: str | os.PathLike[str] | None = None,
    device: int = 0,
    flush_subnormals: bool = True,
) -> Model:
    """Load a compiled network.

    Args:
        path: the library.
        threads: of the session; None: the environment variable NNEFC_NUM_THREADS, or else all processors that this
            process may use.
        weights: the weights file of a library compiled with `--weights separate`; None: the file that it was compiled
            with, in the library's folder.
        device: the number of the GPU to run on, as NVIDIA's driver counts; 0 for a network that runs on CPUs.
        flush_subnormals: whether runs treat subnormal numbers, smaller than about 1e-38, as zero. Runs that keep them
            can take several times as long.

    Raises:
        LoadError: there is no such file, it is not a compiled network, it is for another machine, processor or version
            of the interface, or there is no GPU of this number that can run it.
    """
    return Model(_Library(Path(path), None if weights is None else Path(weights)), threads, device, flush_subnormals)


class Model:
    """A loaded network with its own session, made by :func:`load`; a context manager.

    Attributes:
        name: the network's name.
        target: what it was compiled for.
        compiler: the compiler and its version.
        inputs, outputs, states: tuples of :class:`Tensor`.
        dimensions: the open ones, a tuple of :class:`Dimension`; empty if all sizes are known.
        workspace_bytes, constant_bytes, state_bytes: memory of the workspace, the constants, the states.
        cpu_features: the instruction sets that the code needs.
        variables: the model's names of its constants.
        labels: what the columns of outputs stand for, by the outputs' names: integers or texts that name classes.
        source: "sha256:" and the digest of the model's files; "" if unknown.
        weights: the name of the weights file; None if the constants are in the library.
        device: what it runs on: "cpu", or "cuda:0" with the GPU's number.
        device_bytes: GPU memory of a session, without the constants.
    """

    def __init__(self, library: _Library, threads: int | None, device: int, flush_subnormals: bool) -> None:
        self._library = library
        self._lock = threading.Lock()
        _lock_owners.add(self)
        self._session: c_void_p | None = None
        self._session = library.create(threads, device, flush_subnormals)
        try:
            self._gpu = None if library.device == "cpu" else _Gpu(device)
        except RunError as error:
            raise LoadError(str(error)) from error
        self._number = device
        self._flush_subnormals = flush_subnormals
        self._sized: _Sized | None = None
        self._run_native = library.dll.nnefc_run
        self._source_pointers = (c_void_p * len(library.inputs))()  # under the lock, as the session
        self._result_pointers = (c_void_p * len(library.outputs))()
        self.name = library.name
        self.target = library.target
        self.compiler = library.compiler
        self.inputs = library.inputs
        self.outputs = library.outputs
        self.states = library.states
        self.dimensions = library.dimensions
        self._is_open = library.is_open
        self._is_counted = library.is_counted
        self._gives_text = any(tensor.dtype == "string" for tensor in library.outputs)
        self._finds_sizes = library.finds_sizes
        self.workspace_bytes = library.workspace_bytes
        self.constant_bytes = library.constant_bytes
        self.state_bytes = library.state_bytes
        self.cpu_features = library.cpu_features
        self.variables = library.variables
        self.labels = library.labels
        self.source = library.source
        self.weights = library.weights
        self.device = "cpu" if self._gpu is None else f"{library.device}:{device}"
        self.device_bytes = library.device_bytes

    def __call__(
        self, /, *arrays: Any, out: Any = None, stream: Any = None, check_nan: bool = False, **named: Any
    ) -> Any:
        """Run on inputs by position, by name, or both; return the output, or a tuple if there are several.

        `out` is an array (for one output) or a sequence of arrays, one for each output, to write into and return: NumPy
        arrays, or other writable ones with `__dlpack__`, such as PyTorch tensors. With `check_nan`, a NaN in an input
        is an error before the run, and a NaN in an output is one after it. An input with the name of one of these
        keywords can be given by position, or to :meth:`run`.

        On a GPU, arrays may be in its memory, and `out` may be "device" for outputs there, as :class:`DeviceArray`.
        With a `stream` (a number as in CUDA's C interfaces, or another library's object) the run starts after earlier
        work on the stream, and the call returns; all arrays must then be on the GPU, and the inputs must not change
        until the stream has finished the run. If such a run fails, the next call raises the error.

        Raises:
            RunError: inputs or arrays of `out` do not fit, the model is closed, the network's code fails, or there is a
                NaN and `check_nan` is set.
        """
        values = self._by_position(arrays, named) if named or len(arrays) != len(self.inputs) else arrays
        targets = out if out is None or isinstance(out, (str, tuple, list)) else [out]
        if targets is not None and not isinstance(targets, str) and len(targets) != len(self.outputs):
            raise RunError(f"out has {len(targets)} arrays, but the model has {len(self.outputs)} outputs")
        results = self._run(values, targets, stream, check_nan)
        return results[0] if len(results) == 1 else tuple(results)

    def run(
        self,
        inputs: Mapping[str, Any],
        out: Mapping[str, Any] | str | None = None,
        *,
        stream: Any = None,
        check_nan: bool = False,
    ) -> dict[str, Any]:
        """Run on inputs by name; return the outputs by name. `out` has arrays for some or all outputs, by name."""
        if type(inputs) is not dict and not isinstance(inputs, Mapping):
            kind = "None" if inputs is None else f"a {type(inputs).__name__}"
            raise RunError(f"run got {kind} in place of inputs by name: {self._usage()}; all outputs are returned")
        if out is not None and not isinstance(out, (str, dict, Mapping)):
            raise RunError(f"out of run is a {type(out).__name__}, not arrays by the names of outputs")
        _check_names("input", inputs, self.inputs, complete=True)
        targets: Sequence[Any] | str | None = None
        if isinstance(out, str):
            targets = out
        elif out is not None:
            _check_names("output", out, self.outputs, complete=False)
            targets = [out.get(tensor.name) for tensor in self.outputs]
        results = self._run([inputs[tensor.name] for tensor in self.inputs], targets, stream, check_nan)
        return {tensor.name: array for tensor, array in zip(self.outputs, results, strict=True)}

    def synchronize(self) -> None:
        """Wait for runs that were started on streams, and raise their errors."""
        with self._lock:
            session = self._open()
            if self._gpu is not None:
                self._library.check(self._library.dll.nnefc_synchronize(session), session)

    def reserve(self, sizes: Mapping[str, int] | None = None) -> None:
        """Allocate memory for all open dimensions up to these sizes, by name, so that later calls need no more of it.

        A dimension that is not named counts with the greatest size that it may have.

        Raises:
            RunError: the network has no such dimension, or does not take the size; or there is not as much memory.
        """
        names = [dimension.name for dimension in self.dimensions]
        for name in sizes or {}:
            if name not in names:
                known = f"its open dimensions are {', '.join(names)}" if names else "all its sizes are known"
                raise RunError(f'the model has no open dimension "{name}": {known}')
        wanted = [(sizes or {}).get(dimension.name, dimension.most) for dimension in self.dimensions]
        with self._lock:
            session = self._open()
            if wanted:
                self._sized = None  # without memory the session loses its sizes
                numbers = (c_int64 * len(wanted))(*wanted)
                self._library.check(self._library.dll.nnefc_reserve(session, numbers, 0), session)

    def reset(self) -> None:
        """Restore the initial values of the states."""
        with self._lock:
            self._library.check(self._library.dll.nnefc_reset(self._open()), self._open())

    def session(self, *, threads: int | None = None, device: int | None = None) -> Model:
        """Another session of the same network, with its own states, for another thread or on another GPU."""
        self._open()
        number = self._number if device is None else device
        return Model(self._library, threads, number, self._flush_subnormals)

    def close(self) -> None:
        """Free the session. The library is unloaded when its last session is closed. Closing twice does nothing."""
        with self._lock:
            session, self._session = self._session, None
            self._gpu = None
            if session is not None:
                self._library.destroy(session)

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_session", None) is not None:
            with suppress(RunError):  # a session that a fork caught in a run cannot be freed in the child
                self.close()

    def __reduce__(self) -> NoReturn:
        """Refuse copies: two objects would free one session."""
        raise TypeError(
            f"a loaded model cannot be copied or pickled: model.session() makes a further session of {self.name}; "
            "another process loads the library by its path"
        )

    def __repr__(self) -> str:
        arrow = f"{listed(self.inputs)} -> {listed(self.outputs)}"
        return f"<Model {self.name} for {self.target}: {arrow}>"

    def _open(self) -> c_void_p:
        if self._session is None:
            raise RunError(f"the model {self.name} is closed: load it again")
        return self._session

    def _usage(self) -> str:
        """How arrays are given, by name and by position."""
        names = [tensor.name for tensor in self.inputs[:_MOST_LISTED]]
        more = ", …" if len(self.inputs) > len(names) else ""
        by_name = ", ".join(f'"{name}": array' for name in names)
        return f"write model.run({{{by_name}{more}}}), or model({', '.join(['array'] * len(names))}{more})"

    def _by_position(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """The inputs in the model's order."""
        if len(arrays) > len(self.inputs):
            raise RunError(f"{len(arrays)} inputs given, but the model has {len(self.inputs)}: {listed(self.inputs)}")
        given = {tensor.name: array for tensor, array in zip(self.inputs, arrays, strict=False)}
        doubled = [name for name in named if name in given]
        if doubled:
            raise RunError(f'input "{doubled[0]}" is given twice, by position and by name')
        given |= named
        _check_names("input", given, self.inputs, complete=True)
        return [given[tensor.name] for tensor in self.inputs]

    def _run(self, values: Sequence[Any], out: Sequence[Any] | str | None, stream: Any, check_nan: bool) -> list[Any]:
        """Run on inputs in the model's order. Small networks take microseconds, so nothing is done twice here."""
        if self._gpu is not None:
            return self._run_on_gpu(self._gpu, values, out, stream, check_nan)
        if stream is not None or isinstance(out, str):
            self._open()
            raise RunError(f"the model {self.name} runs on processors: it has neither streams nor outputs on a device")
        if self._is_open:
            return self._run_resized(values, out, check_nan)
        sources = list(map(_source, self.inputs, values))
        results = list(map(_target, self.outputs, out or [None] * len(self.outputs)))
        if out is not None:
            _check_overlap(self.inputs, sources, self.outputs, results)
        if check_nan:
            _check_nan("input", self.inputs, sources)
        with self._lock:
            session = self._open()
            self._source_pointers[:] = list(map(_address, sources))
            self._result_pointers[:] = list(map(_address, results))
            status = self._run_native(session, self._source_pointers, self._result_pointers)
            if status != _OK:
                self._library.check(status, session)
            if self._gives_text:
                results = list(map(_decoded, self.outputs, results))
        if check_nan:
            _check_nan("output", self.outputs, results, self._cause_of_nan())
        return results if out is None else _returned(out, results)

    def _run_resized(self, values: Sequence[Any], out: Sequence[Any] | None, check_nan: bool) -> list[Any]:
        """The same for a network with open dimensions: the inputs say how large they are this time."""
        arrays = list(map(_array, self.inputs, values))
        shapes, sized = [array.shape for array in arrays], self._sized
        if sized is None or sized.shapes != shapes:
            inputs = tuple(Tensor(t.name, t.dtype, array.shape) for t, array in zip(self.inputs, arrays, strict=True))
        else:
            inputs = sized.inputs
        sources = list(map(_source, inputs, arrays))
        if check_nan:
            _check_nan("input", inputs, sources)
        if self._finds_sizes:
            return self._run_sized(inputs, sources, out, check_nan)
        with self._lock:
            session, sized = self._open(), self._sized  # another thread may have been here
            outputs = self._resize(inputs) if sized is None or sized.shapes != shapes else sized.outputs
            results = list(map(_target, outputs, out or [None] * len(outputs)))
            if out is not None:
                _check_overlap(inputs, sources, outputs, results)
            self._source_pointers[:] = list(map(_address, sources))
            self._result_pointers[:] = list(map(_address, results))
            status = self._run_native(session, self._source_pointers, self._result_pointers)
            if status != _OK:
                self._library.check(status, session)
            if self._is_counted:
                shapes = self._shapes_of_outputs()
                outputs = tuple(Tensor(t.name, t.dtype, s) for t, s in zip(outputs, shapes, strict=True))
            if self._gives_text:
                results = list(map(_decoded, outputs, results))
            if self._is_counted:
                results = list(map(_counted, results, shapes))
        if check_nan:
            _check_nan("output", outputs, results, self._cause_of_nan())
        return results if out is None or self._is_counted else _returned(out, results)

    def _run_sized(
        self, inputs: tuple[Tensor, ...], sources: Sequence[np.ndarray], out: Sequence[Any] | None, check_nan: bool
    ) -> list[Any]:
        """The same where only a run tells how large outputs are: copies of what it leaves in the session's memory."""
        if out is not None and any(given is not None for given in out):
            raise RunError(f"only a run tells how large the outputs of {self.name} are: it takes no arrays for them")
        shapes = [self._numbers(tensor, own) for tensor, own in zip(inputs, self.inputs, strict=True)]
        given = (_InputStruct * max(1, len(inputs)))()
        for place, source, shape in zip(given, sources, shapes, strict=False):
            place.data, place.bytes, place.shape = _address(source), source.nbytes, ctypes.addressof(shape)
        with self._lock:
            session, found = self._open(), (_OutputStruct * max(1, len(self.outputs)))()
            self._library.check(self._library.dll.nnefc_run_sized(session, given, found), session)
            results = [_copied(*pair) for pair in zip(self.outputs, found, strict=False)]
        if check_nan:
            _check_nan("output", self.outputs, results, self._cause_of_nan())
        return results

    def _numbers(self, tensor: Tensor, own: Tensor) -> Any:
        """The shape of an input as C has it."""
        if len(tensor.shape) != len(own.shape):
            raise RunError(f'input "{own.name}" has the shape {list(tensor.shape)}, but the model has {own}')
        return (c_int64 * max(1, len(tensor.shape)))(*tensor.shape)

    def _resize(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Tell the session the inputs' shapes; returns the outputs with the shapes that follow."""
        session, dll = self._open(), self._library.dll
        shapes = [self._numbers(tensor, own) for tensor, own in zip(inputs, self.inputs, strict=True)]
        pointers = (c_void_p * max(1, len(shapes)))(*map(ctypes.addressof, shapes))
        self._sized = None
        self._library.check(dll.nnefc_resize(session, pointers), session)
        outputs = tuple(
            Tensor(t.name, t.dtype, shape) for t, shape in zip(self.outputs, self._shapes_of_outputs(), strict=True)
        )
        if not self._is_counted:
            self._sized = _Sized([tensor.shape for tensor in inputs], inputs, outputs)
        return outputs

    def _shapes_of_outputs(self) -> list[tuple[int, ...]]:
        """Those that they have now; before a run as large as they may be, where only the data tell."""
        session, shape_of = self._open(), self._library.dll.nnefc_output_shape
        found = (shape_of(session, index) for index in range(len(self.outputs)))
        return [tuple(shape[: len(t.shape)]) for t, shape in zip(self.outputs, found, strict=True)]

    def _cause_of_nan(self) -> str:
        """Said of an output with NaN; inputs have none then."""
        states = "; a state may have it from an earlier run: reset() brings back the start" if self.states else ""
        return f", though no input has one{states}"

    def _run_on_gpu(
        self, gpu: _Gpu, values: Sequence[Any], out: Sequence[Any] | str | None, stream: Any, check_nan: bool
    ) -> list[Any]:
        """The same, with arrays in the memory of the host or of the GPU."""
        if check_nan and stream is not None:
            raise RunError("check_nan looks at outputs, and a run on a stream has only begun: leave one of them out")
        if isinstance(out, str) and out != "device":
            raise RunError(f'out is {out!r}: pass arrays, or "device" for outputs in the GPU\'s memory')
        handle = None if stream is None else _stream_handle(stream)
        inputs, is_open = self.inputs, bool(self.dimensions)
        if is_open:
            values = [_array(t, value) if _is_host(value) else value for t, value in zip(inputs, values, strict=True)]
            inputs = tuple(Tensor(t.name, t.dtype, _shape_of(v)) for t, v in zip(inputs, values, strict=True))
        sources = [_gpu_source(gpu, *pair, handle) for pair in zip(inputs, values, strict=True)]
        with self._lock if is_open else nullcontext():  # between setting the sizes and running nobody may set others
            outputs = self._resize(inputs) if is_open else self.outputs
            results, targets = _gpu_results(gpu, outputs, out, handle)
            _check_apart(inputs, sources, outputs, targets)
            if handle is None and any(not span.is_host for span in (*sources, *targets)):
                gpu.synchronize(_DEFAULT_STREAM)  # where their libraries have been told that they are needed
            if check_nan:
                _check_nan("input", inputs, list(map(gpu.host_array, inputs, sources)))
            with nullcontext() if is_open else self._lock:
                self._start_on_gpu(sources, targets, handle)
        if check_nan:
            _check_nan("output", outputs, list(map(gpu.host_array, outputs, targets)), self._cause_of_nan())
        return results if out is None or isinstance(out, str) else _returned(out, results)

    def _start_on_gpu(self, sources: Sequence[_Span], targets: Sequence[_Span], handle: int | None) -> None:
        """Run, or begin to run on a stream, between these arrays."""
        session = self._open()
        self._source_pointers[:] = [span.address for span in sources]
        self._result_pointers[:] = [span.address for span in targets]
        if handle is None:
            status = self._run_native(session, self._source_pointers, self._result_pointers)
        else:
            enqueue = self._library.dll.nnefc_enqueue
            status = enqueue(session, self._source_pointers, self._result_pointers, handle)
        self._library.check(status, session)


class _Library:
    """The shared library itself: opened, its description read, closed with its last session."""

    def __init__(self, path: Path, weights: Path | None) -> None:
        self.path = path
        self._weights_path = weights
        _check_file(path)
        self._spelling = _claim_spelling(path)
        try:
            self.dll = _open_library(self._spelling)
        except OSError as error:
            _release_spelling(self._spelling)
            raise LoadError(f"{path} cannot be loaded: {error}") from error
        self._lock = threading.RLock()  # a garbage collection in the middle may close another session
        _lock_owners.add(self)
        self._sessions = 0
        self._unloaded = False
        try:
            self._declare()
            self._describe()
            self.labels = _labels(path)
        except LoadError:
            self._unload()
            raise

    def _declare(self) -> None:
        dll, session = self.dll, c_void_p
        signatures: dict[str, tuple[Any, list[Any]]] = {
            "nnefc_describe": (POINTER(_DescriptionStruct), []),
            "nnefc_create": (c_int32, [POINTER(_OptionsStruct), POINTER(session)]),
            "nnefc_destroy": (c_int32, [session]),
            "nnefc_run": (c_int32, [session, c_void_p, c_void_p]),  # not POINTER(c_void_p): that is slow to check
            "nnefc_reset": (c_int32, [session]),
            "nnefc_last_error": (c_char_p, [session]),
            "nnefc_status_name": (c_char_p, [c_int32]),
        }
        on_device: dict[str, tuple[Any, list[Any]]] = {
            "nnefc_enqueue": (c_int32, [session, c_void_p, c_void_p, c_void_p]),
            "nnefc_synchronize": (c_int32, [session]),
        }
        where_open: dict[str, tuple[Any, list[Any]]] = {
            "nnefc_resize": (c_int32, [session, c_void_p]),
            "nnefc_reserve": (c_int32, [session, c_void_p, c_int32]),
            "nnefc_output_shape": (POINTER(c_int64), [session, c_uint32]),
            "nnefc_run_sized": (c_int32, [session, c_void_p, c_void_p]),
        }
        for name, (result, arguments) in (signatures | on_device | where_open).items():
            try:
                function = getattr(dll, name)
            except AttributeError:
                if name in on_device or name in where_open:
                    continue
                raise LoadError(f"{self.path} is a shared library, but not a network compiled by nnefc") from None
            function.restype, function.argtypes = result, arguments

    def _describe(self) -> None:
        description = self.dll.nnefc_describe().contents
        if (
            description.abi_version not in (_ABI_VERSION, _OPEN_ABI_VERSION)
            or description.struct_size < _DESCRIPTION_BYTES
        ):
            raise LoadError(
                f"{self.path} has version {description.abi_version} of nnefc's interface, but this loader knows "
                f"version {_ABI_VERSION}: compile the model again, or use the loader of the nnefc that compiled it"
            )
        self.name = description.model.decode()
        self.target = description.target.decode()
        self.compiler = description.compiler.decode()
        self.is_open = description.abi_version == _OPEN_ABI_VERSION
        outputs = (description.outputs[index] for index in range(description.output_count))
        self.is_counted = any(_COUNTED in tensor.shape[: tensor.rank] for tensor in outputs)
        inputs = (description.inputs[index] for index in range(description.input_count))
        said = {size for tensor in inputs for size in tensor.shape[: tensor.rank] if size < 0}
        self.finds_sizes = self.is_open and len(said) < description.dimension_count  # only the data tell the others
        self.dimensions = _dimensions(description)
        names = [dimension.name for dimension in self.dimensions]
        self.inputs = _tensors(description.inputs, description.input_count, names)
        self.outputs = _tensors(description.outputs, description.output_count, names)
        self.states = _tensors(description.states, description.state_count)
        self.workspace_bytes = int(description.workspace_bytes)
        self.constant_bytes = int(description.constant_bytes)
        self.state_bytes = int(description.state_bytes)
        self.cpu_features = tuple(description.cpu_features[i].decode() for i in range(description.cpu_feature_count))
        self.variables = tuple(description.variables[i].decode() for i in range(description.variable_count))
        size = description.struct_size
        has_source = size >= _DescriptionStruct.device.offset
        has_device = size >= _DescriptionStruct.dimension_count.offset
        self.source = description.source.decode() if has_source else ""
        self.weights = description.weights.decode() if has_source and description.weights is not None else None
        self.device = description.device.decode() if has_device else "cpu"
        self.device_bytes = int(description.device_bytes) if has_device else 0
        if self._weights_path is not None and self.weights is None:
            raise LoadError(f"{self.path} contains its weights: load it without a weights file")

    def create(self, threads: int | None, device: int, flush_subnormals: bool) -> c_void_p:
        if threads is not None and (type(threads) is not int or not 1 <= threads <= _MOST_THREADS):
            raise LoadError(
                f"threads is {threads!r}, not a number from 1 to {_MOST_THREADS}; more than this machine's "
                f"{os.cpu_count()} processors do not help, and as many are the default"
            )
        if type(device) is not int or not 0 <= device < 1 << 31:
            raise LoadError(f"device is {device!r}, not the number of a GPU")
        if device != 0 and self.device == "cpu":
            raise LoadError(f"device is {device}, but the model {self.name} runs on processors")
        options = _OptionsStruct(_OPTIONS_BYTES, threads or 0, None, 0, None, device, not flush_subnormals)
        if self._weights_path is not None:
            options.struct_size = _OptionsStruct.device.offset
            options.weights = os.fsencode(self._weights_path)
        if self.device != "cpu":
            options.struct_size = _OptionsStruct.keep_subnormals.offset
        if not flush_subnormals:
            options.struct_size = ctypes.sizeof(_OptionsStruct)
        session = c_void_p()
        with self._lock:
            if self._unloaded:
                raise RunError(f"the model {self.name} is closed: load it again")
            status = self.dll.nnefc_create(byref(options), byref(session))
            if status != _OK:
                error = LoadError(self._reason(status, None))
                if self._sessions == 0:
                    self._unload()
                raise error
            self._sessions += 1
        return session

    def destroy(self, session: c_void_p) -> None:
        with self._lock:
            self.check(self.dll.nnefc_destroy(session), session)
            self._sessions -= 1
            if self._sessions == 0:
                self._unload()

    def _unload(self) -> None:
        self._unloaded = True
        _close_library(self.dll)
        _release_spelling(self._spelling)

    def check(self, status: int, session: c_void_p) -> None:
        if status != _OK:
            raise RunError(self._reason(status, session))

    def _reason(self, status: int, session: c_void_p | None) -> str:
        if status == _BUSY:
            return f"the model {self.name} was running when the process forked: load it again in the child"
        reason = self.dll.nnefc_last_error(session).decode(errors="replace")
        if status == _UNSUPPORTED_CPU:
            return f"{self.path} cannot run here: {reason}; compile the model for this processor"
        return f"{self.path}: {self.dll.nnefc_status_name(status).decode()}: {reason}"


def _open_library(path: str) -> ctypes.CDLL:
    if sys.platform == "win32":  # names are a library's own there
        return ctypes.CDLL(path)
    # each library keeps its names to itself: all of them have the same
    return ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)


def _close_library(dll: ctypes.CDLL) -> None:
    if sys.platform == "win32":
        _ctypes.FreeLibrary(dll._handle)
    else:
        _ctypes.dlclose(dll._handle)


_lock_owners: weakref.WeakSet[Model | _Library] = weakref.WeakSet()


def _renew_locks() -> None:
    """In a forked child: a lock that another thread held in the parent would stay held forever."""
    global _spellings_lock
    _spellings_lock = threading.RLock()
    for owner in _lock_owners:
        owner._lock = threading.RLock() if isinstance(owner, _Library) else threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


def _dimensions(description: Any) -> tuple[Dimension, ...]:
    if description.abi_version != _OPEN_ABI_VERSION:
        return ()
    structs = (description.dimensions[i] for i in range(description.dimension_count))
    return tuple(Dimension(s.name.decode(), s.least, s.most, s.multiple, s.typical) for s in structs)


def _tensors(structs: Any, count: int, names: Sequence[str] = ()) -> tuple[Tensor, ...]:
    def size(number: int) -> int | str:
        return number if number >= 0 else names[-1 - number] if -number <= len(names) else "?"

    return tuple(
        Tensor(s.name.decode(), _TYPES[s.type][0], tuple(size(s.shape[axis]) for axis in range(s.rank)))
        for s in (structs[i] for i in range(count))
    )


_MOST_LISTED = 8


def listed(tensors: Sequence[object]) -> str:
    """The tensors in one line, or as many of them as one reads."""
    if len(tensors) > _MOST_LISTED + 1:
        return f"{listed(tensors[:_MOST_LISTED])} and {len(tensors) - _MOST_LISTED} more"
    return ", ".join(map(str, tensors)) or "none"


@dataclass
class _Opened:
    """A file by device and inode, and how many libraries have it open."""

    identity: tuple[int, int]
    users: int


# The system's loader takes a path that it has open for the same library, even if another file has been moved there
# since. So each open file gets a spelling of its path of its own; Windows sees through spellings. Entries are never
# removed, for a garbage collection in the middle may release one.
_spellings: dict[str, _Opened] = {}
_spellings_lock = threading.RLock()


def _claim_spelling(path: Path) -> str:
    folder, name = os.path.split(os.path.realpath(path))
    status = os.stat(path)
    identity = (status.st_dev, status.st_ino)
    with _spellings_lock:
        while True:
            spelling = os.path.join(folder, name)
            opened = _spellings.setdefault(spelling, _Opened(identity, 0))
            if opened.identity == identity or opened.users == 0:
                opened.identity = identity
                opened.users += 1
                return spelling
            if sys.platform == "win32":
                raise LoadError(f"{path} was loaded before it was replaced, and is still open: close that model first")
            folder = os.path.join(folder, ".")


def _release_spelling(spelling: str) -> None:
    with _spellings_lock:
        _spellings[spelling].users -= 1


# sys.platform → whose libraries load. Not platform.system(), which asks a service of Windows' that may not answer.
_SYSTEMS = {"android": "Linux", "darwin": "macOS", "linux": "Linux", "win32": "Windows"}

_MACH_O_MACHINES = {0x01000007: "x86_64", 0x0100000C: "aarch64"}
_PE_MACHINES = {0x014C: "i686", 0x8664: "x86_64", 0xAA64: "aarch64"}


def _check_file(path: Path) -> None:
    """Read the header of a file before the system's loader does, whose messages say little."""
    system = _SYSTEMS.get(sys.platform)
    try:
        with path.open("rb") as file:
            header = file.read(4096)
            size = os.fstat(file.fileno()).st_size
            if system is None:
                return
            _check_kind(path, header, system)
            if system == "Linux":
                _check_elf(path, header)
                _check_segments(path, file, header, size)
    except FileNotFoundError:
        raise LoadError(f"{path} does not exist") from None
    except OSError as error:
        if path.is_dir() and (path / "graph.nnef").exists():
            raise LoadError(_model_text(path)) from None
        raise LoadError(f"{path} cannot be read: {error.strerror}") from error


_RECORD = b"\x89nnefc record\r\n\x01"  # of the description that stands in the file as text


def _labels(path: Path) -> dict[str, tuple[int | str, ...]]:
    """What the columns of outputs stand for: of all that a library says of itself, this is in the text alone."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        start = content.find(_RECORD) + len(_RECORD)
        if start < len(_RECORD):
            return {}
        (length,) = struct.unpack_from("<I", content, start)
        text = content[start + 4 : start + 4 + length]
    if b'"labels"' not in text:
        return {}
    return {name: tuple(labels) for name, labels in json.loads(text).get("labels", {}).items()}


def _check_kind(path: Path, header: bytes, system: str) -> None:
    """Refuse files that are no shared libraries of this system, and say what they are."""
    write = f"write a shared one, nnefc compile MODEL -o {path.stem}{_SUFFIXES[system]}"
    if header.startswith(b"!<arch>\n"):
        raise LoadError(f"{path} is a static library, to be linked into a program: {write}")
    if header.startswith(b"NNEFCWTS"):
        raise LoadError(f"{path} is the weights file of a library: load the library that was written beside it")
    machine = _machine(header)
    if machine is None:
        if path.suffix.lower() in (".onnx", ".nnef", ".param", ".tgz", ".tar", ".gz"):
            raise LoadError(_model_text(path))
        raise LoadError(f"{path} is not a shared library: compile the model with nnefc and load what it writes")
    found, name = machine
    here = _processor()
    if found != system:
        raise LoadError(f"{path} was compiled for {found}, but this is {system}: compile the model for this machine")
    if system != "Linux" and name != here:
        raise LoadError(f"{path} was compiled for {name}, but this is {here}: compile the model for this machine")


_SUFFIXES = {"Linux": ".so", "macOS": ".dylib", "Windows": ".dll"}


def _model_text(path: Path) -> str:
    name = path.name.partition(".")[0]
    return f"{path} is a model, and this loads what is compiled: nnefc compile {path} -o {name}.so, then load that"


def _machine(header: bytes) -> tuple[str, str] | None:
    """The system and the processor that a library is for; None for other files. :func:`_check_elf` says more of ELF."""
    if header[:4] == b"\x7fELF" and len(header) >= 20 and header[4] in (1, 2) and header[5] in (1, 2):
        return "Linux", ""
    if header[:4] == b"\xcf\xfa\xed\xfe" and len(header) >= 8:
        (number,) = struct.unpack_from("<I", header, 4)
        return "macOS", _MACH_O_MACHINES.get(number, f"machine {number}")
    if header[:4] == b"\0asm":
        return "WebAssembly", ""
    if header[:2] == b"MZ" and len(header) >= 64:
        (start,) = struct.unpack_from("<I", header, 60)
        if header[start : start + 4] == b"PE\0\0" and start + 6 <= len(header):
            (number,) = struct.unpack_from("<H", header, start + 4)
            return "Windows", _PE_MACHINES.get(number, f"machine {number}")
    return None


def _processor() -> str:
    """What this Python runs on: of Windows the kind that Python was made for, which the system may emulate."""
    name = (
        sysconfig.get_platform().removeprefix("win-") if _SYSTEMS.get(sys.platform) == "Windows" else platform.machine()
    )
    return {"amd64": "x86_64", "arm64": "aarch64", "win32": "i686"}.get(name.lower(), name)


def _check_elf(path: Path, header: bytes) -> None:
    order = "<" if header[5] == 1 else ">"
    kind, machine = struct.unpack_from(order + "HH", header, 16)
    if kind == 1:
        raise LoadError(
            f"{path} is an object file, to be linked into a program: write a shared library, "
            f"nnefc compile MODEL -o {path.stem}.so"
        )
    if kind != 3:
        raise LoadError(f"{path} is an ELF file, but not a shared library")
    bits = 32 if header[4] == 1 else 64
    name = _MACHINES.get(machine, {}).get(bits, f"machine {machine} with {bits} bits")
    here = platform.machine()
    known = machine in _MACHINES or any(here in names.values() for names in _MACHINES.values())
    if struct.calcsize("P") * 8 != bits or (known and not _same_machine(name, here)):
        raise LoadError(
            f"{path} was compiled for {name}, but this is {here}: compile the model for this machine, as nnefc compile "
            "does without --target"
        )


def _same_machine(name: str, here: str) -> bool:
    """Whether libraries for `name` load here; a 32-bit Python may run on a 64-bit system of the same family."""
    families = ({"i686", "i586", "i386", "x86_64"}, {"armv7l", "armv8l", "armv6l", "aarch64"})
    return name == here or (struct.calcsize("P") == 4 and any(name in f and here in f for f in families))


def _check_segments(path: Path, file: Any, header: bytes, size: int) -> None:
    """Refuse a file that ends before its segments do: mapping it would end the process with a bus error."""
    wide, order = header[4] == 2, "<" if header[5] == 1 else ">"
    if len(header) < (64 if wide else 52):
        raise LoadError(f"{path} is cut off: copy it again")
    (start,) = struct.unpack_from(order + ("Q" if wide else "I"), header, 32 if wide else 28)
    entry, count = struct.unpack_from(order + "HH", header, 54 if wide else 42)
    if entry < (56 if wide else 32) or start + entry * count > size:
        raise LoadError(f"{path} is cut off: copy it again")
    file.seek(start)
    table = file.read(entry * count)
    for i in range(count):
        if wide:
            offset, length = struct.unpack_from(order + "8xQ16xQ", table, i * entry)
        else:
            offset, length = struct.unpack_from(order + "4xI8xI", table, i * entry)
        if offset + length > size:
            raise LoadError(f"{path} is cut off: it has {size} bytes of {offset + length}; copy it again")


def _check_names(role: str, given: Mapping[str, Any], tensors: tuple[Tensor, ...], *, complete: bool) -> None:
    names = [tensor.name for tensor in tensors]
    if list(given) == names:
        return
    unknown = [name for name in given if name not in names]
    missing = [name for name in names if name not in given]
    if unknown:
        raise RunError(f'the model has no {role} "{unknown[0]}"; its {role}s are {listed(tensors)}')
    if complete and missing:
        raise RunError(f'{role} "{missing[0]}" is missing; the {role}s are {listed(tensors)}')


def _array(tensor: Tensor, value: Any) -> np.ndarray:
    """The value as an array, without a copy where it has its elements in memory."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, Mapping):
        raise RunError(f'input "{tensor.name}" is a {type(value).__name__}: run(…) takes inputs by name')
    try:
        if hasattr(value, "__dlpack__"):
            return _lent(tensor, value) if tensor.dtype == "bfloat16" else np.from_dlpack(value)
        return np.asarray(value, np.object_ if tensor.dtype == "string" else None)
    except Exception as error:  # of the other library, whose errors may be its own
        raise RunError(
            f'input "{tensor.name}" is a {type(value).__name__} that NumPy cannot read ({error}): pass an array in the '
            "machine's own memory; bfloat16 as uint16 bit patterns"
        ) from error


def _check_type(role: str, tensor: Tensor, array: np.ndarray) -> None:
    wanted = _DTYPES[tensor.dtype]
    if array.dtype != wanted and not (tensor.dtype == "bfloat16" and array.dtype.name == "bfloat16"):
        raise RunError(
            f'{role} "{tensor.name}" is an array of {array.dtype}, but the model has {tensor.dtype}: '
            + (_conversion(tensor) if role == "input" else _new_array(tensor))
        )
    if array.shape != tensor.shape:
        raise RunError(
            f'{role} "{tensor.name}" has the shape {list(array.shape)}, but the model has {list(tensor.shape)}'
            + (_way_between(array.shape, tensor.shape) if role == "input" else f": {_new_array(tensor)}")
        )


def _conversion(tensor: Tensor) -> str:
    if tensor.dtype == "bfloat16":
        return "convert it with .view(np.uint16), its bit patterns"
    return f"convert it with .astype(np.{_DTYPES[tensor.dtype].name})"


def _new_array(tensor: Tensor) -> str:
    """What an output may be written into."""
    name = "object_" if tensor.dtype == "string" else _DTYPES[tensor.dtype].name
    return f"make it with np.empty({tensor.shape}, np.{name})"


def _way_between(given: tuple[int, ...], wanted: tuple[int, ...]) -> str:
    """How an array gets the wanted shape: by transposing, as from NHWC to NCHW, or by reshaping; empty for no way."""
    if math.prod(given) != math.prod(wanted):
        return ""
    reshape = f".reshape({wanted})"
    if _without_ones(given) == _without_ones(wanted):
        return f": use {reshape}"
    if sorted(_without_ones(given)) != sorted(_without_ones(wanted)):
        return f"; if the order of elements is right, use {reshape}"
    axes = list(range(len(given)))
    for order in (  # channels last → first, first → last, without a batch the same, reversed
        [*axes[:1], *axes[-1:], *axes[1:-1]],
        [*axes[:1], *axes[2:], *axes[1:2]],
        [*axes[-1:], *axes[:-1]],
        [*axes[1:], *axes[:1]],
        axes[::-1],
    ):
        moved = tuple(given[axis] for axis in order)
        if _without_ones(moved) == _without_ones(wanted):
            return f": its axes are in another order, use .transpose({order}){'' if moved == wanted else reshape}"
    return ": its axes are in another order, use .transpose(…)"


def _without_ones(shape: tuple[int, ...]) -> list[int]:
    return [size for size in shape if size != 1]


def _check_nan(role: str, tensors: tuple[Tensor, ...], arrays: Sequence[np.ndarray], cause: str = "") -> None:
    """Refuse NaN; `cause` goes on with the message."""
    for tensor, array in zip(tensors, arrays, strict=True):
        if tensor.dtype == "bfloat16":
            found = (array.view(np.uint16) & 0x7FFF) > 0x7F80
        elif _DTYPES[tensor.dtype].kind == "f":
            found = np.isnan(array)
        else:
            continue
        count = np.count_nonzero(found)
        if count > 0:
            first = [int(index) for index in np.unravel_index(found.argmax(), found.shape)]
            raise RunError(f'{role} "{tensor.name}": {count} of {found.size} elements are NaN, first {first}{cause}')


def _source(tensor: Tensor, value: Any) -> np.ndarray:
    """The input as a dense, aligned, row-major array of the right type: itself if it is one, else a copy."""
    array = value if type(value) is np.ndarray else _array(tensor, value)
    if tensor.dtype == "string":
        return _encoded(tensor, array)
    if array.dtype is not _DTYPES[tensor.dtype] or array.shape != tensor.shape:
        _check_type("input", tensor, array)
    return array if array.flags.num & _DENSE == _DENSE else np.require(array, requirements=["C", "A"])


def _target(tensor: Tensor, value: Any) -> np.ndarray:
    """The array to write an output into: the caller's, which must be fit for it, or a new one."""
    if value is None:
        return _room(tensor) if tensor.dtype == "string" else np.empty(tensor.shape, _DTYPES[tensor.dtype])
    array = value if isinstance(value, np.ndarray) else _lent_for_writing(tensor, value)
    _check_type("out for", tensor, array)
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned and flags.writeable):
        raise RunError(f'out for "{tensor.name}" must be writable, dense and row-major, as np.empty makes it')
    return _room(tensor) if tensor.dtype == "string" else array


def _returned(out: Sequence[Any], results: list[Any]) -> list[Any]:
    """What the caller gave to write into, and new arrays for what the caller did not give."""
    for number, given in enumerate(out):
        if given is not None:
            result = results[number]
            if isinstance(result, np.ndarray) and result.dtype.hasobject:  # strings: the library did not write there
                given[...] = result
            results[number] = given
    return results


def _room(tensor: Tensor) -> np.ndarray:
    """Memory for the nnefc_string of each element: `[elements, 2]`, an address and a number of bytes."""
    return np.zeros((math.prod(tensor.shape), 2), np.uintp)


def _encoded(tensor: Tensor, array: np.ndarray) -> np.ndarray:
    """An input of strings as nnefc_string, with the bytes behind them in the same memory."""
    if array.dtype.kind not in "OSTU":
        raise RunError(
            f'input "{tensor.name}" is an array of {array.dtype}, but the model has strings: use .astype(str)'
        )
    if array.shape != tensor.shape:
        _check_type("input", tensor, array.astype(object))
    texts = [_utf8(tensor, item) for item in array.reshape(-1).tolist()]
    sizes = np.fromiter(map(len, texts), np.uintp, len(texts))
    room = np.empty((len(texts), 2), np.uintp)
    memory = np.empty(room.nbytes + int(sizes.sum()), np.uint8)
    memory[room.nbytes :] = np.frombuffer(b"".join(texts), np.uint8)
    strings = memory[: room.nbytes].view(np.uintp).reshape(room.shape)
    strings[:, 0] = memory.ctypes.data + room.nbytes + np.cumsum(sizes) - sizes
    strings[:, 1] = sizes
    return strings


def _utf8(tensor: Tensor, item: Any) -> bytes:
    if isinstance(item, bytes):
        return item
    if not isinstance(item, str):
        raise RunError(f'input "{tensor.name}" has an element that is a {type(item).__name__}, not a str: {item!r}')
    try:
        return item.encode("utf-8", _UNDECODABLE)
    except UnicodeEncodeError:
        raise RunError(f'input "{tensor.name}" has an element that UTF-8 cannot encode: {item!r}') from None


def _decoded(tensor: Tensor, array: np.ndarray) -> np.ndarray:
    """An output; of one of strings, whose bytes are there until the next run, the strings."""
    if tensor.dtype != "string":
        return array
    count, made = math.prod(tensor.shape), np.empty(tensor.shape, np.object_)
    pairs = array[:count].tolist()
    made.reshape(-1)[:] = [ctypes.string_at(*pair).decode("utf-8", _UNDECODABLE) if pair[1] else "" for pair in pairs]
    return made


def _copied(tensor: Tensor, found: Any) -> np.ndarray:
    """An output in memory of the session's, as an array of its own."""
    shape = tuple(found.shape[: len(tensor.shape)])
    if tensor.dtype == "string":
        strings = _room(Tensor(tensor.name, tensor.dtype, shape))
        ctypes.memmove(strings.ctypes.data, found.data, strings.nbytes if strings.size else 0)
        return _decoded(Tensor(tensor.name, tensor.dtype, shape), strings)
    result = np.empty(shape, _DTYPES[tensor.dtype])
    if result.nbytes:
        ctypes.memmove(result.ctypes.data, found.data, result.nbytes)
    return result


def _counted(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """The part of an output that a run has written."""
    return array if array.shape == shape else array.reshape(-1)[: math.prod(shape)].reshape(shape)


# Libraries whose arrays do not change, which they do not say by DLPack.
_IMMUTABLE = ("jax", "jaxlib", "pyarrow", "tensorflow")


def _lent_for_writing(tensor: Tensor, value: Any) -> np.ndarray:
    """The memory of another library's array."""
    kind = type(value).__name__
    if not hasattr(value, "__dlpack__") or not hasattr(value, "__dlpack_device__"):
        raise RunError(f'out for "{tensor.name}" is a {kind}, neither a NumPy array nor another with __dlpack__')
    if type(value).__module__.partition(".")[0] in _IMMUTABLE:
        raise RunError(f'out for "{tensor.name}" is a {kind}, which cannot be written: use np.empty, or omit out')
    try:
        return _lent(tensor, value)
    except Exception as error:  # of the other library, whose errors may be its own
        raise RunError(f'out for "{tensor.name}" is a {kind} that cannot be written ({error})') from error


class _Lent:
    """Another library's array in the host's memory, as NumPy wants to be shown it; NumPy's array keeps this."""

    def __init__(self, shown: _Shown, typestr: str) -> None:
        self._owner = shown.owner
        size = shown.item_bytes
        strides = None if shown.strides is None else tuple(size * stride for stride in shown.strides)
        data = shown.address, shown.read_only
        self.__array_interface__ = {
            "shape": shown.shape,
            "typestr": typestr,
            "data": data,
            "strides": strides,
            "version": 3,
        }


def _lent(tensor: Tensor, value: Any) -> np.ndarray:
    """Another library's array as one of NumPy's, which may be written where that may be; bfloat16 as uint16.

    NumPy's own `from_dlpack` knows no bfloat16, and takes arrays of libraries with the older DLPack for read-only.
    """
    if value.__dlpack_device__()[0] not in _HOST_DEVICES:
        raise RunError("it is not in the host's memory")
    try:
        capsule = value.__dlpack__(max_version=(1, 0))
    except TypeError:  # an older version
        capsule = value.__dlpack__()
    shown = _shown_by_capsule(capsule, value)
    kind = "u" if shown.kind == "bfloat" and tensor.dtype == "bfloat16" else shown.kind
    if kind not in _KINDS:
        raise RunError(f"its elements are of a type that NumPy lacks, but the model has {tensor.dtype}")
    return np.asarray(_Lent(shown, f"{'|' if shown.item_bytes == 1 else _ORDER}{kind}{shown.item_bytes}"))


def _address(array: Any) -> int:
    """Where a dense array of NumPy has its elements; `array.ctypes` says the same, in five times as long."""
    try:
        return ctypes.addressof(c_char.from_buffer(array))
    except (TypeError, ValueError):  # an array that may not be written, one without elements
        return int(array.ctypes.data)


def _check_overlap(
    inputs: tuple[Tensor, ...], sources: list[np.ndarray], outputs: tuple[Tensor, ...], results: list[np.ndarray]
) -> None:
    for i, result in enumerate(results):
        others = [*zip(inputs, sources, strict=True), *zip(outputs[:i], results[:i], strict=True)]
        for tensor, other in others:
            if np.may_share_memory(result, other):
                raise RunError(f'out for "{outputs[i].name}" overlaps "{tensor.name}": use an array of its own')


# --- arrays in the memory of a GPU


_DEFAULT_STREAM = 1  # CUDA's number of the stream that programs use which name none

_KINDS = {"i": 0, "u": 1, "f": 2, "b": 6}  # of element types, NumPy's → DLPack's
_BFLOAT = 4
_CUDA, _CUDA_MANAGED = 2, 13  # of DLPack's kinds of devices, those whose memory a GPU has
_HOST_DEVICES = (1, 3, 11)  # and those whose memory is the host's: plain, pinned for CUDA, pinned for ROCm
_ORDER = "<" if sys.byteorder == "little" else ">"


@dataclass(frozen=True)
class _Span:
    """Where an array is; `owner` keeps it there."""

    address: int
    bytes: int
    is_host: bool
    owner: Any


class _Gpu:
    """NVIDIA's driver, as far as arrays need it, for one GPU. The network's library has opened it before."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._driver = ctypes.CDLL("libcuda.so.1")
        signatures: dict[str, list[Any]] = {
            "cuCtxPopCurrent_v2": [POINTER(c_void_p)],
            "cuCtxPushCurrent_v2": [c_void_p],
            "cuDeviceGet": [POINTER(c_int), c_int],
            "cuDevicePrimaryCtxRelease_v2": [c_int],
            "cuDevicePrimaryCtxRetain": [POINTER(c_void_p), c_int],
            "cuGetErrorString": [c_int, POINTER(c_char_p)],
            "cuMemAlloc_v2": [POINTER(c_uint64), c_size_t],
            "cuMemFree_v2": [c_uint64],
            "cuMemcpyDtoH_v2": [c_void_p, c_uint64, c_size_t],
            "cuStreamSynchronize": [c_void_p],
        }
        for name, arguments in signatures.items():
            getattr(self._driver, name).argtypes = arguments
        self._context = c_void_p()
        self._device = c_int()
        self._call("cuDeviceGet", byref(self._device), number)
        self._call("cuDevicePrimaryCtxRetain", byref(self._context), self._device)

    def allocate(self, size: int) -> int:
        """The address of so many new bytes, which keep the context alive: this object may end before they do."""
        memory = c_uint64()
        with self._current():
            self._call("cuMemAlloc_v2", byref(memory), max(size, 1))
        self._call("cuDevicePrimaryCtxRetain", byref(self._context), self._device)
        return int(memory.value)

    def free(self, address: int) -> None:
        """Free what :meth:`allocate` gave."""
        with self._current():
            self._call("cuMemFree_v2", address)
        self._call("cuDevicePrimaryCtxRelease_v2", self._device)

    def synchronize(self, stream: int) -> None:
        """Wait for what a stream has to do."""
        with self._current():
            self._call("cuStreamSynchronize", stream)

    def fetch(self, address: int, array: np.ndarray) -> None:
        """Copy from the GPU."""
        with self._current():
            self._call("cuMemcpyDtoH_v2", array.ctypes.data, address, array.nbytes)

    def __del__(self) -> None:
        if getattr(self, "_context", None):
            self._driver.cuDevicePrimaryCtxRelease_v2(self._device)

    def host_array(self, tensor: Tensor, span: _Span) -> np.ndarray:
        """The elements of an array, copied if they are on the GPU."""
        if span.is_host:
            return np.asarray(span.owner)
        array = np.empty(tensor.shape, _DTYPES[tensor.dtype])
        self.fetch(span.address, array)
        return array

    @contextmanager
    def _current(self) -> Iterator[None]:
        before = c_void_p()
        self._call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self._driver.cuCtxPopCurrent_v2(byref(before))

    def _call(self, name: str, *arguments: Any) -> None:
        result = getattr(self._driver, name)(*arguments)
        if result != 0:
            text = c_char_p()
            self._driver.cuGetErrorString(result, byref(text))
            reason = text.value.decode(errors="replace") if text.value is not None else f"error {result}"
            raise RunError(f"GPU {self.number}: {name} failed: {reason}")


class DeviceArray:
    """An output in the memory of a GPU: dense, row-major, freed when nothing refers to it any more.

    Libraries that know `__dlpack__` or `__cuda_array_interface__` take it without a copy, and find its elements there
    even if it comes from a run that has only begun.

    Attributes:
        shape, dtype: NumPy's; bfloat16 as uint16, its bit patterns.
        device: the GPU's number.
        address: of its first element.
    """

    def __init__(self, gpu: _Gpu, tensor: Tensor, stream: int | None) -> None:
        self._gpu = gpu
        self._stream = stream  # on which its elements are made; None if they are there
        self._is_bfloat = tensor.dtype == "bfloat16"
        self.shape = tensor.shape
        self.dtype = _DTYPES[tensor.dtype]
        self.device = gpu.number
        self.address = gpu.allocate(self.nbytes)

    @property
    def nbytes(self) -> int:
        """The size of its elements."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    def numpy(self) -> np.ndarray:
        """A copy in the memory of the host."""
        self._wait()
        array = np.empty(self.shape, self.dtype)
        self._gpu.fetch(self.address, array)
        return array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "version": 3,
            "stream": self._stream,
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return _CUDA, self.device

    def __dlpack__(self, *, stream: int | None = None, copy: bool | None = None, **_: Any) -> Any:
        if copy:
            raise BufferError("a DeviceArray is given without a copy")
        if stream != self._stream:
            self._wait()
        return _capsule(self, _BFLOAT if self._is_bfloat else _KINDS[self.dtype.kind])

    def __reduce__(self) -> NoReturn:
        """Refuse copies: two objects would free the same memory."""
        raise TypeError("a DeviceArray cannot be copied or pickled: numpy() copies its elements")

    def __repr__(self) -> str:
        return f"<DeviceArray {self.dtype}{list(self.shape)} on cuda:{self.device}>"

    def __del__(self) -> None:
        if getattr(self, "address", None) is not None:
            with suppress(RunError):  # the driver ends before the interpreter does
                self._gpu.free(self.address)

    def _wait(self) -> None:
        if self._stream is not None:
            self._gpu.synchronize(self._stream)


def _stream_handle(stream: Any) -> int:
    """CUDA's number of a stream, of its own or of another library's object for one."""
    if hasattr(stream, "__cuda_stream__"):
        stream = stream.__cuda_stream__()[1]
    for name in ("cuda_stream", "ptr", "handle"):  # of PyTorch, CuPy, CUDA's own
        stream = getattr(stream, name, stream)
    try:
        return int(stream) or _DEFAULT_STREAM  # a library's 0 is the default stream
    except (TypeError, ValueError):
        raise RunError(f"stream is a {type(stream).__name__}, which is not a CUDA stream") from None


def _is_host(value: Any) -> bool:
    """Whether an array is in the host's memory, as far as it says; None is: a new one will be."""
    if value is None or isinstance(value, np.ndarray):
        return True
    if hasattr(value, "__dlpack_device__"):
        return value.__dlpack_device__()[0] not in (_CUDA, _CUDA_MANAGED)
    return not hasattr(value, "__cuda_array_interface__")


def _gpu_source(gpu: _Gpu, tensor: Tensor, value: Any, stream: int | None) -> _Span:
    if _is_host(value):
        if stream is not None:
            raise RunError(f'input "{tensor.name}" is in the host\'s memory: runs on a stream take arrays on the GPU')
        array = _source(tensor, value)
        return _Span(_address(array), array.nbytes, True, array)
    return _device_span(gpu, "input", tensor, value, stream)


def _gpu_target(gpu: _Gpu, tensor: Tensor, value: Any, stream: int | None) -> _Span:
    if not _is_host(value):
        return _device_span(gpu, "out for", tensor, value, stream)
    if stream is not None:
        raise RunError(f'out for "{tensor.name}" is in the host\'s memory: runs on a stream give arrays on the GPU')
    return _Span(_address(value), value.nbytes, True, value)


def _gpu_results(
    gpu: _Gpu, outputs: tuple[Tensor, ...], out: Sequence[Any] | str | None, stream: int | None
) -> tuple[list[Any], list[_Span]]:
    """What a run returns, and where it writes."""
    if out is None and stream is None:
        results: list[Any] = [_target(tensor, None) for tensor in outputs]
    elif out is None or isinstance(out, str):
        results = [DeviceArray(gpu, tensor, stream) for tensor in outputs]
    else:
        results = [_target(*p) if _is_host(p[1]) else p[1] for p in zip(outputs, out, strict=True)]
    return results, [_gpu_target(gpu, *pair, stream) for pair in zip(outputs, results, strict=True)]


def _shape_of(value: Any) -> tuple[int, ...]:
    """The shape of an array, in whatever memory it is."""
    return tuple(value.shape if hasattr(value, "shape") else value.__cuda_array_interface__["shape"])


@dataclass(frozen=True)
class _Shown:
    """What an array of another library shows of itself; `strides` are in elements, None for row-major."""

    address: int
    device: int | None
    kind: str
    item_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    read_only: bool
    owner: Any


def _device_span(gpu: _Gpu, role: str, tensor: Tensor, value: Any, stream: int | None) -> _Span:
    """Where an array on the GPU is, which must be what the model has."""
    try:
        show = _shown_by_dlpack if hasattr(value, "__dlpack_device__") else _shown_by_interface
        shown = show(value, stream, gpu)
    except RunError:
        raise
    except Exception as error:  # of the other library, whose errors may be its own
        raise RunError(f'{role} "{tensor.name}" is a {type(value).__name__} that cannot be read: {error}') from error
    wanted = _DTYPES[tensor.dtype]
    kinds = {"bfloat16": ("bfloat", "u"), "bool": ("b",)}.get(tensor.dtype, (wanted.kind,))
    if shown.kind not in kinds or shown.item_bytes != wanted.itemsize:
        raise RunError(
            f'{role} "{tensor.name}" has elements of another type than the model, which has {tensor.dtype}: convert it'
        )
    if shown.shape != tensor.shape:
        raise RunError(
            f'{role} "{tensor.name}" has the shape {list(shown.shape)}, but the model has {list(tensor.shape)}'
        )
    size = int(np.prod(tensor.shape, dtype=np.int64))
    if size > 0 and shown.strides is not None and not _is_dense(shown.shape, shown.strides):
        raise RunError(f'{role} "{tensor.name}" is not dense and row-major: pass a copy that is')
    if shown.device not in (None, gpu.number):
        raise RunError(f'{role} "{tensor.name}" is on GPU {shown.device}, but the session is on GPU {gpu.number}')
    if shown.read_only and role != "input":
        raise RunError(f'{role} "{tensor.name}" may not be written')
    return _Span(shown.address, size * wanted.itemsize, False, shown.owner)


def _is_dense(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def _shown_by_interface(value: Any, stream: int | None, gpu: _Gpu) -> _Shown:
    """By `__cuda_array_interface__`, version 2 or 3."""
    interface = value.__cuda_array_interface__
    if interface.get("mask") is not None:
        raise RunError("arrays with a mask are not supported")
    dtype, (address, read_only) = np.dtype(interface["typestr"]), interface["data"]
    producer = interface.get("stream")
    if producer is not None and producer != stream:
        gpu.synchronize(producer)
    strides = interface.get("strides")
    elements = None if strides is None else tuple(stride // dtype.itemsize for stride in strides)
    shape = tuple(interface["shape"])
    return _Shown(address or 0, None, dtype.kind, dtype.itemsize, shape, elements, bool(read_only), value)


class _DlTensor(Structure):
    _fields_ = (
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


_Deleter = CFUNCTYPE(None, c_void_p)


class _DlManaged(Structure):
    _fields_ = (("tensor", _DlTensor), ("context", c_void_p), ("deleter", _Deleter))


class _DlVersioned(Structure):
    _fields_ = (
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", _Deleter),
        ("flags", c_uint64),
        ("tensor", _DlTensor),
    )


_DL_READ_ONLY = 1  # of the flags

_DLTENSOR_VERSIONED = b"dltensor_versioned"
_DLTENSOR = b"dltensor"  # the name of a capsule that nobody has taken apart
_capsule_pointer = PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", pythonapi))
_capsule_has_name = PYFUNCTYPE(c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", pythonapi))
_new_capsule = PYFUNCTYPE(py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", pythonapi))


def _shown_by_dlpack(value: Any, stream: int | None, _: _Gpu) -> _Shown:
    return _shown_by_capsule(value.__dlpack__(stream=_DEFAULT_STREAM if stream is None else stream), value)


def _shown_by_capsule(capsule: Any, value: Any) -> _Shown:
    """By a capsule, which stays as it is and is kept: it frees what it has when it goes."""
    read_only = False  # the older version is for arrays that may be written
    if _capsule_has_name(id(capsule), _DLTENSOR_VERSIONED):
        pointer = _capsule_pointer(id(capsule), _DLTENSOR_VERSIONED)
        versioned = ctypes.cast(pointer, POINTER(_DlVersioned)).contents
        if versioned.major != 1:
            raise RunError(f"version {versioned.major} of DLPack is not known")
        tensor, read_only = versioned.tensor, bool(versioned.flags & _DL_READ_ONLY)
    else:
        tensor = ctypes.cast(_capsule_pointer(id(capsule), _DLTENSOR), POINTER(_DlManaged)).contents.tensor
    kind = {**{code: kind for kind, code in _KINDS.items()}, _BFLOAT: "bfloat"}.get(tensor.code, "?")
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = tuple(tensor.strides[axis] for axis in range(tensor.ndim)) if tensor.strides else None
    device = tensor.device_id if tensor.device_type == _CUDA else None
    address = (tensor.data or 0) + tensor.byte_offset
    return _Shown(address, device, kind, tensor.bits * tensor.lanes // 8, shape, strides, read_only, (capsule, value))


# What capsules show that others have taken over, by their addresses, until those are done with it.
_shown_to_others: dict[int, tuple[_DlManaged, Any, DeviceArray]] = {}


def _forget(address: int) -> None:
    _shown_to_others.pop(address, None)


def _drop_capsule(capsule: int) -> None:
    if _capsule_has_name(capsule, _DLTENSOR):  # nobody has taken it over
        _forget(_capsule_pointer(capsule, _DLTENSOR))


_forget_native, _drop_native = _Deleter(_forget), _Deleter(_drop_capsule)


def _capsule(array: DeviceArray, code: int) -> Any:
    """A capsule of DLPack's that keeps `array`."""
    rank = len(array.shape)
    sizes = (c_int64 * (2 * rank + 1))(*array.shape)
    step = 1
    for axis in reversed(range(rank)):
        sizes[rank + axis] = step
        step *= array.shape[axis]
    tensor = _DlTensor(array.address, _CUDA, array.device, rank, code, 8 * array.dtype.itemsize, 1)
    tensor.shape = ctypes.cast(sizes, POINTER(c_int64))
    tensor.strides = ctypes.cast(ctypes.byref(sizes, 8 * rank), POINTER(c_int64))
    managed = _DlManaged(tensor, None, _forget_native)
    address = ctypes.addressof(managed)
    _shown_to_others[address] = managed, sizes, array
    return _new_capsule(address, _DLTENSOR, ctypes.cast(_drop_native, c_void_p))


def _check_apart(
    inputs: tuple[Tensor, ...], sources: list[_Span], outputs: tuple[Tensor, ...], targets: list[_Span]
) -> None:
    """Refuse outputs that lie over another tensor."""
    for i, target in enumerate(targets):
        others = [*zip(inputs, sources, strict=True), *zip(outputs[:i], targets[:i], strict=True)]
        for tensor, other in others:
            if target.address < other.address + other.bytes and other.address < target.address + target.bytes:
                raise RunError(f'out for "{outputs[i].name}" overlaps "{tensor.name}": use an array of its own')
