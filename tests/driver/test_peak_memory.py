"""How much memory compiling takes at most: large constants are mapped, packed once, and written once."""

from __future__ import annotations

import ctypes
import gc
import gzip
import multiprocessing
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import nnefc
from nnefc.frontends.nnef.files.tensor_file import write_tensor

SIZE, COUNT = 1500, 6
"""Of square matrices of 9 MB, and how many there are."""

RESET = Path("/proc/self/clear_refs")

Weights = list[np.ndarray]
Writer = Callable[[Path, Weights], Path]


def onnx_model(weights: Weights, *, constants: bool = False) -> onnx.ModelProto:
    """A chain of products with constant matrices; names have such lengths that data begin at any byte of the file."""
    held = [numpy_helper.from_array(array, f"w{i}{'_' * i}") for i, array in enumerate(weights)]
    nodes = [helper.make_node("MatMul", [f"x{i}", each.name], [f"x{i + 1}"]) for i, each in enumerate(held)]
    if constants:
        nodes = [helper.make_node("Constant", [], [each.name], value=each) for each in held] + nodes
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, SIZE if len(weights[0]) == SIZE else 64])
        for name in ("x0", f"x{len(weights)}")
    ]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:], [] if constants else held)
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17)])


def inline(folder: Path, weights: Weights) -> Path:
    onnx.save_model(onnx_model(weights), folder / "m.onnx")
    return folder / "m.onnx"


def constant_nodes(folder: Path, weights: Weights) -> Path:
    onnx.save_model(onnx_model(weights, constants=True), folder / "m.onnx")
    return folder / "m.onnx"


def fp16_weights(folder: Path, weights: Weights) -> Path:
    """Weights of float16, twice as many: factors, transposed ones, and ones that the model casts to float32."""
    held = [each for array in weights for each in (array.astype(np.float16), array.astype(np.float16).T)]
    model, nodes = onnx_model(held), []
    for i, node in enumerate(model.graph.node):
        if i % 3 == 1:
            node.op_type = "Gemm"
            node.attribute.append(helper.make_attribute("transB", 1))
        elif i % 3 == 2:
            for k, name in enumerate(node.input):
                nodes.append(helper.make_node("Cast", [name], [f"float{i}_{k}"], to=TensorProto.FLOAT))
                node.input[k] = f"float{i}_{k}"
            nodes += [node, helper.make_node("Cast", [f"y{i}"], [node.output[0]], to=TensorProto.FLOAT16)]
            node.output[0] = f"y{i}"
            continue
        nodes.append(node)
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    for end in (*model.graph.input, *model.graph.output):
        end.type.tensor_type.elem_type = TensorProto.FLOAT16
    onnx.save_model(model, folder / "m.onnx")
    return folder / "m.onnx"


def fp16_convolutions(folder: Path, weights: Weights) -> Path:
    """Convolutions of one pixel, with weights of float16."""
    model = onnx_model([each.astype(np.float16) for each in weights])
    for node, tensor in zip(model.graph.node, model.graph.initializer, strict=True):
        node.op_type = "Conv"
        tensor.dims.extend([1, 1])
    for end in (*model.graph.input, *model.graph.output):
        end.type.tensor_type.elem_type = TensorProto.FLOAT16
        for _ in range(2):
            end.type.tensor_type.shape.dim.add().dim_value = 1
    onnx.save_model(model, folder / "m.onnx")
    return folder / "m.onnx"


def typed_fields(folder: Path, weights: Weights) -> Path:
    model = onnx_model(weights)
    for tensor, array in zip(model.graph.initializer, weights, strict=True):
        tensor.ClearField("raw_data")
        tensor.float_data.extend(array.reshape(-1).tolist())
    onnx.save_model(model, folder / "m.onnx")
    return folder / "m.onnx"


def external(folder: Path, weights: Weights) -> Path:
    """Data in a file of their own, the first at an odd byte."""
    model, at = onnx_model(weights), 3
    with (folder / "weights").open("wb") as file:
        for tensor in model.graph.initializer:
            file.seek(at)
            file.write(tensor.raw_data)
            entries = {"location": "weights", "offset": str(at), "length": str(len(tensor.raw_data))}
            at += len(tensor.raw_data)
            tensor.ClearField("raw_data")
            tensor.data_location = TensorProto.EXTERNAL
            for key, value in entries.items():
                tensor.external_data.add(key=key, value=value)
    (folder / "m.onnx").write_bytes(model.SerializeToString())
    return folder / "m.onnx"


def compressed(folder: Path, weights: Weights) -> Path:
    path = folder / "m.onnx.gz"
    path.write_bytes(gzip.compress(onnx_model(weights).SerializeToString(), 0))
    return path


def pnnx(folder: Path, weights: Weights) -> Path:
    n, count = len(weights[0]), len(weights)
    lines = ["7767517", f"{count + 2} {count + 1}", f"pnnx.Input in 0 1 0 #0=(1,{n})f32"]
    for i in range(count):
        lines.append(
            f"nn.Linear l{i} 1 1 {i} {i + 1} bias=False in_features={n} out_features={n} "
            f"@weight=({n},{n})f32 #{i}=(1,{n})f32 #{i + 1}=(1,{n})f32"
        )
    (folder / "m.param").write_text("\n".join([*lines, f"pnnx.Output out 1 0 {count} #{count}=(1,{n})f32", ""]))
    with zipfile.ZipFile(folder / "m.bin", "w", zipfile.ZIP_STORED) as archive:
        for i, array in enumerate(weights):
            archive.writestr(f"l{i}.weight", np.ascontiguousarray(array.T).tobytes())
    return folder / "m.param"


