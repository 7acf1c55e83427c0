"""Compile a network for several targets on an engine's workers, on this machine or a cluster; they need the compiler.

python examples/engines/many_targets.py {dask,ray} examples/digits/model.nnef build x86-64-v3 raspberrypi4
RAY_ADDRESS=10.0.0.1:6379 python examples/engines/many_targets.py ray …        # or DASK_SCHEDULER_ADDRESS
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any

import nnefc


class RayExecutor(Executor):
    """Ray's tasks as Python's futures; each takes one processor."""

    def submit(self, call: Callable[..., Any], /, *args: Any, **named: Any) -> Future[Any]:
        import ray

        return ray.remote(num_cpus=1)(_called).remote(call, *args, **named).future()


def _called(call: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Ray's tasks are functions; what is called need not be one."""
    return call(*args, **named)


def show_result(result: nnefc.Compiled) -> None:
    print(f"{result.target}: {result.error or result.path}")


def main(engine: str, model: str, folder: str, *targets: str) -> int:
    if engine == "ray":
        import ray
        import ray_data

        ray_data.connect(os.environ.get("RAY_ADDRESS"))
        results = nnefc.compile_many(model, targets, folder, executor=RayExecutor(), on_result=show_result)
        ray.shutdown()
    else:
        import dask_array

        with dask_array.connect(os.environ.get("DASK_SCHEDULER_ADDRESS")) as client:
            results = nnefc.compile_many(model, targets, folder, executor=client.get_executor(), on_result=show_result)
    return 1 if any(result.error for result in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
