"""Bindings of inputs and outputs to memory, for runs that read and write where a program says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from nnefc.loader import DeviceArray, RunError

from .declared import Declared
from .devices import check_device
from .errors import as_kind
from .tensors.element_types import element_of
from .tensors.gpu_memory import GpuAddress
from .tensors.raw_values import OrtValueVector, RawOrtValue, array_at
from .tensors.values import OrtValue

__all__ = ["Bindable", "IOBinding", "SessionIOBinding"]


class Bindable(Protocol):
    """A session, as far as bindings need it."""

    @property
    def _declared_inputs(self) -> tuple[Declared, ...]:
        """All inputs."""
        ...

    @property
    def _output_names(self) -> list[str]:
        """All outputs."""
        ...

    def _run_exact(self, given: dict[str, Any], out: Sequence[Any] | None = None) -> Sequence[Any] | None:
        """Returns all outputs for arrays of exactly the types and shapes of the inputs; None for others."""
        ...

    def _results(
        self,
        output_names: Sequence[str] | None,
        given: Mapping[str, Any],
        run_options: Any = None,
        out: Mapping[str, Any] | None = None,
        on_gpu: bool = False,
    ) -> list[Any]:
        """Runs, and returns outputs."""
        ...


class SessionIOBinding:
    """What the inputs and outputs of a session are bound to: a class of onnxruntime's module of C++ classes.

    Attributes:
        inputs: values by the names of inputs.
        outputs: by the names of outputs: a value to write into, or the kind of device for a new one.
        results: the values of the last run.
    """

    def __init__(self, session: Bindable) -> None:
        self._session = session
        self._declared = {each.name: each for each in session._declared_inputs}
        self.inputs: dict[str, RawOrtValue] = {}
        self.outputs: dict[str, RawOrtValue | str] = {}
        self.results = OrtValueVector()

    def bind_input(self, name: str, *arguments: Any) -> None:
        """Binds an input to an array, or to memory: a device, an element type, a shape and an address.

        Raises:
            RuntimeError: there is no such input, or the value is no array.
        """
        if len(arguments) != 1:
            device, kind, shape, address = arguments
            is_cpu = device.device_type() == 0
            self.inputs[name] = _at(address, kind, shape, "cpu" if is_cpu else "cuda")
            return
        (array,) = arguments
        if name not in self._declared:
            raise RuntimeError(f'the model has no input "{name}"; its inputs are {", ".join(self._declared)}')
        if isinstance(array, np.ndarray):
            dense = array if array.dtype.hasobject else np.require(array, requirements=["C", "A"])
            self.inputs[name] = RawOrtValue(dense)
        elif self._declared[name].is_sequence and isinstance(array, list):
            self.inputs[name] = RawOrtValue(array)
        else:
            raise RuntimeError(f'input "{name}" is bound to a {type(array).__name__}, and not to an array')

    def bind_ortvalue_input(self, name: str, value: RawOrtValue, /) -> None:
        """Binds an input to a value."""
        self.inputs[name] = value

    def bind_output(self, name: str, device: Any, *memory: Any) -> None:
        """Binds an output to a device, or to memory: an element type, a shape and an address."""
        kind = "cpu" if device.device_type() == 0 else "cuda"
        self.outputs.pop(name, None)
        self.outputs[name] = _at(memory[2], memory[0], memory[1], kind) if memory else kind

    def bind_ortvalue_output(self, name: str, value: RawOrtValue, /) -> None:
        """Binds an output to the memory of a value."""
        self.outputs[name] = value

    def clear_binding_inputs(self) -> None:
        """Forgets the inputs."""
        self.inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forgets the outputs and the results."""
        self.outputs.clear()
        self.results.clear()

    def synchronize_inputs(self) -> None:
        """Does nothing: inputs are copied when they are bound, or read during the run."""

    def synchronize_outputs(self) -> None:
        """Does nothing: a run has ended when it returns."""

    def get_outputs(self) -> OrtValueVector:
        """Returns the values of the last run."""
        return self.results

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Returns the values of the last run as arrays of the host."""
        return [v.content if isinstance(v.content, list) else v.numpy() for v in self.results]

    def _run(self, run_options: Any) -> None:
        """Runs on the bound inputs, and stores the results in the bound outputs.

        Raises:
            RuntimeError: inputs or outputs are missing, or do not fit.
        """
        try:
            if not self.outputs:
                raise RunError("no output is bound: bind_output(name)")
            exact = self._run_exact() if run_options is None else None
            if exact is not None:
                self.results = exact
                return
            direct = {name: _target(bound) for name, bound in self.outputs.items() if isinstance(bound, RawOrtValue)}
            on_gpu = "cuda" in self.outputs.values()
            found = self._session._results(list(self.outputs), self.inputs, run_options, direct, on_gpu)
            outputs = zip(self.outputs.items(), found, strict=True)
            self.results = OrtValueVector(_stored(name, bound, value) for (name, bound), value in outputs)
        except Exception as error:
            raise as_kind(RuntimeError, error) from error

    def _run_exact(self) -> OrtValueVector | None:
        """Runs where all is as the library has it: arrays of the host for all inputs, all outputs in their order.

        Returns None where something is not.
        """
        given: dict[str, Any] = {}
        for name, value in self.inputs.items():
            declared = self._declared.get(name)
            if declared is None or value.element_type() != declared.element:
                return None
            given[name] = value.content
        if list(self.outputs) != self._session._output_names:
            return None
        bound = [value for value in self.outputs.values() if isinstance(value, RawOrtValue)]
        if len(bound) == len(self.outputs):
            found = self._session._run_exact(given, [value.content for value in bound])
            return None if found is None else OrtValueVector(bound)
        if bound or "cuda" in self.outputs.values():
            return None
        found = self._session._run_exact(given)
        return None if found is None else OrtValueVector(map(RawOrtValue, found))


class IOBinding:
    """Binds inputs and outputs of a session to memory."""

    def __init__(self, session: Bindable) -> None:
        self._session = session
        self._iobinding = SessionIOBinding(session)

    def bind_cpu_input(self, name: str, arr_on_cpu: np.ndarray) -> None:
        """Binds an input to an array of the host.

        Raises:
            RuntimeError: there is no such input, or the value is no array.
        """
        self._iobinding.bind_input(name, arr_on_cpu)

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Binds an input to memory at an address, which stays as it is until the run has ended."""
        self._iobinding.inputs[name] = _at(buffer_ptr, element_type, shape, check_device(device_type))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Binds an input to a value."""
        self._iobinding.bind_ortvalue_input(name, ortvalue._get_c_value())

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Binds an output to memory at an address, or to new memory of a device.

        Raises:
            ValueError: an address is given without an element type or a shape.
        """
        if buffer_ptr is None:
            self._iobinding.outputs[name] = "cpu" if device_type.lower() == "cpu" else "cuda"
        elif element_type is None or shape is None:
            raise ValueError(f'output "{name}" is bound to an address: element_type and shape say what is there')
        else:
            self._iobinding.outputs[name] = _at(buffer_ptr, element_type, shape, check_device(device_type))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Binds an output to the memory of a value."""
        self._iobinding.bind_ortvalue_output(name, ortvalue._get_c_value())

    def synchronize_inputs(self) -> None:
        """Does nothing: inputs are read during the run."""

    def synchronize_outputs(self) -> None:
        """Does nothing: a run has ended when it returns."""

    def get_outputs(self) -> list[OrtValue]:
        """Returns the values of the last run."""
        return [OrtValue(value) for value in self._iobinding.results]

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        """Returns the values of the last run."""
        return self._iobinding.results

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Returns the values of the last run as arrays of the host."""
        return self._iobinding.copy_outputs_to_cpu()

    def clear_binding_inputs(self) -> None:
        """Forgets the inputs."""
        self._iobinding.clear_binding_inputs()

    def clear_binding_outputs(self) -> None:
        """Forgets the outputs and the results."""
        self._iobinding.clear_binding_outputs()


