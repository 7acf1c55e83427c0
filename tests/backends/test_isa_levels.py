"""Libraries with code for several levels of an instruction set: which one runs, and that it is right."""

from __future__ import annotations

import ctypes
import math
import re
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner
from emulation import MACHINES, Machine, refused_by, run_on, with_glibc
from onnx import TensorProto, helper, numpy_helper
from runtime_samples import ZIG_CC
from small_networks import Net

import nnefc
from nnefc.cli import main
from nnefc.support.diagnostics import CompileError
from nnefc.targets.link.toolchain import RUNTIME
from nnefc.targets.machine.cpu.multiversioning import with_levels
from nnefc.targets.machine.cpu.parsing import parse_target

RNG = np.random.default_rng(29)
LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")

EMULATED = [
    Machine("nehalem", "x86-64 -multi", ("qemu-x86_64", "-cpu", "Nehalem"), opened=True),
    Machine("haswell", "x86-64 -multi", ("qemu-x86_64", "-cpu", "max"), opened=True),
    with_glibc("cortex-a53", "aarch64-linux-gnu -multi", "qemu-aarch64", "-cpu", "cortex-a53", opened=True),
    with_glibc("cortex-a76", "aarch64-linux-gnu -multi", "qemu-aarch64", "-cpu", "cortex-a76", opened=True),
    with_glibc("newest-arm", "aarch64-linux-gnu -multi", "qemu-aarch64", "-cpu", "max", opened=True),
]
ON_X86 = pytest.mark.skipif(bool(MACHINES[0].missing), reason="needs an x86-64 system with glibc and qemu-x86_64")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray], list[np.ndarray]]:
    """Convolutions of floats, and sums of products of bytes to the last bit. Inputs and results."""
    net = Net(5)
    x = net.convolution(net.floats(1, 3, 18, 22), 3, 16, stride=2)
    y = net.convolution(net.convolution(x, 16, 16, groups=16), 16, 16, 1, relu=False)
    outputs = [net.classified(net.do("Add", x, y), 16)]
    rows = net.given(RNG.integers(0, 256, (5, 40)).astype(np.uint8))
    matrix = RNG.integers(-128, 128, (40, 33)).astype(np.int8)
    outputs.append(net.do("MatMulInteger", rows, net.constant(matrix)))
    path = tmp_path_factory.mktemp("levels") / "m.onnx"
    onnx.save(net.model(outputs), path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return path, net.inputs, session.run(None, net.inputs)


@pytest.fixture(scope="module")
def x86(network: tuple[Path, dict[str, np.ndarray], list[np.ndarray]]) -> nnefc.Artifact:
    return nnefc.compile(network[0], "x86-64", multi=True)


@pytest.fixture(scope="module")
def small_network(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, dict[str, np.ndarray], list[np.ndarray]]:
    """A convolution of floats, and sums of products of bytes."""
    net = Net(7)
    outputs = [net.convolution(net.floats(1, 3, 9, 11), 3, 16, stride=2)]
    rows = net.given(RNG.integers(0, 256, (5, 40)).astype(np.uint8))
    outputs.append(net.do("MatMulInteger", rows, net.constant(RNG.integers(-128, 128, (40, 33)).astype(np.int8))))
    path = tmp_path_factory.mktemp("small") / "m.onnx"
    onnx.save(net.model(outputs), path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return path, net.inputs, session.run(None, net.inputs)


@pytest.fixture(scope="module")
def arm(small_network: tuple[Path, dict[str, np.ndarray], list[np.ndarray]]) -> nnefc.Artifact:
    return nnefc.compile(small_network[0], "aarch64-linux-gnu", multi=True)


def agree(found: dict[str, np.ndarray], expected: list[np.ndarray]) -> None:
    for result, right in zip(found.values(), expected, strict=True):
        if right.dtype == np.int32:
            np.testing.assert_array_equal(result, right)
        else:
            np.testing.assert_allclose(result, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "machine",
    [pytest.param(each, marks=[pytest.mark.slow] * (each.name in ("haswell", "cortex-a76"))) for each in EMULATED],
    ids=lambda machine: machine.name,
)
def test_each_processor_gets_right_results(machine: Machine, request: pytest.FixtureRequest) -> None:
    if machine.missing:
        pytest.skip(f"needs: {machine.missing}")
    on_x86 = machine.target.startswith("x86")
    _, inputs, expected = request.getfixturevalue("network" if on_x86 else "small_network")
    agree(run_on(machine, request.getfixturevalue("x86" if on_x86 else "arm"), inputs), expected)


@ON_X86
def test_a_processor_below_all_levels_is_refused(x86: nnefc.Artifact) -> None:
    message = refused_by(Machine("oldest", "x86-64 -multi", ("qemu-x86_64", "-cpu", "qemu64"), opened=True), x86)
    assert "compiled for x86-64-v2, but this processor lacks ssse3" in message


def on_level(
    artifact: nnefc.Artifact, level: str, inputs: dict[str, np.ndarray], patch: pytest.MonkeyPatch
) -> dict[str, np.ndarray]:
    patch.setenv("NNEFC_LEVEL", level)
    with artifact.load(threads=1) as model:
        if model.target != level:
            pytest.skip(f"needs {level}")
        return model.run(inputs)


@ON_X86
@pytest.mark.parametrize("level", [*LEVELS, "x86-64-v4-vnni"])
@pytest.mark.sample(2)
def test_a_level_computes_what_its_own_library_does(
    level: str,
    x86: nnefc.Artifact,
    network: tuple[Path, dict[str, np.ndarray], list[np.ndarray]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path, inputs, expected = network
    found = on_level(x86, level, inputs, monkeypatch)
    agree(found, expected)
    if level == LEVELS[1]:
        with nnefc.compile(path, level).load(threads=1) as own:
            agree(found, list(own.run(inputs).values()))


def test_levels_have_the_constants_once_and_not_much_more_code(
    x86: nnefc.Artifact, network: tuple[Path, dict[str, np.ndarray], list[np.ndarray]]
) -> None:
    own = nnefc.compile(network[0], "x86-64-v4")
    assert x86.description.constant_bytes < own.description.constant_bytes + 3 * 40 * 64  # bytes in several orders
    levels = [level.target for level in x86.description.levels]
    assert levels == [*LEVELS[:2], "x86-64-v3-vnni", "x86-64-v4", "x86-64-v4-vnni", "x86-64-v4-amx"]
    sizes = {
        level.target: sum(map(len, code.objects))
        for level, code in zip(x86.description.levels, x86.code.levels, strict=True)  # type: ignore[attr-defined]
    }
    for level in ("x86-64-v3", "x86-64-v4"):  # only kernels of integers differ
        assert sizes[f"{level}-vnni"] < sizes[level] / 2
    assert sum(sizes[level] for level in LEVELS) < 3.5 * sum(map(len, own.code.objects))


def test_code_for_avx_vnni_has_its_encoding_and_no_registers_of_avx512(
    network: tuple[Path, dict[str, np.ndarray], list[np.ndarray]], tmp_path: Path
) -> None:
    """VPDPBUSD with the prefix VEX: 256 bits, C4 E2, 50."""
    artifact = nnefc.compile(network[0], "llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v3 -mattr=+avxvnni")
    artifact.emit("asm", tmp_path)
    text = "".join(file.read_text() for file in sorted(tmp_path.glob("*.s")))
    lines = [line.split("#")[0].strip() for line in text.splitlines() if "vpdpbusd" in line]
    assert lines
    assert all(re.fullmatch(r"\{vex\}\s+vpdpbusd\s.*", line) for line in lines)
    assert "%zmm" not in text
    code = b"".join(artifact.code.objects)  # type: ignore[union-attr]
    assert re.search(rb"\xc4[\x02\x22\x42\x62\x82\xa2\xc2\xe2][\x05-\x7d]\x50", code)


CHOICE = """
#include <stdint.h>
#include <string.h>
#include "model.h"
#include "machine/cpu.h"

static const char *owned;
bool nnefc_cpu_has(const char *feature) {
    char word[40] = ",";
    strcat(strcat(word, feature), ",");
    return strstr(owned, word) != NULL;
}
static bool is_refused;
bool nnefc_cpu_permit(const char *feature) { return !is_refused || strcmp(feature, "amx-tile") != 0; }
%s
#include "levels/isa_levels.c"

const char *choose(const char *features, int refused) {
    owned = features;
    is_refused = refused;
    chosen = NULL;
    is_copied = false;
    nnefc_choose_level();
    return nnefc_this_model.description.target;
}
"""


@ON_X86
def test_the_last_level_is_chosen_that_a_processor_has(tmp_path: Path) -> None:
    """The C of libraries with levels, with processors of other names than this one."""
    wanted = {
        "x86-64": {
            "nehalem": "x86-64-v2",
            "znver3": "x86-64-v3",
            "alderlake": "x86-64-v3-vnni",
            "arrowlake": "x86-64-v3-vnni",
            "skylake-avx512": "x86-64-v4",
            "icelake-server": "x86-64-v4-vnni",
            "znver4": "x86-64-v4-bf16",
            "sapphirerapids": "x86-64-v4-amx",
        },
        "aarch64-linux-gnu": {"cortex-a53": "armv8-a", "cortex-a76": "armv8.2-a", "neoverse-v2": "armv8.6-a"},
    }
    for name, processors in wanted.items():
        levels = with_levels(parse_target(name)).levels
        lines = []
        for number, level in enumerate(levels):
            features = [*level.features, *level.tiles]
            words = ", ".join(f'"{feature}"' for feature in features) or "0"
            lines += [
                f"static const char *const features{number}[] = {{{words}}};",
                f'static const nnefc_model level{number} = {{.description = {{.target = "{level.name}", '
                f".cpu_features = features{number}, .cpu_feature_count = {len(features)}}}}};",
            ]
        lines.append(
            f"const nnefc_model *const nnefc_levels[] = {{{', '.join(f'&level{n}' for n in range(len(levels)))}}};"
        )
        lines.append(f"const uint32_t nnefc_level_count = {len(levels)};")
        source, library = tmp_path / f"{name}.c", tmp_path / f"{name}.so"
        source.write_text(CHOICE % "\n".join(lines))
        subprocess.run(
            [*ZIG_CC, "-shared", "-DNNEFC_LEVELS", f"-I{RUNTIME}", str(source), "-o", str(library)], check=True
        )
        choose = ctypes.CDLL(str(library)).choose
        choose.restype = ctypes.c_char_p
        for processor, level in processors.items():
            machine = parse_target(processor)
            features = f",{','.join((*machine.features, *machine.tiles))},".encode()
            assert choose(features, 0).decode() == level, processor
            if processor == "sapphirerapids":
                assert choose(features, 1).decode() == "x86-64-v4-bf16"


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, np.ndarray], list[np.ndarray]]:
    """Convolutions whose channels fill blocks of 8, and not of 16: in tiles of few rows, of a prime width."""
    net = Net(6)
    x = net.convolution(net.floats(1, 24, 14, 15), 24, 56, 1)
    outputs = [net.convolution(x, 56, 72, stride=2)]
    path = tmp_path_factory.mktemp("narrow") / "m.onnx"
    onnx.save(net.model(outputs), path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return path, net.inputs, session.run(None, net.inputs)


@pytest.mark.slow
@ON_X86
def test_levels_with_narrower_blocks_read_the_same_filters(
    narrow: tuple[Path, dict[str, np.ndarray], list[np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, inputs, expected = narrow
    shared, *alone = (
        nnefc.compile(path, name, multi=name == "x86-64", memory_budget=1) for name in ("x86-64", *LEVELS[1:])
    )
    assert shared.description.constant_bytes < 1.15 * alone[1].description.constant_bytes
    assert shared.description.levels[1].workspace_bytes == alone[0].description.workspace_bytes  # so are the blocks
    for level in LEVELS:
        agree(on_level(shared, level, inputs, monkeypatch), expected)


@ON_X86
def test_dynamic_sizes_specializations_and_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = (RNG.standard_normal((24, 20)) / 5).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "s", 24])]
    made = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "s", 20])]
    constants = [numpy_helper.from_array(matrix, "w")]
    path = tmp_path / "m.onnx"
    graph = helper.make_graph(nodes, "g", given, made, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    artifact = nnefc.compile(path, "x86-64", multi=True, specialize=[{"n": 1, "s": 20}], profile=True)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for level in LEVELS[:2]:
        monkeypatch.setenv("NNEFC_LEVEL", level)
        with artifact.load(threads=2) as model:
            for shape in ((1, 20, 24), (2, 7, 24), (1, 20, 24)):
                x = RNG.standard_normal(shape).astype(np.float32)
                np.testing.assert_allclose(model(x), session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)
            times = model.profile()
            (described,) = (one for one in artifact.description.levels if one.target == level)
            assert [time.kernel for time in times] == [kernel.kernel for kernel in described.kernels]
            assert all(time.calls in (1, 2) for time in times)


@ON_X86
def test_states_are_those_of_every_level(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.nnef"
    path.write_text(
        "version 1.0;\n"
        "extension KHR_enable_operator_expressions;\n"
        "graph g(x) -> (y)\n"
        "{\n"
        "    x = external<scalar>(shape = [1, 20]);\n"
        "    s = variable<scalar>(shape = [1, 20], label = 's');\n"
        "    w = variable<scalar>(shape = [20, 20], label = 'w');\n"
        "    y = tanh(matmul(x, w) + s);\n"
        "    t = update(s, y);\n"
        "}\n"
    )
    artifact = nnefc.compile(path, "x86-64", multi=True, random_weights=3)
    x, results = RNG.standard_normal((1, 20)).astype(np.float32), []
    for level in LEVELS[:2]:
        monkeypatch.setenv("NNEFC_LEVEL", level)
        with artifact.load(threads=1) as model:
            results.append([model(x), model(x), model(x)])
    np.testing.assert_allclose(*results, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@ON_X86
def test_precisions_are_those_of_every_level(
    network: tuple[Path, dict[str, np.ndarray], list[np.ndarray]], monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = nnefc.compile(network[0], "x86-64", multi=True, precision="bf16")
    monkeypatch.setenv("NNEFC_LEVEL", LEVELS[0])
    with artifact.load(threads=1) as model:
        assert model.target == f"{LEVELS[0]} -precision=bf16"
        found, whole = model.run(network[1]).values()
    np.testing.assert_allclose(found, network[2][0], atol=1e-2)
    np.testing.assert_array_equal(whole, network[2][1])


def test_the_levels_are_in_the_description_of_the_file(x86: nnefc.Artifact, tmp_path: Path) -> None:
    x86.export(tmp_path / "m.so")
    message = CliRunner().invoke(main, ["inspect", str(tmp_path / "m.so")]).output
    assert "x86-64 -multi" in message
    assert all(f"{level}: sse3" in message for level in LEVELS)


def test_code_of_all_levels_is_written_as_text(tmp_path: Path) -> None:
    path = tmp_path / "m.nnef"
    path.write_text(
        "version 1.0;\ngraph g(x) -> (y)\n{\n    x = external<scalar>(shape = [1, 9]);\n    y = exp(x);\n}\n"
    )
    nnefc.compile(path, "x86-64", multi=True).emit("asm", tmp_path / "text")
    names = sorted(file.name for file in (tmp_path / "text").iterdir())
    assert names == [f"level{n}_{part}.s" for n in range(3) for part in ("entry", "kernels0")]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("riscv64-linux-gnu", "has no levels"),
        ("cortex-m4", "has no levels"),
        ("sapphirerapids", "no level above"),
    ],
)
def test_targets_without_levels_are_refused(target: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=message):
        nnefc.compile(tmp_path / "m.nnef", target, multi=True)


def test_levels_below_the_target_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "m.nnef"
    path.write_text(
        "version 1.0;\ngraph g(x) -> (y)\n{\n    x = external<scalar>(shape = [1, 9]);\n    y = exp(x);\n}\n"
    )
    artifact = nnefc.compile(path, "x86-64-v3", multi=True)
    assert [level.target for level in artifact.description.levels] == list(LEVELS[1:])
    assert math.prod(artifact.outputs[0].shape) == 9
