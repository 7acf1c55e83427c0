"""`python -m nnefc`, and the command `nnefc`: the command line, or what is missing for it."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line, which comes with the compiler."""
    try:
        from nnefc.cli import main as command_line
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "nnefc":
            raise
        print(f"error: the command line comes with the compiler, and the module {error.name} is not installed\n"
              "hint: pip install 'nnefc[compiler]'", file=sys.stderr)  # fmt: skip
        sys.exit(1)
    command_line(prog_name="nnefc")


if __name__ == "__main__":
    main()
