"""Compile a network into an archive for Android's build system (AAR).

    python packaging/aar.py model.onnx digits.aar --cc arm64-v8a=aarch64-linux-android28-clang

The compiler is that of Android's NDK; several ABIs are given by several `--cc`. An app that depends on the archive
gets the library, and its C and C++ code `find_package(digits REQUIRED CONFIG)` with the target `digits::digits`, if its
build has `buildFeatures { prefab true }`. Its parts are those of developer.android.com (Create an Android library) and
of google.github.io/prefab.
"""

from __future__ import annotations

import argparse
import io
import json
import re
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import nnefc
from nnefc.targets.link.toolchain import RUNTIME

__all__ = ["ABIS", "write_aar"]

ABIS = {"arm64-v8a": "aarch64-linux-android", "x86_64": "llvm -mtriple=x86_64-linux-android -mcpu=x86-64-v2"}
"""Targets by Android's names of the instruction sets that its 64-bit systems have."""

_API = 28  # Android 9
_NDK = 26
_HEADERS = ("nnefc.h", "nnefc.hpp")
_MANIFEST = """<?xml version="1.0" encoding="utf-8"?>
<manifest xmlns:android="http://schemas.android.com/apk/res/android" package="nnefc.{name}">
    <uses-sdk android:minSdkVersion="{api}" />
</manifest>
"""


def write_aar(model: Path, output: Path, compilers: Mapping[str, str]) -> None:
    """Write the archive; the same arguments give the same bytes.

    Args:
        model: any model that nnefc reads.
        output: its name without the end is the library's, a name of C.
        compilers: commands by ABIs.

    Raises:
        ValueError: a name that is none in C, or an ABI that there is not.
        CompileError: as `nnefc.compile` and `export` do.
    """
    name = output.stem
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise ValueError(f"{output.name}: a library's name begins with a letter, and has letters, digits and _ alone")
    unknown = [abi for abi in compilers if abi not in ABIS]
    if unknown or not compilers:
        raise ValueError(f"the ABIs are {', '.join(ABIS)}" + f", not {', '.join(unknown)}" * bool(unknown))
    module = f"prefab/modules/{name}"
    files: dict[str, bytes] = {
        "AndroidManifest.xml": _MANIFEST.format(name=name.lower(), api=_API).encode(),
        "R.txt": b"",
        "classes.jar": _jar(),
        "prefab/prefab.json": _json(schema_version=2, name=name, version="1.0.0", dependencies=[]),
        f"{module}/module.json": _json(export_libraries=[], library_name=f"lib{name}"),
    }
    files |= {f"{module}/include/{header}": (RUNTIME / header).read_bytes() for header in _HEADERS}
    for abi, command in compilers.items():
        library = _library(model, f"lib{name}.so", ABIS[abi], command)
        folder = f"{module}/libs/android.{abi}"
        files |= {f"jni/{abi}/lib{name}.so": library, f"{folder}/lib{name}.so": library}
        files[f"{folder}/abi.json"] = _json(abi=abi, api=_API, ndk=_NDK, stl="none", static=False)
    output.write_bytes(_archive(files))


def _library(model: Path, name: str, target: str, command: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="nnefc-aar-") as folder:
        path = Path(folder) / name
        nnefc.compile(model, target).export(path, cc=command)
        return path.read_bytes()


def _jar() -> bytes:
    """An empty archive of Java classes."""
    return _archive({"META-INF/MANIFEST.MF": b"Manifest-Version: 1.0\r\n\r\n"})


def _json(**members: object) -> bytes:
    return json.dumps(members, indent=2).encode() + b"\n"


def _archive(files: Mapping[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
    return made.getvalue()


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--cc", action="append", required=True, metavar="ABI=COMMAND")
    arguments = parser.parse_args()
    pairs = [given.partition("=") for given in arguments.cc]
    try:
        write_aar(arguments.model, arguments.output, {abi: command for abi, _, command in pairs})
    except (ValueError, nnefc.CompileError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
