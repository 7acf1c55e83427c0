"""Writes nnefc-slim: nnefc without ziglang, 411 MB on disk, for machines that have a compiler of C.

python packaging/slim_wheel.py WHEEL [FOLDER]

takes the wheel of nnefc and writes that of nnefc-slim, with the same modules and commands. Where ziglang is not
installed, nnefc links libraries for this machine with the system's compiler, and for others with that of `--cc`.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wheel_file import pack_wheel, unpack_wheel

__all__ = ["slim", "write_slim_wheel"]

LEFT_OUT = "ziglang"


def slim(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """Returns the files of nnefc-slim from those of nnefc's wheel, by their names in it."""
    made = {}
    for name, content in files.items():
        folder, _, file = name.partition("/")
        if folder.endswith(".dist-info"):
            name = f"{folder.replace('nnefc-', 'nnefc_slim-', 1)}/{file}"
            if file == "METADATA":
                content = _metadata(content.decode()).encode()
            elif file.startswith("sboms/"):
                content = json.dumps(_bill(json.loads(content)), indent=1).encode()
        made[name] = content
    return made


def _metadata(text: str) -> str:
    head, separator, description = text.partition("\n\n")
    lines = []
    for line in head.splitlines():
        if line.startswith(f"Requires-Dist: {LEFT_OUT}"):
            continue
        lines.append(re.sub(r"^(Name|Requires-Dist): nnefc(?=\[|$)", r"\1: nnefc-slim", line))
    return "\n".join(lines) + separator + description


def _bill(bill: dict[str, Any]) -> dict[str, Any]:
    """Returns a bill of materials without what is left out."""
    gone = {each["bom-ref"] for each in bill["components"] if each["name"] == LEFT_OUT}
    components = [each for each in bill["components"] if each["bom-ref"] not in gone]
    dependencies = [
        {**each, "dependsOn": [ref for ref in each["dependsOn"] if ref not in gone]} if "dependsOn" in each else each
        for each in bill["dependencies"]
        if each["ref"] not in gone
    ]
    return {**bill, "components": components, "dependencies": dependencies}


def write_slim_wheel(wheel: Path, folder: Path) -> Path:
    """Writes the wheel of nnefc-slim that belongs to one of nnefc; returns its path."""
    return pack_wheel(slim(unpack_wheel(wheel)), folder / wheel.name.replace("nnefc-", "nnefc_slim-", 1))


if __name__ == "__main__":
    print(f"wrote {write_slim_wheel(Path(sys.argv[1]), Path(sys.argv[2] if len(sys.argv) > 2 else 'dist'))}")