def _at(address: int, kind: Any, shape: Sequence[int], device: str) -> RawOrtValue:
    """Returns a value at an address."""
    element = element_of(kind)
    if device == "cpu":
        return RawOrtValue(array_at(address, element, shape), element)
    return RawOrtValue(GpuAddress(address, element, shape), element)


def _target(bound: RawOrtValue) -> Any:
    return bound.content


def _stored(name: str, bound: RawOrtValue | str, value: Any) -> RawOrtValue:
    """Returns the value of an output: the bound one, into which the elements are copied if the run did not write there.

    Raises:
        RunError: its shape or its type differ.
    """
    if isinstance(bound, str):
        return value if isinstance(value, RawOrtValue) else RawOrtValue(value)
    if value is bound.content:
        return bound
    target, source = bound.content, value.numpy() if isinstance(value, DeviceArray) else value
    if isinstance(target, np.ndarray):
        if target.shape != np.shape(source) or target.dtype != np.asarray(source).dtype:
            raise RunError(
                f'output "{name}" is {source.dtype}{list(source.shape)}, '
                f"and is bound to {target.dtype}{list(target.shape)}"
            )
        target[...] = source
    elif isinstance(target, DeviceArray):
        target.store(np.ascontiguousarray(source))
    else:
        raise RunError(f'output "{name}" is bound to memory that an input is in: use memory of its own')
    return bound
