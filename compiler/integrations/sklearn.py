"""Compiles models and pipelines of scikit-learn by converting them to ONNX.

    import nnefc.integrations.sklearn
    compiled = nnefc.sklearn.compile(pipeline, samples[:1])
    compiled.predict(samples)                          # as pipeline.predict(samples)
    compiled.export("pipeline.so")                     # for elsewhere

It needs the package skl2onnx. Estimators of other packages are converted if their converters are registered with it, as
onnxmltools has them for LightGBM and XGBoost.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Unpack

import numpy as np
import onnx

from nnefc.driver.artifact import Artifact
from nnefc.driver.compile import compile_model
from nnefc.driver.option_keywords import CompileKeywords, compile_options
from nnefc.driver.options import CompileOptions
from nnefc.integrations.sklearn_conversion import conversions
from nnefc.integrations.sklearn_samples import columns_of, converted_to, table_of
from nnefc.loader import Model, RunError
from nnefc.support.diagnostics import CompileError, warn
from nnefc.support.output_files import temporary_folder

__all__ = ["CompiledEstimator", "compile"]

_METHODS = ("predict", "predict_proba", "decision_function", "transform", "score_samples", "kneighbors")

_TOLERANCE = 1e-3
"""Maximum difference of a float32 output from a method's result, relative to the largest value."""


def compile(
    estimator: Any,
    samples: Any,
    *,
    threads: int | None = None,
    target: str = "llvm",
    **options: Unpack[CompileKeywords],
) -> CompiledEstimator:
    """Compile a trained estimator or pipeline; the number of samples is dynamic.

    Args:
        estimator: a trained estimator of scikit-learn.
        samples: `[n, features]`: an array; or a data frame or an array of objects with numbers and texts, whose columns
            become separate inputs. The inputs have the types of these samples, float64 included. The library's outputs
            for these samples are matched with the results of the estimator's methods.
        threads: of the session; None: all processors that the process may use.
        target: as of `nnefc.compile`.
        options: of `nnefc.compile`.

    Raises:
        CompileError: skl2onnx cannot convert the estimator, nnefc cannot compile the ONNX model, or the outputs match
            no method.
    """
    chosen = compile_options("nnefc.sklearn.compile", options, target)
    samples = table_of(samples)
    found: list[CompiledEstimator] = []
    errors: list[CompileError] = []
    for converted in conversions(estimator, samples):
        try:
            artifact = _compiled(converted(), estimator, chosen)
            found.append(CompiledEstimator(estimator, artifact, samples, threads))
        except CompileError as error:
            errors.append(error)
        if found and found[-1].is_complete:
            break
    if not found:
        raise errors[0]
    best = max(found, key=lambda one: (one.is_complete, len(one.methods)))
    if not best.is_complete:
        warn(
            f"{type(estimator).__name__}: of the library's results, {', '.join(best.others)} are those of no method "
            f"on these {len(samples)} samples; it has {', '.join(best.methods)}"
        )
    return best


def _compiled(proto: onnx.ModelProto, estimator: Any, options: CompileOptions) -> Artifact:
    with temporary_folder("nnefc-") as folder:
        path = folder / f"{type(estimator).__name__}.onnx"
        path.write_bytes(proto.SerializeToString())
        return compile_model(path, options)


@dataclass(frozen=True)
class _Result:
    """The outputs that are the result of a method, and that result for the samples.

    Attributes:
        outputs: names of the outputs.
        shapes: of a row in each part of the result; some methods return a list or a tuple of parts.
        dtypes: to which outputs are converted: outputs of trees are float32, and the method's results float64.
        kind: the type of the list or tuple of parts; None: the result is a single array.
    """

    outputs: list[str]
    shapes: list[tuple[int, ...]]
    dtypes: list[np.dtype[Any]]
    kind: type | None

    def of(self, found: dict[str, np.ndarray]) -> Any:
        """Return the method's result, assembled from the outputs of the library."""
        parts = [
            _converted(found[name], dtype).reshape(-1, *shape)
            for name, shape, dtype in zip(self.outputs, self.shapes, self.dtypes, strict=True)
        ]
        return parts[0] if self.kind is None else self.kind(parts)


