"""Writes a network as a package of any kind.

nnefc.package("model.onnx", "xcframework", "digits.xcframework")
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Unpack

from nnefc.driver.artifact import Artifact
from nnefc.driver.compile import compile
from nnefc.driver.in_memory import AnyModel
from nnefc.driver.option_keywords import CompileKeywords, with_documented_options
from nnefc.driver.packages.aar import AAR
from nnefc.driver.packages.arduino import ARDUINO
from nnefc.driver.packages.cmsis_pack import CMSIS_PACK
from nnefc.driver.packages.esp_idf import ESP_IDF
from nnefc.driver.packages.files import tar_archive, write_file, write_folder, zip_archive
from nnefc.driver.packages.kind import Form, Kind
from nnefc.driver.packages.networks import Networks
from nnefc.driver.packages.npm import NPM
from nnefc.driver.packages.swift_package import SWIFT_PACKAGE
from nnefc.driver.packages.xcframework import XCFRAMEWORK
from nnefc.driver.packages.zephyr import ZEPHYR
from nnefc.driver.progress import Progress
from nnefc.support.diagnostics import CompileError
from nnefc.targets.description.library import check_prefix

__all__ = ["KINDS", "package"]

KINDS: Mapping[str, Kind] = {
    kind.option: kind for kind in (XCFRAMEWORK, SWIFT_PACKAGE, AAR, NPM, CMSIS_PACK, ESP_IDF, ARDUINO, ZEPHYR)
}
"""Kinds of packages by their names."""

_VERSION = "1.0.0"
_ARCHIVE = ".tgz"


@with_documented_options(CompileKeywords)
def package(
    model: AnyModel,
    kind: str,
    output: str | os.PathLike[str],
    *,
    targets: Sequence[str] = (),
    name: str | None = None,
    version: str | None = None,
    javac: str | None = None,
    progress: Progress | None = None,
    **options: Unpack[CompileKeywords],
) -> None:
    """Compiles a network and writes it as a package for a build system; whole or not at all. The same arguments give
    the same bytes.

    Args:
        model: as in :func:`nnefc.compile`.
        kind: `xcframework`, `swift-package`, `aar`, `npm`, `cmsis-pack`, `esp-idf`, `arduino` or `zephyr`.
        output: the file or the new folder. Its name is that of the network, as the kind has it: `digits.aar`.
        targets: those that the package has libraries for; none: all that are usual for the kind.
        name: of the network in the package, a name of C; None: that of `output`, in lower case.
        version: of the package, three numbers; None: that of `output`, or 1.0.0.
        javac: the command of a compiler of Java, for `aar`; None: the archive has the source of its class alone.
        progress: as in :func:`nnefc.compile`.
        {options}

    Raises:
        CompileError: a name or an option that does not fit, a file that cannot be written, or as
            :func:`nnefc.compile`.
    """
    path = Path(output)
    chosen = KINDS.get(kind)
    if chosen is None:
        raise CompileError(f"unknown kind of package {kind!r}", hint=f"the kinds are {', '.join(KINDS)}")
    name, version = _named(chosen, path, name, version)
    if javac is not None and chosen is not AAR:
        raise CompileError(f"a package of the kind {kind} has no Java", hint="leave out javac")
    form = Form.TAR if path.name.endswith(_ARCHIVE) else chosen.form
    if form is Form.FOLDER and (path.exists() or path.is_symlink()):
        raise CompileError(f"cannot write {path}: it exists", hint="remove it first, or give another name")
    if not path.parent.is_dir():
        raise CompileError(f"cannot write {path}: there is no folder {path.parent}")

    def build(target: str) -> Artifact:
        return compile(model, target, progress=progress, **options)

    files = chosen.files(Networks(name, version, tuple(dict.fromkeys(targets)) or chosen.targets, build, javac or ""))
    if form is Form.FOLDER:
        write_folder(files, path)
    elif form is Form.TAR:
        write_file(tar_archive({f"package/{each}": file for each, file in files.items()}), path)
    else:
        write_file(zip_archive(files), path)


def _named(kind: Kind, path: Path, name: str | None, version: str | None) -> tuple[str, str]:
    """Returns the name of the network and the version of the package.

    Raises:
        CompileError: the name of the output is none of the kind's, or says another name or version.
    """
    found = re.fullmatch(kind.output, path.name)
    if found is None:
        raise CompileError(
            f"{path.name} is no name for a package of the kind {kind.option}",
            hint=f"call it such as {kind.example}: letters, digits and _ of the network's name",
        )
    parts = found.groupdict()
    for what, given in (("name", name), ("version", version)):
        if given is not None and parts.get(what) not in (None, given) and kind is CMSIS_PACK:
            raise CompileError(f"{path.name} has the {what} {parts[what]}, not {given}", hint="let them be the same")
    name = name or parts["name"].lower()
    version = version or parts.get("version") or _VERSION
    if not re.fullmatch(r"(0|[1-9]\d{0,5})(\.(0|[1-9]\d{0,5})){2}", version):
        raise CompileError(f"the version {version!r} is not three numbers", hint=f"such as {_VERSION}")
    if not re.fullmatch(r"[A-Za-z]\w*", name, re.ASCII):
        raise CompileError(f"the name {name!r} does not begin with a letter", hint="give another: --name digits")
    check_prefix(name)
    return name, version
