"""A plugin of pytest: whatever a test compiles for a CPU, is lowered for CUDA too, and all source compiled at the end.

    pytest -p device_kernels --device-kernels=FILE tests/frontends     # with tests/backends in PYTHONPATH

FILE is JSON: how many networks and kernels there were, the tests of networks that CUDA refuses, and for each failure
the test and what went wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pass_runs import lower

from nnefc.backends import backend_of
from nnefc.driver import compile as driver
from nnefc.targets.codegen.cuda.compiler import compile_image, find_compiler
from nnefc.targets.codegen.cuda.kernels import DeviceKernel, joined
from nnefc.targets.codegen.cuda.launches import HostKernel
from nnefc.targets.machine.cuda.target import CudaTarget, parse_cuda_target

_TARGET = parse_cuda_target("cuda -arch=sm_80")
_BATCH = 100  # kernels that are compiled together


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device-kernels", metavar="FILE", help="where to report what was compiled for CUDA")


class _Collector:
    """The kernels of all networks that tests compile; equal ones once."""

    def __init__(self, report: Path) -> None:
        self._report = report
        self._test = ""
        self.networks = 0
        self.refused: list[str] = []
        self.on_host: dict[str, str] = {}
        self.failures: list[tuple[str, str]] = []
        self.kernels: dict[str, dict[str, tuple[str, str]]] = {}  # what comes before them → source → symbol, test

    def lower(self, network: Any, target: CudaTarget) -> None:
        """Lower a network, and keep its kernels; one with strings or images is refused before it is lowered."""
        backend = backend_of(target)
        if network.has_text and not backend.takes_text:
            self.refused.append(self._test)
            return
        self.networks += 1
        try:
            lowered = lower(network, backend)
        except Exception as error:
            self.failures.append((self._test, f"{type(error).__name__}: {error}"[:2000]))
            return
        for kernel in lowered.kernels:
            if isinstance(kernel.code, DeviceKernel) and kernel.code.function.launches:
                self._keep(kernel.code, target)
            elif isinstance(kernel.code, HostKernel):
                self.on_host[kernel.code.name] = self._test

    def _keep(self, kernel: DeviceKernel, target: CudaTarget) -> None:
        before, _, functions = joined([kernel], target).source.partition('extern "C"')
        for launch in kernel.function.launches:
            functions = re.sub(
                rf"\b{launch.kernel}\b", f"KERNEL_{launch.kernel.removeprefix(kernel.function.name)}", functions
            )
        self.kernels.setdefault(before, {}).setdefault('extern "C"' + functions, (kernel.function.name, self._test))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._test = item.nodeid
        return (yield)

    def pytest_sessionfinish(self) -> None:
        compiler = find_compiler()
        for before, sources in self.kernels.items():
            items = list(sources.items())
            for start in range(0, len(items), _BATCH):
                self._compile(before, items[start : start + _BATCH], compiler)
        content = {
            "networks": self.networks,
            "refused": self.refused,
            "kernels": sum(map(len, self.kernels.values())),
            "on_host": self.on_host,
            "failures": self.failures,
        }
        self._report.write_text(json.dumps(content, indent=1))

    def _compile(self, before: str, items: list[tuple[str, tuple[str, str]]], compiler: Any) -> None:
        source = before + "".join(text.replace("KERNEL_", f"kernel{n}_") for n, (text, _) in enumerate(items))
        try:
            compile_image(source, (80,), compiler)
        except Exception as error:
            if len(items) > 1:
                for half in (items[: len(items) // 2], items[len(items) // 2 :]):
                    self._compile(before, half, compiler)
            else:
                name, test = items[0][1]
                self.failures.append((test, f"{name}: {error}"[:2000]))


def pytest_configure(config: pytest.Config) -> None:
    report = config.getoption("--device-kernels")
    if report is None:
        return
    collector = _Collector(Path(report))
    config.pluginmanager.register(collector)
    build = driver.build

    def build_and_lower(network: Any, target: Any, *tail: Any) -> Any:
        collector.lower(network, replace(_TARGET, host=target))
        return build(network, target, *tail)

    driver.build = build_and_lower
