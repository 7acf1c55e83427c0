"""Chooses the kind of output file from its name, and the function that writes it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nnefc.support.diagnostics import CompileError
from nnefc.support.output_files import temporary_folder, write_together
from nnefc.targets.description.library import LibraryDescription
from nnefc.targets.link.constants import Constants
from nnefc.targets.link.encrypted_weights import check_encryption, write_encrypted_weights
from nnefc.targets.link.freestanding_archive import write_freestanding_archive
from nnefc.targets.link.header import header_source
from nnefc.targets.link.toolchain import archive, link_library, link_object
from nnefc.targets.link.weights_file import write_weights
from nnefc.targets.machine.system import FileFormat, format_of, is_hosted

__all__ = ["WEIGHTS", "check_output", "write_network"]

WEIGHTS = ("embedded", "separate")
"""Where the trained values may be: in the library, or in a file of their own that it maps."""


@dataclass(frozen=True)
class _Network:
    """The common arguments of every output: those of :func:`link_library`.

    Attributes:
        image: the name of a file for the constants that programs give to each run; "": there is none.
        key: that this file is encrypted with.
        weights_version: of the constants in it.
    """

    objects: Sequence[Path]
    constants: Constants | None
    description: LibraryDescription
    zig_target: str
    cc: Sequence[str]
    zig_cpu: str
    image: str = ""
    key: bytes | None = None
    weights_version: int = 0

    @property
    def parts(self) -> tuple[Sequence[Path], Constants | None, LibraryDescription]:
        """The objects, the constants and the description."""
        return self.objects, self.constants, self.description


def _shared(network: _Network, path: Path) -> None:
    link_library(*network.parts, path, zig_target=network.zig_target, zig_cpu=network.zig_cpu, cc=network.cc)


def _object(network: _Network, path: Path) -> None:
    link_object(*network.parts, path, zig_target=network.zig_target, cc=network.cc)
    _header(network, path)


def _archive(network: _Network, path: Path) -> None:
    if not is_hosted(network.zig_target):
        write_freestanding_archive(
            *network.parts,
            path,
            zig_target=network.zig_target,
            zig_cpu=network.zig_cpu,
            cc=network.cc,
            weights=path.with_name(network.image) if network.image else None,
            key=network.key,
            weights_version=network.weights_version,
        )
        return
    with temporary_folder("nnefc-") as folder:
        member = folder / f"{network.description.prefix}.o"
        link_object(*network.parts, member, zig_target=network.zig_target, cc=network.cc)
        archive([member], path)
    _header(network, path)


def _header(network: _Network, path: Path) -> None:
    text = header_source(network.description)
    path.with_name(f"{network.description.prefix}.h").write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class _Kind:
    """A kind of file: what its names end with, and what writes it, and files of other names with it."""

    suffixes: tuple[str, ...]
    write: Callable[[_Network, Path], None]


_KINDS = (
    _Kind((".so", ".dylib", ".dll", ".wasm"), _shared),
    _Kind((".o",), _object),
    _Kind((".a",), _archive),
)


def check_output(path: Path, zig_target: str) -> None:
    """Rejects a name whose end asks for no file that can be made for the target.

    Raises:
        CompileError: an unknown end, or that of another system's shared libraries.
    """
    suffix = _suffix(path)
    if not is_hosted(zig_target) and _suffix(path) != ".a":
        raise CompileError(
            f"{path}: for a machine without an operating system a network is a static library",
            hint="end the name with .a",
        )
    form = format_of(zig_target)
    own = form.suffix
    kinds = f"{own} for a shared library, .a for a static one, .o for an object file"
    if form is FileFormat.WASM and suffix in (".a", ".o"):
        raise CompileError(f"{path}: for WebAssembly a network is a module", hint=f"end the name with {own}")
    if not any(suffix in kind.suffixes for kind in _KINDS):
        raise CompileError(f"{path} has no ending that says what to write", hint=f"end the name with {kinds}")
    if suffix in _KINDS[0].suffixes and suffix != own:
        raise CompileError(f"{path}: shared libraries of the target do not end with {suffix}", hint=f"end with {kinds}")


def write_network(
    objects: Sequence[Path],
    constants: Constants | None,
    description: LibraryDescription,
    path: Path,
    *,
    zig_target: str,
    cc: Sequence[str] = (),
    weights: str = "embedded",
    key: bytes | None = None,
    weights_version: int = 0,
    zig_cpu: str = "baseline",
) -> None:
    """Writes a network as the file that the end of `path` asks for, with what belongs to it; all or nothing.

    Object files and archives get a header next to them, called like the description's prefix. With `weights`
    "separate" the constants are in a file next to it whose name ends with `.weights` instead. Libraries map it,
    programs without an operating system give its content to each run.

    Args:
        objects: the network's code; one of them defines `nnefc_network`.
        constants: the trained values; None if the network has none.
        description: what the library says of itself.
        path: the file.
        zig_target: zig's name of the target.
        cc: the command of a compiler for the target, in place of zig.
        weights: one of WEIGHTS.
        key: 32 bytes that the file of weights is encrypted with, or 16 without an operating system; None: it is not.
        weights_version: of the constants in an encrypted file for a machine without an operating system.
        zig_cpu: the oldest processor that the runtime shall run on.

    Raises:
        CompileError: a name or an option that does not fit, a file that cannot be written, an error of the linker.
    """
    check_output(path, zig_target)
    if weights not in WEIGHTS:
        raise CompileError(f"weights is {weights!r}", hint="write 'embedded' or 'separate'")
    hosted = is_hosted(zig_target)
    if weights == "separate" and hosted and format_of(zig_target) not in (FileFormat.ELF, FileFormat.MACH_O):
        raise CompileError(
            "the target's system cannot map a file of weights into memory", hint="leave them in the library"
        )
    check_encryption(key, weights, constants)
    (kind,) = (kind for kind in _KINDS if _suffix(path) in kind.suffixes)
    network = _Network(objects, constants, description, zig_target, cc, zig_cpu)

    def write(folder: Path) -> None:
        shown = network
        if weights == "separate" and constants is not None and not hosted:
            shown = replace(network, image=f"{_stem(path)}.weights", key=key, weights_version=weights_version)
        elif weights == "separate" and constants is not None:
            name = f"{_stem(path)}.weights"
            if key is None:
                write_weights(constants, description.model, folder / name)
            else:
                write_encrypted_weights(constants, key, folder / name)
            apart = replace(description, weights=name, checksum=constants.checksum)
            shown = replace(network, constants=None, description=apart)
        kind.write(shown, folder / path.name)

    write_together(path.parent, write, last=path.name)


def _suffix(path: Path) -> str:
    """Returns the end of a name; `.so` of `libx.so.1.2` too."""
    versioned = re.fullmatch(r".*(\.so)(\.\d+)*", path.name)
    return versioned[1] if versioned else path.suffix


def _stem(path: Path) -> str:
    return path.name[: path.name.rindex(_suffix(path))]
