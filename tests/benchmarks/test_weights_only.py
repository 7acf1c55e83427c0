"""How long the chain of products is that the speed of memory is measured by."""

import os
from pathlib import Path

import pytest
from weights_only import cache_bytes, pairs_of_matrices

GIGABYTE = 1 << 30


@pytest.mark.parametrize(
    ("cache", "memory", "pairs"),
    [
        (0, GIGABYTE, 3),
        (32 << 20, 23 * GIGABYTE, 3),
        (40 << 20, 23 * GIGABYTE, 4),
        (300 << 20, 64 * GIGABYTE, 28),
        (300 << 20, 8 * GIGABYTE, 12),  # a sixteenth of the memory
        (1 << 34, 1 << 50, 32),  # what a file may have
    ],
)
def test_a_chain_has_four_times_the_bytes_of_caches_if_memory_allows(cache: int, memory: int, pairs: int) -> None:
    assert pairs_of_matrices(cache, memory) == pairs


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="processors are numbered on Linux")
def test_caches_that_processors_share_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for processor, shared in ((0, "0-1"), (1, "0-1"), (2, "2-3")):
        for index, level in enumerate(("1", "2", "3")):
            folder = tmp_path / f"cpu{processor}" / "cache" / f"index{index}"
            folder.mkdir(parents=True)
            for name, text in (("level", level), ("size", f"{level}000K"), ("shared_cpu_list", shared)):
                (folder / name).write_text(f"{text}\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    assert [cache_bytes(threads, tmp_path) for threads in (1, 2, 3)] == [3000 << 10, 3000 << 10, 6000 << 10]
