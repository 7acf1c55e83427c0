"""Write packaging/locked.txt: the packages that tests and releases install, by version and hash.

    make lock                                  # asks the index what it would install today
    make test LOCKED=1                         # installs exactly these: other files are refused

Of each package there is the hash of the file that is for this machine, so the list holds for 64-bit x86 with Linux and
the Python that made it. Without LOCKED=1 the versions are those that pyproject.toml allows, on any machine.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
LOCKED = ROOT / "packaging" / "locked.txt"
EXTRA = "dev"
"""What has all that tests, documentation and releases need."""


def lines(report: Mapping[str, Any]) -> list[str]:
    """A line for each package of pip's report but this one, in the form of requirements files."""
    made = []
    for element in report["install"]:
        name, version = element["metadata"]["name"].lower().replace("_", "-"), element["metadata"]["version"]
        if name == "nnefc":
            continue
        made.append(f"{name}=={version} --hash=sha256:{element['download_info']['archive_info']['hashes']['sha256']}")
    return sorted(made)


def text(report: Mapping[str, Any]) -> str:
    """The whole file."""
    where = f"Python {sys.version_info.major}.{sys.version_info.minor}, {platform.system()}, {platform.machine()}"
    return "\n".join([f"# What nnefc[{EXTRA}] installs: {where}. Written by make lock.", *lines(report), ""])


def main() -> None:
    """Ask pip, which installs nothing, and write the file."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--dry-run"]
        command += ["--ignore-installed", "--report", str(report), f"{ROOT}[{EXTRA}]"]
        subprocess.run(command, check=True)
        LOCKED.write_text(text(json.loads(report.read_text())), encoding="utf-8")


if __name__ == "__main__":
    main()
