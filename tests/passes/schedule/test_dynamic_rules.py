"""Kernels of dynamic sizes have the schedule rules that they have with stated ranges."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import pytest
from open_against_static import opened
from pass_runs import optimized
from small_networks import NETWORKS, Net

from nnefc.backends import backend_of
from nnefc.driver.formats import load_network
from nnefc.driver.options import ReadOptions
from nnefc.frontends.dynamic_shapes import dynamic_shape_context
from nnefc.ir.attributes import RULE
from nnefc.passes.plan.program import program_of
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cpu import CPU_RULES
from nnefc.passes.schedule.in_place import in_place_of
from nnefc.passes.schedule.rule import scheduled
from nnefc.symbolic.dims import DynamicSize
from nnefc.targets.machine.cpu.parsing import parse_target

TARGET = parse_target("llvm -mcpu=haswell")
IMAGE, SENTENCE = ("batch", "", "height", "width"), ("batch", "length")
OPEN = {
    "resnet": IMAGE,
    "mobilenet": IMAGE,
    "concatenations": IMAGE,
    "unet": IMAGE,
    "bert": SENTENCE,
    "vision transformer": ("batch",),
    "recurrent": ("length", "batch"),
}
QUICK = ("mobilenet", "bert", "recurrent")
LIMITED = {"batch": "1..8", "height": "32..512", "width": "32..512", "length": "1..512"}


def rules(path: Path, shape: dict[str, DynamicSize]) -> set[tuple[str, str]]:
    """The rules of all kernels, by what these compute."""
    network = load_network(path, ReadOptions(shape=shape))
    backend = backend_of(TARGET)
    with dynamic_shape_context(network.dynamic_dimensions, network.input_shapes, network.all_data_dependent_sizes):
        program = program_of(optimized(network, backend))
        found: set[tuple[str, str]] = set()
        for gv, kernel in program.kernels.items():
            analysis = KernelAnalysis(kernel)
            if not in_place_of(analysis).is_view:
                rule = str(scheduled(analysis, CPU_RULES, TARGET).attrs[RULE])
                found.add((re.sub(r"\d+", "", gv.name_hint), rule))
    return found


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in OPEN if name not in QUICK)]
)
@pytest.mark.sample(2)
def test_rules_are_those_of_stated_ranges(tmp_path: Path, name: str) -> None:
    net, path = Net(0), tmp_path / "network.onnx"
    model = onnx.shape_inference.infer_shapes(net.model(NETWORKS[name](net)))
    onnx.save(opened(model, OPEN[name]), path)
    limited = {each: size for each in OPEN[name] if each and (size := DynamicSize.read(LIMITED[each])) is not None}
    assert rules(path, {}) == rules(path, limited)


def test_the_range_that_is_assumed_may_be_stated() -> None:
    default, stated = DynamicSize(likely=37).values, DynamicSize(1, 1 << 20, likely=37).values
    assert default.size_hint == stated.size_hint == 37
    assert DynamicSize(0, 1 << 20, 4, 37).values.size_hint == 9
