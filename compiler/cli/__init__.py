"""The command line: `nnefc compile | compare | convert | quantize | run | bench | profile | serve | sign | verify |
inspect | view | targets`.

Every option is a keyword of the same name in Python.

Commands import what they need when they run, so that `--help` and `nnefc run` start without TVM.
"""

from __future__ import annotations

import click

from nnefc.cli.bench import bench_libraries
from nnefc.cli.compare import compare_model
from nnefc.cli.compile import compile_model
from nnefc.cli.convert import convert_model
from nnefc.cli.errors import ErrorsAsMessages
from nnefc.cli.folders import printing_folder
from nnefc.cli.inspect import inspect_file
from nnefc.cli.manual import man_option
from nnefc.cli.profile import profile_library
from nnefc.cli.quantize import quantize_model
from nnefc.cli.run import run_library
from nnefc.cli.serve import serve_libraries
from nnefc.cli.sign import sign_library, verify_library
from nnefc.cli.targets import list_targets
from nnefc.cli.view import view_model

__all__ = ["main"]


@click.group(cls=ErrorsAsMessages, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="nnefc")
@printing_folder("--cmakedir", "cmake", "Print the folder with the module of CMake, for -Dnnefc_DIR, and exit.")
@printing_folder("--includedir", "runtime", "Print the folder with nnefc.h and nnefc.hpp, and exit.")
def main() -> None:
    """Compile trained networks ahead of time into self-contained shared libraries."""


for command in (
    compile_model,
    compare_model,
    convert_model,
    quantize_model,
    run_library,
    bench_libraries,
    profile_library,
    serve_libraries,
    sign_library,
    verify_library,
    inspect_file,
    view_model,
    list_targets,
):
    main.add_command(command)
man_option(main)
