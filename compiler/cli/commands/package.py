"""`nnefc package`: compiles a model to a package for the build system of phones, browsers or microcontrollers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from nnefc.cli.commands.compile_many import read_targets
from nnefc.cli.grouped import Command, option
from nnefc.cli.options import compiler_options, given
from nnefc.driver.option_keywords import CompileKeywords

__all__ = ["package_model"]

_KINDS = {
    "xcframework": "A folder for Xcode: frameworks for iOS, its simulator, Mac Catalyst and macOS.",
    "swift-package": "A folder with a Swift package: an XCFramework, and a class of Swift.",
    "aar": "An archive for Android's build system: libraries, a class of Java, Prefab for C and C++.",
    "npm": "A folder, or NAME.tgz, for npm: modules of WebAssembly, and a function that loads them.",
    "cmsis-pack": "A CMSIS-Pack for Keil, IAR and others: nnefc.NAME.1.0.0.pack.",
    "esp-idf": "A folder with a component for ESP-IDF: a library for ESP32-C and H, C source for ESP32, S2 and S3.",
    "arduino": "A folder with a library for Arduino.",
    "zephyr": "A folder with a module for Zephyr.",
}


def _kinds(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add an option for each kind of package to a command."""
    for name, about in reversed(_KINDS.items()):
        command = option(f"--{name}", "kind", group="Package", flag_value=name, help=about)(command)
    return command


@click.command("package", cls=Command)
@click.argument("model", type=click.Path(path_type=Path))
@_kinds
@option(
    "-o",
    "--output",
    group="Output",
    type=click.Path(path_type=Path),
    required=True,
    help="The file or the new folder, called like the network: digits.aar, digits.xcframework, digits.",
)
@option(
    "--targets",
    group="Output",
    callback=read_targets,
    metavar="NAME,NAME",
    help="The targets that the package has libraries for.  [default: all that are usual for it]",
)
@option(
    "--name",
    group="Output",
    metavar="NAME",
    help="The network's name in the package, which its C functions begin with.  [default: that of the output]",
)
@option("--version", group="Output", metavar="1.0.0", help="The version of the package.  [default: 1.0.0]")
@option(
    "--javac",
    group="Output",
    metavar="COMMAND",
    help="For --aar: a compiler of Java, for the class in the archive.  [default: its source alone]",
)
@compiler_options(CompileKeywords.__annotations__)
@option("-v", "--verbose", group="Debugging", is_flag=True, help="Print each phase, even if stderr is not a terminal.")
def package_model(model: Path, kind: str | None, output: Path, verbose: bool, **options: Any) -> None:
    """Compile MODEL and write it as a package, of the kind that one of the first options names."""
    if kind is None:
        raise click.UsageError(f"say which kind of package: {', '.join(f'--{name}' for name in _KINDS)}")
    from nnefc.support.minimal_tvm import import_tvm

    import_tvm()
    from nnefc.driver.packages.write_package import package
    from nnefc.driver.terminal_progress import command_progress

    package(model, kind, output, progress=command_progress(verbose), **given(options))
    click.echo(f"wrote {output}")
