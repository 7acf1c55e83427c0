"""What a session does once it has a network: it describes itself, and runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn, TypeGuard

import numpy as np

from nnefc.loader import RunCancelled, RunError

from .binding import IOBinding, SessionIOBinding
from .bound_outputs import targets
from .declared import Declared
from .devices import OrtEpDevice, OrtMemoryInfo, get_ep_devices
from .enums import OrtAllocatorType, OrtMemType
from .errors import Fail, InvalidArgument, NotImplemented, refusal
from .fields import ignored
from .inputs import Feed, check_names, converted, described, run_error
from .libraries import Libraries, Runner
from .metadata import ModelMetadata, NodeArg
from .options import RunOptions, SessionOptions
from .profiling import Profiler
from .providers import CUDA, Provider
from .tensors.element_types import element_of
from .tensors.raw_values import OrtValueVector, RawOrtValue
from .tensors.values import OrtValue

if TYPE_CHECKING:
    from .stand_in import StandIn

__all__ = ["Session"]


class Session:
    """Runs a network. Several threads may call `run` at the same time, unless the network has states.

    Attributes:
        declared_inputs: all inputs that a run takes.
    """

    _libraries: Libraries
    _sess_options: SessionOptions
    _used: list[Provider]
    _inputs_meta: list[NodeArg]
    _outputs_meta: list[NodeArg]
    _overridable_initializers: list[NodeArg]
    _model_meta: ModelMetadata
    _required: tuple[Declared, ...]
    _overridable: tuple[Declared, ...]
    _declared_outputs: dict[str, Declared]
    _output_names: list[str]
    _simple: _Simple | None
    _stand_in: StandIn | None = None
    _profiler: Profiler | None

    # --- runs

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """Runs the network and returns the outputs of these names, in this order; all outputs for None.

        Args:
            output_names: names of outputs.
            input_feed: arrays, lists, values or arrays of other libraries, by the names of inputs.
            run_options: a :class:`RunOptions`.

        Raises:
            ValueError: inputs are missing.
            InvalidArgument: inputs do not fit, or the model has no such input or output.
            RuntimeError: an input is nothing that can be one.
            Fail: the run fails.
        """
        if (
            run_options is None
            and type(input_feed) is dict
            and (not output_names or output_names == self._output_names)
        ):
            found = self._run_exact(input_feed)
            if found is not None:
                return list(found)
        return self._results(output_names, input_feed, run_options)

    def _run_exact(self, given: dict[str, Any], out: Sequence[Any] | None = None) -> Sequence[Any] | None:
        """Returns all outputs for arrays of exactly the types and shapes of the inputs; None for others.

        `out` has an array for each output, to write into and return.

        Raises:
            Fail, InvalidArgument: the run fails.
        """
        simple = self._simple
        if simple is None or self._profiler is not None or list(given) != simple.names:
            return None
        try:
            return simple.runner.run_exact(tuple(given.values()), out)
        except RunError as error:
            raise run_error(given, self._required, error) from error

    def _results(
        self,
        output_names: Sequence[str] | None,
        given: Mapping[str, Any],
        run_options: Any = None,
        out: Mapping[str, Any] | None = None,
        on_gpu: bool = False,
    ) -> list[Any]:
        """Runs the network; `out` has arrays to write outputs into, as far as the library can.

        Arguments, results and errors are those of :meth:`run`; with `on_gpu`, results stay in the memory of the GPU.
        """
        names = self._names(output_names) if output_names else self._output_names
        ending = None
        if run_options is not None:
            _check_run_options(run_options)
            ending = run_options if isinstance(run_options, RunOptions) else None
        simple = self._simple
        if simple is not None and self._profiler is None and out is None and not on_gpu and _fits(given, simple.inputs):
            try:
                outputs = simple.runner.run(given, options=ending, outputs=names if output_names else None)
            except RunCancelled as error:
                raise _ended() from error
            except RunError as error:
                raise run_error(given, self._required, error) from error
            return [outputs[name] for name in names]
        feed = self._feed(given)
        if self._stand_in is not None:
            found_early = self._stand_in.run(names, feed)
            if found_early is not None:
                return found_early
        begin = time.perf_counter_ns() if self._profiler is not None else 0
        runner, own = self._libraries.of_inputs(feed)
        try:
            wanted = runner.outputs_of(names) if output_names else None
            found = runner.run(own, targets(runner.model, own, out, on_gpu), ending, wanted)
        except RunCancelled as error:
            raise _ended() from error
        except RunError as error:
            raise run_error(feed, self._required, error) from error
        if run_options is not None:
            _check_run_options(run_options)
        if self._profiler is not None:
            self._profiler.add("model_run", begin)
        declared = self._declared_outputs
        return [self._libraries.result(declared[name], runner, found) for name in names]

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Callable[[list[Any], Any, str], None],
        user_data: Any,
        run_options: Any = None,
    ) -> None:
        """Starts a run and returns; `callback(results, user_data, error)` is called in another thread when it ends.

        `error` is "" after a run without an error; else `results` is empty.

        Raises:
            ValueError: inputs are missing.
            RunError: the network has states.
        """
        check_names(input_feed, self._required, ())

        def run() -> None:
            try:
                results, error = self.run(output_names, input_feed, run_options), ""
            except Exception as failure:  # there is no future that would hold it
                results, error = [], str(failure) or type(failure).__name__
            callback(results, user_data, error)

        first = self._libraries.first
        if first is None:
            threading.Thread(target=run, daemon=True).start()
        elif first.pool is None:
            raise refusal(NotImplemented, "runs of a network with states follow each other: use run")
        else:
            first.pool.begin(run)

    def run_with_ort_values(
        self, output_names: Sequence[str] | None, input_dict_ort_values: Mapping[str, OrtValue], run_options: Any = None
    ) -> list[OrtValue]:
        """Runs on values, and returns values; arguments and errors of :meth:`run`."""
        for name, value in input_dict_ort_values.items():
            is_peers = type(value).__name__ == "OrtValue"  # onnxruntime's own
            if not is_peers and not isinstance(value, OrtValue | RawOrtValue):
                raise refusal(AttributeError, f'input "{name}" is a {type(value).__name__}, and not an OrtValue')
        results = self._results(output_names, input_dict_ort_values, run_options)
        return [OrtValue(RawOrtValue(result)) for result in results]

    def run_with_iobinding(self, iobinding: IOBinding | SessionIOBinding, run_options: Any = None) -> None:
        """Runs on the memory that inputs and outputs are bound to.

        Raises:
            ValueError: the binding is of another session.
            RuntimeError: inputs or outputs are missing, or do not fit.
        """
        if iobinding._session is not self:
            raise ValueError("the binding is of another session: session.io_binding() makes one")
        binding = iobinding if isinstance(iobinding, SessionIOBinding) else iobinding._iobinding
        binding._run(run_options)

    def run_with_ortvaluevector(
        self,
        run_options: Any,
        feed_names: Sequence[str],
        feeds: Sequence[RawOrtValue],
        fetch_names: Sequence[str],
        fetches: OrtValueVector,
        fetch_devices: Sequence[Any],
    ) -> None:
        """Runs on values by names, and appends the results to `fetches`."""
        results = self._results(fetch_names, dict(zip(feed_names, feeds, strict=True)), run_options)
        fetches.extend(RawOrtValue(result) for result in results)

    def io_binding(self) -> IOBinding:
        """Returns a binding of inputs and outputs to memory."""
        return IOBinding(self)

    # --- descriptions

    @property
    def _declared_inputs(self) -> tuple[Declared, ...]:
        """All inputs that a run takes, initializers among them."""
        return self._required + self._overridable

    def get_inputs(self) -> list[NodeArg]:
        """Returns the inputs in their order."""
        return list(self._inputs_meta)

    def get_outputs(self) -> list[NodeArg]:
        """Returns the outputs in their order."""
        return list(self._outputs_meta)

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Returns the initializers that a run may give other values."""
        return list(self._overridable_initializers)

    def get_modelmeta(self) -> ModelMetadata:
        """Returns the model's metadata."""
        return self._model_meta

    def get_session_options(self) -> SessionOptions:
        """Returns a copy of the options."""
        return self._sess_options._copy()

    def get_providers(self) -> list[str]:
        """Returns the execution providers that the session uses."""
        return [provider.name for provider in self._used]

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Returns the options of each execution provider: the number of the GPU."""
        return {each.name: {"device_id": str(each.device)} if each.name == CUDA else {} for each in self._used}

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """Returns the memory of each input."""
        return [_memory() for _ in self._inputs_meta]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """Returns the memory of each output."""
        return [_memory() for _ in self._outputs_meta]

    def get_input_epdevices(self) -> list[OrtEpDevice]:
        """Returns the device that reads each input."""
        devices = {device.ep_name: device for device in get_ep_devices()}
        return [devices[self._used[0].name]] * len(self._inputs_meta)

    def get_provider_graph_assignment_info(self) -> NoReturn:
        """Refuses: kernels are made of several nodes.

        Raises:
            Fail: always.
        """
        raise refusal(Fail, "the kernels of a compiled network are made of several nodes: nnefc view shows which")

    # --- profiles and tuning

    def end_profiling(self) -> str:
        """Writes the profile as a Chrome trace, and returns the name of its file; "" if no profile was wanted."""
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            return ""
        first = self._libraries.first
        if first is not None and self._times_kernels:
            profiler.add_kernels(first.model)
        return profiler.write()

    def get_profiling_start_time_ns(self) -> int:
        """Returns when the profile began, in nanoseconds of a monotonic clock; 0 if there is none."""
        return self._profiler.start if self._profiler is not None else 0

    def get_tuning_results(self) -> list[Any]:
        """Returns no results: kernels are not tuned by measurements."""
        return []

    def set_tuning_results(self, results: Sequence[Any], *, error_on_invalid: bool = False) -> None:
        """Is accepted, and has no effect."""
        ignored("InferenceSession.set_tuning_results")

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Is accepted, and has no effect."""
        ignored("InferenceSession.set_ep_dynamic_options")

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Does nothing: no graph is captured."""

    def create_ortvalue_from_shape_and_type(
        self, shape: Sequence[int], element_type: Any, device_type: str, device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """Returns a tensor of zeros."""
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id, vendor_id)

    # --- inside

    def __reduce__(self) -> NoReturn:
        """Refuses copies: two objects would free one library."""
        raise TypeError("a session cannot be copied or pickled: another process makes its own of the model's path")

    @property
    def _sess(self) -> Session:
        """onnxruntime's session of C++, which some programs call."""
        return self

    @property
    def _providers(self) -> list[str]:
        return self.get_providers()

    @property
    def _times_kernels(self) -> bool:
        first = self._libraries.first
        return first is not None and bool(first.model._library.takes_times)

    def _prepare(self) -> None:
        """Makes what runs of dense arrays of the wanted types need, in which nothing is converted."""
        self._output_names = list(self._declared_outputs)
        first = self._libraries.first
        tensors = all(each.type.startswith("tensor(") for each in (*self._required, *self._declared_outputs.values()))
        self._simple = None
        if first is not None and tensors and not any(each.element == _STRING for each in self._required):
            inputs = [(each.name, element_of(each.element).dtype, each.shape == ()) for each in self._required]
            given, made = ([tensor.name for tensor in side] for side in (first.model.inputs, first.model.outputs))
            in_order = given == [each.name for each in self._required] and made == self._output_names
            self._simple = _Simple(first, inputs, given if in_order else None)

    def _names(self, output_names: Sequence[str]) -> list[str]:
        """Returns names of outputs.

        Raises:
            TypeError: they are no names.
            InvalidArgument: the model has no such output.
        """
        if isinstance(output_names, str) or not all(isinstance(name, str) for name in output_names):
            raise TypeError(f"output_names is {output_names!r}, and not a list of names")
        for name in output_names:
            if name not in self._declared_outputs:
                known = ", ".join(self._declared_outputs)
                raise refusal(InvalidArgument, f'the model has no output "{name}"; its outputs are {known}')
        return list(output_names)

    def _feed(self, given: Mapping[str, Any]) -> Feed:
        if not isinstance(given, Mapping):
            kind = type(given).__name__
            raise refusal(
                AttributeError, f"inputs are a {kind}, and not arrays by names; they are {described(self._required)}"
            )
        check_names(given, self._required, self._overridable)
        feed = {each.name: converted(each, given.get(each.name)) for each in self._required}
        for each in self._overridable:
            if each.name in given:
                feed[each.name] = converted(each, given[each.name])
        return feed


