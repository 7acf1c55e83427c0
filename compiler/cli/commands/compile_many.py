"""`nnefc compile --targets`: compiles a model to libraries for several targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nnefc.cli.errors import coloured, message_of
from nnefc.cli.tables import size_line
from nnefc.support.diagnostics import CompileError

if TYPE_CHECKING:
    from nnefc.driver.compile_many import Compiled

__all__ = ["compile_targets", "read_targets"]


def read_targets(context: click.Context, parameter: click.Parameter, value: str | None) -> list[str] | None:
    """Split targets at commas, except within the features after `-mattr=`. The callback of an option."""
    if value is None:
        return None
    found: list[str] = []
    for part in value.split(","):
        if found and part.startswith(("+", "-")):
            found[-1] += f",{part}"
        elif part.strip():
            found.append(part.strip())
    return found


def compile_targets(
    model: Path,
    folder: Path,
    targets: Sequence[str],
    jobs: int | None,
    form: Mapping[str, Any],
    keywords: Mapping[str, Any],
) -> None:
    """Compile for all targets, and print a line for each when it is done; exit with status 1 if one fails."""
    if folder.exists() and not folder.is_dir():
        raise CompileError(
            f"{folder} is a file", hint="with --targets, -o names a folder, with one in it for each target"
        )
    from nnefc.support.minimal_tvm import import_tvm

    import_tvm()
    from nnefc.driver.compile_many import Processes, compile_many
    from nnefc.loader.pool import usable_processors

    done = 0

    def print_result(result: Compiled) -> None:
        nonlocal done
        done += 1
        head = f"[{done}/{len(targets)}] {result.target}: "
        if result.error is not None:
            click.echo(f"{head}failed after {result.seconds:.1f} s", err=True)
            click.echo(coloured(message_of(result.error)), err=True)
        elif result.path is not None and result.description is not None:
            separate = "encrypt" in form or form.get("weights") == "separate"
            click.echo(head + size_line(result.path, result.description, result.seconds, separate=separate), err=True)

    with Processes(jobs or max(1, min(len(targets), len(usable_processors()))), import_tvm) as processes:
        results = compile_many(
            model, targets, folder, executor=processes, on_result=print_result, export=form, **keywords
        )
    failed = [target for target, result in results.items() if result.error is not None]
    if failed:
        click.echo(f"{len(targets) - len(failed)} of {len(targets)} compiled; not for {', '.join(failed)}", err=True)
        raise click.exceptions.Exit(1)
