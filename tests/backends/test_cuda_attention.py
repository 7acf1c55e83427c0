"""Attention on GPUs in whole networks: in all spellings, of dynamic lengths, and how many launches a block takes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from emulated_networks import differences, on_cuda
from models.attention_spellings import SPELLINGS, side_by_side
from small_networks import Net

import nnefc
from nnefc.driver.artifact import Artifact
from nnefc.passes.schedule.cuda import tensor_core_attention
from nnefc.passes.schedule.cuda.warpgroup_attention import WarpgroupAttentionTile
from nnefc.passes.schedule.gpu.attention.tiles import AttentionTile
from nnefc.targets.codegen.cuda.code import CudaCode

OF_EACH_KIND = ("dynamo_sdpa_bool", "masked_softmax", "columns_yolo")
ZEROS_WHERE_ALL_IS_HIDDEN = ("dynamo_sdpa_bool", "safe_softmax", "masked_softmax")


def first_of_warpgroups(_attention: object, tiles: Sequence[AttentionTile], _target: object) -> AttentionTile:
    """The first tile of warpgroups, whatever the sizes are."""
    return next(tile for tile in tiles if isinstance(tile, WarpgroupAttentionTile))


def launches(artifact: Artifact) -> list[str]:
    """The names of the kernels that a run launches, in order."""
    assert isinstance(artifact.code, CudaCode)
    return [launch.kernel for launch in artifact.code.launches_of_run]


@pytest.mark.parametrize(
    ("names", "precision", "tolerance", "has_warpgroups"),
    [
        (OF_EACH_KIND[::2], "fp16", 5e-3, False),
        *(
            pytest.param(names, precision, tolerance, has_warpgroups, marks=pytest.mark.slow)
            for names, precision, tolerance, has_warpgroups in (
                (OF_EACH_KIND, "fp16", 5e-3, False),
                (tuple(SPELLINGS), "fp16", 1e-2, False),
                (tuple(SPELLINGS), "fp16", 1e-2, True),
                (tuple(SPELLINGS), "fp32", 1e-5, False),
                (OF_EACH_KIND, "bf16", 4e-2, False),
            )
        ),
    ],
    ids=lambda value: str(len(value)) if isinstance(value, tuple) else str(value),
)
def test_each_spelling_gives_what_onnxruntime_gives(
    names: Sequence[str],
    precision: str,
    tolerance: float,
    has_warpgroups: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With dynamic sizes: many queries, and a single one, which has code of its own."""
    prefixes = {name: f"s{number}_" for number, name in enumerate(names)}
    model = side_by_side(prefixes)
    path = tmp_path / "spellings.onnx"
    onnx.save(model, path)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    outputs = [output.name for output in session.get_outputs()]
    runs = []
    for sizes in (
        {"b": 2, "n": 37, "m": 19, "past": 13, "t": 5, "i": 44, "w": 16},
        {"b": 1, "n": 1, "m": 5, "past": 9, "t": 1, "i": 17, "w": 16},
    ):
        values = {k: v for name, prefix in prefixes.items() for k, v in SPELLINGS[name].values(sizes, prefix).items()}
        for name in {*names} & {*ZEROS_WHERE_ALL_IS_HIDDEN}:
            values[prefixes[name] + "mask"][-1] = False
        runs.append((values, dict(zip(outputs, session.run(None, values), strict=True))))
    if has_warpgroups:
        monkeypatch.setattr(tensor_core_attention, "choose_tile", first_of_warpgroups)
    architectures = {"architectures": (90,)} if has_warpgroups else {}
    with on_cuda(precision=precision, **architectures) as made, nnefc.compile(path).load() as library:
        found = [library.run(values) for values, _ in runs]
    wrong = [
        line
        for results, (_, wanted) in zip(found, runs, strict=True)
        for name in wanted
        for line in differences(name, results[name], wanted[name], tolerance)
    ]
    assert not wrong, "\n".join(wrong)
    assert isinstance(made[-1].code, CudaCode)
    source = made[-1].code.kernels.source
    assert not has_warpgroups or re.search(r"nnefc_multiply_warpgroup_\w+_registers", source)
    kernels = launches(made[-1])
    assert not [name for name in kernels if "softmax" in name or "row_max" in name]
    assert sum("attention" in name for name in kernels) >= len(names)


def layers(count: int, path: Path) -> None:
    """Layers of BERT, for many tokens."""
    net = Net(seed=4)
    tokens, width, heads = 512, 256, 4
    x = net.floats(1, tokens, width)
    for _ in range(count):
        x = net.transformer(x, tokens, width, heads)
    path.write_bytes(net.model([x]).SerializeToString())


@pytest.mark.parametrize("precision", ["fp16", pytest.param("fp32", marks=pytest.mark.slow)])
def test_a_layer_of_bert_is_seven_launches(precision: str, tmp_path: Path) -> None:
    """Projections, attention, the product behind it, the normalization, two products, the normalization."""
    counts = []
    for count in (1, 2):
        layers(count, tmp_path / "bert.onnx")
        with on_cuda(precision=precision):
            counts.append(launches(nnefc.compile(tmp_path / "bert.onnx")))
    assert len(counts[1]) - len(counts[0]) == 7, counts[1]


def test_projections_that_something_else_reads_stay_apart(tmp_path: Path) -> None:
    net = Net(seed=2)
    x = net.floats(1, 40, 32)
    split = net.constant(np.array([1, 40, 2, 16], np.int64))
    q, k, v = (net.linear(x, 32, 32) for _ in range(3))
    heads = [net.do("Transpose", net.do("Reshape", each, split), perm=[0, 2, 1, 3]) for each in (q, k, v)]
    scores = net.do("MatMul", heads[0], net.do("Transpose", heads[1], perm=[0, 1, 3, 2]))
    mixed = net.do("MatMul", net.do("Softmax", scores, axis=-1), heads[2])
    path = tmp_path / "network.onnx"
    path.write_bytes(net.model([mixed, v]).SerializeToString())
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    wanted = dict(zip(names, session.run(None, net.inputs), strict=True))
    with on_cuda() as made, nnefc.compile(path).load() as library:
        found = library.run(net.inputs)
    assert not [line for name in wanted for line in differences(name, found[name], wanted[name], 1e-5)]
    products = [name for name in launches(made[-1]) if "matmul" in name and not name.endswith("_1")]
    assert len(products) == 2  # queries and keys are one product
