"""Embeds a library's description as text, so that it can be read on machines that cannot load the library.

The text is a mark, the length of the JSON as 32 bits, and JSON with the members of a
:class:`~nnefc.targets.description.library.LibraryDescription` that callers may need. It is in the read-only data of
libraries, object files and archives of all formats; readers search the mark.
"""

from __future__ import annotations

import dataclasses
import json
import struct

from nnefc.targets.description.library import DEVICES, LibraryDescription

__all__ = ["MARK", "SIZES", "TENSORS", "TEXTS", "embedded_metadata"]

_MAX = (1 << 63) - 1  # that readers take for a size

MARK = b"\x89nnefc record\r\n\x01"

TEXTS = ("model", "target", "compiler", "source")
SIZES = ("workspace_bytes", "scratch_bytes", "constant_bytes", "state_bytes")
TENSORS = ("inputs", "outputs", "states")


def embedded_metadata(description: LibraryDescription) -> bytes:
    """Return the bytes of a description's text metadata."""
    members = {name: getattr(description, name) for name in (*TEXTS, *SIZES, "cpu_features")}
    members |= {name: [(t.name, t.dtype, t.shape) for t in getattr(description, name)] for name in TENSORS}
    if description.index_limits:
        members["index_limits"] = dict(description.index_limits)
    if description.labels:
        members["labels"] = dict(description.labels)
    if description.metadata:
        members["metadata"] = dict(description.metadata)
    if description.dimensions:
        members["dimensions"] = [dataclasses.astuple(dimension) for dimension in description.dimensions]
        members["open_workspaces"] = [min(size, _MAX) for size in description.dynamic_workspaces]
    if description.formulas:
        members["formulas"] = {each.name: each.formula for each in description.formulas}
    if description.specializations:
        known = [part for part in description.specializations if part.has_sizes]
        members["specializations"] = [(part.sizes, part.workspace_bytes) for part in known]
        members["only_specialized"] = int(description.only_specialized)
    if DEVICES[description.device].noted:
        members["device"] = description.device
    if description.kernels:
        members["kernels"] = [dataclasses.astuple(kernel) for kernel in description.kernels]
    if description.checked:
        members["checked"] = 1
    if description.reproducible:
        members["reproducible"] = 1
    if description.levels:
        members["levels"] = [
            {
                "target": level.target,
                "cpu_features": level.cpu_features,
                "kernels": list(map(dataclasses.astuple, level.kernels)),
            }
            for level in description.levels
        ]
    members["weights"] = description.weights
    text = json.dumps(members, separators=(",", ":")).encode()
    return MARK + struct.pack("<I", len(text)) + text
