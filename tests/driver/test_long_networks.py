"""Networks of 1,000 small steps, in every format: chains, trees of sums, values that are read again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from pass_runs import lower

import nnefc
from nnefc.backends import backend_of
from nnefc.backends.cuda import CudaBackend
from nnefc.driver.formats import load_network
from nnefc.targets.machine.cpu.parsing import parse_target
from nnefc.targets.machine.cuda.target import parse_cuda_target

STEPS = 1000
SHAPE = (3,)


@dataclass(frozen=True)
class Step:
    """A value: an operator of ones before it, by their numbers."""

    operator: str
    operands: tuple[int, ...]


@dataclass(frozen=True)
class Steps:
    """The last step's value is the result; numbers below `inputs` are inputs."""

    inputs: int
    steps: tuple[Step, ...]

    def value(self, given: Sequence[np.ndarray]) -> np.ndarray:
        """The result by NumPy in float64."""
        functions: dict[str, Callable[..., np.ndarray]] = {
            "add": np.add, "sub": np.subtract, "neg": np.negative, "tanh": np.tanh,
        }  # fmt: skip
        values = [array.astype(np.float64) for array in given]
        for step in self.steps:
            values.append(functions[step.operator](*(values[k] for k in step.operands)))
        return values[-1]


def chain(count: int) -> Steps:
    """Each step reads the one before it."""
    return Steps(1, tuple(Step(("neg", "tanh", "neg")[k % 3], (k,)) for k in range(count)))


def tree(count: int) -> Steps:
    """The sum of `count` + 1 inputs, pair by pair."""
    return Steps(count + 1, tuple(Step("add", (2 * k, 2 * k + 1)) for k in range(count)))


def diamonds(count: int) -> Steps:
    """x = tanh(x) − (−x), again and again; then once more, for it to stay small: x = x − x + tanh(x)."""
    steps: list[Step] = []
    last = 0
    while len(steps) < count:
        first = len(steps) + 1
        steps += [
            Step("tanh", (last,)),
            Step("neg", (last,)),
            Step("sub", (first, first + 1)),
            Step("tanh", (first + 2,)),
        ]
        last = first + 3
    return Steps(1, tuple(steps))


def doubled(count: int) -> Steps:
    """Each second step reads the one before it twice: written out, 2⁵⁰⁰ reads of the input."""
    return Steps(1, tuple(Step("tanh", (k,)) if k % 2 else Step("add", (k, k)) for k in range(count)))


STRUCTURES = {"chain": chain, "tree": tree, "diamonds": diamonds, "doubled": doubled}


def write_nnef(steps: Steps, folder: Path) -> Path:
    """A document."""
    names = [f"v{k}" for k in range(steps.inputs + len(steps.steps))]
    lines = [f"{name} = external(shape = {list(SHAPE)});" for name in names[: steps.inputs]]
    for name, step in zip(names[steps.inputs :], steps.steps, strict=True):
        lines.append(f"{name} = {step.operator}({', '.join(names[k] for k in step.operands)});")
    path = folder / "model.nnef"
    path.write_text(
        f"version 1.0;\ngraph g({', '.join(names[: steps.inputs])}) -> ({names[-1]})\n{{\n" + "\n".join(lines) + "\n}\n"
    )
    return path


