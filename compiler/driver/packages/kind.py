"""Declares what a kind of package is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from nnefc.driver.packages.files import Files
from nnefc.driver.packages.networks import Networks

__all__ = ["Form", "Kind"]


class Form(Enum):
    """How the files of a package are written."""

    FOLDER = "folder"
    ZIP = "zip archive"
    TAR = "tar archive"


@dataclass(frozen=True)
class Kind:
    """A kind of package.

    Attributes:
        option: its option on the command line, without the hyphens.
        about: what it is, for the help.
        output: a regular expression for the name of what is written; its groups `name` and `version` say so of the
            network, where they are.
        example: such a name.
        form: how it is written; a name that ends with `.tgz` asks for an archive in place of a folder.
        targets: those that it has by default.
        files: its files, from the networks.
    """

    option: str
    about: str
    output: str
    example: str
    form: Form
    targets: tuple[str, ...]
    files: Callable[[Networks], Files]
