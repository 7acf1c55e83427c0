"""What every run of the tests begins and ends with: little work, and how much it was, so that slow tests are seen."""

from __future__ import annotations

import functools
import gc
import importlib
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar

import onnxruntime
import pytest
from early_imports import import_share_first
from parts import QUICK_SECONDS, part_asked_for, seconds_of, slice_of_part
from random_generators import ModuleGenerators

from nnefc.support.file_cache import FileCache
from nnefc.support.minimal_tvm import import_tvm
from nnefc.targets.codegen.cuda.compiler import COMPILER_VARIABLE
from nnefc.targets.machine.system import FileFormat

os.environ.setdefault(COMPILER_VARIABLE, "nvrtc")  # which is several times as fast as nvcc
os.environ["NNEFC_CACHE"] = "0"  # else sessions load what other versions of the compiler have made
import_tvm()  # before anything imports all of it, which takes seconds where torch is installed
compiling = importlib.import_module("nnefc.driver.compile")
target = importlib.import_module("nnefc.targets.machine.cpu.target")
VERIFY = "NNEFC_VERIFY"
gc.disable()  # until all modules of tests are there: see below


_EXACT = "session.x64quantprecision"


def _with_exact_products(made: Any) -> Any:
    """Wraps the constructor of onnxruntime's sessions: products of uint8 and constant int8 are exact in all of them.

    On x86-64 without VNNI its kernels saturate sums of two such products at 16 bits, unless a session asks for others.
    Where a test gives no options, there are no threads besides, which would wait for work in loops.
    """

    @functools.wraps(made)
    def wrapper(self: object, model: object, sess_options: Any = None, *args: Any, **keywords: Any) -> None:
        options = sess_options or onnxruntime.SessionOptions()
        if sess_options is None:
            options.intra_op_num_threads = 1
        try:
            options.get_session_config_entry(_EXACT)
        except RuntimeError:  # it is not there, and may be given once only
            options.add_session_config_entry(_EXACT, "1")
        made(self, model, options, *args, **keywords)

    return wrapper


onnxruntime.InferenceSession.__init__ = _with_exact_products(onnxruntime.InferenceSession.__init__)

generators = ModuleGenerators()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Parts of the tests."""
    parser.addoption("--part", metavar="K/N", help="Only the tests of the Kth of N parts, which are about as long.")


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Share the work on new test files among the processes that collect them."""
    import_share_first(session.config.args)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> Iterator[None]:
    """Mark the cases that a sample leaves out as slow; then keep those of the part that is asked for."""
    _mark_others_slow(items)
    yield
    asked = config.getoption("--part")
    if asked is None:
        return
    number, count = part_asked_for(asked)
    kept = slice_of_part([seconds_of(item) for item in items], number, count)
    config.hook.pytest_deselected(items=items[: kept.start] + items[kept.stop :])
    items[:] = items[kept]


def _mark_others_slow(found: list[pytest.Item]) -> None:
    """Marks all cases of tests with the marker `sample` as slow, but for so many that are evenly spaced among them."""
    sampled: dict[str, list[pytest.Item]] = {}
    for case in found:
        if case.get_closest_marker("sample") is not None and case.get_closest_marker("slow") is None:
            sampled.setdefault(case.nodeid.partition("[")[0], []).append(case)
    for cases in sampled.values():
        marker = cases[0].get_closest_marker("sample")
        count = marker.args[0] if marker is not None else len(cases)
        kept = {round(number * (len(cases) - 1) / max(1, count - 1)) for number in range(count)}
        for number, case in enumerate(cases):
            if number not in kept:
                case.add_marker(pytest.mark.slow(QUICK_SECONDS))


_VERIFIED = ("operators", "spec", "test_random_graphs.py", "test_random_networks.py")
"""Tests whose programs are verified after each pass. That takes a sixth of the time of compiling."""

_VERIFIED_IF_SLOW = ("passes", "frontends", "operators")
"""Tests of passes and operators whose programs are verified where slow tests run too."""

_ALWAYS_VERIFIED = ("spec",)
"""Tests among them whose programs are verified in every run; those of random graphs are too."""


_LANGUAGE_MODELS = (
    *("chat", "decoder", "gguf", "huggingface"),
    *("test_embeddings.py", "test_llm.py", "test_openai.py"),
)
"""Tests of language models, whose small models have most of their kernels in common."""

_KERNELS_ONCE = (
    *_LANGUAGE_MODELS,
    *("frontends", "operators", "conformance", "integrations", "quantizer"),
    *("cli", "docs", "examples", "loader", "release", "serving", "tokenizer"),
)
"""Tests that compile networks as users do, and change nothing of how kernels become code."""

