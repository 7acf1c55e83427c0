"""`nnefc` and networks whose sizes stay open: inspect a model, compile it as it says, inspect the library, run it."""

from __future__ import annotations

import re
import shlex
from ctypes import byref, c_int64, c_void_p
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper, numpy_helper

import nnefc
from nnefc.cli import main
from nnefc.cli.dynamic_dims import range_lines
from nnefc.driver.formats import load_network
from nnefc.driver.options import ReadOptions
from nnefc.ir.sample_inputs import chosen_ports, random_inputs
from nnefc.loader import Tensor
from nnefc.loader.interface import OptionsStruct
from nnefc.targets.description.library import DimensionDescription, TensorDescription
from nnefc.targets.description.library_file import read_metadata

KERNEL = np.random.default_rng(5).standard_normal((8, 3, 3, 3)).astype(np.float32)


def call(*arguments: object) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


def output(*arguments: object) -> str:
    result = call(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution, and the sum of the image's means and a second input."""
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["image", "k"], ["c"], pads=[1, 1, 1, 1]),
            helper.make_node("GlobalAveragePool", ["c"], ["p"]),
            helper.make_node("Flatten", ["p"], ["f"]),
            helper.make_node("Add", ["f", "bias"], ["y"]),
        ],
        "net",
        [
            helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, "height", "width"]),
            helper.make_tensor_value_info("bias", TensorProto.FLOAT, ["batch", 8]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8])],
        [numpy_helper.from_array(KERNEL, "k")],
    )
    path = tmp_path_factory.mktemp("open") / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def library(model: Path) -> Path:
    """Compiled with the options that `inspect` shows."""
    option = output("inspect", model).splitlines()[-1]
    path = model.with_suffix(".so")
    output("compile", model, "-o", path, *shlex.split(option))
    return path


def test_results_have_the_sizes_that_follow_from_multiples(model: Path) -> None:
    text = output("inspect", model, "--shape", "height=32..320:32", "--output-tensor", "c")
    assert ["output", "c", "float32", "[batch, 8, height, width]"] in cells(text)


def test_a_model_shows_ranges_for_what_it_leaves_open(model: Path) -> None:
    text = output("inspect", model)
    assert ["dimension", "height", "1 to 1,048,576, typically 224"] in cells(text)
    assert text.endswith(
        "\n  --shape batch=1,height=224,width=224\n"
        "\nor ranges, for a library that takes every size in them:\n"
        "\n  --shape batch=1..64,height=32..1280:32,width=32..1280:32\n"
    )


def test_costs_of_a_model_are_those_at_size_hints(model: Path) -> None:
    """As the model with these sizes fixed is."""
    text = output("inspect", model, "--shape", "batch=1..8,height=32..96:8", "--shape", "width=40")
    fixed = output("inspect", model, "--shape", "batch=2,height=48,width=40")
    assert ["dimension", "height", "32 to 96, multiples of 8, typically 48"] in cells(text)
    assert ["input", "image", "float32", "[batch, 3, height, 40]"] in cells(text)
    counts = [row[:2] for row in cells(fixed.replace(" (", "  (")) if row[:1] in (["multiply-adds"], ["memory"])]
    at = "; batch 2, height 48)"
    found = [row[:2] for row in cells(text.replace(" (", "  (")) if row[-1:] and row[-1].endswith(at)]
    assert found == counts
    assert len(found) == 2


def test_a_range_of_one_size_is_that_size(model: Path) -> None:
    network = load_network(model, ReadOptions(shape={"batch": "2..2", "height": "50..70:64", "width": "32..64"}))
    assert [dimension.name for dimension in network.dynamic_dimensions] == ["width"]


def cells(text: str) -> list[list[str]]:
    return [re.split("  +", line) for line in text.splitlines()]


def test_a_library_shows_its_ranges_and_its_workspace(library: Path) -> None:
    rows = cells(output("inspect", library))
    assert [row[1] for row in rows if row[0] == "dimension"] == ["batch", "height", "width"]
    assert ["dimension", "batch", "1 to 64, typically 16"] in rows
    assert ["dimension", "width", "32 to 1,280, multiples of 32, typically 256"] in rows
    assert ["input", "image", "float32", "[batch, 3, height, width]"] in rows
    (row,) = (row for row in rows if row[0] == "workspace")
    assert "(batch 16, height 256, width 256) to " in row[1]


