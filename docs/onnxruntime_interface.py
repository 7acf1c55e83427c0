"""Writes docs/onnxruntime.md: each name of onnxruntime's interface, and what nnefc.onnxruntime does with it.

python docs/onnxruntime_interface.py

needs onnxruntime, for its names. tests/integrations/test_onnxruntime_interface.py makes the calls.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import onnxruntime

import nnefc.onnxruntime
from nnefc.integrations.onnxruntime.environment import VERSION
from nnefc.integrations.onnxruntime.fields import Field

__all__ = ["DIFFERENT", "PAGE", "Row", "names", "page", "rows"]

PAGE = Path(__file__).with_name("onnxruntime.md")

DIFFERENT: Mapping[str, str] = {
    "InferenceSession": "Also takes libraries, models of other formats and the options of `nnefc.compile`; a keyword "
    "that neither has is refused. Models in onnxruntime's own format (`.ort`) are refused.",
    "InferenceSession.create_ortvalue_from_shape_and_type": "The elements are zeros.",
    "InferenceSession.end_profiling": "Writes the kernels of the library with their total times.",
    "InferenceSession.get_provider_graph_assignment_info": "Fails, as kernels are made of several nodes.",
    "InferenceSession.run": "Also takes arrays of other libraries (`__dlpack__`, `__array__`), such as tensors of "
    "PyTorch. Elements in the other byte order are converted. An array of one element stands for a scalar.",
    "OrtArenaCfg": "Its numbers have no effect.",
    "OrtEpDevice": "Has no streams.",
    "OrtHardwareDevice": "Has no metadata.",
    "OrtValue.ortvalue_from_shape_and_type": "The elements are zeros.",
    "OrtValue.update_inplace": "Elements of another type are refused.",
    "SessionOptions.add_external_initializers": "Also replaces initializers whose data are in the model.",
    "SessionOptions.add_session_config_entry": "Effective are `session.set_denormal_as_zero` (without it, "
    "[runs take subnormal numbers for zero](onnx.md#subnormal-numbers)), "
    "`session.model_external_initializers_file_folder_path`, `session.load_model_format` and "
    "`session.save_model_format`.",
    "SessionOptions.optimized_model_filepath": "The file is a copy of the model.",
    "SessionOptions.set_provider_selection_policy": "Prefers a GPU or the CPU.",
    "__version__": "The version whose interface this is.",
    "copy_tensors": "Also copies in the memory of the host.",
    "get_available_providers": "The CPU, and NVIDIA's GPUs where there is a driver.",
    "get_build_info": "Names nnefc and its version.",
    "print_debug_info": "Prints other facts.",
    "version": "The version whose interface this is.",
}
"""What is different, by name."""

_STATES = {
    "equal": "as in onnxruntime: results, and the classes of errors",
    "different": "as the note says",
    "no effect": "accepted, and logged once at debug level (logger `nnefc.onnxruntime`)",
    "refused": "`NotImplemented`, with the way that there is",
}

_BEGIN = """# onnxruntime's interface

`import nnefc.onnxruntime as ort` has the Python interface of onnxruntime {version} for inference
([how to use it](how-to/python.md#instead-of-onnxruntime)). Of its {count} public names:

{states}

Messages are nnefc's own. Errors are of onnxruntime's classes and of nnefc's at the same time: an `InvalidArgument` of
a run is a `RunError`, a `NotImplemented` of a model a `CompileError`. Each name that is equal or different is called
in both packages by `tests/integrations/test_onnxruntime_interface.py`. Members of enumerations are equal; numbers
that are no members are refused.

The modules `onnxruntime.backend`, `datasets`, `quantization`, `tools`, `training` and `transformers` can be imported,
and all names from them; what they hold is refused when it is called, but for
`onnxruntime.transformers.io_binding_helper.TypeHelper`, which programs that bind memory use.

`python docs/onnxruntime_interface.py` writes this page.
"""


@dataclass(frozen=True)
class Row:
    """A name, one of the states, and a note."""

    name: str
    state: str
    note: str


def names() -> Iterator[str]:
    """Returns the public names of onnxruntime, and those of its classes' members as `Class.member`."""
    for name in sorted(dir(onnxruntime)):
        value = getattr(onnxruntime, name)
        if name != "__version__" and (name.startswith("_") or isinstance(value, ModuleType)):
            continue
        yield name
        if isinstance(value, type) and not hasattr(value, "__members__"):
            members = {*dir(value)} - {*dir(object)}
            yield from (f"{name}.{member}" for member in sorted(members) if not member.startswith("_"))


def rows() -> list[Row]:
    """Returns a row for each name; the members of a class that is refused are in the row of the class."""
    found = []
    refused: set[str] = set()
    for name in names():
        owner, _, member = name.rpartition(".")
        if owner in refused:
            continue
        row = _row(name, owner, member)
        found.append(row)
        if row.state == "refused" and not owner:
            refused.add(name)
    return found


def page() -> str:
    """Returns the page."""
    found = rows()
    counts = Counter(row.state for row in found)
    states = "\n".join(f"- **{counts[state]} {state}**: {meaning}" for state, meaning in _STATES.items())
    parts = [_BEGIN.format(version=VERSION, count=len(found), states=states)]
    classes = [row.name for row in found if isinstance(getattr(nnefc.onnxruntime, row.name, None), type)]
    alone = [name for name in classes if not any(row.name.startswith(f"{name}.") for row in found)]
    parts += [*_table("Functions and texts", [r for r in found if "." not in r.name and r.name not in classes])]
    for name in classes:
        if name not in alone:
            own = [row for row in found if row.name == name or row.name.startswith(f"{name}.")]
            parts += _table(f"`{name}`", own)
    parts += _table("Other classes", [row for row in found if row.name in alone])
    return "\n".join(parts)


def _table(title: str, found: list[Row]) -> list[str]:
    lines = [f"## {title}\n", "| name | | |\n|---|---|---|"]
    return [*lines, *(f"| `{row.name}` | {row.state} | {row.note.replace('|', chr(92) + '|')} |" for row in found), ""]


def _row(name: str, owner: str, member: str) -> Row:
    if name in DIFFERENT:
        return Row(name, "different", DIFFERENT[name])
    value = _value(name, owner, member)
    first = (inspect.getdoc(value) or "").partition("\n")[0]
    if reason := getattr(value, "_reason", ""):
        first = reason[0] if reason.startswith("nnefc") else reason[0].upper()
        return Row(name, "refused", f"{first}{reason[1:]}.")
    if isinstance(value, Field):
        return Row(name, "equal" if value.is_used else "no effect", "")
    if first.startswith("Refuses"):
        return Row(name, "refused", first)
    if first.startswith(("Is accepted", "Does nothing")):
        return Row(name, "no effect", first)
    return Row(name, "equal", "")


def _value(name: str, owner: str, member: str) -> Any:
    """Returns what nnefc has under a name; attributes of objects have no value in the class."""
    if not owner:
        return getattr(nnefc.onnxruntime, name)
    return inspect.getattr_static(getattr(nnefc.onnxruntime, owner), member, None)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
