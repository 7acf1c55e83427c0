"""`nnefc compile`: a model to a library."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from nnefc.cli.compile_many import compile_targets, read_targets
from nnefc.cli.options import code_options, given, model_options, read_shapes
from nnefc.diagnostics import CompileError

__all__ = ["compile_model"]


@click.command("compile")
@click.argument("model", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="The file to write: NAME.so is a shared library (or .dylib, .dll, .wasm, as the target has), NAME.a a static "
    "library, NAME.o an object file; the last two with a C header beside them. With --emit or --targets, a folder.",
)
@code_options
@click.option(
    "--multi",
    is_flag=True,
    default=None,
    help="Make one library for a kind of processor, x86-64 or 64-bit Arm, with code for each level of them.",
)
@click.option(
    "--patches",
    is_flag=True,
    default=None,
    help="Compute the first layers a few rows at a time, so that a run needs less memory, mostly on microcontrollers.",
)
@click.option(
    "--small",
    is_flag=True,
    default=None,
    help="Make the library small rather than fast: one thread, no messages of errors but their numbers.",
)
@model_options
@click.option(
    "--max-error",
    type=float,
    metavar="SHARE",
    help="For --precision auto: how far results may be from those in fp32, over the largest value of their output.  "
    "[default: 1e-2]",
)
@click.option(
    "--io",
    type=click.Choice(["float", "int8", "uint8"]),
    help="Whether inputs and outputs of float32 are the integers that a quantized network makes of them. Headers for "
    "microcontrollers say what these stand for.  [default: float]",
)
@click.option(
    "--dump",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the program after each phase to this folder, as text.",
)
@click.option(
    "--name",
    metavar="NAME",
    help="The prefix of the C functions, NAME_create and so on, so that several networks can be linked into one "
    "program.  [default: nnefc]",
)
@click.option(
    "--weights",
    type=click.Choice(["embedded", "separate"]),
    help="Where the constants are: in the library, or in a file beside it.  [default: embedded]",
)
@click.option(
    "--encrypt",
    type=click.Path(path_type=Path),
    metavar="KEYFILE",
    help="Encrypt the constants, in a file beside the library, with the 32 bytes of this file: openssl rand -out "
    "KEYFILE 32 makes them. Whoever loads the library needs them.",
)
@click.option(
    "--cc",
    metavar="COMMAND",
    help="A compiler for the target with GCC's options, such as the one in Android's NDK.  [default: zig]",
)
@click.option(
    "--emit",
    type=click.Choice(["llvm-ir", "asm", "cuda"]),
    help="Write the network's code as text instead of a library: a file for each LLVM module, or CUDA source.",
)
@click.option(
    "--specialize",
    multiple=True,
    callback=lambda _context, _option, values: tuple(
        read_shapes((value,), least=0) if "=" in value else value for value in values
    ),
    metavar="NAME=640,NAME=640",
    help="Sizes of open dimensions, or the name of a scenario of the model, that the library gets faster code of its "
    "own for, which runs when inputs have them (repeatable).",
)
@click.option(
    "--only-specialized", is_flag=True, default=None, help="Leave out the code for other sizes, which are refused."
)
@click.option(
    "--profile",
    is_flag=True,
    default=None,
    help="Let the library time its kernels, for nnefc profile; some 80 ns each.",
)
@click.option(
    "--checked",
    is_flag=True,
    default=None,
    help="Let kernels look at every place that they read or write, and at every divisor: runs end with an error where "
    "one is wrong.",
)
@click.option(
    "--reproducible",
    is_flag=True,
    default=None,
    help="Give results the same bits on x86-64, Arm, RISC-V and WebAssembly, with any number of threads; slower.",
)
@click.option(
    "--targets",
    callback=read_targets,
    metavar="NAME,NAME",
    help="Compile for several targets side by side, each into a folder of its own in that of -o.",
)
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="For --targets: how many are compiled at a time, each in a process.  [default: as there are processors]",
)
@click.option("-v", "--verbose", is_flag=True, help="Print each phase, even if stderr is not a terminal.")
def compile_model(
    model: Path,
    output: Path,
    name: str | None,
    weights: str | None,
    encrypt: Path | None,
    cc: str | None,
    emit: str | None,
    targets: list[str] | None,
    jobs: int | None,
    verbose: bool,
    **options: Any,
) -> None:
    """Compile MODEL (NNEF, ONNX or PNNX) to one self-contained library."""
    keywords = given(options)
    form = given({"name": name, "weights": weights, "encrypt": encrypt, "cc": cc})
    if emit is not None and form:
        raise click.UsageError(f"--{next(iter(form))} is an option for libraries: it cannot be used with --emit")
    if jobs is not None and targets is None:
        raise click.UsageError("--jobs is for --targets: one target is one job")
    if targets is not None:
        for other in ("target", "dump"):
            if other in keywords:
                raise click.UsageError(f"--{other} is for one target: it cannot be used with --targets")
        if emit is not None:
            raise click.UsageError("--emit is for one target: it cannot be used with --targets")
        compile_targets(model, output, targets, jobs, form, keywords)
        return
    if emit is None:
        check_writable(output)

    from rich.console import Console

    import nnefc
    from nnefc.cli.progress import Phases
    from nnefc.cli.tvm_alone import import_tvm

    import_tvm()
    phases = Phases(Console(stderr=True, quiet=not (verbose or sys.stderr.isatty())))
    if emit is None:
        check_form(output, keywords.get("target", "llvm"), name, cc)
    artifact = nnefc.compile(model, progress=phases, **keywords)
    with phases.phase("link" if emit is None else "emit"):
        if emit is None:
            artifact.export(output, **form)
        else:
            artifact.emit(emit, output)
    if verbose:
        from nnefc.cli.text import face

        click.echo("\n".join(face(artifact.inputs, artifact.outputs)), err=True)
        if (summary := artifact.code.summary()) is not None:
            click.echo(summary, err=True)
        if artifact.checks is not None:
            proved, checked = artifact.checks.proved, artifact.checks.checked
            click.echo(f"checks {checked:,} of {proved + checked:,} accesses, the others are proved", err=True)
    if verbose or sys.stderr.isatty():
        from nnefc.cli.text import size_line, trial_lines

        for line in trial_lines(artifact.trials):
            click.echo(line, err=True)
        click.echo(size_line(output, artifact.description, beside="encrypt" in form or weights == "separate"), err=True)


def check_writable(output: Path) -> None:
    """Say before minutes of work that the library could not be written; a device must not be replaced by a file."""
    if not output.parent.is_dir():
        raise CompileError(
            f"cannot write {output}: there is no folder {output.parent}",
            hint=f"make it first: mkdir -p {output.parent}",
        )
    if output.exists() and not output.is_file():
        raise CompileError(
            f"cannot write {output}: it exists and is not a regular file", hint="give the name of a file"
        )
    from nnefc.output_files import scratch_beside

    with scratch_beside(output):  # which fails where nothing can be written
        pass


def check_form(output: Path, target: str, name: str | None, cc: str | None) -> None:
    """Say before minutes of work that the target has no such file or no compiler, or that C takes no such name."""
    from nnefc.targets.description.library import check_prefix
    from nnefc.targets.link.outputs import check_output
    from nnefc.targets.link.toolchain import check_compiler
    from nnefc.targets.machine.any_target import parse_any_target

    zig_target = parse_any_target(target).zig_target
    check_output(output, zig_target)
    check_compiler(zig_target, cc)
    if name is not None:
        check_prefix(name)
