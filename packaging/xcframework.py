"""Compile a network into an XCFramework: one folder with a framework for each of iOS, its simulator and macOS.

    python packaging/xcframework.py model.onnx digits.xcframework

Drag it into a project of Xcode, or name it as a binary target of a Swift package; Swift then says `import digits`, and
C `#include <digits/nnefc.h>`. It needs no Mac: the linker here knows macOS alone, whose libraries for Apple's
processors are those of iOS but for the platform that a load command names. So that is written into copies of one
library, and these are signed ad hoc again. Xcode signs them with the app.
"""

from __future__ import annotations

import argparse
import hashlib
import plistlib
import re
import shutil
import struct
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nnefc
from nnefc.targets.link.toolchain import RUNTIME

__all__ = ["PLATFORMS", "Platform", "write_xcframework"]

_HEADERS = ("nnefc.h", "nnefc.hpp")
_TARGET = "llvm -mtriple=aarch64-macos -mcpu=apple-a12"
_MAGIC = b"\xcf\xfa\xed\xfe"  # of Mach-O with 64 bits
_ID_DYLIB, _SIGNATURE, _BUILD_VERSION = 0xD, 0x1D, 0x32  # load commands
_EMBEDDED_SIGNATURE, _CODE_DIRECTORY, _SHA256 = 0xFADE0CC0, 0xFADE0C02, 2


@dataclass(frozen=True)
class Platform:
    """A system of Apple's.

    Attributes:
        folder: in the XCFramework, as Xcode calls such folders.
        number: in the load command that says what a library is for.
        oldest: the version of the system, major and minor.
        name, variant: in the list of what is there.
        bundle: in the framework's own list.
    """

    folder: str
    number: int
    oldest: tuple[int, int]
    name: str
    variant: str
    bundle: str


PLATFORMS = (
    Platform("ios-arm64", 2, (14, 0), "ios", "", "iPhoneOS"),
    Platform("ios-arm64-simulator", 7, (14, 0), "ios", "simulator", "iPhoneSimulator"),
    Platform("macos-arm64", 1, (11, 0), "macos", "", "MacOSX"),
)


def write_xcframework(model: Path, output: Path) -> None:
    """Write the folder, whole or not at all; the same arguments give the same files.

    Args:
        model: any model that nnefc reads.
        output: its name without the end `.xcframework` is the framework's, a name of C.

    Raises:
        ValueError: another name, or a folder that is there already.
        CompileError: as `nnefc.compile` and `export` do.
    """
    name = output.name.removesuffix(".xcframework")
    if name == output.name or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise ValueError(f"{output.name} is not a name of letters, digits and _, with the end .xcframework")
    if output.exists():
        raise ValueError(f"{output} is there already")
    with tempfile.TemporaryDirectory(prefix=".nnefc-", dir=output.parent) as scratch:
        whole = Path(scratch) / output.name
        library = _library(model, name, Path(scratch))
        for platform in PLATFORMS:
            _write_framework(whole / platform.folder / f"{name}.framework", name, platform, library)
        (whole / "Info.plist").write_bytes(_plist(**_contents(name)))
        shutil.move(whole, output)


def _library(model: Path, name: str, folder: Path) -> bytes:
    """The library, with room for the name by which programs find it in a framework."""
    path = folder / f"{name}.framework_Versions_A_{name}.dylib"
    nnefc.compile(model, _TARGET).export(path)
    return path.read_bytes()


def _contents(name: str) -> dict[str, object]:
    libraries = [
        {
            "LibraryIdentifier": platform.folder,
            "LibraryPath": f"{name}.framework",
            "SupportedArchitectures": ["arm64"],
            "SupportedPlatform": platform.name,
            **({"SupportedPlatformVariant": platform.variant} if platform.variant else {}),
        }
        for platform in PLATFORMS
    ]
    return {
        "AvailableLibraries": libraries,
        "CFBundlePackageType": "XFWK",
        "XCFrameworkFormatVersion": "1.0",
    }


