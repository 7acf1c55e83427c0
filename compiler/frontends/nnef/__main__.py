"""Writes the documentation of the NNEF operations: `python -m nnefc.frontends.nnef FILE`."""

import sys
from pathlib import Path

from nnefc.frontends.nnef.documentation import operations_page

Path(sys.argv[1]).write_text(operations_page(), encoding="utf-8")