_UNOPTIMIZED = (
    *_KERNELS_ONCE,
    *("comparison", "cuda", "driver", "gpu", "graph", "inspect", "ir", "legalize", "plan", "runtime"),
)
"""Tests of what comes before the schedules, after the code, or in place of it. LLVM leaves its optimizations out there,
which take half of the time of compiling."""

_OF_CODE = (
    *("test_artifact.py", "test_kernel_cache.py", "test_random_graphs.py", "test_reproducible.py", "test_set_order.py"),
    *("test_operators_block_quantized.py", "test_operators_integer_products.py", "test_small_groups.py"),
)
"""Tests among them that look at machine code, or try all of the compiler on random graphs."""


def _is_quick(config: pytest.Config) -> bool:
    """Whether slow tests are left out, as by `make test`."""
    return bool(config.getoption("markexpr", "") == "not slow")


def _parts(path: Path) -> set[str]:
    """The folders and the file of a test, and `cuda` where its name has the word."""
    return {*path.relative_to(Path(__file__).parent).parts, *(["cuda"] if "_cuda" in path.name else [])}


class _KernelsOfThisRun(FileCache):
    """Kernels that this process has compiled, and those of language models that the others have."""

    _known: ClassVar[dict[str, bytes]] = {}

    def __init__(self, folder: Path, has_files: bool) -> None:
        """`has_files`: whether kernels are also exchanged with other processes, in files."""
        super().__init__(folder, 1 << 30)
        self._has_files = has_files

    def read(self, name: str) -> bytes | None:
        """Returns a kernel; None if it is not there."""
        found = self._known.get(name)
        if found is None and self._has_files:
            found = super().read(name)
            if found is not None:
                self._known[name] = found
        return found

    def add_contents(self, contents: Mapping[str, bytes]) -> None:
        """Adds kernels."""
        self._known.update(contents)
        if self._has_files:
            super().add_contents(contents)


@pytest.fixture(scope="module", autouse=True)
def _code_without_optimizations(request: pytest.FixtureRequest) -> Iterator[None]:
    """Has LLVM leave its optimizations out, where tests are not about code and slow ones do not run.

    Not for Windows and machines without a system: linkers miss there what TVM declares, and unoptimized code names.
    """
    parts = _parts(request.path)
    if not _is_quick(request.config) or not parts & {*_UNOPTIMIZED} or parts & {*_OF_CODE}:
        yield
        return
    level, configured, one_at_a_time = target.OPTIMIZATION_LEVEL, target.Target.to_tvm, threading.Lock()

    def to_tvm(self: Any) -> Any:
        with one_at_a_time:
            target.OPTIMIZATION_LEVEL = level if self.format is FileFormat.PE or not self.hosted else 0
            return configured(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(target, "OPTIMIZATION_LEVEL", level)  # so that it is set back
        patch.setattr(target.Target, "to_tvm", to_tvm)
        yield


@pytest.fixture(scope="module", autouse=True)
def _kernels_of_this_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Caches kernels for this run of the tests; those of language models in all its processes.

    Where slow tests run too, each network compiles all its own.
    """
    parts = _parts(request.path)
    if not _is_quick(request.config) or not parts & {*_KERNELS_ONCE} or parts & {*_OF_CODE}:
        yield
        return
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    files = _KernelsOfThisRun(folder / "kernels", bool(parts & {*_LANGUAGE_MODELS}))
    configured = compiling.kernel_files

    def kernel_files(cache: Any = None) -> FileCache | None:
        return configured(cache) if cache is not None or os.environ.get("NNEFC_CACHE") != "0" else files

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "kernel_files", kernel_files)
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Verify programs after each pass where tests are about passes and operators, also for what fixtures compile."""
    generators.restore()
    parts = _parts(item.path)
    if _is_quick(item.config) and parts & {*_VERIFIED_IF_SLOW} and not parts & {*_ALWAYS_VERIFIED}:
        os.environ[VERIFY] = "0"
    else:
        os.environ[VERIFY] = "1" if parts & {"passes", *_VERIFIED} else "0"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call() -> None:
    """Give a test the same random numbers whether fixtures that it shares were made for it or for another one."""
    generators.restore()


def pytest_collection_finish() -> None:
    """What is there before the first test stays to the end: Python need not look for cycles in it again and again."""
    generators.find()
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20)  # of what compiling makes, little is in cycles
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report the processor time of this process and of all that it waited for, workers among them."""
    minutes = sum(os.times()[:4]) / 60  # user and system, own and children's
    terminalreporter.write_line(f"{minutes:.1f} processor minutes")
