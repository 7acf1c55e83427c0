"""The examples on clusters of three machines, of which one is lost in the middle of a job."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
from machines import Machine, machines
from test_engines import FOLDER, NEEDS, skip_without

import nnefc

ROWS = 364 * 4


@dataclass(frozen=True)
class Engine:
    """How a cluster of an engine is started, and the arguments of the example.

    Attributes:
        head: the command of the head, or scheduler, at an address.
        worker: that of a machine with two workers, at its own address, and at that of the head.
        cluster: the arguments of the example for the cluster with a head at an address.
        environment: of all processes.
        driver: of the example, by the address of the head's machine.
        ready, joined: what the head's machine prints when it takes workers, and a worker's when it has joined.
        mapped: what a worker has mapped once it has loaded the library.
    """

    head: Callable[[str], Sequence[object]]
    worker: Callable[[str, str], Sequence[object]]
    cluster: Callable[[str], Sequence[str]]
    ready: str
    joined: str
    environment: dict[str, str] = field(default_factory=dict)
    driver: Callable[[str], dict[str, str]] = lambda _address: {}
    mapped: str = "memfd:nnefc"


def _ray(*words: str) -> Sequence[str]:
    return [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--object-store-memory=80000000", *words]


def _spark(name: str, *words: str) -> Sequence[object]:
    import pyspark

    return [Path(pyspark.__file__).parent / "bin" / "spark-class", f"org.apache.spark.deploy.{name}", *words]


ENGINES = {
    "dask_array": Engine(
        lambda own: [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", own, "--no-dashboard"],
        lambda own, head: [
            *(sys.executable, "-m", "distributed.cli.dask_worker", f"tcp://{head}:8786", "--host", own),
            *("--nworkers", "2", "--nthreads", "1", "--no-dashboard"),
        ],
        lambda head: ["--scheduler", f"tcp://{head}:8786"],
        "Scheduler at:",
        "Registered to",
    ),
    **dict.fromkeys(
        ("ray_data", "ray_serve"),
        Engine(
            lambda own: _ray(
                "--head", f"--node-ip-address={own}", "--port=6379", "--num-cpus=0", "--include-dashboard=false"
            ),
            lambda own, head: _ray(f"--address={head}:6379", f"--node-ip-address={own}", "--num-cpus=2"),
            lambda head: ["--address", f"{head}:6379"],
            "Ray runtime started",
            "Ray runtime started",
            {
                "RAY_USAGE_STATS_ENABLED": "0",
                "RAY_raylet_start_wait_time_s": "150",
                "RAY_health_check_period_ms": "500",
                "RAY_health_check_failure_threshold": "3",
            },
        ),
    ),
    "spark_udf": Engine(
        lambda own: _spark("master.Master", "--host", own, "--port", "7077", "--webui-port", "0"),
        lambda own, head: _spark(
            *("worker.Worker", "--host", own, "--cores", "2", "--memory", "600m", "--webui-port", "0"),
            f"spark://{head}:7077",
        ),
        lambda head: ["--master", f"spark://{head}:7077"],
        "Starting Spark master at",
        "Successfully registered with master",
        {"PYSPARK_PYTHON": sys.executable, "SPARK_DAEMON_MEMORY": "256m"},
        lambda own: {
            "SPARK_LOCAL_IP": own,
            "PYSPARK_SUBMIT_ARGS": "--driver-memory 512m --executor-memory 512m pyspark-shell",
        },
        "/digits.so",
    ),
}


def wait_until(condition: Callable[[], bool], seconds: float, what: str, there: Sequence[Machine]) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"no {what} in {seconds} s\n" + "\n".join(machine.log() for machine in there)
        time.sleep(0.1)


def _have_mapped(there: Sequence[Machine], name: str) -> bool:
    return all(machine.has_mapped(name) for machine in there)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("clusters") / "digits.so"
    nnefc.compile(FOLDER.parent / "digits" / "model.nnef", shape={"image": ("1..64", 1, 8, 8)}).export(path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("program", ENGINES)
def test_a_machine_is_lost_in_the_middle_of_a_job(program: str, library: Path, tmp_path: Path) -> None:
    skip_without(*NEEDS[program])
    if program == "spark_udf" and not shutil.which("java"):
        pytest.skip("there is no Java")
    engine = ENGINES[program]
    environment = engine.environment | {"HOME": str(tmp_path), "SPARK_WORKER_DIR": str(tmp_path / "work")}
    with machines(3, tmp_path) as there:
        head, first, second = there
        head.start(engine.head(head.address), environment)
        wait_until(lambda: engine.ready in head.log(), 200, "head", there)
        for machine in (first, second):
            machine.start(engine.worker(machine.address, head.address), environment)
        wait_until(lambda: all(engine.joined in each.log() for each in (first, second)), 200, "cluster", there)
        command = [sys.executable, FOLDER / f"{program}.py", library, *engine.cluster(head.address)]
        job = head.start([*command, "--copies=4", "--pause=0.8"], environment | engine.driver(head.address))
        both = partial(_have_mapped, (first, second), engine.mapped)
        wait_until(lambda: both() or job.poll() is not None, 240, "library on both machines", there)
        assert job.poll() is None, head.log()
        time.sleep(1)
        second.fail()
        assert job.poll() is None, "the job was over before"
        try:
            job.wait(200)
        except subprocess.TimeoutExpired:
            pytest.fail("the job does not end\n" + "\n".join(machine.log() for machine in there))
        assert job.returncode == 0, head.log()
        printed = (tmp_path / f"{head.name}-1.log").read_text()
        (line,) = [line for line in printed.splitlines() if line.endswith("right")]
        right, of = map(int, line.partition(": ")[2].removesuffix(" right").split(" of "))
        assert right > 0.9 * of == 0.9 * ROWS, printed


def test_machines_reach_each_other_and_end_together(tmp_path: Path) -> None:
    server = "import socket, sys; s = socket.create_server((sys.argv[1], 7000)); s.accept()[0].sendall(b'x'); input()"
    client = """import socket, sys, time
for _ in range(100):
    try:
        print(socket.create_connection((sys.argv[1], 7000)).recv(1))
        break
    except OSError:
        time.sleep(0.05)"""
    with machines(2, tmp_path) as (one, other):
        one.start([sys.executable, "-c", server, one.address])
        caller = other.start([sys.executable, "-c", client, one.address])
        assert caller.wait(60) == 0
        assert "b'x'" in other.log()
        one.fail()
        assert not one.processes()
