"""`nnefc sign` and `nnefc verify`: sign libraries and verify signatures."""

from __future__ import annotations

from pathlib import Path

import click

__all__ = ["sign_library", "verify_library"]

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command("sign")
@click.argument("library", type=_FILE)
@click.option(
    "--key",
    type=_FILE,
    required=True,
    metavar="FILE.pem",
    help="The private key, Ed25519: openssl genpkey -algorithm ed25519 -out FILE.pem makes one.",
)
@click.option("--ask-password", is_flag=True, help="Ask for the password of the key's file.")
def sign_library(library: Path, key: Path, ask_password: bool) -> None:
    """Sign LIBRARY, and its weights file if it has one: writes LIBRARY.sig next to it."""
    from nnefc.loader.signature import sign_library as sign

    password = click.prompt("password", hide_input=True).encode() if ask_password else None
    click.echo(f"wrote {sign(library, key, password=password)}")


@click.command("verify")
@click.argument("library", type=_FILE)
@click.option("--key", type=_FILE, required=True, metavar="FILE.pem", help="The public key: openssl pkey -pubout.")
def verify_library(library: Path, key: Path) -> None:
    """Check LIBRARY, and its weights file, against the signature in LIBRARY.sig; the status is 1 if it does not fit."""
    from nnefc.loader.signature import check_signature

    check_signature(library, key)
    click.echo(f"{library} is as it was signed")