def write_onnx(steps: Steps, folder: Path) -> Path:
    """A graph."""
    names = [f"v{k}" for k in range(steps.inputs + len(steps.steps))]
    types = {"add": "Add", "sub": "Sub", "neg": "Neg", "tanh": "Tanh"}
    nodes = [
        helper.make_node(types[step.operator], [names[k] for k in step.operands], [name])
        for name, step in zip(names[steps.inputs :], steps.steps, strict=True)
    ]
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in names[: steps.inputs]]
    result = helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, SHAPE)
    model = helper.make_model(
        helper.make_graph(nodes, "g", given, [result]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


def _write_pnnx(lines: Sequence[str], operands: int, folder: Path) -> Path:
    path = folder / "model.pnnx.param"
    path.write_text("\n".join(["7767517", f"{len(lines)} {operands}", *lines, ""]))
    (folder / "model.pnnx.bin").write_bytes(b"PK\5\6" + bytes(18))  # an archive of nothing
    return path


def write_pnnx(steps: Steps, folder: Path) -> Path:
    """An expression for each step."""
    total = steps.inputs + len(steps.steps)
    lines = [f"pnnx.Input in{k} 0 1 {k} #{k}=({SHAPE[0]})f32" for k in range(steps.inputs)]
    for number, step in enumerate(steps.steps, steps.inputs):
        read = sorted(set(step.operands))
        text = f"{step.operator}({','.join(f'@{read.index(k)}' for k in step.operands)})"
        numbers = " ".join(map(str, [*read, number]))
        lines.append(f"pnnx.Expression e{number} {len(read)} 1 {numbers} expr={text} #{number}=({SHAPE[0]})f32")
    return _write_pnnx([*lines, f"pnnx.Output out 1 0 {total - 1}"], total, folder)


def write_deep_pnnx(steps: Steps, folder: Path) -> Path:
    """One expression; what is read twice is written twice."""
    texts = [f"@{k}" for k in range(steps.inputs)]
    for step in steps.steps:
        texts.append(f"{step.operator}({','.join(texts[k] for k in step.operands)})")
    lines = [f"pnnx.Input in{k} 0 1 {k} #{k}=({SHAPE[0]})f32" for k in range(steps.inputs)]
    numbers = " ".join(map(str, range(steps.inputs + 1)))
    result = f"#{steps.inputs}=({SHAPE[0]})f32"
    lines.append(f"pnnx.Expression e {steps.inputs} 1 {numbers} expr={texts[-1]} {result}")
    return _write_pnnx([*lines, f"pnnx.Output out 1 0 {steps.inputs}"], steps.inputs + 1, folder)


WRITERS = {"nnef": write_nnef, "onnx": write_onnx, "pnnx": write_pnnx}


def _check(steps: Steps, path: Path) -> None:
    rng = np.random.default_rng(0)
    given = [rng.uniform(-1, 1, SHAPE).astype(np.float32) for _ in range(steps.inputs)]
    with nnefc.compile(path).load() as network:
        (found,) = network.run(dict(zip([tensor.name for tensor in network.inputs], given, strict=True))).values()
    np.testing.assert_allclose(found, steps.value(given), rtol=1e-3, atol=1e-4)


QUICK = {("onnx", "doubled"): STEPS, ("nnef", "diamonds"): STEPS // 2, ("pnnx", "diamonds"): STEPS // 2}


@pytest.mark.parametrize(
    ("form", "structure", "count"),
    [
        *((form, structure, count) for (form, structure), count in QUICK.items()),
        *(
            pytest.param(form, structure, STEPS, marks=pytest.mark.slow)
            for form in WRITERS
            for structure in STRUCTURES
            if QUICK.get((form, structure)) != STEPS
        ),
    ],
)
def test_many_steps_compile_and_agree_with_numpy(form: str, structure: str, count: int, tmp_path: Path) -> None:
    steps = STRUCTURES[structure](count)
    _check(steps, WRITERS[form](steps, tmp_path))


@pytest.mark.parametrize("structure", ["chain", pytest.param("tree", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_one_deep_expression_compiles_and_agrees_with_numpy(structure: str, tmp_path: Path) -> None:
    steps = STRUCTURES[structure](STEPS)
    _check(steps, write_deep_pnnx(steps, tmp_path))


def _written_out(path: Path) -> int:
    """How long the scheduled kernels are as text, in which shared parts of expressions stand as often as they occur."""
    found: list[int] = []

    def observe(name: str, module: object) -> None:
        if name == "schedule":
            found.append(len(module.script()))  # type: ignore[attr-defined]

    lower(load_network(path), backend_of(parse_target("llvm")), observe)
    return found[0]


@pytest.mark.parametrize(
    "structure", ["doubled", *(pytest.param(s, marks=pytest.mark.slow) for s in ("diamonds", "tree"))]
)
@pytest.mark.sample(1)
def test_kernels_of_four_times_the_steps_are_four_times_as_long(structure: str, tmp_path: Path) -> None:
    make = STRUCTURES[structure]
    few, many = (_written_out(write_onnx(make(count), tmp_path)) for count in (STEPS // 8, STEPS // 2))
    assert many < 4.5 * few


@pytest.mark.parametrize(
    "structure", ["diamonds", *(pytest.param(s, marks=pytest.mark.slow) for s in ("chain", "tree", "doubled"))]
)
@pytest.mark.sample(1)
def test_source_for_gpus_is_linear_in_the_steps(structure: str, tmp_path: Path) -> None:
    backend = CudaBackend(parse_cuda_target("cuda -arch=sm_80"))

    def length(count: int) -> int:
        network = load_network(write_onnx(STRUCTURES[structure](count), tmp_path))
        return len(backend.device_code(lower(network, backend)).source)

    assert length(STEPS) < 1000 * STEPS


@pytest.mark.parametrize(
    ("operator", "kernels"), [("Tan", 3), ("Tanh", 3), ("Log", 6), ("Atanh", 6), ("Softplus", 12), ("Exp", 3)]
)
def test_few_elementary_functions_are_inside_each_other(operator: str, kernels: int, tmp_path: Path) -> None:
    nodes = [helper.make_node(operator, [f"v{k}"], [f"v{k + 1}"]) for k in range(12)]
    ends = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE)] for name in ("v0", "v12")]
    model = helper.make_model(
        helper.make_graph(nodes, "g", *ends), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    lowered = lower(load_network(path), backend_of(parse_target("llvm")))
    assert len(lowered.program.steps) == kernels
