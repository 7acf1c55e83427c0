"""Where many objects are made that stay, Python searches for no cycles among them, then or at once afterwards."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc
from nnefc.support.garbage_collection import without_collections

searches = []
gc.callbacks.append(lambda phase, info: searches.append(phase))
kept = [{}]
with without_collections():
    made = [[] for _ in range(100_000)]
    assert not gc.isenabled()
made.append([])
assert gc.isenabled() and not searches and gc.get_count()[0] < 100 and not gc.get_freeze_count()
assert {id(made), id(kept)} <= {id(each) for each in gc.get_objects(generation=2)}

gc.freeze()  # a program may keep objects apart from all searches
with without_collections():
    pass
assert gc.get_freeze_count() > 100_000

gc.disable()
with without_collections():
    pass
assert not gc.isenabled()
"""


def test_no_search_visits_the_objects_that_were_made_meanwhile() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
