"""What every run of the tests begins and ends with: little work, and how much it was, so that slow tests are seen."""

from __future__ import annotations

import functools
import gc
import importlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
from early_imports import import_share_first
from parts import files_of_part, part_asked_for

from nnefc.support.file_cache import FileCache
from nnefc.support.minimal_tvm import import_tvm
from nnefc.targets.codegen.cuda.compiler import COMPILER_VARIABLE

os.environ.setdefault(COMPILER_VARIABLE, "nvrtc")  # which is several times as fast as nvcc
os.environ["NNEFC_CACHE"] = "0"  # else sessions load what other versions of the compiler have made
import_tvm()  # before anything imports all of it, which takes seconds where torch is installed
compiling = importlib.import_module("nnefc.driver.compile")
VERIFY = "NNEFC_VERIFY"
gc.disable()  # until all modules of tests are there: see below


_EXACT = "session.x64quantprecision"


def _with_exact_products(made: Any) -> Any:
    """Wraps the constructor of onnxruntime's sessions: products of uint8 and constant int8 are exact in all of them.

    On x86-64 without VNNI its kernels saturate sums of two such products at 16 bits, unless a session asks for others.
    """

    @functools.wraps(made)
    def wrapper(self: object, model: object, sess_options: Any = None, *args: Any, **keywords: Any) -> None:
        options = sess_options or onnxruntime.SessionOptions()
        try:
            options.get_session_config_entry(_EXACT)
        except RuntimeError:  # it is not there, and may be given once only
            options.add_session_config_entry(_EXACT, "1")
        made(self, model, options, *args, **keywords)

    return wrapper


onnxruntime.InferenceSession.__init__ = _with_exact_products(onnxruntime.InferenceSession.__init__)

SLOW_WEIGHT = 20
"""How many ordinary tests a slow one takes as long as, about."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Parts of the tests, each of whole files."""
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
    weights: dict[str, int] = {}
    for item in items:
        file = item.nodeid.partition("::")[0]
        weights[file] = weights.get(file, 0) + (SLOW_WEIGHT if item.get_closest_marker("slow") else 1)
    kept = files_of_part(weights, number, count)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid.partition("::")[0] not in kept])
    items[:] = [test for test in items if test.nodeid.partition("::")[0] in kept]


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
                case.add_marker(pytest.mark.slow)


_VERIFIED = ("operators", "spec", "test_random_graphs.py", "test_random_networks.py")
"""Tests whose programs are verified after each pass. That takes a sixth of the time of compiling."""

_VERIFIED_IF_SLOW = ("passes", "frontends", "operators")
"""Tests of passes and operators whose programs are verified where slow tests run too."""

_ALWAYS_VERIFIED = ("spec",)
"""Tests among them whose programs are verified in every run; those of random graphs are too."""


_SHARED_KERNELS = (
    *("chat", "decoder", "gguf", "huggingface"),
    *("test_embeddings.py", "test_llm.py", "test_openai.py"),
)
"""Tests of language models, whose small models have most of their kernels in common."""


def _is_quick(config: pytest.Config) -> bool:
    """Whether slow tests are left out, as by `make test`."""
    return bool(config.getoption("markexpr", "") == "not slow")


@pytest.fixture(scope="module", autouse=True)
def _kernels_of_this_run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Caches the kernels of language models for this run of the tests, in all its processes.

    Where slow tests run too, each network compiles all its own.
    """
    parts = {*request.path.relative_to(Path(__file__).parent).parts}
    if not (_is_quick(request.config) and parts & {*_SHARED_KERNELS}):
        yield
        return
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder
    files, configured = FileCache(folder / "kernels", 1 << 30), compiling.kernel_files

    def kernel_files(cache: Any = None) -> FileCache | None:
        return configured(cache) if cache is not None or os.environ.get("NNEFC_CACHE") != "0" else files

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compiling, "kernel_files", kernel_files)
        yield


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Verify programs after each pass where tests are about passes and operators, also for what fixtures compile."""
    parts = {*item.path.relative_to(Path(__file__).parent).parts}
    if _is_quick(item.config) and parts & {*_VERIFIED_IF_SLOW} and not parts & {*_ALWAYS_VERIFIED}:
        os.environ[VERIFY] = "0"
    else:
        os.environ[VERIFY] = "1" if parts & {"passes", *_VERIFIED} else "0"


def pytest_collection_finish() -> None:
    """What is there before the first test stays to the end: Python need not look for cycles in it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20)  # of what compiling makes, little is in cycles
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report the processor time of this process and of all that it waited for, workers among them."""
    minutes = sum(os.times()[:4]) / 60  # user and system, own and children's
    terminalreporter.write_line(f"{minutes:.1f} processor minutes")
