"""Tests of caches of files: what is found, what is removed, several processes."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from nnefc.support.diagnostics import CompileError
from nnefc.support.file_cache import FileCache


def writes(content: bytes):  # type: ignore[no-untyped-def]
    return lambda path: path.write_bytes(content)


def names(cache: FileCache) -> list[str]:
    return [file.path.name for file in cache.files()]


def test_files_are_found_by_name(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "new" / "folder", 100)
    assert cache.find("a") is None and cache.files() == [] and cache.clear() == []
    made = cache.add("a", writes(b"one"))
    assert made == cache.find("a") == tmp_path / "new" / "folder" / "a"
    cache.add("a", writes(b"other"))
    assert made.read_bytes() == b"other" and cache.find("a") == made
    assert [(file.path, file.bytes) for file in cache.files()] == [(made, 5)]


@pytest.mark.parametrize("content", [b"onf", b"on", b"one more", b""])
def test_changed_files_are_not_found(tmp_path: Path, content: bytes) -> None:
    cache = FileCache(tmp_path, 100)
    cache.add("a", writes(b"one")).write_bytes(content)
    assert cache.find("a") is None
    assert cache.add("a", writes(b"one")) == cache.find("a")


def test_contents_are_added_together(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "new", 10)
    cache.add("z", writes(b"123"))
    cache.add_contents({})
    cache.add_contents({"a": b"1234", "b": b"56789"})
    assert cache.read("a") == b"1234" and cache.read("b") == b"56789" and cache.read("z") is None
    (tmp_path / "new" / "a").write_bytes(b"1235")
    assert cache.read("a") is None


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"3 0"])
def test_files_with_changed_sums_are_not_found(tmp_path: Path, content: bytes) -> None:
    cache = FileCache(tmp_path, 100)
    cache.add("a", writes(b"one"))
    (tmp_path / "a.sum").write_bytes(content)
    assert cache.find("a") is None


def test_the_least_recently_used_files_are_removed(tmp_path: Path) -> None:
    cache = FileCache(tmp_path, 10)
    for age, name in ((30, "a"), (20, "b"), (10, "c")):
        path = cache.add(name, writes(b"123"))
        used = path.with_name(f"{name}.sum").stat().st_mtime - age
        os.utime(path.with_name(f"{name}.sum"), (used, used))
    assert names(cache) == ["a", "b", "c"]
    assert cache.find("a") is not None
    assert names(cache) == ["b", "c", "a"]
    cache.add("d", writes(b"1234"))
    assert names(cache) == ["a", "d"] or names(cache) == ["c", "a", "d"]
    assert sum(file.bytes for file in cache.files()) <= 10
    cache.add("large", writes(bytes(100)))  # which is used now, whatever its size
    assert names(cache) == ["large"]


def test_files_are_listed_when_they_exceed_the_limit_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listed = []
    files = FileCache.files
    monkeypatch.setattr(FileCache, "files", lambda cache: listed.append(cache) or files(cache))
    cache = FileCache(tmp_path, 3200)
    for number in range(12):  # removing leaves a sixteenth free
        cache.add(f"a{number}", writes(bytes(320)))
        assert len(listed) == (1 if number < 10 else 2)
    assert sum(file.bytes for file in files(cache)) <= 3200
    total = tmp_path / "total-bytes"
    for content in (b"", b"x", b"9999\n", bytes(1 << 16)):  # unknown, or too many bytes
        total.write_bytes(content)
        listed.clear()
        cache.add_contents({"b": b"1"})
        assert len(listed) == (content != b"")
    assert int(total.read_text()) == sum(file.bytes for file in files(cache))


def test_other_files_stay(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    cache = FileCache(tmp_path, 1)
    cache.add("a", writes(b"123"))
    assert [file.path.name for file in cache.clear()] == ["a"]
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_failure_leaves_nothing(tmp_path: Path) -> None:
    def fails(path: Path) -> None:
        path.write_bytes(b"half")
        raise RuntimeError

    with pytest.raises(RuntimeError):
        FileCache(tmp_path / "c", 10).add("a", fails)
    assert list((tmp_path / "c").iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(CompileError, match="cannot write"):
        FileCache(tmp_path / "file" / "folder", 10).add("a", writes(b"1"))


def test_caches_are_shared(tmp_path: Path) -> None:
    """Writers and readers of the same names at the same time find whole files or none."""
    errors: list[object] = []

    def works(seed: int) -> None:
        cache = FileCache(tmp_path, 40_000)
        for number in range(40):
            name = str((seed + number) % 7)
            try:
                cache.add(name, writes(name.encode() * 10_000))
                found = cache.find(name)
                if found is not None and found.read_bytes() != name.encode() * 10_000:
                    errors.append(name)
            except FileNotFoundError:
                pass  # removed between the two steps, for the limit
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=works, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