def nnef_folder(folder: Path, weights: Weights) -> Path:
    n, model = len(weights[0]), folder / "model"
    model.mkdir()
    body = [f"version 1.0;\ngraph chain(x0) -> (x{len(weights)}) {{", f"x0 = external(shape=[1,{n}]);"]
    for i, array in enumerate(weights):
        body += [f"w{i} = variable(shape=[{n},{n}], label='w{i}');", f"x{i + 1} = matmul(x{i}, w{i});"]
        write_tensor(model / f"w{i}.dat", array)
    (model / "graph.nnef").write_text("\n".join([*body, "}", ""]))
    return model


def nnef_fp16(folder: Path, weights: Weights) -> Path:
    return nnef_folder(folder, [each.astype(np.float16) for each in weights * 2])


def nnef_archive(folder: Path, weights: Weights) -> Path:
    model, path = nnef_folder(folder, weights), folder / "m.nnef.tar"
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as archive:
        for each in sorted(model.iterdir()):
            archive.add(each, each.name)
    return path


def nnef_compressed(folder: Path, weights: Weights) -> Path:
    path = folder / "m.nnef.tgz"
    path.write_bytes(gzip.compress(nnef_archive(folder, weights).read_bytes(), 0))
    return path


WRITERS: Mapping[str, Writer] = {
    writer.__name__: writer
    for writer in (
        inline, constant_nodes, fp16_weights, fp16_convolutions, typed_fields, external, compressed, pnnx, nnef_folder,
        nnef_fp16, nnef_archive, nnef_compressed,
    )
}  # fmt: skip

TARGETS = {"fp16_convolutions": "llvm -mcpu=x86-64-v2"}
"""Those that are not this machine: one that does not convert float16 packs weights in float32."""


def trees(folder: Path, depth: int, count: int) -> Path:
    """An ensemble of complete trees, as converters write it."""
    leaves = 1 << depth
    nodes = 2 * leaves - 1
    tree, node = np.repeat(np.arange(count), nodes), np.tile(np.arange(nodes), count)
    is_leaf = node >= leaves - 1
    rng = np.random.default_rng(0)
    made = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_targets=1, target_ids=[0] * (count * leaves),
        nodes_treeids=tree.tolist(), nodes_nodeids=node.tolist(),
        nodes_modes=np.where(is_leaf, "LEAF", "BRANCH_LEQ").tolist(),
        nodes_featureids=np.where(is_leaf, 0, rng.integers(0, 8, len(node))).tolist(),
        nodes_truenodeids=np.where(is_leaf, 0, 2 * node + 1).tolist(),
        nodes_falsenodeids=np.where(is_leaf, 0, 2 * node + 2).tolist(),
        nodes_values=rng.standard_normal(len(node)).astype(np.float32).tolist(), nodes_hitrates=[1.0] * len(node),
        nodes_missing_value_tracks_true=[0] * len(node),
        target_treeids=tree[is_leaf].tolist(), target_nodeids=node[is_leaf].tolist(),
        target_weights=rng.standard_normal(count * leaves).astype(np.float32).tolist(),
    )  # fmt: skip
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3, n]) for name, n in (("x", 8), ("y", 1))]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(
        helper.make_graph([made], "trees", ends[:1], ends[1:]), ir_version=9, opset_imports=opsets
    )
    onnx.save_model(model, folder / "m.onnx")
    return folder / "m.onnx"


def matrices(size: int, count: int) -> Weights:
    rng = np.random.default_rng(0)
    return [rng.standard_normal((size, size), np.float32) / np.float32(size**0.5) for _ in range(count)]


def used(name: str) -> int:
    """Bytes of memory that the system says of this process: `VmRSS`, or since it was reset at most, `VmHWM`."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return int(line.split()[1]) * 1024


def growth(path: Path, target: str = "llvm") -> int:
    """How much more memory than before compiling takes at most, less what it takes for any network."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what is free already would be used first, and not seen
    RESET.write_text("5")
    before = used("VmRSS")
    nnefc.compile(path, target).export(path.with_name("m.so"))
    return used("VmHWM") - before - (24 << 20)


def peaks(root: Path) -> dict[str, float]:
    """The growth in bytes for each byte of the weights, or of the file of an ensemble."""
    found, small, large = dict[str, float](), matrices(64, 2), matrices(SIZE, COUNT)
    for name, write in WRITERS.items():
        (root / name / "small").mkdir(parents=True)
        target = TARGETS.get(name, "llvm")
        growth(write(root / name / "small", small), target)
        found[name] = growth(write(root / name, large), target) / sum(array.nbytes for array in large)
    base = growth(trees(root / "inline" / "small", 7, 160))
    path = trees(root / "inline", 10, 160)
    found["trees"] = (growth(path) - base) / path.stat().st_size
    return found


@pytest.mark.slow
@pytest.mark.skipif(not RESET.exists(), reason="the system does not say how much memory a process took at most")
def test_compiling_takes_little_more_memory_than_the_constants(tmp_path: Path) -> None:
    """One packed copy of all, and a few matrices as they are read."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply(peaks, (tmp_path,))
    assert {name: peak for name, peak in found.items() if peak > (9 if name == "trees" else 1.3)} == {}
