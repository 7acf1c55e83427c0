"""Sessions of models, which are compiled, and of libraries, which are loaded.

    session = nnefc.InferenceSession("model.onnx", cache="compiled")
    (scores,) = session.run(None, {"image": image})

A session of a compiled library needs NumPy only.
"""

from __future__ import annotations

import os
import time
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from nnefc.driver.in_memory import AnyModel
from nnefc.ir.model_metadata import own_entries
from nnefc.loader import LoadError, Model, Tensor
from nnefc.support.diagnostics import CompileError

from .compilation import Compilation
from .declared import Declared, Interface, node_arg, tensor_arg
from .fields import ignored
from .libraries import Libraries
from .metadata import NO_VERSION, ModelMetadata, NodeArg
from .models import GivenModel
from .options import session_options
from .profiling import Profiler
from .providers import CPU, CUDA, Provider, providers_of
from .session import Session
from .stand_in import StandIn
from .tensors.element_types import element_of

if TYPE_CHECKING:
    from nnefc.driver.caching.user_cache import Cache
    from nnefc.driver.option_keywords import CompileKeywords
    from nnefc.driver.progress import Progress

__all__ = ["InferenceSession"]

_OWN_INTERFACE = ("entry", "graph", "io", "output_tensors", "overridable", "scan_states", "values")
"""Options with which the inputs and outputs of a library are others than those of the model."""

_ACCEPTED = ("disabled_optimizers", "enable_fallback", "read_config_from_model")
"""Keywords of onnxruntime that have no effect, but for the second."""


