"""`nnefc compile`: compiles a model to a library."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnefc.cli.commands.compile_many import compile_targets, read_targets
from nnefc.cli.grouped import Command, option
from nnefc.cli.options import compiler_options, given
from nnefc.driver.option_keywords import CompileKeywords
from nnefc.support.diagnostics import CompileError
from nnefc.support.garbage_collection import without_collections

if TYPE_CHECKING:
    from nnefc.driver.artifact import Artifact

__all__ = ["compile_model"]


@click.command("compile", cls=Command)
@click.argument("model", type=click.Path(path_type=Path), required=False, metavar="MODEL")
@option(
    "-o",
    "--output",
    group="Output",
    type=click.Path(path_type=Path),
    help="The file to write, required: NAME.so is a shared library (or .dylib, .dll, .wasm, depending on the target), "
    "NAME.a a static library, NAME.o an object file, NAME.c C source; the last three with a C header. With --emit or "
    "--targets, a folder; with --emit c, NAME.c.",
)
@compiler_options(["target"])
@option(
    "--targets",
    group="Output",
    common=False,
    callback=read_targets,
    metavar="NAME,NAME",
    help="Compile for several targets in parallel, each into its own subfolder of -o.",
)
@option(
    "--jobs",
    group="Output",
    common=False,
    type=click.IntRange(min=1),
    metavar="N",
    help="For --targets: how many are compiled at a time, each in a process.  [default: the number of processors]",
)
@option(
    "--weights",
    group="Output",
    type=click.Choice(["embedded", "separate"]),
    help="Where the constants are: in the library, or in a file next to it.  [default: embedded]",
)
@option(
    "--encrypt",
    group="Output",
    common=False,
    type=click.Path(path_type=Path),
    metavar="KEYFILE",
    help="Encrypt the constants, in a file next to the library, with the 32 bytes of this file, which are needed to "
    "load the library. openssl rand -out KEYFILE 32 creates them; 16 bytes will do for microcontrollers and C source.",
)
@option(
    "--weights-version",
    group="Output",
    common=False,
    type=click.IntRange(0, (1 << 32) - 1),
    metavar="N",
    help="For --encrypt on microcontrollers and in C source: a number by which programs may refuse older weights.  "
    "[default: 0]",
)
@option(
    "--name",
    group="Output",
    common=False,
    metavar="NAME",
    help="The prefix of the C functions, NAME_create and so on, so that several networks can be linked into one "
    "program.  [default: nnefc]",
)
@option(
    "--cc",
    group="Output",
    common=False,
    metavar="COMMAND",
    help="A compiler for the target with GCC's options, in place of zig.  [default: zig, or "
    "the system's cc if ziglang is not installed]",
)
@option(
    "--emit",
    group="Output",
    common=False,
    type=click.Choice(["c", "llvm-ir", "asm", "cuda"]),
    help="Write the network's code as text instead of a library: C99 for any C compiler, or for a microcontroller that "
    "-t names; a file for each LLVM module; or CUDA source.",
)
@compiler_options(CompileKeywords.__annotations__)
@option(
    "--print-passes",
    group="Debugging",
    common=False,
    is_flag=True,
    help="Print the passes that run for the target and the other options, and compile nothing; MODEL and -o are not "
    "needed.",
)
@option(
    "--time-passes",
    group="Debugging",
    common=False,
    is_flag=True,
    help="Print the processor time of each pass in the end, the slowest first.",
)
@option("-v", "--verbose", group="Debugging", is_flag=True, help="Print each phase, even if stderr is not a terminal.")
def compile_model(
    model: Path | None,
    output: Path | None,
    name: str | None,
    weights: str | None,
    encrypt: Path | None,
    weights_version: int | None,
    cc: str | None,
    emit: str | None,
    targets: list[str] | None,
    jobs: int | None,
    print_passes: bool,
    time_passes: bool,
    verbose: bool,
    **options: Any,
) -> None:
    """Compile MODEL (NNEF, ONNX, TFLite or PNNX) to one self-contained library."""
    keywords = given(options)
    if print_passes:
        from nnefc.cli.passes import pass_lines
        from nnefc.support.minimal_tvm import import_tvm

        import_tvm()
        click.echo("\n".join(pass_lines(keywords)))
        return
    model, output = needed("model", model), needed("output", output)
    form = given({"name": name, "weights": weights, "encrypt": encrypt, "weights_version": weights_version, "cc": cc})
    if targets is None and (emit == "c" or (emit is None and output.suffix == ".c")):
        if cc is not None:
            raise click.UsageError("--cc is an option for libraries: it cannot be used for C source")
        emit = None
        check_c_source(output, keywords, name)
    if emit is not None and form:
        flag = next(iter(form)).replace("_", "-")
        raise click.UsageError(f"--{flag} is an option for libraries: it cannot be used with --emit")
    if jobs is not None and targets is None:
        raise click.UsageError("--jobs is for --targets: one target is one job")
    if targets is not None:
        for other in ("target", "dump", "dump_after", "time_passes"):
            if other in keywords or (other == "time_passes" and time_passes):
                flag = other.replace("_", "-")
                raise click.UsageError(f"--{flag} is for one target: it cannot be used with --targets")
        if emit is not None:
            raise click.UsageError("--emit is for one target: it cannot be used with --targets")
        compile_targets(model, output, targets, jobs, form, keywords)
        return
    if emit is None:
        check_writable(output)

    from nnefc.support.minimal_tvm import import_tvm

    with without_collections():
        import_tvm()
        from nnefc.driver.compile import compile
        from nnefc.driver.progress import Silent
        from nnefc.driver.terminal_progress import command_progress
        from nnefc.passes.times import PassTimes

    phases = command_progress(verbose)
    progress = phases or Silent()
    if emit is None:
        check_form(output, keywords.get("target", "llvm"), name, cc)
    times = PassTimes() if time_passes else None
    artifact = compile(model, progress=progress, observers=[] if times is None else [times], **keywords)
    with progress.phase("link" if emit is None else "emit"):
        if emit is None:
            artifact.export(output, **form)
        else:
            artifact.emit(emit, output)
    if times is not None:
        click.echo(times.table())
    if verbose:
        from nnefc.cli.tables import interface

        click.echo("\n".join(interface(artifact.inputs, artifact.outputs)), err=True)
        if (summary := artifact.code.summary()) is not None:
            click.echo(summary, err=True)
        if artifact.checks is not None:
            proved, checked = artifact.checks.proved, artifact.checks.checked
            click.echo(f"checks {checked:,} of {proved + checked:,} accesses, the others are proved", err=True)
    if phases is not None:
        from nnefc.cli.tables import trial_lines

        separate = "encrypt" in form or weights == "separate"
        lines = [
            *trial_lines(artifact.trials),
            *closing_lines(output, artifact, phases.seconds, separate=separate, name=name),
        ]
        click.echo("\n".join(lines), err=True)


def closing_lines(
    output: Path, artifact: Artifact, seconds: float, *, separate: bool, name: str | None = None
) -> list[str]:
    """Return the last lines of a compilation: what was written, its size, dynamic dimensions, and how to run it.

    Args:
        output: the file or folder.
        artifact: the compiled network.
        seconds: that the compilation took.
        separate: whether the constants are in a file of their own.
        name: the prefix of the functions' names, if the user has set it.
    """
    from nnefc.cli.dynamic_dims import range_text
    from nnefc.cli.tables import size_line
    from nnefc.targets.link.system_compiler import is_this_machine

    lines = [size_line(output, artifact.description, seconds, separate=separate)]
    if artifact.description.dimensions:
        lines.append(f"dynamic: {', '.join(map(range_text, artifact.description.dimensions))}")
    if output.suffix in (".so", ".dylib", ".dll"):
        here = is_this_machine(artifact.target.zig_target)
        lines.append(f"run it{'' if here else ', on its target'}: nnefc run {shlex.quote(str(output))} --random 0")
    elif output.suffix in (".a", ".o", ".c"):
        from nnefc.targets.link.generated_c import prefix_of

        own = prefix_of(output) if output.suffix == ".c" else artifact.description.prefix
        header = output.with_name(f"{name or own}.h")
        lines.append(f"call it from C: {header} declares its functions")
    if not artifact.target.host.hosted:
        lines.append(arena_line(artifact))
    return lines


def arena_line(artifact: Artifact) -> str:
    """Return a line about the memory of a run without an operating system, and the lower bound of any memory plan."""
    from nnefc.targets.description.freestanding_source import arena_bytes

    bound = artifact.lower_bound_bytes + artifact.description.state_bytes
    return f"arena {arena_bytes(artifact.description):,} bytes; the tensors of one step have {bound:,}"


def needed(name: str, value: Path | None) -> Path:
    """Return the value of a parameter that is required except with `--print-passes`.

    Raises:
        click.MissingParameter: the parameter is missing.
    """
    context = click.get_current_context()
    if value is None:
        raise click.MissingParameter(
            ctx=context, param=next(each for each in context.command.params if each.name == name)
        )
    return value


def check_writable(output: Path) -> None:
    """Check, before minutes of work, that an output file can be written and is not a device.

    Raises:
        CompileError: it cannot be written.
    """
    if not output.parent.is_dir():
        raise CompileError(
            f"cannot write {output}: there is no folder {output.parent}",
            hint=f"make it first: mkdir -p {output.parent}",
        )
    if output.exists() and not output.is_file():
        raise CompileError(
            f"cannot write {output}: it exists and is not a regular file", hint="give the name of a file"
        )
    from nnefc.support.output_files import scratch_next_to

    with scratch_next_to(output):  # which fails where nothing can be written
        pass


def check_c_source(output: Path, keywords: dict[str, Any], name: str | None) -> None:
    """Check, before any work, that the output has the suffix of C source, and set the target to `generic-c`.

    Raises:
        CompileError: it has another suffix, or another target is given.
    """
    from nnefc.support.minimal_tvm import import_tvm

    import_tvm()
    from nnefc.targets.description.library import check_prefix
    from nnefc.targets.link.generated_c import check_c_output
    from nnefc.targets.machine.cpu.c_source import c_target_of

    keywords["target"] = c_target_of(keywords.get("target"))
    check_c_output(output, keywords["target"])
    if name is not None:
        check_prefix(name)


def check_form(output: Path, target: str, name: str | None, cc: str | None) -> None:
    """Check, before minutes of work, that the target has files of the output's kind, that it uses a C compiler if `cc`
    is given, and that C accepts the name.

    Raises:
        CompileError: one of these is not so.
    """
    from nnefc.targets.description.library import check_prefix
    from nnefc.targets.link.compilers import check_compiler
    from nnefc.targets.link.outputs import check_output
    from nnefc.targets.machine.any_target import parse_any_target

    machine = parse_any_target(target)
    zig_target = machine.zig_target
    if machine.host.c_source:
        check_c_source(output, {"target": target}, name)
        return
    check_output(output, zig_target)
    check_compiler(zig_target, cc)
    if name is not None:
        check_prefix(name)
