"""Makes an XCFramework: one folder with a framework for each of iOS, its simulator, Mac Catalyst and macOS.

    digits.xcframework/
        Info.plist                                  which framework is for which system
        ios-arm64/digits.framework/
            digits  Info.plist  PrivacyInfo.xcprivacy  Headers/  Modules/module.modulemap
        macos-arm64/digits.framework/Versions/A/…   with links to them

Xcode and Swift packages take it as it is; Swift says `import digits`, C `#include <digits/digits.h>`, with functions
that begin with the name, for an app may have several networks. The libraries are signed ad hoc, and Xcode signs them
again with the app. The format: developer.apple.com, "Creating a multiplatform binary framework bundle".
"""

from __future__ import annotations

import plistlib
from collections.abc import Mapping
from dataclasses import dataclass

from nnefc.driver.packages.files import Files, Link, Program
from nnefc.driver.packages.kind import Form, Kind
from nnefc.driver.packages.networks import Networks, runtime_files
from nnefc.targets.link.mach_o_platform import with_install_name
from nnefc.targets.machine.any_target import parse_any_target
from nnefc.targets.machine.system import platform_of

__all__ = ["XCFRAMEWORK", "xcframework_files"]

_HEADERS = ("nnefc.h", "nnefc.hpp", "nnefc_image.hpp")


@dataclass(frozen=True)
class _Platform:
    """A system as property lists name it.

    Attributes:
        folder: in the XCFramework, as Xcode calls such folders.
        system, variant: in the list of libraries.
        bundle: in the framework's own list.
        oldest: the oldest version of macOS, where that is not the one that the library names.
        versioned: whether a framework has a folder for each of its versions.
    """

    folder: str
    system: str
    variant: str
    bundle: str
    oldest: str = ""
    versioned: bool = False


_PLATFORMS: Mapping[str, _Platform] = {
    "aarch64-ios": _Platform("ios-arm64", "ios", "", "iPhoneOS"),
    "aarch64-ios-simulator": _Platform("ios-arm64-simulator", "ios", "simulator", "iPhoneSimulator"),
    "aarch64-ios-macabi": _Platform("ios-arm64-maccatalyst", "ios", "maccatalyst", "MacOSX", "11.0", versioned=True),
    "aarch64-macos": _Platform("macos-arm64", "macos", "", "MacOSX", versioned=True),
    "llvm -mtriple=aarch64-tvos": _Platform("tvos-arm64", "tvos", "", "AppleTVOS"),
    "llvm -mtriple=aarch64-tvos-simulator": _Platform("tvos-arm64-simulator", "tvos", "simulator", "AppleTVSimulator"),
    "llvm -mtriple=aarch64-xros": _Platform("xros-arm64", "xros", "", "XROS"),
    "llvm -mtriple=aarch64-xros-simulator": _Platform("xros-arm64-simulator", "xros", "simulator", "XRSimulator"),
}


def xcframework_files(networks: Networks) -> Files:
    """Returns the files of the folder.

    Raises:
        CompileError: a target that is none of Apple's, or as :func:`nnefc.compile`.
    """
    networks.chosen(_PLATFORMS, "an XCFramework")
    files = networks.for_each(lambda target: _framework(networks, target))
    listed = [
        {
            "BinaryPath": f"{networks.name}.framework/" + "Versions/A/" * platform.versioned + networks.name,
            "LibraryIdentifier": platform.folder,
            "LibraryPath": f"{networks.name}.framework",
            "SupportedArchitectures": ["arm64"],
            "SupportedPlatform": platform.system,
            **({"SupportedPlatformVariant": platform.variant} if platform.variant else {}),
        }
        for platform in (_PLATFORMS[target] for target in networks.targets)
    ]
    contents = {
        "AvailableLibraries": listed,
        "CFBundlePackageType": "XFWK",
        "XCFrameworkFormatVersion": "1.0",
    }
    return {"Info.plist": plistlib.dumps(contents), **files}


def _framework(networks: Networks, target: str) -> dict[str, bytes | Link | Program]:
    """Returns the framework of one system."""
    platform, name = _PLATFORMS[target], networks.name
    folder = f"{platform.folder}/{name}.framework"
    inside = f"{folder}/Versions/A" if platform.versioned else folder
    resources = f"{inside}/Resources" if platform.versioned else inside
    position = f"{name}.framework/" + "Versions/A/" * platform.versioned + name
    # the linker leaves no more room for the name than the library's own has
    file = position.replace("/", "_") + ".dylib"
    library = with_install_name(networks.exported(target, file, named=True)[file], f"@rpath/{position}")
    module = f'framework module {name} {{\n    header "{name}.h"\n    export *\n}}\n'
    made: dict[str, bytes | Link | Program] = {
        f"{inside}/{name}": Program(library),
        f"{inside}/Headers/{name}.h": networks.header(target),
        **{f"{inside}/Headers/{header}": text for header, text in runtime_files(*_HEADERS).items()},
        f"{inside}/Modules/module.modulemap": module.encode(),
        f"{resources}/Info.plist": plistlib.dumps(_about(networks, target, platform)),
        f"{resources}/PrivacyInfo.xcprivacy": plistlib.dumps(_PRIVACY),
    }
    if platform.versioned:
        made[f"{folder}/Versions/Current"] = Link("A")
        parts = (name, "Headers", "Modules", "Resources")
        made |= {f"{folder}/{part}": Link(f"Versions/Current/{part}") for part in parts}
    return made


_PRIVACY = {
    "NSPrivacyTracking": False,
    "NSPrivacyTrackingDomains": [],
    "NSPrivacyCollectedDataTypes": [],
    "NSPrivacyAccessedAPITypes": [],
}
"""A network collects nothing, and calls no function that Apple wants reasons for."""


def _about(networks: Networks, target: str, platform: _Platform) -> dict[str, object]:
    own = platform_of(parse_any_target(target).zig_target)
    assert own is not None
    oldest = platform.oldest or ".".join(map(str, own.oldest))
    return {
        "CFBundleDevelopmentRegion": "en",
        "CFBundleExecutable": networks.name,
        "CFBundleIdentifier": f"nnefc.{networks.name.replace('_', '-')}",
        "CFBundleInfoDictionaryVersion": "6.0",
        "CFBundleName": networks.name,
        "CFBundlePackageType": "FMWK",
        "CFBundleShortVersionString": networks.version,
        "CFBundleSupportedPlatforms": [platform.bundle],
        "CFBundleVersion": networks.version,
        "LSMinimumSystemVersion" if platform.versioned else "MinimumOSVersion": oldest,
    }


XCFRAMEWORK = Kind(
    "xcframework",
    "A folder for Xcode with frameworks for iOS, its simulator, Mac Catalyst and macOS.",
    r"(?P<name>\w+)\.xcframework",
    "digits.xcframework",
    Form.FOLDER,
    ("aarch64-ios", "aarch64-ios-simulator", "aarch64-ios-macabi", "aarch64-macos"),
    xcframework_files,
)
