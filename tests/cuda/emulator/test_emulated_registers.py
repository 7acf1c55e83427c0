"""Registers that warpgroups give back and take on the emulator (`setmaxnreg`): undefined and endless requests."""

from __future__ import annotations

import numpy as np
import pytest
from emulate import EmulatedKernels, EmulationError, emulate

# A block of 384 threads begins with 168 registers each. The last warpgroup gives some back, which the others take.
SOURCE = r"""
extern "C" __global__ void __launch_bounds__(384) roles(int* __restrict__ out, int mistake) {
  int n = ((int)threadIdx.x);
  if (n < 256) {
    if (mistake == 1) asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    else if (mistake == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
    else if (mistake != 3 || n % 128 != 7) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    out[n] = n;
  } else {
    if (mistake == 4) asm volatile("setmaxnreg.dec.sync.aligned.u32 44;");
    else if (mistake == 5) asm volatile("setmaxnreg.dec.sync.aligned.u32 176;");
    else asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    out[n] = -n;
  }
}
"""
MISTAKES = {
    "more than there are": (
        1,
        r"waits in setmaxnreg \(line \d+\) for 72 registers a thread; 7168 of the block are left",
    ),
    "fewer by a request for more": (2, "takes registers with dec, or gives them back with inc"),
    "a thread that does not take part": (3, "for threads of it that never arrive"),
    "a number that there is not": (4, "of a number of registers that there is not"),
    "more by giving back": (5, "takes registers with dec, or gives them back with inc"),
}


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> EmulatedKernels:
    return emulate(SOURCE, tmp_path_factory.mktemp("registers"))


@pytest.mark.parametrize("order", range(3))
def test_registers_go_from_one_warpgroup_to_the_others(kernels: EmulatedKernels, order: int) -> None:
    out = np.zeros(384, np.int32)
    kernels.launch_in_orders("roles", [out, 0], (2, 1, 1), (384, 1, 1), 0, orders=(order,))
    assert out.tolist() == [*range(256), *range(-256, -384, -1)]


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_found(kernels: EmulatedKernels, mistake: str) -> None:
    number, message = MISTAKES[mistake]
    with pytest.raises(EmulationError, match=message):
        kernels.launch_in_orders("roles", [np.zeros(384, np.int32), number], (1, 1, 1), (384, 1, 1), 0)


def test_threads_that_are_no_whole_warpgroup_cannot(tmp_path_factory: pytest.TempPathFactory) -> None:
    made = emulate(SOURCE.replace("n < 256", "n < 0"), tmp_path_factory.mktemp("part"))
    with pytest.raises(EmulationError, match="setmaxnreg of threads that are no whole warpgroup"):
        made.launch_in_orders("roles", [np.zeros(384, np.int32), 0], (1, 1, 1), (96, 1, 1), 0)
