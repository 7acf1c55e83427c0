"""Defines onnxruntime's exception classes, which are errors of nnefc at the same time.

try:
    session.run(None, {"image": image})
except onnxruntime_pybind11_state.InvalidArgument: ...  # a program that is written for onnxruntime
except nnefc.RunError: ...                              # one that is written for nnefc
"""

from __future__ import annotations

from typing import Any

from nnefc.loader import RunError

__all__ = [
    "CODES",
    "DeviceReset",
    "EPFail",
    "EngineError",
    "Fail",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelRequiresCompilation",
    "NoModel",
    "NoSuchFile",
    "NotFound",
    "NotImplemented",
    "RuntimeException",
    "as_kind",
    "refusal",
]


class _StatusError(Exception):
    """An error of one of onnxruntime's status codes, whose number and name its message begins with."""

    def __str__(self) -> str:
        number, name = CODES.get(_status_class(type(self)), (0, "OK"))
        return f"[ONNXRuntimeError] : {number} : {name} : {super().__str__()}"


class Fail(_StatusError):
    """A run fails, or a model cannot be loaded for a reason that no other class has."""


class InvalidArgument(_StatusError):
    """An input, the name of an output, or an option does not fit the model."""


class NoSuchFile(_StatusError):
    """The file of a model does not exist."""


class NoModel(_StatusError):
    """There is no model."""


class EngineError(_StatusError):
    """The engine fails."""


class RuntimeException(_StatusError):
    """A kernel fails."""


class InvalidProtobuf(_StatusError):
    """The bytes of a model cannot be parsed."""


class ModelLoaded(_StatusError):
    """The session has a model already."""


class NotImplemented(_StatusError):
    """The model is valid, and has something that is not supported."""


class InvalidGraph(_StatusError):
    """The model breaks a rule of ONNX."""


class EPFail(_StatusError):
    """An execution provider fails."""


class ModelLoadCanceled(_StatusError):
    """The loading of a model was canceled."""


class ModelRequiresCompilation(_StatusError):
    """The model must be compiled before it is loaded."""


class NotFound(_StatusError):
    """What a name stands for does not exist."""


class DeviceReset(_StatusError):
    """The device was reset."""


CODES: dict[type[Exception], tuple[int, str]] = {
    Fail: (1, "FAIL"),
    InvalidArgument: (2, "INVALID_ARGUMENT"),
    NoSuchFile: (3, "NO_SUCHFILE"),
    NoModel: (4, "NO_MODEL"),
    EngineError: (5, "ENGINE_ERROR"),
    RuntimeException: (6, "RUNTIME_EXCEPTION"),
    InvalidProtobuf: (7, "INVALID_PROTOBUF"),
    ModelLoaded: (8, "MODEL_LOADED"),
    NotImplemented: (9, "NOT_IMPLEMENTED"),
    InvalidGraph: (10, "INVALID_GRAPH"),
    EPFail: (11, "EP_FAIL"),
    ModelLoadCanceled: (12, "MODEL_LOAD_CANCELED"),
    ModelRequiresCompilation: (13, "MODEL_REQUIRES_COMPILATION"),
    NotFound: (14, "NOT_FOUND"),
    DeviceReset: (15, "DEVICE_RESET"),
}
"""Number and name of the status code of each class."""

for _class in CODES:
    _class.__module__ = "nnefc.onnxruntime.capi.onnxruntime_pybind11_state"


def as_kind(kind: type[Exception], error: Exception) -> Exception:
    """Returns an error of nnefc as one of onnxruntime's class, too, with the same message and attributes."""
    if isinstance(error, kind):
        return error
    return _rebuilt(kind, type(error), error.args, error.__dict__)


def refusal(kind: type[Exception], message: str) -> Exception:
    """Returns a `RunError` that is of onnxruntime's class, too."""
    return as_kind(kind, RunError(message))


def _rebuilt(kind: type[Exception], of: type[Exception], args: tuple[Any, ...], state: dict[str, Any]) -> Exception:
    made = _combined(kind, of).__new__(_combined(kind, of), *args)
    made.args = args
    made.__dict__.update(state)
    return made


def _reduce(error: Exception) -> tuple[Any, ...]:
    """Pickles an error by the two classes that it is made of."""
    kind, of = type(error).__bases__
    return _rebuilt, (kind, of, error.args, error.__dict__)


def _combined(kind: type[Exception], of: type[Exception]) -> type[Exception]:
    made = _COMBINED.get((kind, of))
    if made is None:
        names = {"__module__": kind.__module__, "__reduce__": _reduce}
        made = _COMBINED[kind, of] = type(kind.__name__, (kind, of), names)
    return made


_COMBINED: dict[tuple[type[Exception], type[Exception]], type[Exception]] = {}


def _status_class(of: type[BaseException]) -> type[Exception]:
    return next((kind for kind in CODES if issubclass(of, kind)), Exception)
