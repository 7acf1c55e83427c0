"""Writes the documentation page about targets: `python -m nnefc.targets.machine FILE`."""

import sys
from pathlib import Path

from nnefc.targets.machine.documentation import targets_page

if len(sys.argv) != 2:
    sys.exit("usage: python -m nnefc.targets.machine FILE")
Path(sys.argv[1]).write_text(targets_page(), encoding="utf-8")