def test_the_workspace_that_is_shown_is_the_one_that_a_session_needs(library: Path) -> None:
    """A session with a workspace of the caller's says how much it needs."""
    metadata = read_metadata(library)
    assert metadata is not None
    sizes = metadata.description.dimensions
    with nnefc.load(library) as model:
        dll, memory, session = model._library.dll, np.zeros(128, np.uint8), c_void_p()
        aligned = memory.ctypes.data + -memory.ctypes.data % 64
        options = OptionsStruct(OptionsStruct.weights.offset, 1, aligned, 64)
        assert dll.nnefc_create(byref(options), byref(session)) == 0
        wanted = (c_int64 * len(sizes))(*(dimension.size_hint for dimension in sizes))
        assert dll.nnefc_reserve(session, wanted, 0) == 1
        needed = re.search(r"needs (\d+) for", dll.nnefc_last_error(session).decode())
        dll.nnefc_destroy(session)
    assert needed is not None
    assert int(needed[1]) == metadata.description.dynamic_workspaces[0]


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ((), [16, 8]),
        (("--shape", "batch=3"), [3, 8]),
        (("--shape", "batch=3", "--shape", "height,width=64"), [3, 8]),
        (("--shape", "image=5,3,32,96"), [5, 8]),
    ],
)
def test_random_values_have_the_sizes_that_are_asked_for(
    library: Path, options: tuple[str, ...], shape: object
) -> None:
    assert f"[{', '.join(map(str, shape))}]" in output("run", library, "--random", 0, *options)


def test_files_and_random_values_have_the_same_sizes(library: Path, tmp_path: Path) -> None:
    bias = np.arange(24, dtype=np.float32).reshape(3, 8)
    np.save(tmp_path / "bias.npy", bias)
    given = ("run", library, "--random", 0, "--input", f"bias={tmp_path / 'bias.npy'}", "--shape", "height,width=32")
    output(*given, "--output", tmp_path / "out")
    result = np.load(tmp_path / "out" / "y.npy")
    with nnefc.load(library) as model:
        image = random_inputs(0, [Tensor("image", "float32", (3, 3, 32, 32))])["image"]
        np.testing.assert_array_equal(result, model(image, bias))
    refused = call(*given, "--shape", "batch=2")
    assert "the dimension 'batch' is 2, but 3 by the file of 'bias'" in refused.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--shape", "batch=65"), 'dimension 0 of input "image" is 65, but the network takes 1 to 64 for "batch"'),
        (("--shape", "height=33"), "is 33, but the network takes multiples of 32"),
        (("--shape", "depth=1"), "no dynamic dimension and no input 'depth'"),
        (("--shape", "batch=1..8"), "a run has one size for 'batch', not a range"),
        (("--shape", "batch=1,2"), "the dimension 'batch' needs one size"),
        (("--shape", "image=1,3,32"), "float32[batch, 3, height, width] is given the shape [1, 3, 32] by --shape"),
        (("--shape", "image=1,4,32,32"), "is given the shape [1, 4, 32, 32] by --shape"),
        (("--shape", "image=1,3,32,32", "--shape", "batch=2"), "the dimension 'batch' is 1, but 2 by --shape"),
    ],
)
def test_sizes_that_do_not_fit_are_errors(library: Path, options: tuple[str, ...], message: str) -> None:
    result = call("run", library, "--random", 0, *options)
    assert result.exit_code == 1
    assert message in result.stderr


def test_shapes_are_of_random_values_only(library: Path) -> None:
    result = call("run", library, "--shape", "batch=2")
    assert result.exit_code == 2
    assert "--shape is of random values" in result.stderr


def test_sizes_that_follow_from_others_are_computed_for_random_values() -> None:
    dimensions = [DimensionDescription(name, 0, 99, 1, 7) for name in ("past", "new", "all")]
    ports = [TensorDescription("x", "float32", ("past", 2)), TensorDescription("y", "float32", ("new", "all"))]
    chosen = chosen_ports(ports, dimensions, {"past": (3,)}, {}, {"all": ("+", "past", "new")})
    assert [port.shape for port in chosen] == [(3, 2), (7, 10)]
    assert range_lines(dimensions[2:], {"all": ("+", "past", "new")}) == ["dimension  all  past + new, 0 to 99"]


def test_sizes_that_broadcast_are_chosen_alike() -> None:
    ports = [TensorDescription("a", "float32", ("n", 3)), TensorDescription("b", "float32", ("k", 3))]
    dimensions = [
        DimensionDescription(name, 1, 99, 1, size_hint) for name, size_hint in (("n", 4), ("k", 8), ("both", 8))
    ]
    chosen = chosen_ports(ports, dimensions, {"k": (5,)}, {}, {"both": ("broadcast", "n", "k")})
    assert [port.shape for port in chosen] == [(5, 3), (5, 3)]
