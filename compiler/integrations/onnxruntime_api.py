"""Implements the most used part of onnxruntime's session interface for networks that nnefc compiles.

    session = nnefc.InferenceSession("model.onnx", cache="compiled")
    (scores,) = session.run(None, {"image": image})

A program that is written for onnxruntime changes its import. A session of a compiled library needs NumPy only.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from nnefc.driver.in_memory import AnyModel, file_of
from nnefc.ir.model_metadata import own_entries
from nnefc.loader import LoadError, Model, RunError, SessionPool, Tensor
from nnefc.loader import load as load_library
from nnefc.support.diagnostics import compiler_missing

if TYPE_CHECKING:
    from nnefc.driver.option_keywords import CompileKeywords
    from nnefc.driver.progress import Progress

__all__ = ["InferenceSession", "ModelMetadata", "NodeArg", "SessionOptions", "get_available_providers"]

_TARGETS = {"CPUExecutionProvider": "llvm", "CUDAExecutionProvider": "cuda"}
"""Targets of nnefc by the names of onnxruntime's execution providers."""

_LIBRARIES = (".so", ".dylib", ".dll")

_NO_VERSION = (1 << 63) - 1
"""The version that onnxruntime returns for models without one."""

_TYPES = {"float32": "float", "float64": "double"}
"""ONNX's names of element types, where they differ from NumPy's."""


@dataclass(frozen=True)
class NodeArg:
    """Describes an input or output.

    Attributes:
        name: the name in the model.
        type: ONNX's name of the type, such as `tensor(float)`.
        shape: sizes, and the names of dynamic dimensions.
    """

    name: str
    type: str
    shape: list[int | str]


@dataclass(frozen=True)
class ModelMetadata:
    """Holds the metadata of a model.

    Attributes:
        graph_name, graph_description: name and description of the graph.
        producer_name: the program that wrote the file.
        description, domain, version: description, domain and version of the model.
        custom_metadata_map: the author's own entries.
    """

    graph_name: str
    producer_name: str
    description: str = ""
    domain: str = ""
    version: int = 0
    custom_metadata_map: dict[str, str] = field(default_factory=dict)
    graph_description: str = ""


class SessionOptions:
    """Holds options of a session; onnxruntime's own objects are accepted, too.

    The network is optimized when it is compiled, so only the number of threads has an effect. Other attributes may be
    set, and have no effect.

    Attributes:
        intra_op_num_threads: threads of each session; 0 for as many as the process may use.
    """

    def __init__(self) -> None:
        self.intra_op_num_threads = 0


def get_available_providers() -> list[str]:
    """Returns the execution providers of onnxruntime whose machines nnefc compiles for."""
    return list(_TARGETS)


