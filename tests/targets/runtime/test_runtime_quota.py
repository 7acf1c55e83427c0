"""The number of workers under the quotas of containers: control groups as files in a folder."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest
from runtime_samples import ZIG_CC

from nnefc.targets.link.toolchain import RUNTIME

SYSTEM = RUNTIME / "machine" / "system.c"  # whose threads processors.c starts

pytestmark = pytest.mark.skipif(platform.system() != "Linux", reason="needs: Linux")


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The part of the runtime that counts processors, which reads `own` and `groups` in its folder."""
    folder = tmp_path_factory.mktemp("quota")
    library = folder / "processors.so"
    positions = [f'-DNNEFC_OWN_GROUPS="{folder / "own"}"', f'-DNNEFC_GROUPS="{folder / "groups"}"']
    source = folder / "all.c"
    source.write_text(
        "#define _GNU_SOURCE\n#include <sched.h>\n#undef CPU_COUNT_S\n"
        "#define CPU_COUNT_S(bytes, set) 1000\n"  # as if the machine had so many processors
        f'#include "{RUNTIME / "threads" / "processors.c"}"\n'
    )
    command = [*ZIG_CC, "-shared", "-fPIC", f"-I{RUNTIME}"]
    subprocess.run([*command, *positions, str(source), str(SYSTEM), "-o", str(library)], check=True)
    return library


def workers(counting: Path, own_groups: str, files: dict[str, str]) -> int:
    """Returns the count where `own_groups` is /proc/self/cgroup and `files` are in /sys/fs/cgroup."""
    shutil.rmtree(counting.parent / "groups", ignore_errors=True)
    for name, text in files.items():
        path = counting.parent / "groups" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (counting.parent / "own").write_text(own_groups)
    count = ctypes.CDLL(str(counting)).nnefc_processor_count
    count.restype = ctypes.c_uint32
    return int(count())


@pytest.mark.parametrize(
    ("own_groups", "files", "expected"),
    [
        pytest.param("0::/\n", {"cpu.max": "200000 100000\n"}, 2, id="the container sees itself as the root"),
        pytest.param("0::/\n", {"cpu.max": "150000 100000\n"}, 2, id="a part of a processor counts as one"),
        pytest.param("0::/\n", {"cpu.max": "10000 100000\n"}, 1, id="at least one"),
        pytest.param("0::/\n", {"cpu.max": "max 100000\n"}, 1000, id="no quota"),
        pytest.param(
            "0::/a/b\n", {"a/b/cpu.max": "800000 100000\n", "a/cpu.max": "300000 100000\n"}, 3, id="a parent's"
        ),
        pytest.param("0::/a b\n", {"a b/cpu.max": "500000 100000\n"}, 5, id="a name with a space"),
        pytest.param(
            "5:memory:/x\n4:cpu,cpuacct:/x\n",
            {"cpu/x/cpu.cfs_quota_us": "400000\n", "cpu/x/cpu.cfs_period_us": "100000\n"},
            4,
            id="version 1",
        ),
        pytest.param(
            "4:cpuacct,cpu:/docker/abc\n0::/\n",
            {"cpu/cpu.cfs_quota_us": "700000\n", "cpu/cpu.cfs_period_us": "100000\n"},
            7,
            id="version 1 whose path is the host's",
        ),
        pytest.param(
            "4:cpu:/\n",
            {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"},
            1000,
            id="version 1 without a quota",
        ),
        pytest.param(
            "4:cpuset:/\n",
            {"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "100000\n"},
            1000,
            id="another controller whose name begins alike",
        ),
        pytest.param("nonsense\n:\n::\n\n", {"cpu.max": "100000 0\n"}, 1000, id="nonsense"),
        pytest.param("0::/" + "x" * 5000 + "\n", {}, 1000, id="a path longer than paths can be"),
    ],
)
def test_quotas_limit_the_number_of_workers(
    own_groups: str, files: dict[str, str], expected: int, counting: Path
) -> None:
    assert workers(counting, own_groups, files) == expected


def test_without_control_groups_the_affinity_counts(tmp_path: Path) -> None:
    """In a library of its own: with the machine's number of processors."""
    source = f'"{RUNTIME / "threads" / "processors.c"}"'
    library = tmp_path / "processors.so"
    (tmp_path / "all.c").write_text(f"#include {source}\n")
    command = [*ZIG_CC, "-shared", "-fPIC", f"-I{RUNTIME}"]
    nowhere = [f'-DNNEFC_OWN_GROUPS="{tmp_path / "none"}"']
    subprocess.run([*command, *nowhere, str(tmp_path / "all.c"), str(SYSTEM), "-o", str(library)], check=True)
    assert ctypes.CDLL(str(library)).nnefc_processor_count() == len(os.sched_getaffinity(0))