class InferenceSession(Session):
    """Runs a network.

    Several threads may call `run` at the same time; each run has its own session, unless the network has states.
    """

    def __init__(
        self,
        path_or_bytes: AnyModel,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[Any, Any]] | None = None,
        *,
        cache: Cache = None,
        background: bool = False,
        progress: Progress | None = None,
        **options: Unpack[CompileKeywords],
    ) -> None:
        """Loads a compiled library, or compiles a model and loads it.

        Args:
            path_or_bytes: a library, a model of any format that nnefc reads, an ONNX model in memory, or its bytes.
            sess_options: a :class:`SessionOptions`, or onnxruntime's.
            providers: names, or pairs of a name and options; the first one that this machine has is used, else the CPU.
            provider_options: options of each of `providers`; `device_id` is the number of the GPU.
            cache: a folder that keeps compiled libraries, so that a model is compiled once; None: the one in the
                environment variable NNEFC_CACHE, or one in the user's folder of caches; False: no folder.
            background: whether the session begins at once, and the model is compiled in another process meanwhile. Runs
                are those of an installed onnxruntime until the library is there; without one, the first run waits.
                Models that are not ONNX files, or need a library for each kind of inputs, are compiled as always.
            progress: called at the beginning and end of every phase of a compilation; not of one in another process.
            options: of `nnefc.compile`, for a model.

        Raises:
            CompileError: the model cannot be compiled. The error is one of onnxruntime's classes, too: `NoSuchFile`,
                `InvalidProtobuf`, `InvalidGraph`, `NotImplemented`, `InvalidArgument` or `Fail`.
            LoadError: the library cannot be loaded.
            TypeError: the model or the options are of no type that they can have.
        """
        keywords: dict[str, Any] = dict(options)
        accepted = {name: keywords.pop(name) for name in _ACCEPTED if name in keywords}
        for name in accepted:
            ignored(f"the argument {name} of InferenceSession")
        self._enable_fallback = bool(int(accepted.get("enable_fallback", 1)))
        self._sess_options = session_options(sess_options)
        self._profiler = None
        self._cache, self._progress, self._keywords = cache, progress, keywords
        self._in_background = background
        self._model = GivenModel(path_or_bytes, self._sess_options)
        self._model_path = None if self._model.path is None else os.fspath(self._model.path)
        self._model_bytes = path_or_bytes if isinstance(path_or_bytes, bytes) else None
        self._start(self._chosen(providers, provider_options))

    def set_providers(
        self, providers: Sequence[Any] | None = None, provider_options: Sequence[Mapping[Any, Any]] | None = None
    ) -> None:
        """Uses other execution providers; arguments as when the session was made.

        Raises:
            ValueError, RuntimeError: they are none.
        """
        chosen = providers_of(providers, provider_options)
        if chosen != self._used:
            self._start(chosen)

    def disable_fallback(self) -> None:
        """Has a later change of providers fail where these cannot be used, and not fall back to the CPU."""
        self._enable_fallback = False

    def enable_fallback(self) -> None:
        """Has the session fall back to the CPU where a provider cannot be used."""
        self._enable_fallback = True

    def _chosen(
        self, providers: Sequence[Any] | None, provider_options: Sequence[Mapping[Any, Any]] | None
    ) -> list[Provider]:
        """Returns the providers to use: the CPU, with a warning, where the arguments are none."""
        try:
            return providers_of(providers, provider_options, self._sess_options._provider_list)
        except (ValueError, RuntimeError) as error:
            if not self._enable_fallback:
                raise
            warnings.warn(f"{error}: the session uses {CPU}", stacklevel=3)
            return [Provider(CPU, {})]

    def _start(self, chosen: list[Provider]) -> None:
        """Compiles or loads the network for the first of these providers, or for the next one if that fails."""
        begin = time.perf_counter_ns()
        if self._sess_options.enable_profiling:
            self._profiler = Profiler(self._sess_options.profile_file_prefix)
        self._used = chosen
        try:
            self._open(chosen[0])
        except (CompileError, LoadError) as error:
            if chosen[0].name != CUDA or self._model.is_library or not self._enable_fallback:
                raise
            warnings.warn(f"{CUDA} cannot be used, and the session uses {CPU}: {error}", stacklevel=4)
            self._used = [provider for provider in chosen if provider.name == CPU]
            self._open(self._used[0])
        if self._profiler is not None:
            self._profiler.add("session_initialization", begin)

    def _open(self, provider: Provider) -> None:
        interface = None if self._has_own_interface else self._model.interface
        threads = max(0, self._sess_options.intra_op_num_threads) or None
        compilation = Compilation(
            self._model, self._sess_options, self._keywords, provider, threads, self._cache, self._progress
        )
        self._libraries = self._libraries_of(interface, compilation, threads)
        first = self._libraries.first
        if interface is None:
            assert first is not None
            self._describe_library(first.model)
            kind, _, number = first.model.device.partition(":")
            if self._model.is_library and kind == "cuda":
                self._used = [Provider(CUDA, {"device_id": number}), Provider(CPU, {})]
        else:
            self._describe_model(interface, None if first is None else first.model)
        self._prepare()

    def _libraries_of(self, interface: Interface | None, compilation: Compilation, threads: int | None) -> Libraries:
        """Returns the libraries, of which the first may be compiled in another process."""
        self._stand_in = None
        if not self._in_background or interface is None or compilation.provider.name != CPU:
            return Libraries(interface, compilation, threads)
        libraries = Libraries(interface, compilation, threads, later=True)
        found = None if libraries.depends_on_inputs or self._profiler is not None else compilation.in_background()
        if found is None:
            return Libraries(interface, compilation, threads)
        if isinstance(found, Model):
            libraries.begin(found)
            return libraries
        options = None if self._keywords or self._sess_options._initializers else self._sess_options
        begin = partial(_begin, weakref.ref(self), compilation)
        self._stand_in = StandIn(found, begin, compilation.model.model, options)
        return libraries

    @property
    def _has_own_interface(self) -> bool:
        """Whether options change the inputs and outputs."""
        interface = self._model.interface
        sequences = () if interface is None else tuple(each.name for each in interface.inputs if each.is_sequence)
        return any(self._keywords.get(name) is not None for name in _OWN_INTERFACE) or any(
            name in (self._keywords.get("shape") or {}) for name in sequences
        )

    def _describe_library(self, model: Model) -> None:
        """Describes the session by the library: its model is not there, or is of another format than ONNX."""
        self._required = tuple(_declared(tensor_arg(tensor), tensor.dtype) for tensor in model.inputs)
        self._overridable = ()
        self._inputs_meta = [tensor_arg(tensor) for tensor in model.inputs]
        self._outputs_meta = [_labeled(tensor_arg(tensor), model) for tensor in model.outputs]
        dtypes = {tensor.name: tensor.dtype for tensor in model.outputs}
        self._declared_outputs = {each.name: _declared(each, dtypes[each.name]) for each in self._outputs_meta}
        self._overridable_initializers = []
        self._model_meta = _metadata(model)

    def _describe_model(self, interface: Interface, model: Model | None) -> None:
        """Describes the session by the model, and what the library knows of it."""
        inputs = {} if model is None else {tensor.name: tensor for tensor in model.inputs}
        outputs = {} if model is None else {tensor.name: tensor for tensor in model.outputs}
        names = frozenset(s for each in interface.inputs for s in each.shape or () if isinstance(s, str))
        self._required, self._overridable = interface.required, interface.overridable
        self._declared_outputs = {each.name: each for each in interface.outputs}
        fixed = self._keywords.get("shape") is not None

        def described(each: Declared, tensors: Mapping[str, Tensor]) -> NodeArg:
            return node_arg(each, tensors.get(each.name), names, is_fixed=fixed)

        self._inputs_meta = [described(each, inputs) for each in interface.required]
        self._outputs_meta = [described(each, outputs) for each in interface.outputs]
        self._overridable_initializers = [node_arg(each, None, names) for each in interface.overridable]
        self._model_meta = self._model.metadata() if model is None else _metadata(model)


def _begin(session: Callable[[], InferenceSession | None], compilation: Compilation, library: Path) -> None:
    """Has a session, if it is still there, run the library that was compiled for it.

    Raises:
        LoadError: the library cannot be loaded.
    """
    if session() is None:
        return
    model = compilation.loaded(library)
    found = session()
    if found is None or found._model.interface is None:
        return
    first = found._libraries.begin(model)
    found._describe_model(found._model.interface, first.model)
    found._prepare()
    found._stand_in = None


def _declared(described: NodeArg, dtype: str) -> Declared:
    return Declared(described.name, described.type, element_of(dtype).number, tuple(described.shape))


def _labeled(described: NodeArg, model: Model) -> NodeArg:
    """Returns the description of an output whose columns are classes as that of mappings."""
    labels = model.labels.get(described.name)
    if labels is None:
        return described
    key = "string" if isinstance(labels[0], str) else "int64"
    return NodeArg(described.name, f"seq(map({key},{described.type}))", [])


def _metadata(model: Model) -> ModelMetadata:
    metadata = model.metadata
    return ModelMetadata(
        graph_name=model.name,
        producer_name=metadata.get("producer_name", ""),
        description=metadata.get("doc_string", ""),
        domain=metadata.get("domain", ""),
        version=int(metadata.get("model_version", NO_VERSION)),
        custom_metadata_map=own_entries(metadata),
        graph_description=metadata.get("graph_doc_string", ""),
    )