class InferenceSession:
    """Runs a network.

    Several threads may call `run` at the same time; each run has its own session, unless the network has states.
    """

    def __init__(
        self,
        path_or_bytes: AnyModel,
        sess_options: Any = None,
        providers: Sequence[Any] | None = None,
        provider_options: Sequence[Mapping[str, Any]] | None = None,
        *,
        cache: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
        **options: Unpack[CompileKeywords],
    ) -> None:
        """Loads a compiled library, or compiles a model and loads it.

        Args:
            path_or_bytes: a library, a model of any format that nnefc reads, an ONNX model in memory, or its bytes.
            sess_options: a :class:`SessionOptions`, or onnxruntime's.
            providers: names, or pairs of a name and options; the first one that nnefc knows is used. Default: the CPU.
            provider_options: options of each of `providers`; `device_id` is the number of the GPU.
            cache: a folder that keeps compiled libraries, so that a model is compiled once; None: the folder in the
                environment variable NNEFC_CACHE, or no folder.
            progress: called at the beginning and end of every phase of a compilation.
            options: of `nnefc.compile`, for a model.

        Raises:
            CompileError: the model cannot be compiled.
            LoadError: the library cannot be loaded, or none of the providers is known.
        """
        self._provider, device = _provider(providers, provider_options)
        threads = getattr(sess_options, "intra_op_num_threads", 0) or None
        load: dict[str, Any] = {"threads": threads, "device": device}
        path, folder = file_of(path_or_bytes)
        with folder or nullcontext():
            self._model = self._loaded(path, load, cache, progress, options)
        self._pool = None if self._model.states else SessionPool(self._model, threads=threads, takes_model=True)

    def _loaded(
        self,
        path: Path,
        load: Mapping[str, Any],
        cache: str | os.PathLike[str] | None,
        progress: Progress | None,
        options: Mapping[str, Any],
    ) -> Model:
        if path.suffix in _LIBRARIES:
            if options:
                raise LoadError(f"{path} is compiled already: {', '.join(options)} are options for models")
            return load_library(path, **load)
        if "target" in options:
            raise LoadError("a session runs here: providers say on what, and nnefc.compile compiles for other targets")
        try:
            from nnefc.driver.cache import load_model
            from nnefc.driver.option_keywords import compile_options
        except ModuleNotFoundError as error:
            raise compiler_missing(f"a session of the model {path}", error.name or "") from error
        chosen = compile_options("nnefc.InferenceSession", options, _TARGETS[self._provider])
        return load_model(path, chosen, cache, progress, **load)

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        """Runs the network and returns the outputs of these names, in this order; all outputs for None.

        Raises:
            RunError: inputs are missing or do not fit, or there is no such output.
        """
        del run_options
        names = [tensor.name for tensor in self._model.outputs]
        for name in output_names or ():
            if name not in names:
                raise RunError(f'the model has no output "{name}"; its outputs are {", ".join(names)}')
        results = self._model.run(input_feed) if self._pool is None else self._pool.run(input_feed)
        return [self._named(name, results[name]) for name in output_names or names]

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
        """

        def run() -> None:
            try:
                results, error = self.run(output_names, input_feed, run_options), ""
            except Exception as failure:  # there is no future that would hold it
                results, error = [], str(failure) or type(failure).__name__
            callback(results, user_data, error)

        if self._pool is None:
            raise RunError("runs of a network with states follow each other: use run")
        self._pool.begin(run)

    def get_inputs(self) -> list[NodeArg]:
        """Returns the inputs in their order."""
        return [_argument(tensor) for tensor in self._model.inputs]

    def get_outputs(self) -> list[NodeArg]:
        """Returns the outputs in their order."""
        return [self._output(tensor) for tensor in self._model.outputs]

    def get_modelmeta(self) -> ModelMetadata:
        """Returns the model's metadata in the form of onnxruntime."""
        metadata = self._model.metadata
        return ModelMetadata(
            graph_name=self._model.name,
            producer_name=metadata.get("producer_name", ""),
            description=metadata.get("doc_string", ""),
            domain=metadata.get("domain", ""),
            version=int(metadata.get("model_version", _NO_VERSION)),
            custom_metadata_map=own_entries(metadata),
            graph_description=metadata.get("graph_doc_string", ""),
        )

    def get_providers(self) -> list[str]:
        """Returns the execution provider of the session."""
        return [self._provider]

    def _output(self, tensor: Tensor) -> NodeArg:
        labels = self._model.labels.get(tensor.name)
        if labels is None:
            return _argument(tensor)
        key = "string" if isinstance(labels[0], str) else "int64"
        return NodeArg(tensor.name, f"seq(map({key},{_argument(tensor).type}))", [])

    def _named(self, name: str, array: Any) -> Any:
        """Returns an output as onnxruntime does: a mapping by class for each row, where columns are classes."""
        labels = self._model.labels.get(name)
        if labels is None:
            return array
        return [dict(zip(labels, row, strict=True)) for row in np.asarray(array).tolist()]


def _argument(tensor: Tensor) -> NodeArg:
    sizes = [size if isinstance(size, int) else str(size) for size in tensor.shape]
    return NodeArg(tensor.name, f"tensor({_TYPES.get(tensor.dtype, tensor.dtype)})", sizes)


def _provider(providers: Sequence[Any] | None, options: Sequence[Mapping[str, Any]] | None) -> tuple[str, int]:
    """Returns the first provider that is known, and the number of the device."""
    wanted = ["CPUExecutionProvider"] if not providers else list(providers)
    given = [{}] * len(wanted) if options is None else list(options)
    if len(given) != len(wanted):
        raise LoadError(f"there are options of {len(given)} providers, but {len(wanted)} providers")
    for provider, default in zip(wanted, given, strict=True):
        name, own = (provider[0], provider[1]) if isinstance(provider, tuple) else (provider, default)
        if name in _TARGETS:
            return name, int(own.get("device_id", 0))
    raise LoadError(f"nnefc has none of the providers {', '.join(map(str, wanted))}; it has {', '.join(_TARGETS)}")
