"""Versions of distributions, by the names of their folders: those that Python's `importlib.metadata` finds."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

import pytest

from nnefc.support.distribution import versions_of

PACKAGES = ("apache-tvm", "numpy", "onnx", "ziglang")


def test_versions_are_those_that_python_finds() -> None:
    assert versions_of([*PACKAGES, "no-such-package"]) == {name: version(name) for name in PACKAGES}


def test_the_first_folder_counts_and_others_may_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [tmp_path / "archive.zip", tmp_path / "one", tmp_path / "two"]
    for folder, number in zip(folders[1:], ("1.5", "2.0+local"), strict=True):
        (folder / f"Some_Package-{number}.dist-info").mkdir(parents=True)
    folders[0].write_bytes(b"PK")
    monkeypatch.setattr("sys.path", [*map(str, folders), str(tmp_path / "none")])
    assert versions_of(["some-package", "some.other"]) == {"some-package": "1.5"}
