"""Makes the class of Java that runs a network on Android, and the library that its methods call (JNI).

    nnefc.digits.Network ── libdigits_jni.so ── libdigits.so

The library has C functions by the names of the methods, compiled from a template. They know the interface of virtual
machines by the positions of its functions, which never change, and need no header of a JDK.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from nnefc.driver.packages.files import zip_archive
from nnefc.driver.packages.networks import Networks
from nnefc.driver.packages.texts import template
from nnefc.support.diagnostics import CompileError
from nnefc.support.output_files import temporary_folder
from nnefc.targets.link.android import stub_libraries
from nnefc.targets.link.compilers import compiler_for
from nnefc.targets.link.toolchain import RUNTIME
from nnefc.targets.link.zig import run_compiler
from nnefc.targets.machine.system import is_android

__all__ = ["class_archive", "java_package", "java_source", "jni_library"]

_RESERVED = (
    r"abstract|assert|boolean|break|byte|case|catch|char|class|const|continue|default|do|double|else|enum|extends|false|"
    r"final|finally|float|for|goto|if|implements|import|instanceof|int|interface|long|native|new|null|package|private|"
    r"protected|public|return|short|static|strictfp|super|switch|synchronized|this|throws?|transient|true|try|void|"
    r"volatile|while"
)
_FLAGS = (
    *("-std=c11", "-Os", "-g0", "-fPIC", "-fvisibility=hidden", "-fno-sanitize=all", "-Wall", "-Wextra"),
    *("-shared", "-s", "-Wl,--no-undefined", "-Wl,--build-id=none"),
)
_RELEASE = "8"  # of Java, which all of Android's tools take


def java_package(name: str) -> str:
    """Returns the package of the class of a network.

    Raises:
        CompileError: it is a word of Java.
    """
    if re.fullmatch(_RESERVED, name):
        raise CompileError(f"{name!r} is a word of Java, and names no package", hint="choose another name")
    return f"nnefc.{name}"


def java_source(networks: Networks) -> tuple[str, bytes]:
    """Returns the path and the text of the class."""
    path = f"{java_package(networks.name).replace('.', '/')}/Network.java"
    return path, template("network.java", networks.values)


def jni_library(networks: Networks, library: bytes, zig_target: str) -> bytes:
    """Returns the library that the methods of the class call.

    Args:
        networks: the name of the network.
        library: the network's, which it is linked with.
        zig_target: zig's name of the machine.

    Raises:
        CompileError: the compiler fails.
    """
    values = {**networks.values, "mangled": networks.name.replace("_", "_1")}
    name = f"lib{networks.name}_jni.so"
    compiler = compiler_for(zig_target, "baseline")
    with temporary_folder("nnefc-jni-") as folder:
        (folder / "jni.c").write_bytes(template("jni.c", values))
        (folder / f"lib{networks.name}.so").write_bytes(library)
        system = ["-nostdlib", *stub_libraries(compiler, folder)] if is_android(zig_target) else []
        command = [*compiler, *_FLAGS, f"-I{RUNTIME}", "-Xlinker", "-soname", "-Xlinker", name, str(folder / "jni.c")]
        command += [f"-L{folder}", f"-l{networks.name}", *system, "-o", str(folder / name)]
        run_compiler(command, folder, "the library for Java was not linked")
        return (folder / name).read_bytes()


def class_archive(networks: Networks) -> bytes:
    """Returns an archive with the class, if there is a compiler of Java, else without classes.

    Raises:
        CompileError: that compiler cannot be run, or fails.
    """
    files = {"META-INF/MANIFEST.MF": b"Manifest-Version: 1.0\r\n\r\n"}
    if networks.javac:
        path, text = java_source(networks)
        with temporary_folder("nnefc-java-") as folder:
            source = folder / "source" / path
            source.parent.mkdir(parents=True)
            source.write_bytes(text)
            made = folder / "classes"
            _run([*shlex.split(networks.javac), "--release", _RELEASE, "-g:none", "-d", str(made), str(source)], folder)
            files |= {each.relative_to(made).as_posix(): each.read_bytes() for each in sorted(made.rglob("*.class"))}
    return zip_archive(files)


def _run(command: Sequence[str], folder: Path) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise CompileError(
            f"cannot run {command[0]}: {error.strerror}", hint="--javac names a compiler of Java"
        ) from error
    if done.returncode != 0:
        raise CompileError(f"the compiler of Java failed:\n{done.stderr.strip().replace(str(folder), '<java>')}")
