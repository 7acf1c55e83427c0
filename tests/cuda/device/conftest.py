"""Tests that need a GPU, and processes without the stand-in for its driver: `test_on_device.py` starts them."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("NNEFC_TESTS_ON_GPU") else ["*"]
