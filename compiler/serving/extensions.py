"""Refuses requests that use protocol extensions that the server does not implement."""

from __future__ import annotations

from collections.abc import Mapping

from nnefc.serving.failures import FailureKind, Refused

__all__ = ["refuse_extensions"]

_SEQUENCES = "there are no sequences: networks with states are not served, so that each request stands for itself"
_SHARED_MEMORY = "shared memory is for tensors, not for a whole request"

_REFUSED = {
    "sequence_id": _SEQUENCES,
    "sequence_start": _SEQUENCES,
    "sequence_end": _SEQUENCES,
    "shared_memory_region": _SHARED_MEMORY,
    "classification": "there is no extension for classification: sort the scores yourself",
}


def refuse_extensions(parameters: Mapping[str, object], known: str = "") -> None:
    """Refuse a request or tensor whose parameters ask for an extension that is not implemented.

    A parameter that is empty, false or 0 asks for nothing.

    Args:
        parameters: of the request, or of one of its tensors.
        known: the name of a parameter that is accepted here.

    Raises:
        Refused: a parameter asks for such an extension.
    """
    for name, words in _REFUSED.items():
        if name != known and parameters.get(name):
            raise Refused(FailureKind.UNSUPPORTED, words)
