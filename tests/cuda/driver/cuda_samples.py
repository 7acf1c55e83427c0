"""Libraries for tests of the runtime for GPUs: the network of network.c, linked as a compiled one is."""

from __future__ import annotations

import functools
import subprocess
from dataclasses import replace
from pathlib import Path

from fake_driver import HERE
from runtime_samples import CONSTANTS, SAMPLE, ZIG_CC, ZIG_TARGET, folder

from nnefc.targets.link.constants import Constants
from nnefc.targets.link.outputs import write_network
from nnefc.targets.link.toolchain import RUNTIME

CUDA_SAMPLE = replace(SAMPLE, device="cuda", workspace_bytes=8208, scratch_bytes=0)

_ZIG = [*ZIG_CC, "-fPIC", "-fno-sanitize=all"]


@functools.cache
def network_object(*flags: str) -> Path:
    """network.c as an object, compiled with flags such as -DLOOPS."""
    path = folder("cuda") / f"network{'-'.join(flags)}.o"
    subprocess.run([*_ZIG, *flags, f"-I{RUNTIME}", "-c", str(HERE / "network.c"), "-o", str(path)], check=True)
    return path


@functools.cache
def sample_kernels() -> Path:
    """The network's kernels, for the fake driver."""
    path = folder("cuda") / "kernels.so"
    subprocess.run([*_ZIG, "-shared", str(HERE / "kernels.c"), "-o", str(path)], check=True)
    return path


@functools.cache
def cuda_library(*flags: str, weights: str = "embedded") -> Path:
    """The network as a shared library."""
    path = folder("cuda") / f"sample{'-'.join(flags)}-{weights}.so"
    constants = Constants.of(CONSTANTS)
    write_network([network_object(*flags)], constants, CUDA_SAMPLE, path, zig_target=ZIG_TARGET, weights=weights)
    return path
