"""Attention as exporters, converters and optimizers spell it: one kernel each, whatever is known of sizes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from models.attention_spellings import RANGES, SIZES, SPELLINGS, side_by_side
from pass_runs import optimized
from tvm import relax

import nnefc
from nnefc.backends import backend_of
from nnefc.driver.formats import load_network
from nnefc.driver.options import ReadOptions
from nnefc.frontends.dynamic_shapes import dynamic_shape_context
from nnefc.ir.dataflow import bindings_of
from nnefc.symbolic.dims import DynamicSize
from nnefc.targets.machine.cpu.parsing import parse_target

PREFIXES = {name: f"s{number}_" for number, name in enumerate(SPELLINGS)}
OF_EACH_KIND = (
    "dynamo_sdpa_bool", "safe_softmax", "masked_softmax", "columns_yolo", "rows_between_heads", "joined_flux",
)  # fmt: skip
ZEROS_WHERE_ALL_IS_HIDDEN = ("dynamo_sdpa_bool", "safe_softmax", "masked_softmax")
OWN_PRODUCTS = {"optimizer_attention"}  # projections, which are products besides


def kernels(path: Path, shape: dict[str, DynamicSize] | None = None) -> dict[str, Counter[str]]:
    """How many kernels of attention, and of products and softmaxes, each spelling has."""
    network = load_network(path, ReadOptions(shape=shape))
    with dynamic_shape_context(network.dynamic_dimensions, network.input_shapes, network.all_data_dependent_sizes):
        network = optimized(network, backend_of(parse_target("llvm -mcpu=haswell")))
    names = {prefix: name for name, prefix in PREFIXES.items()}
    found = {name: Counter[str]() for name in SPELLINGS}
    for binding in bindings_of(network.module["main"]):
        prefix = re.match(r"s\d+_", str(binding.var.name))
        if prefix is None or not isinstance(binding.value, relax.Call) or not binding.value.args:
            continue
        kernel = str(getattr(binding.value.args[0], "name_hint", ""))
        for kind in ("attention", "matmul", "softmax"):
            found[names[prefix[0]]][kind] += kind in kernel
    return found


@pytest.mark.parametrize(
    ("known", "chosen"),
    [
        ("open", sorted({*OF_EACH_KIND, *OWN_PRODUCTS, *tuple(SPELLINGS)[::3]})),
        *(pytest.param(known, list(SPELLINGS), marks=pytest.mark.slow) for known in ("open", "static", "ranges")),
    ],
    ids=lambda value: value if isinstance(value, str) else str(len(value)),
)
def test_each_spelling_is_one_kernel(tmp_path: Path, known: str, chosen: Sequence[str]) -> None:
    path = tmp_path / "spellings.onnx"
    onnx.save(side_by_side({name: PREFIXES[name] for name in chosen}, SIZES if known == "static" else None), path)
    ranges = {name: size for name, text in RANGES.items() if (size := DynamicSize.read(text)) is not None}
    found = kernels(path, ranges if known == "ranges" else None)
    apart = {name: {kind: n for kind, n in found[name].items() if n} for name in chosen}
    assert apart == {name: {"attention": 1} | ({"matmul": 1} if name in OWN_PRODUCTS else {}) for name in chosen}


@pytest.mark.parametrize("names", [OF_EACH_KIND, pytest.param(tuple(SPELLINGS), marks=pytest.mark.slow)], ids=len)
@pytest.mark.slow
def test_dynamic_sizes_give_what_onnxruntime_gives(names: Sequence[str]) -> None:
    prefixes = {name: PREFIXES[name] for name in names}
    model = side_by_side(prefixes)
    library = nnefc.compile(model).load(threads=1)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # of names of sizes that it calculates otherwise
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    for sizes in (
        {"b": 2, "n": 37, "m": 19, "past": 13, "t": 5, "i": 44, "w": 16},
        {"b": 3, "n": 1, "m": 5, "past": 9, "t": 1, "i": 17, "w": 32},
    ):
        values = {k: v for name, prefix in prefixes.items() for k, v in SPELLINGS[name].values(sizes, prefix).items()}
        for name in ZEROS_WHERE_ALL_IS_HIDDEN:
            values[PREFIXES[name] + "mask"][1] = False
        wanted = session.run(None, values)
        for name, one, other in zip(names, library.run(values).values(), wanted, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=2e-6 * np.abs(other).max(), err_msg=name)
