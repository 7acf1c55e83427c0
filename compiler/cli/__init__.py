"""Command line: `nnefc compile | package | compare | convert | quantize | run | bench | profile | serve | sign | verify
| inspect | view | cache | targets`.

Every option is a keyword of the same name in Python.

Commands are imported when they run, and import what they need then: `--help` and `nnefc run` start without TVM.
"""

from __future__ import annotations

import click

from nnefc.cli.errors import ErrorsAsMessages
from nnefc.cli.lazy import LazyCommand, LazyCommands
from nnefc.cli.manual import man_option
from nnefc.cli.print_paths import printing_folder

__all__ = ["main"]


_COMMANDS = {
    "compile": LazyCommand("compile", "compile_model", "Compile a model to a library."),
    "package": LazyCommand("package", "package_model", "Write a model as a package for phones, browsers or boards."),
    "compare": LazyCommand("compare", "compare_model", "Compare the tensors of a model with those of a reference."),
    "convert": LazyCommand("convert", "convert_model", "Write a model of any format as a model of NNEF."),
    "quantize": LazyCommand("quantize", "quantize_model", "Write a model with layers in 8-bit integers."),
    "inspect": LazyCommand("inspect", "inspect_file", "Describe a model, or a compiled library."),
    "view": LazyCommand("view", "view_model", "Draw a model as a graph on a web page."),
    "run": LazyCommand("run", "run_library", "Run a library on arrays from files."),
    "bench": LazyCommand("bench", "bench_libraries", "Time runs of libraries, and compare their results."),
    "profile": LazyCommand("profile", "profile_library", "Time the kernels of a library compiled with --profile."),
    "serve": LazyCommand("serve", "serve_libraries", "Serve libraries over HTTP and gRPC."),
    "chat": LazyCommand("chat", "chat", "Talk to a language model."),
    "sign": LazyCommand("sign", "sign_library", "Sign a library with a private key."),
    "verify": LazyCommand("sign", "verify_library", "Check the signature of a library."),
    "cache": LazyCommand("cache", "cached_libraries", "Show or empty the cache of libraries that sessions keep."),
    "targets": LazyCommand("targets", "list_targets", "List the targets that have a name."),
}


class _Group(ErrorsAsMessages):
    """The group of all commands, which `--help` lists in the order of the table."""

    commands: LazyCommands

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.commands.about().items()))


def _version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    """Print the version of the installed distribution, which may have several names."""
    if wanted and not context.resilient_parsing:
        from nnefc.support.distribution import installed_version

        click.echo(f"nnefc, version {installed_version()}")
        context.exit()


@click.group(cls=_Group, commands=LazyCommands(_COMMANDS), context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, expose_value=False, is_eager=True, callback=_version, help="Show the version and exit."
)
@printing_folder("--cmakedir", "cmake", "Print the folder with the module of CMake, for -Dnnefc_DIR, and exit.")
@printing_folder("--includedir", "runtime", "Print the folder with nnefc.h and nnefc.hpp, and exit.")
def main() -> None:
    """Compile trained networks ahead of time into self-contained shared libraries."""


man_option(main)