@dataclass(frozen=True)
class _Simple:
    """A library with the inputs and outputs of the model.

    Attributes:
        inputs: of each the name, the type, whether it is a scalar.
        names: of the inputs; None if the library has these or the outputs in another order.
    """

    runner: Runner
    inputs: list[tuple[str, np.dtype[Any], bool]]
    names: list[str] | None


_STRING = 8
"""ONNX's number of the type."""


def _fits(given: Any, inputs: list[tuple[str, np.dtype[Any], bool]]) -> TypeGuard[dict[str, Any]]:
    """Returns whether inputs are arrays of the wanted types, so that nothing is converted."""
    if type(given) is not dict or len(given) != len(inputs):
        return False
    for name, dtype, is_scalar in inputs:
        array = given.get(name)
        if type(array) is not np.ndarray or array.dtype is not dtype or (is_scalar and array.ndim):
            return False
    return True


def _check_run_options(options: Any) -> None:
    """Checks the options of a run.

    Raises:
        TypeError: they are none.
        Fail: the run shall end.
    """
    if options is None:
        return
    if not isinstance(options, RunOptions) and not hasattr(options, "terminate"):
        raise TypeError(f"run_options is a {type(options).__name__}, and not a RunOptions")
    if options.terminate:
        raise _ended()


def _ended() -> Exception:
    return refusal(Fail, "the run was ended: terminate is set in its options")


def _memory() -> OrtMemoryInfo:
    return OrtMemoryInfo("Cpu", OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, OrtMemType.DEFAULT)