class CompiledEstimator:
    """A compiled estimator, with the methods of the original that its library computes.

    Attributes:
        artifact: the compiled network, to export.
        model: the loaded library.
        methods: names of the methods.
        others: outputs of the library that match no method.
    """

    artifact: Artifact
    model: Model
    others: tuple[str, ...]

    def __init__(self, estimator: Any, artifact: Artifact, samples: Any, threads: int | None) -> None:
        """Load a compiled estimator and match its outputs with methods; arguments as in :func:`compile`."""
        self.artifact = artifact
        self.model = artifact.load(threads=threads)
        self._columns = tuple(columns_of(samples) or ())
        try:
            found = self._run(samples)
        except RunError as error:
            raise CompileError(
                f"the library of {type(estimator).__name__} fails on these samples: {str(error).partition(': ')[2]}"
            ) from error
        self._outputs: dict[str, _Result] = {}
        for method in (name for name in _METHODS if hasattr(estimator, name)):
            result = getattr(estimator, method)(samples)
            kind = type(result) if isinstance(result, list | tuple) else None
            parts = [_dense(result)] if kind is None else list(map(_dense, result))
            names = [next((name for name, array in found.items() if _is_equal(array, part)), None) for part in parts]
            known = [name for name in names if name is not None]
            if len(known) == len(parts):
                self._outputs[method] = _Result(
                    known, [part.shape[1:] for part in parts], [part.dtype for part in parts], kind
                )
        used = {name for result in self._outputs.values() for name in result.outputs}
        self.others = tuple(name for name in found if name not in used)
        if not self._outputs:
            raise CompileError(
                f"on these {len(samples)} samples the library's results are those of no method of "
                f"{type(estimator).__name__}, of which {', '.join(_METHODS)} were tried",
                hint="nnefc compare says where a model differs from onnxruntime",
            )

    @property
    def is_complete(self) -> bool:
        """Returns whether all outputs match methods."""
        return not self.others

    @property
    def methods(self) -> tuple[str, ...]:
        """Returns the names of the methods."""
        return tuple(self._outputs)

    def __getattr__(self, name: str) -> Callable[[Any], Any]:
        outputs = self.__dict__.get("_outputs", {})
        if name not in outputs:
            raise AttributeError(f"the compiled estimator has no {name!r}; it has {', '.join(outputs)}")
        return lambda samples: outputs[name].of(self._run(samples))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._outputs})

    def export(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Writes the library; arguments as for `Artifact.export`."""
        self.artifact.export(path, **options)

    def _run(self, samples: Any) -> dict[str, np.ndarray]:
        """Returns all outputs by name."""
        table = table_of(samples)
        if self._columns and hasattr(table, "columns"):
            there = set(map(str, table.columns))
            missing = [name for name in self._columns if name not in there]
            if missing:
                raise CompileError(f"the data frame has no column {', '.join(missing)}, and it was compiled with them")
        columns = columns_of(table, self._columns) if self._columns else None
        given = [table] if columns is None else [columns.get(name) for name in self._columns]
        if len(given) != len(self.model.inputs) or any(array is None for array in given):
            names = ", ".join(tensor.name for tensor in self.model.inputs)
            raise CompileError(f"the samples have {len(columns or given)} columns or arrays, but it reads {names}")
        pairs = zip(self.model.inputs, given, strict=True)
        return self.model.run({tensor.name: converted_to(tensor, np.asarray(array)) for tensor, array in pairs})


def _converted(array: np.ndarray, dtype: np.dtype[Any]) -> np.ndarray:
    """Return an array with elements of a type; strings that are longer than those of the type are not truncated."""
    if dtype.kind == "U" and array.dtype != dtype:
        array = array.astype(str)
        dtype = np.promote_types(array.dtype, dtype)
    return array.astype(dtype, copy=False)


def _dense(result: Any) -> np.ndarray:
    """Return a method's result as an array, also if it is a sparse matrix."""
    return np.asarray(result.toarray() if hasattr(result, "toarray") else result)


def _is_equal(array: np.ndarray, wanted: np.ndarray) -> bool:
    """Returns whether an output equals a method's result, except for rounding and axes of size 1."""
    if [size for size in array.shape if size != 1] != [size for size in wanted.shape if size != 1]:
        return False
    if wanted.dtype.kind in "OUS" or array.dtype.kind in "OUS":
        return bool(np.array_equal(array.astype(str).ravel(), wanted.astype(str).ravel()))
    scale = np.max(np.abs(wanted), initial=1e-30)
    return bool(np.allclose(array.ravel(), wanted.ravel(), rtol=0, atol=_TOLERANCE * scale, equal_nan=True))
