"""The engines that the tests are run on: nnefc, and others next to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import onnx
from onnx.backend.base import Backend, BackendRep
from onnx_outcome import Outcome
from onnx_suite import Engine

__all__ = ["ENGINES", "PACKAGES"]


def _nnefc() -> Engine:
    from nnefc.support.minimal_tvm import import_tvm

    import_tvm()
    from nnefc.loader import LoadError, RunError
    from nnefc.onnx_backend import NnefcBackend
    from nnefc.support.diagnostics import CompileError

    class OneThread(NnefcBackend):
        @classmethod
        def prepare(cls, model: Any, device: str = "CPU", **options: Any) -> BackendRep:
            return super().prepare(model, device, threads=1, **options)

    def passed(prepared: Any) -> Outcome:
        if not prepared.known:
            return Outcome("pass")
        return Outcome("known" if set(prepared.known) == set(prepared.inputs) else "fixed", ", ".join(prepared.known))

    return Engine(OneThread, passed, lambda error: isinstance(error, CompileError | LoadError | RunError))


def _onnxruntime() -> Engine:
    from onnxruntime_engine import OnnxruntimeBackend

    return Engine(
        OnnxruntimeBackend, lambda made: Outcome("lowered", made.lowered) if made.lowered else Outcome("pass")
    )


class _Evaluated(BackendRep):  # type: ignore[misc]
    def __init__(self, model: onnx.ModelProto) -> None:
        from onnx.reference import ReferenceEvaluator

        self._evaluator = ReferenceEvaluator(model)

    def run(self, inputs: Any, **_: Any) -> Any:
        return self._evaluator.run(None, dict(zip(self._evaluator.input_names, inputs, strict=False)))


class _Reference(Backend):  # type: ignore[misc]
    """The standard's own evaluator, in Python: `onnx.reference`."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, _device: str = "CPU", **_: Any) -> BackendRep:
        return _Evaluated(model)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


def _emx() -> Engine:
    """emx-onnx-cgen, which writes C: pip install emx-onnx-cgen; it needs a C compiler."""
    from emx_onnx_cgen.onnx_backend import EmxOnnxCgenBackend

    return Engine(EmxOnnxCgenBackend)


ENGINES: Mapping[str, Callable[[], Engine]] = {
    "nnefc": _nnefc,
    "onnxruntime": _onnxruntime,
    "onnx.reference": lambda: Engine(_Reference),
    "emx-onnx-cgen": _emx,
}
"""Engines by the names of their packages, made when they are asked for."""

PACKAGES = {"onnxruntime": "onnxruntime", "onnx.reference": "onnx", "emx-onnx-cgen": "emx-onnx-cgen"}
"""The packages that hold the peers."""
