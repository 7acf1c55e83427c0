"""Options of sessions and runs. Those without a meaning for a compiled network are accepted, and logged once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from nnefc.loader import Model, RunCancelled, RunError

from .enums import ExecutionMode, ExecutionOrder, GraphOptimizationLevel, OrtExecutionProviderDevicePolicy
from .errors import Fail, InvalidArgument, NotImplemented, refusal
from .fields import Configured, Field, ignored
from .providers import ALL_PROVIDERS, available_providers
from .refused import LoraAdapter
from .tensors.raw_values import RawOrtValue
from .tensors.values import OrtValue

if TYPE_CHECKING:
    import numpy as np

    from .devices import OrtEpDevice

__all__ = ["RunOptions", "SessionOptions", "session_options"]


class SessionOptions(Configured):
    """Options of a session.

    Attributes:
        intra_op_num_threads: threads of a run; 0 for as many as the process may use.
        enable_profiling: whether the library times its kernels, for `InferenceSession.end_profiling`.
        profile_file_prefix: what the name of the profile begins with.
        optimized_model_filepath: a file that the model is copied to when a session is made.
    """

    __slots__ = ("_dimensions", "_files", "_initializers", "_provider_list")

    _EFFECTIVE = frozenset(
        {
            "session.load_model_format",
            "session.model_external_initializers_file_folder_path",
            "session.save_model_format",
            "session.set_denormal_as_zero",
        }
    )

    enable_cpu_mem_arena = Field(bool, True)
    enable_mem_pattern = Field(bool, True)
    enable_mem_reuse = Field(bool, True)
    enable_profiling = Field(bool, False, used=True)
    execution_mode = Field(ExecutionMode, ExecutionMode.ORT_SEQUENTIAL)
    execution_order = Field(ExecutionOrder, ExecutionOrder.DEFAULT)
    graph_optimization_level = Field(GraphOptimizationLevel, GraphOptimizationLevel.ORT_ENABLE_ALL)
    inter_op_num_threads = Field(int, 0)
    intra_op_num_threads = Field(int, 0, used=True)
    log_severity_level = Field(int, -1)
    log_verbosity_level = Field(int, 0)
    logid = Field(str, "")
    optimized_model_filepath = Field(str, "", used=True)
    profile_file_prefix = Field(str, "onnxruntime_profile_", used=True)
    use_deterministic_compute = Field(bool, False)
    use_per_session_threads = Field(bool, True)

    def __init__(self) -> None:
        super().__init__()
        self._dimensions: dict[tuple[str, str], int] = {}
        self._initializers: dict[str, np.ndarray] = {}
        self._files: dict[str, bytes] = {}
        self._provider_list: list[tuple[str, dict[str, str]]] = []

    def _copy(self) -> SessionOptions:
        """Returns options that later changes of these do not change."""
        made = SessionOptions()
        self._copy_to(made)
        made._dimensions, made._initializers = dict(self._dimensions), dict(self._initializers)
        made._files, made._provider_list = dict(self._files), list(self._provider_list)
        return made

    def add_session_config_entry(self, key: str, value: str, /) -> None:
        """Sets a configuration entry."""
        self._add_entry(key, value)

    def get_session_config_entry(self, key: str, /) -> str:
        """Returns a configuration entry.

        Raises:
            RuntimeError: it was not set.
        """
        return self._entry(key)

    def add_free_dimension_override_by_name(self, name: str, size: int, /) -> None:
        """Fixes the size of the dynamic dimension of this name: the network is compiled for it."""
        self._dimensions["name", name] = size

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int, /) -> None:
        """Fixes the sizes of the dynamic dimensions that have this denotation in the model."""
        self._dimensions["denotation", denotation] = size

    def add_initializer(self, name: str, value: OrtValue | RawOrtValue, /) -> None:
        """Replaces the value of an initializer of the model.

        Raises:
            RuntimeError: the value is no OrtValue.
        """
        if not isinstance(value, OrtValue | RawOrtValue):
            raise RuntimeError(f"the initializer {name!r} is given as a {type(value).__name__}, and not as an OrtValue")
        self._initializers[name] = value.numpy()

    def add_external_initializers(self, names: Sequence[str], values: Sequence[OrtValue | RawOrtValue], /) -> None:
        """Gives values of initializers whose data would be in other files."""
        if len(names) != len(values):
            raise refusal(InvalidArgument, f"there are {len(names)} names of initializers, but {len(values)} values")
        for name, value in zip(names, values, strict=True):
            self.add_initializer(name, value)

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[Any], sizes: Sequence[int], /
    ) -> None:
        """Gives the contents of files of external data."""
        if not len(names) == len(buffers) == len(sizes):
            counts = f"{len(names)} names, {len(buffers)} buffers and {len(sizes)} sizes"
            raise refusal(InvalidArgument, f"files in memory need as many names as contents and sizes, not {counts}")
        for name, buffer, size in zip(names, buffers, sizes, strict=True):
            self._files[name] = bytes(memoryview(buffer)[:size])

    def add_provider(self, name: str, options: Mapping[str, str], /) -> None:
        """Adds an execution provider.

        Raises:
            RuntimeError: there is no provider of this name.
            InvalidArgument: it is not available here.
        """
        if name not in ALL_PROVIDERS:
            raise RuntimeError(f"there is no execution provider {name}; there are {', '.join(ALL_PROVIDERS)}")
        if name not in available_providers():
            known = ", ".join(available_providers())
            raise refusal(InvalidArgument, f"the execution provider {name} is not available here: {known} are")
        self._provider_list.append((name, dict(options)))

    def add_provider_for_devices(self, devices: Sequence[OrtEpDevice], options: Mapping[str, str], /) -> None:
        """Adds the execution provider of these devices."""
        for name in dict.fromkeys(device.ep_name for device in devices):
            self.add_provider(name, options)

    def has_providers(self) -> bool:
        """Returns whether execution providers were added."""
        return bool(self._provider_list)

    def set_provider_selection_policy(self, policy: OrtExecutionProviderDevicePolicy, /) -> None:
        """Prefers devices: a GPU, where there is one and it is preferred."""
        gpu = OrtExecutionProviderDevicePolicy.PREFER_GPU, OrtExecutionProviderDevicePolicy.MAX_PERFORMANCE
        wanted = "CUDAExecutionProvider" if policy in gpu else "CPUExecutionProvider"
        if wanted in available_providers():
            self._provider_list = [(wanted, {})]

    def set_provider_selection_policy_delegate(self, delegate: Callable[..., Any], /) -> None:
        """Is accepted: devices follow from the providers of the session."""
        ignored("SessionOptions.set_provider_selection_policy_delegate")

    def set_ep_context_data_read_func(self, read_func: Callable[..., Any]) -> None:
        """Is accepted: a model that is compiled here has no contexts of execution providers."""
        ignored("SessionOptions.set_ep_context_data_read_func")

    def clear_ep_context_data_read_func(self) -> None:
        """Is accepted, as :meth:`set_ep_context_data_read_func`."""

    def set_load_cancellation_flag(self, flag: bool, /) -> None:
        """Is accepted: a session that is being made cannot be canceled."""
        ignored("SessionOptions.set_load_cancellation_flag")

    def register_custom_ops_library(self, path: str, /) -> NoReturn:
        """Refuses a library of operators, whose code is for onnxruntime's own kernels.

        Raises:
            Fail: there is no such file.
            NotImplemented: in every other case; the message names the way to compile operators of one's own.
        """
        if not Path(path).is_file():
            raise refusal(Fail, f"the library of operators {path} does not exist")
        raise refusal(
            NotImplemented,
            f"the operators of {path} are code for onnxruntime: register what they compute with nnefc.custom.register, "
            "or name the file that does, InferenceSession(model, operators=['operators.py']); see "
            "docs/how-to/custom-operator.md",
        )


class _Terminate(Field[bool]):
    """The attribute that ends runs when it is set, by any thread."""

    def __set__(self, instance: Configured, value: Any) -> None:
        super().__set__(instance, value)
        if isinstance(instance, RunOptions) and instance.terminate:
            instance._cancel()


class RunOptions(Configured):
    """Options of a run.

    Attributes:
        terminate: whether runs with these options fail: those that would begin, and those that other threads are in.
    """

    __slots__ = ("_sessions",)

    def __init__(self) -> None:
        super().__init__()
        self._sessions: list[Model] = []

    log_severity_level = Field(int, -1)
    log_verbosity_level = Field(int, 0)
    logid = Field(str, "")
    only_execute_path_to_fetches = Field(bool, False)
    terminate = _Terminate(bool, False, used=True)

    @contextmanager
    def _running(self, session: Model) -> Iterator[None]:
        """Lets the attribute `terminate` end what a session of a library runs in this context.

        Raises:
            RunCancelled: it is set already.
        """
        self._sessions.append(session)
        try:
            if self.terminate:
                raise RunCancelled("terminate is set")
            yield
        finally:
            self._sessions.remove(session)

    def _cancel(self) -> None:
        """Ends the runs with these options before their next kernels, where their libraries can."""
        for session in tuple(self._sessions):
            with suppress(RunError):  # the library is for a GPU, or closed: its run fails when it has ended
                session.cancel()

    def add_run_config_entry(self, key: str, value: str, /) -> None:
        """Sets a configuration entry."""
        self._add_entry(key, value)

    def get_run_config_entry(self, key: str, /) -> str:
        """Returns a configuration entry.

        Raises:
            RuntimeError: it was not set.
        """
        return self._entry(key)

    def add_active_adapter(self, adapter: LoraAdapter, /) -> NoReturn:
        """Refuses an adapter: the weights of a compiled network are fixed."""
        raise LoraAdapter._refusal()


def session_options(given: Any) -> SessionOptions:
    """Returns a copy of options, which may also be onnxruntime's own object.

    Raises:
        TypeError: they are no options of a session.
    """
    if given is None:
        return SessionOptions()
    if isinstance(given, SessionOptions):
        return given._copy()
    if not hasattr(given, "intra_op_num_threads"):
        raise TypeError(f"sess_options is a {type(given).__name__}, and not a SessionOptions")
    made = SessionOptions()
    for name, field in vars(SessionOptions).items():
        if isinstance(field, Field) and hasattr(given, name):
            value = getattr(given, name)
            default = getattr(made, name)
            setattr(made, name, type(default)(int(value) if isinstance(default, int) else value))
    return made
