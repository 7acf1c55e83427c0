"""Compiles one model for all targets of a package, and exports it to files in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from nnefc.driver.artifact import Artifact
from nnefc.support.diagnostics import CompileError
from nnefc.support.output_files import temporary_folder
from nnefc.targets.link.header import header_source
from nnefc.targets.link.toolchain import RUNTIME
from nnefc.targets.machine.any_target import parse_any_target
from nnefc.targets.machine.cpu.target import Target
from nnefc.targets.machine.system import platform_of

__all__ = ["Networks", "runtime_files"]


@dataclass(frozen=True)
class Networks:
    """A model as libraries for several targets.

    Attributes:
        name: of the network in the package, and what its C functions begin with.
        version: of the package, three numbers.
        targets: by their names.
        build: compiles the model for a target.
        javac: the command that compiles Java; "" for none.
    """

    name: str
    version: str
    targets: tuple[str, ...]
    build: Callable[[str], Artifact]
    javac: str = ""
    _built: dict[object, Artifact] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """Returns the name with a capital: `my_net` is `MyNet`."""
        return "".join(word[:1].upper() + word[1:] for word in self.name.split("_"))

    @property
    def values(self) -> Mapping[str, str]:
        """Returns what all templates may name."""
        return {"name": self.name, "upper": self.name.upper(), "title": self.title, "version": self.version}

    def artifact(self, target: str) -> Artifact:
        """Returns the network for a target, which is compiled once.

        Code for one processor is the same under all of Apple's systems: files differ by the platform that they name.

        Raises:
            CompileError: there is no such target, or as :func:`nnefc.compile`.
        """
        machine = parse_any_target(target)
        key: object = machine.name
        if isinstance(machine, Target) and platform_of(machine.zig_target) is not None:
            key = (machine.zig_target.partition("-")[0], machine.cpu, machine.attributes, machine.features)
        if key not in self._built:
            self._built[key] = self.build(target)
        made = self._built[key]
        if made.description.target == machine.name or not isinstance(made.target, Target):
            return made
        same = replace(made.target, name=machine.name, triple=machine.host.triple, zig_target=machine.zig_target)
        return replace(made, target=same, description=replace(made.description, target=machine.name))

    def exported(self, target: str, file: str, named: bool = False) -> dict[str, bytes]:
        """Returns the file of a network, and the header that belongs to it, by their names.

        Args:
            target: by its name.
            file: its end says what kind of file it is.
            named: whether the functions begin with the name of the network.

        Raises:
            CompileError: as `Artifact.export`.
        """
        with temporary_folder("nnefc-package-") as folder:
            self.artifact(target).export(folder / file, name=self.name if named else None)
            return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}

    def header(self, target: str) -> bytes:
        """Returns the C header with the functions that begin with the name of the network."""
        return header_source(replace(self.artifact(target).description, prefix=self.name)).encode()

    def for_each(self, make: Callable[[str], Mapping[str, Any]]) -> dict[str, Any]:
        """Returns the files of all targets together."""
        return {name: file for target in self.targets for name, file in make(target).items()}

    def chosen(self, known: Mapping[str, Any], what: str) -> None:
        """Refuses targets that a kind of package does not have.

        Raises:
            CompileError: there is one.
        """
        for target in self.targets:
            if target not in known:
                raise CompileError(
                    f"{what} has no files for the target {target!r}", hint=f"its targets are {', '.join(known)}"
                )


def runtime_files(*names: str) -> dict[str, bytes]:
    """Returns files of the runtime by their names, such as `nnefc.h`."""
    return {name: (RUNTIME / name).read_bytes() for name in names}
