"""Where many objects are made that stay, Python searches for no cycles among them; modules count as old at once."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc, sys
from nnefc.support.garbage_collection import age_modules, without_collections

searches = []
gc.callbacks.append(lambda phase, info: searches.append(phase))
age_modules()
with without_collections():
    made = [[] for _ in range(100_000)]
    assert not gc.isenabled()
    sys.modules["new"] = made
    age_modules()
made.append([])
assert gc.isenabled() and not searches and gc.get_count()[0] < 100 and not gc.get_freeze_count()

with without_collections():
    made = [[] for _ in range(100_000)]
    age_modules()  # no module is new: what is garbage of these is found at once
more = [[] for _ in range(10)]
assert searches

gc.freeze()
sys.modules["newer"] = made
age_modules()
assert gc.get_freeze_count() > 100_000

gc.disable()
with without_collections():
    pass
assert not gc.isenabled()
"""


def test_no_search_visits_modules_that_were_imported_meanwhile() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
