"""Defines the reasons for refusing a request, independent of the protocol."""

from __future__ import annotations

from enum import Enum

__all__ = ["SERVER_FAILED", "FailureKind", "Refused"]

SERVER_FAILED = "the server failed: it has written why to its log"
"""What clients learn of an unexpected exception, whose text is for the log alone."""


class FailureKind(Enum):
    """Kind of failure: its HTTP status, its gRPC status, and its label in metrics."""

    INVALID = 400, "INVALID_ARGUMENT", "invalid"
    UNKNOWN_CLIENT = 401, "UNAUTHENTICATED", "unknown_client"
    NOT_FOUND = 404, "NOT_FOUND", "not_found"
    TOO_LARGE = 413, "RESOURCE_EXHAUSTED", "too_large"
    FAILED = 500, "INTERNAL", "failed"
    UNSUPPORTED = 501, "UNIMPLEMENTED", "unsupported"
    BUSY = 429, "RESOURCE_EXHAUSTED", "busy"
    UNAVAILABLE = 503, "UNAVAILABLE", "unavailable"
    LATE = 504, "DEADLINE_EXCEEDED", "late"

    @property
    def http(self) -> int:
        return self.value[0]

    @property
    def grpc(self) -> str:
        return self.value[1]

    @property
    def word(self) -> str:
        return self.value[2]


class Refused(Exception):
    """A refused request. The message says what is wrong and what would be accepted.

    Attributes:
        kind: of failure.
        code: OpenAI's error code for programs, such as `model_not_found`; None where OpenAI's interface has none.
        param: the field of the request that is wrong; None where it is not a single one.
    """

    def __init__(self, kind: FailureKind, message: str, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.kind, self.code, self.param = kind, code, param
