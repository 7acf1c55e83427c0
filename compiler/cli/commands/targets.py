"""`nnefc targets`: lists the named target machines."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import click

from nnefc.cli.options import known_targets

if TYPE_CHECKING:
    from nnefc.targets.machine.target_rows import Row

__all__ = ["list_targets"]

_WIDTH = 80


@click.command("targets")
@click.argument("names", metavar="[NAME]...", nargs=-1, shell_complete=known_targets)
def list_targets(names: tuple[str, ...]) -> None:
    """List the targets that have a name; of those that are given, all that is known.

    --target also takes LLVM's name of a processor, a triple such as "llvm -mtriple=aarch64-linux-gnu
    -mcpu=cortex-a72", and the name of a JSON file.
    """
    from nnefc.targets.machine.target_rows import target_rows

    rows = {row.name: row for row in target_rows()}
    if unknown := [name for name in names if name not in rows]:
        raise click.UsageError(f"there is no target named '{unknown[0]}'; nnefc targets lists them")
    if names:
        click.echo("\n\n".join(_described(rows[name]) for name in dict.fromkeys(names)))
        return
    width = max(map(len, rows)) + 2
    for row in rows.values():
        click.echo(_hanging(row.name, row.about, width))
    click.echo("\nnnefc targets NAME says what a target needs, and how it is tested.")


def _described(row: Row) -> str:
    facts = {
        "triple": row.triple,
        "vectors": row.vectors,
        "checked at run time": row.features,
        "tested": row.proof,
    }
    width = max(map(len, facts)) + 4
    return "\n".join(
        [_hanging(f"{row.name}:", row.about, len(row.name) + 2)]
        + [_hanging(f"  {name}", value, width) for name, value in facts.items()]
    )


def _hanging(label: str, text: str, indent: int) -> str:
    """Return a label and a text next to it, wrapped to 80 columns."""
    lines = textwrap.wrap(text, _WIDTH - indent, break_on_hyphens=False) or [""]
    return "\n".join([f"{label:{indent}}{lines[0]}", *(" " * indent + line for line in lines[1:])]).rstrip()
