"""Makes an archive for Android's build system (AAR), without Android's NDK.

    digits.aar
        AndroidManifest.xml  R.txt  proguard.txt
        classes.jar                          the class nnefc.digits.Network, if there is a compiler of Java
        java/nnefc/digits/Network.java       its source, to be copied into an app where classes.jar is empty
        jni/arm64-v8a/                       libdigits.so, and libdigits_jni.so, which the class calls
        prefab/                              headers and libraries for C and C++: find_package(digits REQUIRED CONFIG)

The formats: developer.android.com, "Create an Android library", and google.github.io/prefab.
"""

from __future__ import annotations

from collections.abc import Mapping

from nnefc.driver.packages.files import Files
from nnefc.driver.packages.jni import class_archive, java_package, java_source, jni_library
from nnefc.driver.packages.kind import Form, Kind
from nnefc.driver.packages.networks import Networks, runtime_files
from nnefc.driver.packages.texts import json_text, template
from nnefc.targets.machine.any_target import parse_any_target

__all__ = ["AAR", "ABIS", "aar_files"]

ABIS: Mapping[str, str] = {
    "aarch64-linux-android": "arm64-v8a",
    "armv7-linux-androideabi": "armeabi-v7a",
    "x86_64-linux-android": "x86_64",
    "i686-linux-android": "x86",
}
"""Android's names of the instruction sets of targets."""

_API, _NDK = 28, 26  # Android 9, and a version of the NDK that knows it
_HEADERS = ("nnefc.h", "nnefc.hpp", "nnefc_image.hpp")


def aar_files(networks: Networks) -> Files:
    """Returns the files of the archive.

    Raises:
        CompileError: a target that is not Android's, a name that Java has a use for, or as :func:`nnefc.compile`.
    """
    networks.chosen(ABIS, "an AAR")
    name, values = networks.name, {**networks.values, "api": str(_API)}
    java_package(name)
    path, source = java_source(networks)
    module = f"prefab/modules/{name}"
    return {
        "AndroidManifest.xml": template("android_manifest.xml", values),
        "R.txt": b"",
        "proguard.txt": template("proguard.txt", values),
        "classes.jar": class_archive(networks),
        f"java/{path}": source,
        "prefab/prefab.json": json_text(schema_version=2, name=name, version=networks.version, dependencies=[]),
        f"{module}/module.json": json_text(export_libraries=[], library_name=f"lib{name}"),
        f"{module}/include/{name}.h": networks.header(networks.targets[0]),
        **{f"{module}/include/{header}": text for header, text in runtime_files(*_HEADERS).items()},
        **networks.for_each(lambda target: _libraries(networks, target, module)),
    }


def _libraries(networks: Networks, target: str, module: str) -> dict[str, bytes]:
    """Returns the files of one instruction set."""
    abi, name = ABIS[target], f"lib{networks.name}.so"
    library = networks.exported(target, name, named=True)[name]
    folder = f"{module}/libs/android.{abi}"
    bridge = jni_library(networks, library, parse_any_target(target).zig_target)
    return {
        f"jni/{abi}/{name}": library,
        f"jni/{abi}/lib{networks.name}_jni.so": bridge,
        f"{folder}/{name}": library,
        f"{folder}/abi.json": json_text(abi=abi, api=_API, ndk=_NDK, stl="none", static=False),
    }


AAR = Kind(
    "aar",
    "An archive for Android's build system, with libraries for its instruction sets, a class of Java, and Prefab.",
    r"(?P<name>\w+)\.aar",
    "digits.aar",
    Form.ZIP,
    tuple(ABIS),
    aar_files,
)
