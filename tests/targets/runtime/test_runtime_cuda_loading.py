"""Machines, drivers and processes that cannot run a library for GPUs, and what is left of it there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cuda_network import NO_DEVICE, OK, Network
from cuda_samples import cuda_library
from fake_driver import FakeDriver, driver_folder
from runtime_samples import sample_library


@pytest.mark.parametrize(
    ("machine", "device", "text"),
    [
        ({"devices": 1}, 1, "device is 1, but there are 1 GPUs, numbered from 0"),
        ({"devices": 2}, -1, "device is -1, but there are 2 GPUs, numbered from 0"),
        (
            {"capability": (7, 5)},
            0,
            "compiled for sm_80, sm_90, but Emulated GPU has compute capability 7.5: compile the model for -arch=sm_75",
        ),
        (
            {"capability": (8, 7)},  # a Tegra's code is its own
            0,
            "compiled for sm_80, sm_90, but Emulated GPU has compute capability 8.7: compile the model for -arch=sm_87",
        ),
        ({"devices": 0}, 0, "starting NVIDIA's driver failed with 100, CUDA_ERROR_NO_DEVICE: a description"),
    ],
)
def test_machines_that_cannot_run_it(
    driver: FakeDriver, network: Network, machine: dict[str, object], device: int, text: str
) -> None:
    driver.machine(**machine)
    status, session = network.create(device=device)
    assert (status, session.value, network.error(None)) == (NO_DEVICE, None, text)


@pytest.mark.parametrize("capability", [(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 1)])
def test_newer_gpus_run_it(driver: FakeDriver, network: Network, capability: tuple[int, int]) -> None:
    driver.machine(capability=capability)
    session = network.session()
    assert network.run(session) == OK
    assert network.dll.nnefc_destroy(session) == OK


@pytest.mark.parametrize("result", [209, 222])
def test_a_driver_that_does_not_take_the_code(driver: FakeDriver, network: Network, result: int) -> None:
    driver.machine(version=12020)
    driver.fail(1, result, "cuModuleLoadData")
    assert network.create()[0] == NO_DEVICE
    assert network.error(None).endswith(
        "the code is for sm_80, sm_90, the driver for CUDA 12.2: a newer driver may take it"
    )


LOAD = """
import sys
import nnefc
try:
    nnefc.load(sys.argv[1])
except nnefc.LoadError as error:
    print(error)
"""
LOAD_AGAIN = """
import sys
from pathlib import Path
import nnefc
pages = []
for _ in range(5):
    for _ in range(40):
        try:
            nnefc.load(sys.argv[1])
        except nnefc.LoadError:
            pass
    pages.append(int(Path("/proc/self/statm").read_text().split()[0]))
print(min(after - before for before, after in zip(pages, pages[1:])))
"""
LOAD_WITHOUT_COLLECTION = """
import gc
import sys
import nnefc
from nnefc.loader.session import Session
gc.disable()
try:
    nnefc.load(sys.argv[1])
except nnefc.LoadError:
    pass
print(sum(isinstance(value, (nnefc.Model, Session)) for value in gc.get_objects()))
"""


def load_with(folder: Path, program: str = LOAD) -> str:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    command = [sys.executable, "-c", program, str(cuda_library())]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_machine_without_a_driver(tmp_path: Path) -> None:
    # a file of that name comes before a driver that this machine may have
    (tmp_path / "libcuda.so.1").write_bytes(b"")
    text = load_with(tmp_path)
    assert "no device: NVIDIA's driver cannot be opened (" in text
    assert "install it, or run on a machine with a GPU of NVIDIA's" in text


@pytest.mark.skipif(sys.platform != "linux", reason="needs: /proc")
def test_nothing_is_left_of_loads_without_a_driver(tmp_path: Path) -> None:
    """A leak grows with every forty loads; Python's allocator takes an arena of 256 pages with some of them only."""
    (tmp_path / "libcuda.so.1").write_bytes(b"")
    assert int(load_with(tmp_path, LOAD_AGAIN)) < 20


def test_a_load_that_fails_leaves_no_cycle_of_objects(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_bytes(b"")
    assert int(load_with(tmp_path, LOAD_WITHOUT_COLLECTION)) == 0


def test_a_driver_that_lacks_a_function(tmp_path: Path) -> None:
    from runtime_samples import shared_library_of

    old = shared_library_of("int cuGetErrorName(void) { return 0; }", tmp_path / "old.so")
    old.rename(tmp_path / "libcuda.so.1")
    assert "no device: NVIDIA's driver is too old: it has no cuGetErrorString; CUDA 11.4 was" in load_with(tmp_path)


FORK = """
import os, sys
import numpy as np
import nnefc
from fake_driver import FakeDriver

model = nnefc.load(sys.argv[1])
x = np.ones(1024, np.float32)
model(x)
def says_so(call):
    try:
        call()
    except (nnefc.RunError, nnefc.LoadError) as error:
        assert "this process was forked from one that used the GPU" in str(error), error
    else:
        raise AssertionError("it works")
child = os.fork()
if child == 0:
    try:
        says_so(lambda: model(x))
        says_so(model.reset)
        says_so(lambda: model.session())
        model.close()
    except BaseException as error:
        print(repr(error), flush=True)
        os._exit(1)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
model(x)
model.close()
"""


def test_a_forked_child_is_reported(driver: FakeDriver) -> None:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(driver_folder()), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", FORK, str(cuda_library())]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_libraries_for_processors_have_nothing_of_cuda() -> None:
    on_host, cuda = sample_library().read_bytes(), cuda_library().read_bytes()
    for text in (b"libcuda", b"cuInit", b"nnefc_cuda", b"nnefc_enqueue", b"dlopen"):
        assert text not in on_host
    assert b"libcuda.so.1" in cuda and b"nnefc_enqueue" in cuda
    assert len(cuda) > len(on_host)


def test_the_description_tells_the_device() -> None:
    import nnefc

    assert nnefc.load(sample_library()).device == "cpu"
