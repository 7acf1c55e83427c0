"""`nnefc targets`: the machines that have names."""

from __future__ import annotations

import click

from nnefc.cli.text import columns

__all__ = ["list_targets"]


@click.command("targets")
def list_targets() -> None:
    """List the targets that have a name.

    --target also takes LLVM's name of a processor, a triple such as "llvm -mtriple=aarch64-linux-gnu
    -mcpu=cortex-a72", and the name of a JSON file.
    """
    from nnefc.targets.machine.documentation import target_rows

    rows = [(row.name, row.triple, row.vectors, row.features, row.proof, row.about) for row in target_rows()]
    head = ("name", "triple", "vectors", "checked at run time", "tested", "machines")
    click.echo("\n".join(columns([head, *rows])))