def _write_framework(folder: Path, name: str, platform: Platform, library: bytes) -> None:
    """A framework, whose parts are in a folder of a version on macOS, with links to them."""
    versioned = platform.name == "macos"
    inside = folder / "Versions" / "A" if versioned else folder
    position = f"{name}.framework/" + ("Versions/A/" if versioned else "") + name
    resources = inside / "Resources" if versioned else inside
    for part in (inside / "Headers", inside / "Modules", resources):
        part.mkdir(parents=True, exist_ok=True)
    (inside / name).write_bytes(for_platform(library, platform, f"@rpath/{position}"))
    (inside / name).chmod(0o755)
    for header in _HEADERS:
        (inside / "Headers" / header).write_bytes((RUNTIME / header).read_bytes())
    module = f'framework module {name} {{\n    header "nnefc.h"\n    export *\n}}\n'
    (inside / "Modules" / "module.modulemap").write_text(module)
    oldest = ".".join(map(str, platform.oldest))
    about = {
        "CFBundleDevelopmentRegion": "en",
        "CFBundleExecutable": name,
        "CFBundleIdentifier": f"nnefc.{name.replace('_', '-')}",
        "CFBundleInfoDictionaryVersion": "6.0",
        "CFBundleName": name,
        "CFBundlePackageType": "FMWK",
        "CFBundleShortVersionString": "1.0",
        "CFBundleSupportedPlatforms": [platform.bundle],
        "CFBundleVersion": "1",
        "LSMinimumSystemVersion" if versioned else "MinimumOSVersion": oldest,
    }
    (resources / "Info.plist").write_bytes(_plist(**about))
    if versioned:
        (folder / "Versions" / "Current").symlink_to("A")
        for part in (name, "Headers", "Modules", "Resources"):
            (folder / part).symlink_to(Path("Versions") / "Current" / part)


def for_platform(library: bytes, platform: Platform, name: str) -> bytes:
    """A library of macOS as one for another platform, found by another name, and signed ad hoc.

    Raises:
        ValueError: it has no room for the name, or is no such library.
    """
    data = bytearray(library)
    commands = dict(_commands(data))
    for command in (_BUILD_VERSION, _ID_DYLIB, _SIGNATURE):
        if command not in commands:
            raise ValueError(f"the library has no load command {command:#x}")
    version = platform.oldest[0] << 16 | platform.oldest[1] << 8
    struct.pack_into("<III", data, commands[_BUILD_VERSION] + 8, platform.number, version, version)
    at = commands[_ID_DYLIB]
    (size, offset) = struct.unpack_from("<II", data, at + 4)
    room = size - offset
    if len(name) >= room:
        raise ValueError(f"there is no room for the name {name}")
    data[at + offset : at + size] = name.encode().ljust(room, b"\0")
    _sign(data, commands[_SIGNATURE])
    return bytes(data)


def _commands(data: bytearray) -> Iterator[tuple[int, int]]:
    """Load commands, and where they are."""
    if data[:4] != _MAGIC:
        raise ValueError("not a library of macOS with 64 bits")
    (count,) = struct.unpack_from("<I", data, 16)
    at = 32
    for _ in range(count):
        command, size = struct.unpack_from("<II", data, at)
        yield command, at
        at += size


def _sign(data: bytearray, command: int) -> None:
    """Write the hashes of the pages as they are now into an ad hoc signature."""
    (start,) = struct.unpack_from("<I", data, command + 8)
    magic, _, blobs = struct.unpack_from(">III", data, start)
    if magic != _EMBEDDED_SIGNATURE:
        raise ValueError("the library is not signed")
    for index in range(blobs):
        at = start + struct.unpack_from(">I", data, start + 12 + 8 * index + 4)[0]
        if struct.unpack_from(">I", data, at)[0] != _CODE_DIRECTORY:
            continue
        hashes, _, _, pages, limit = struct.unpack_from(">IIIII", data, at + 16)
        size, kind, _, page_bits = struct.unpack_from("4B", data, at + 36)
        if kind != _SHA256:
            raise ValueError("the library is signed with another hash than SHA-256")
        for page in range(pages):
            content = data[page << page_bits : min(page + 1 << page_bits, limit)]
            position = at + hashes + page * size
            data[position : position + size] = hashlib.sha256(content).digest()[:size]


def _plist(**members: object) -> bytes:
    return plistlib.dumps(members)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()
    try:
        write_xcframework(arguments.model, arguments.output)
    except (OSError, ValueError, nnefc.CompileError) as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
