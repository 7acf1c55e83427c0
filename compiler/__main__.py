"""`python -m nnefc`, and the command `nnefc`."""

from __future__ import annotations

from nnefc.cli import main as command_line

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    command_line(prog_name="nnefc")


if __name__ == "__main__":
    main()
