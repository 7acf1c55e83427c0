"""Pages of states that several sequences share, while calls of the system fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from runtime_samples import C_SOURCES, ZIG_CC

from nnefc.targets.link.toolchain import RUNTIME


@pytest.mark.skipif(sys.platform != "linux", reason="pages are shared with Linux alone")
def test_copies_have_the_bytes_of_what_they_are_copied_from(tmp_path: Path) -> None:
    program = tmp_path / "shared_pages"
    sources = [C_SOURCES / "shared_pages.c", RUNTIME / "machine" / "system.c"]
    subprocess.run([*ZIG_CC, f"-I{RUNTIME}", *map(str, sources), "-lpthread", "-o", str(program)], check=True)
    for failures in (0, 30, 300):
        done = subprocess.run([program, str(failures)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
