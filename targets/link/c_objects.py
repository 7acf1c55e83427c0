"""Compiles users' C files to objects for the network's machine, while the network is compiled, so that errors show
early.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from nnefc.ir.extern_c import CSource
from nnefc.support.diagnostics import CompileError
from nnefc.support.output_files import temporary_folder
from nnefc.targets.link.compilers import compiler_for
from nnefc.targets.link.linking import LINKING
from nnefc.targets.link.zig import run_compiler
from nnefc.targets.machine.cpu.architecture import architecture_of
from nnefc.targets.machine.cpu.target import Target

__all__ = ["c_objects"]

_FLAGS = ("-std=c11", "-O3", "-g0", "-fvisibility=hidden", "-fno-sanitize=all", "-Wall", "-fno-caret-diagnostics")
_LONGEST = 40
"""Maximum lines of a compiler's messages that are shown."""


def c_objects(files: Mapping[CSource, str], target: Target) -> tuple[bytes, ...]:
    """Return the objects of C files.

    Args:
        files: the assembled texts, by the user's source.
        target: the processor, whose instructions may be used.

    Raises:
        CompileError: a file has errors, there is no compiler for the target, or results must be reproducible.
    """
    if not files:
        return ()
    if target.reproducible:
        raise CompileError(
            f"results of C are not reproducible: the network has an operator of {next(iter(files)).name}",
            hint="compile without --reproducible, or write the operator with TVM: see docs/how-to/custom-operator.md",
        )
    features = architecture_of(target.triple).known_to_llvm(target.features)
    compiler = compiler_for(target.zig_target, _cpu(features))
    with temporary_folder("nnefc-c-") as folder:
        made = []
        for number, (source, text) in enumerate(files.items()):
            file, result = folder / f"source{number}.c", folder / f"source{number}.o"
            file.write_text(text, encoding="utf-8")
            flags = [*_FLAGS, *LINKING[target.format].compile_flags]
            flags += [f"-I{source.folder}"] if source.folder else []
            try:
                run_compiler(
                    [*compiler, *flags, "-c", str(file), "-o", str(result)], folder, "the compiler of C failed"
                )
            except CompileError as error:
                raise _of_user(source, error) from None
            made.append(result.read_bytes())
        return tuple(made)


def _cpu(features: Iterable[str]) -> str:
    """Return zig's name of the oldest processor of the architecture with these LLVM features."""
    return "baseline" + "".join(f"+{re.sub('[-.]', '_', feature)}" for feature in features)


def _of_user(source: CSource, error: CompileError) -> CompileError:
    lines = error.message.splitlines()[1:]
    shown = "\n".join(lines[:_LONGEST]) or error.message
    return CompileError(
        f"the C of an operator, {source.name}, does not compile:\n{shown}",
        hint="a function gets pointers to the operands, const, then pointers to the results, then int64_t and double "
        "numbers, and returns an int32_t: see docs/how-to/custom-operator.md",
    )
