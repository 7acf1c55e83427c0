"""Session of a loaded network: checks and converts arrays, and calls the library's functions under a lock."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from ctypes import c_int64, c_void_p
from dataclasses import dataclass
from functools import partial
from typing import Any

from .arrays import address_of, as_array, copied, returned, source_of, target_for, trimmed
from .checks import check_overlap, refuse_nan
from .fast_path import FastPath
from .forks import keep_lock
from .gpu import DEFAULT_STREAM, GpuContext, Span, stream_handle
from .gpu_arrays import check_apart, gpu_results, gpu_source, is_host, shape_of, trimmed_on_gpu
from .interface import NO_AXIS, OK, InputStruct, OutputStruct, StateBytesStruct
from .library import Library
from .result_memory import LARGE, ResultMemory
from .strings import decoded
from .tensors import LoadError, RunError, StateMemory, Tensor

__all__ = ["Session"]

_FOREVER = float((1 << 63) - 1024)
"""The longest time limit in nanoseconds, 292 years."""


class Session:
    """A session of a network. Calls from several threads run one after the other.

    Attributes:
        library: the opened library.
        number: of the GPU, as NVIDIA's driver counts.
        flush_subnormals: whether runs treat subnormal numbers as zero.
        gpu: the GPU's context; None for a network that runs on CPUs.
        time_limit: maximum seconds of each run; None: no limit.
    """

    def __init__(
        self,
        library: Library,
        threads: int | None,
        number: int,
        flush_subnormals: bool,
        processors: Sequence[int] | None = None,
    ) -> None:
        """Create a session of `library`; `number` is the GPU's, and the other arguments are those of :func:`load`.

        Raises:
            LoadError: an argument is wrong, the session cannot be created, or there is no such GPU.
        """
        self.library, self.number, self.flush_subnormals = library, number, flush_subnormals
        self._lock: threading.Lock
        self._ending: threading.Lock
        keep_lock(self, threading.Lock, "_lock", "_ending")
        self._handle: c_void_p | None = None
        self._handle = library.create(threads, number, flush_subnormals, processors)
        try:
            self.gpu = None if library.device == "cpu" else GpuContext(number)
        except RunError as error:
            library.destroy(self._handle)
            self._handle = None
            raise LoadError(str(error)) from error
        self.time_limit: float | None = None
        self._sized: _Sized | None = None
        self._fast_path: FastPath | None = None
        self._run_native = library.dll.nnefc_run
        self._source_pointers = (c_void_p * len(library.inputs))()  # used under the lock only, as the handle
        self._result_pointers = (c_void_p * len(library.outputs))()
        self._inputs, self._outputs = library.inputs, library.outputs
        self._is_dynamic, self._is_data_dependent, self._finds_sizes = (
            library.is_dynamic,
            library.is_data_dependent,
            library.finds_sizes,
        )
        self._selected: tuple[int, ...] | None = None
        self._gives_text = any(tensor.dtype == "string" for tensor in library.outputs)
        self._has_texts = self._gives_text or any(tensor.dtype == "string" for tensor in library.inputs)
        self._result_memory = ResultMemory()
        sizes = [] if self._is_dynamic else [tensor.nbytes for tensor in self._outputs]
        self._result_memory.limit(sum(sizes))
        takes_blocks = self._is_dynamic or max(sizes, default=0) >= LARGE
        self._target_for = partial(target_for, empty=self._result_memory.empty) if takes_blocks else target_for
        if not self._is_dynamic:
            self._prepare_fast_path(self._inputs, self._outputs)

    @property
    def is_open(self) -> bool:
        """Whether the session has not been closed."""
        return self._handle is not None

    def open(self) -> c_void_p:
        """Return the session's handle.

        Raises:
            RunError: the session is closed.
        """
        if self._handle is None:
            raise RunError(f"the model {self.library.name} is closed: load it again")
        return self._handle

    def close(self) -> None:
        """Free the session. Closing twice does nothing."""
        with self._lock:
            with self._ending:
                handle, self._handle = self._handle, None
            self.gpu = self._fast_path = None
            self._result_memory.limit(0)
            if handle is not None:
                self.library.destroy(handle)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the library with the session and further arguments, between runs.

        Raises:
            RunError: the session is closed, or the library has no such function, or the function fails.
        """
        with self._lock:
            handle = self.open()
            self.library.check(self.library.function(name)(handle, *arguments), handle)

    def cancel(self) -> None:
        """Cancel the run of another thread before its next kernel; without a run, do nothing.

        Raises:
            RunError: the library does not support it.
        """
        cancel = getattr(self.library.dll, "nnefc_cancel", None)
        if cancel is None:
            raise RunError(
                f"runs of {self.library.name} cannot be cancelled: libraries for GPUs, those compiled for size and "
                "those of earlier versions have no nnefc_cancel"
            )
        with self._ending:  # the run holds the session's other lock
            if self._handle is not None:
                cancel(self._handle)

    def set_time_limit(self, seconds: float | None) -> None:
        """Limit the time of each later run; None: no limit.

        Raises:
            RunError: `seconds` is not positive, the session is closed, or the library does not support a limit.
        """
        if seconds is not None and not (type(seconds) is not bool and isinstance(seconds, int | float) and seconds > 0):
            raise RunError(f"a time limit is {seconds!r}, not a positive number of seconds; None: no limit")
        if not hasattr(self.library.dll, "nnefc_set_time_limit"):
            raise RunError(
                f"runs of {self.library.name} have no time limit: libraries for GPUs, those compiled for size and "
                "those of earlier versions have no nnefc_set_time_limit"
            )
        nanoseconds = 0 if seconds is None else max(1, int(min(seconds * 1e9, _FOREVER)))
        self.call("nnefc_set_time_limit", c_int64(nanoseconds))
        self.time_limit = seconds

    def copy_states_to(self, other: Session) -> None:
        """Copy the states to another session of the same library, which must not be in use."""
        with self._lock:
            copy = self.library.function("nnefc_copy_states")
            self.library.check(copy(other.open(), self.open()), other.open())

    @property
    def copies_sequences(self) -> bool:
        """Whether the library can copy sequences of tokens."""
        return hasattr(self.library.dll, "nnefc_copy_sequence")

    def copy_sequence(self, target: int, source: Session, number: int, count: int) -> None:
        """Make a sequence the first tokens of another one.

        Args:
            target: the number of a sequence of this session.
            source: the session of the other sequence: this one, or one that is not in use.
            number: of the other sequence.
            count: of tokens.

        Raises:
            RunError: there is no such sequence, it has fewer tokens, or the library cannot copy sequences.
        """
        with self._lock:
            copy, handle = self.library.function("nnefc_copy_sequence"), self.open()
            self.library.check(copy(handle, target, source.open(), number, count), handle)

    def state_memory(self) -> StateMemory:
        """Measure the memory of the states."""
        found = StateBytesStruct()
        self.call("nnefc_measure_states", ctypes.addressof(found))
        return StateMemory(found.own, found.shared, found.mapped)

    def synchronize(self) -> None:
        """Wait for runs that were started on streams, and raise their errors."""
        if self.gpu is None:
            self.open()
        else:
            self.call("nnefc_synchronize")

    def reserve(self, sizes: Mapping[str, int]) -> None:
        """Allocate memory for dynamic dimensions up to the given sizes, or up to their maximum if none is given.

        Args:
            sizes: by name of the dimension.

        Raises:
            RunError: the network has no such dimension or a smaller maximum, or there is not enough memory.
        """
        dimensions = self.library.dimensions
        names = [dimension.name for dimension in dimensions]
        for name in sizes:
            if name not in names:
                known = f"its dynamic dimensions are {', '.join(names)}" if names else "all its sizes are known"
                raise RunError(f'the model has no dynamic dimension "{name}": {known}')
        for name, size in sizes.items():
            if not -(1 << 63) <= size < 1 << 63:
                raise RunError(f'no memory holds {size} of the dynamic dimension "{name}"')
        wanted = [sizes.get(dimension.name, dimension.maximum) for dimension in dimensions]
        with self._lock:
            handle = self.open()
            if wanted:
                self._sized = self._fast_path = None  # if the allocation fails, the session has no sizes
                numbers = (c_int64 * len(wanted))(*wanted)
                self.library.check(self.library.dll.nnefc_reserve(handle, numbers, 0), handle)

    @property
    def selects(self) -> bool:
        """Whether a run can skip the kernels of outputs that are not wanted."""
        return hasattr(self.library.dll, "nnefc_select_outputs")

    def _select(self, wanted: tuple[int, ...] | None) -> None:
        """Make later runs compute the outputs of these numbers only; None: all. Call it under the lock."""
        count = len(self._outputs)
        selected = None if wanted is None else bytes(number in wanted for number in range(count))
        handle = self.open()
        self.library.check(self.library.dll.nnefc_select_outputs(handle, selected), handle)
        self._selected = wanted

    def _set_pointers(self, sources: Sequence[Any], results: Sequence[Any], wanted: tuple[int, ...] | None) -> None:
        """Set the pointers of inputs and outputs for the next run. Call it under the lock."""
        if wanted != self._selected:
            self._select(wanted)
        self._source_pointers[:] = list(map(address_of, sources))
        if wanted is None:
            self._result_pointers[:] = list(map(address_of, results))
        else:
            for number, result in zip(wanted, results, strict=True):
                self._result_pointers[number] = address_of(result)

    def _prepare_fast_path(self, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...]) -> None:
        """Prepares calls with arrays of these sizes, which the session has; under the lock."""
        if self.gpu is None and not self._has_texts:
            function, empty = self.library.dll["nnefc_run"], self._result_memory.empty
            self._fast_path = FastPath(function, self.open(), self.library.check, inputs, outputs, empty)

    def run_exact(self, values: Sequence[Any], out: Sequence[Any] | None = None) -> Sequence[Any] | None:
        """Run on arrays of exactly the inputs' types and shapes, in little time; return None for others.

        `out` has an array for each output, to write into and return.
        """
        lock = self._lock
        lock.acquire()  # `with` takes twice the time
        try:
            path = self._fast_path
            return None if path is None or self._selected is not None else path.run(values, out)
        finally:
            lock.release()

    def run(
        self,
        values: Sequence[Any],
        out: Sequence[Any] | str | None,
        stream: Any,
        check_nan: bool,
        wanted: tuple[int, ...] | None = None,
    ) -> list[Any]:
        """Run, and return the outputs. Small networks take microseconds, so this function does no work twice.

        Args:
            values: an array for each input, in the model's order.
            out: an array, or None, for each wanted output; or "device".
            stream: of CUDA, on which the run is only started; None: wait for the run.
            check_nan: whether NaN in inputs or outputs is an error.
            wanted: the numbers of the outputs to compute, ascending; None: all. Only if :attr:`selects` is true.

        Raises:
            RunError: an array does not fit, the session is closed, the run fails, or there is NaN and `check_nan`.
        """
        if self.gpu is not None:
            return self._run_on_gpu(self.gpu, values, out, stream, check_nan)
        if stream is not None or isinstance(out, str):
            self.open()
            raise RunError(
                f"the model {self.library.name} runs on processors: it has neither streams nor outputs on a device"
            )
        if self._is_dynamic:
            return self._run_resized(values, out, check_nan, wanted)
        outputs = self._outputs if wanted is None else _chosen(self._outputs, wanted)
        sources = list(map(source_of, self._inputs, values))
        results = list(map(self._target_for, outputs, out or [None] * len(outputs)))
        if out is not None:
            check_overlap(self._inputs, sources, outputs, results)
        if check_nan:
            refuse_nan("input", self._inputs, sources)
        with self._lock:
            session = self.open()
            self._set_pointers(sources, results, wanted)
            status = self._run_native(session, self._source_pointers, self._result_pointers)
            if status != OK:
                self.library.check(status, session)
            if self._gives_text:
                results = list(map(decoded, outputs, results))
        if check_nan:
            refuse_nan("output", outputs, results, self._cause_of_nan())
        return results if out is None else returned(out, results)

    def _run_resized(
        self, values: Sequence[Any], out: Sequence[Any] | None, check_nan: bool, wanted: tuple[int, ...] | None
    ) -> list[Any]:
        """Run a network with dynamic dimensions, whose sizes are determined by the inputs."""
        arrays = list(map(as_array, self._inputs, values))
        shapes, sized = [array.shape for array in arrays], self._sized
        if sized is None or sized.shapes != shapes:
            inputs = tuple(Tensor(t.name, t.dtype, array.shape) for t, array in zip(self._inputs, arrays, strict=True))
        else:
            inputs = sized.inputs
        sources = list(map(source_of, inputs, arrays))
        if check_nan:
            refuse_nan("input", inputs, sources)
        if self._finds_sizes:
            ranges = [(address_of(source), source.nbytes) for source in sources]
            return self._run_sized(inputs, ranges, out, check_nan, wanted)
        with self._lock:
            session, sized = self.open(), self._sized  # read again: another thread may have changed the sizes
            if sized is None or sized.shapes != shapes:
                outputs = self._resize(inputs)
            else:
                outputs = sized.outputs
                if self._fast_path is None:
                    self._prepare_fast_path(inputs, outputs)  # for a third call with these sizes
            outputs = outputs if wanted is None else _chosen(outputs, wanted)
            results = list(map(self._target_for, outputs, out or [None] * len(outputs)))
            if out is not None:
                check_overlap(inputs, sources, outputs, results)
            self._set_pointers(sources, results, wanted)
            status = self._run_native(session, self._source_pointers, self._result_pointers)
            if status != OK:
                self.library.check(status, session)
            if self._is_data_dependent:
                shapes = self._shapes_of_outputs()
                shapes = shapes if wanted is None else [shapes[number] for number in wanted]
                outputs = tuple(Tensor(t.name, t.dtype, s) for t, s in zip(outputs, shapes, strict=True))
            if self._gives_text:
                results = list(map(decoded, outputs, results))
            if self._is_data_dependent:
                results = list(map(trimmed, results, shapes))
        if check_nan:
            refuse_nan("output", outputs, results, self._cause_of_nan())
        return results if out is None or self._is_data_dependent else returned(out, results)

    def _run_sized(
        self,
        inputs: tuple[Tensor, ...],
        ranges: Sequence[tuple[int, int]],
        out: Sequence[Any] | str | None,
        check_nan: bool,
        wanted: tuple[int, ...] | None = None,
    ) -> list[Any]:
        """Run a network with data-dependent dimensions, and copy the outputs from the session's memory.

        `ranges` are the address and the bytes of each input; the other arguments are those of :meth:`run`.
        """
        if out is not None and any(given is not None for given in out):
            raise RunError(
                f"only a run tells how large the outputs of {self.library.name} are: it takes no arrays for them"
            )
        shapes = [self._numbers(tensor, own) for tensor, own in zip(inputs, self._inputs, strict=True)]
        given = (InputStruct * max(1, len(inputs)))()
        for element, (address, size), shape in zip(given, ranges, shapes, strict=False):
            element.data, element.bytes, element.shape = address, size, ctypes.addressof(shape)
        with self._lock:
            session, found = self.open(), (OutputStruct * max(1, len(self._outputs)))()
            if wanted != self._selected:
                self._select(wanted)
            self.library.check(self.library.dll.nnefc_run_sized(session, given, found), session)
            numbers = range(len(self._outputs)) if wanted is None else wanted
            outputs = _chosen(self._outputs, numbers)
            results = [copied(self._outputs[number], found[number], self._result_memory.empty) for number in numbers]
            self._result_memory.limit(sum(result.nbytes for result in results))
        if check_nan:
            refuse_nan("output", outputs, results, self._cause_of_nan())
        return results

    def _numbers(self, tensor: Tensor, own: Tensor) -> Any:
        """Return the shape of an input as an array of int64; `own` is the input in the model.

        Raises:
            RunError: the ranks differ.
        """
        if len(tensor.shape) != len(own.shape):
            raise RunError(f'input "{own.name}" has the shape {list(tensor.shape)}, but the model has {own}')
        return (c_int64 * max(1, len(tensor.shape)))(*tensor.shape)

    def _resize(self, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Set the shapes of the inputs, and return the outputs with their shapes. Call it under the lock."""
        session, dll = self.open(), self.library.dll
        shapes = [self._numbers(tensor, own) for tensor, own in zip(inputs, self._inputs, strict=True)]
        pointers = (c_void_p * max(1, len(shapes)))(*map(ctypes.addressof, shapes))
        self._sized = self._fast_path = None
        self.library.check(dll.nnefc_resize(session, pointers), session)
        outputs = tuple(
            Tensor(t.name, t.dtype, shape) for t, shape in zip(self._outputs, self._shapes_of_outputs(), strict=True)
        )
        self._result_memory.limit(sum(tensor.nbytes for tensor in outputs))
        if not self._is_data_dependent:
            self._sized = _Sized([tensor.shape for tensor in inputs], inputs, outputs)
        return outputs

    def _shapes_of_outputs(self) -> list[tuple[int, ...]]:
        """Return the shapes of the outputs; before a run, data-dependent sizes are upper bounds."""
        session, shape_of = self.open(), self.library.dll.nnefc_output_shape
        found = (shape_of(session, index) for index in range(len(self._outputs)))
        shapes = (shape[: len(t.shape)] for t, shape in zip(self._outputs, found, strict=True))
        return [tuple(size for size in shape if size != NO_AXIS) for shape in shapes]

    def _cause_of_nan(self) -> str:
        """Return the end of the message about NaN in an output, for inputs that have been checked."""
        states = (
            "; a state may have it from an earlier run: reset() brings back the start" if self.library.states else ""
        )
        return f", though no input has one{states}"

    def _run_on_gpu(
        self, gpu: GpuContext, values: Sequence[Any], out: Sequence[Any] | str | None, stream: Any, check_nan: bool
    ) -> list[Any]:
        """Run a network on a GPU, on arrays in host or GPU memory; arguments as in :meth:`run`."""
        if check_nan and stream is not None:
            raise RunError("check_nan looks at outputs, and a run on a stream has only begun: leave one of them out")
        if isinstance(out, str) and out != "device":
            raise RunError(f'out is {out!r}: pass arrays, or "device" for outputs in the GPU\'s memory')
        handle = None if stream is None else stream_handle(stream)
        inputs, is_dynamic = self._inputs, self._is_dynamic
        if is_dynamic:
            values = [as_array(t, value) if is_host(value) else value for t, value in zip(inputs, values, strict=True)]
            inputs = tuple(Tensor(t.name, t.dtype, shape_of(v)) for t, v in zip(inputs, values, strict=True))
        if self._finds_sizes and handle is not None:
            raise RunError(
                f"only a run tells how large the outputs of {self.library.name} are: it is waited for, on no stream"
            )
        sources = [gpu_source(gpu, *pair, handle) for pair in zip(inputs, values, strict=True)]
        if self._finds_sizes:
            if check_nan:
                refuse_nan("input", inputs, list(map(gpu.host_array, inputs, sources)))
            if any(not span.is_host for span in sources):
                gpu.synchronize(DEFAULT_STREAM)
            return self._run_sized(inputs, [(span.address, span.bytes) for span in sources], out, check_nan)
        if self._is_data_dependent and not isinstance(out, str) and not all(map(is_host, out or [])):
            raise RunError(
                f"only a run tells how large the outputs of {self.library.name} are: out takes arrays of the host, or "
                "'device'"
            )
        with self._lock if is_dynamic else nullcontext():  # no other thread may change the sizes before the run
            outputs = self._resize(inputs) if is_dynamic else self._outputs
            results, targets = gpu_results(gpu, outputs, out, handle)
            check_apart(inputs, sources, outputs, targets)
            if handle is None and any(not span.is_host for span in (*sources, *targets)):
                gpu.synchronize(DEFAULT_STREAM)  # other libraries order their pending work before this stream
            if check_nan:
                refuse_nan("input", inputs, list(map(gpu.host_array, inputs, sources)))
            with nullcontext() if is_dynamic else self._lock:
                self._start_on_gpu(sources, targets, handle)
            if self._is_data_dependent:
                shapes = self._shapes_of_outputs()
                outputs = tuple(Tensor(t.name, t.dtype, s) for t, s in zip(outputs, shapes, strict=True))
                results = list(map(trimmed_on_gpu, results, shapes))
        if check_nan:
            made = [gpu.host_array(*pair) for pair in zip(outputs, targets, strict=True)]
            refuse_nan("output", outputs, list(map(trimmed, made, (t.shape for t in outputs))), self._cause_of_nan())
        return results if out is None or isinstance(out, str) or self._is_data_dependent else returned(out, results)

    def _start_on_gpu(self, sources: Sequence[Span], targets: Sequence[Span], handle: int | None) -> None:
        """Run on the given address ranges, or start the run on a stream. Call it under the lock."""
        session = self.open()
        self._source_pointers[:] = [span.address for span in sources]
        self._result_pointers[:] = [span.address for span in targets]
        if handle is None:
            status = self._run_native(session, self._source_pointers, self._result_pointers)
        else:
            enqueue = self.library.dll.nnefc_enqueue
            status = enqueue(session, self._source_pointers, self._result_pointers, handle)
        self.library.check(status, session)


def _chosen(outputs: tuple[Tensor, ...], numbers: Sequence[int]) -> tuple[Tensor, ...]:
    return tuple(outputs[number] for number in numbers)


@dataclass(frozen=True)
class _Sized:
    """The current sizes of a session with dynamic dimensions.

    Attributes:
        shapes: of the inputs.
        inputs, outputs: with these sizes.
    """

    shapes: list[tuple[int, ...]]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
