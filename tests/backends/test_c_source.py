"""Networks as C source: without warnings of compilers, with the results of onnxruntime and of libraries."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from boards import BOARDS, run_on_board
from c_programs import CLANG, COMPILERS, STRICT, TCC, WARNINGS, CNetwork, compiled, written
from onnx import TensorProto, helper
from quantized_layers import quantized
from small_networks import NETWORKS, Net

import nnefc
from nnefc.support.diagnostics import CompileError
from nnefc.targets.link.elf_file import ElfFile

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "model.nnef"
TARGET = "generic-c"
QUICK = ("mobilenet", "recurrent", "control flow")
STATEFUL = """
version 1.0;

extension KHR_enable_operator_expressions;

graph count(x) -> (y)
{
    x = external<scalar>(shape = [1, 3]);
    w = variable<scalar>(shape = [3, 3], label = 'w');
    s = variable<scalar>(shape = [1, 3], label = 's');
    y = tanh(matmul(s, w) + x);
    t = update(s, y);
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("c_source")


@pytest.fixture(scope="module")
def digits(folder: Path) -> CNetwork:
    return written(nnefc.compile(DIGITS, TARGET), folder / "digits.c")


def model_of(name: str, path: Path) -> dict[str, np.ndarray]:
    """Writes a network of `small_networks`; returns inputs."""
    net = Net(7)
    onnx.save(net.model(NETWORKS[name](net)), path)
    return net.inputs


def expected(path: Path, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What onnxruntime computes."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs), strict=True))


@pytest.fixture(scope="module", params=[QUICK, pytest.param(tuple(NETWORKS), marks=pytest.mark.slow)], ids=len)
def networks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, CNetwork]:
    """Networks by name, and one in int8 for each of the two targets."""
    folder = tmp_path_factory.mktemp("networks")
    made = {}
    for name in request.param:
        path = folder / f"{name.replace(' ', '_')}.onnx"
        model_of(name, path)
        made[name] = written(nnefc.compile(path, TARGET), path.with_suffix(".c"))
    quantized(folder / "small.onnx")
    for name, target in (("int8", TARGET), ("int8 with DSP", f"{TARGET} -mcpu=cortex-m4")):
        path = folder / f"{name.replace(' ', '_')}.c"
        made[name] = written(nnefc.compile(folder / "small.onnx", target), path)
    return made


@pytest.mark.parametrize("command", COMPILERS, ids=lambda command: Path(command[-1]).stem)
def test_networks_compile_without_a_warning_and_compute_the_same(
    command: tuple[str, ...], networks: dict[str, CNetwork]
) -> None:
    compiled(list(networks.values()), command, *STRICT)
    for name, network in networks.items():
        path = network.path.with_suffix(".onnx")
        if not path.exists():
            path = path.with_name("small.onnx")
            inputs = {"x": quantized(path)}
        else:
            inputs = model_of(name, path)
        made = network.run(inputs)
        for output, value in expected(path, inputs).items():
            step = 0.051 if name.startswith("int8") else 2e-5  # of the last quantization, half way between two
            np.testing.assert_allclose(made[output], value, rtol=2e-4, atol=step, err_msg=f"{name} {output}")
        for output, value in network.run(inputs).items():
            np.testing.assert_array_equal(value, made[output])


def test_integers_are_those_of_libraries(networks: dict[str, CNetwork]) -> None:
    compiled(list(networks.values()), COMPILERS[0], *STRICT)
    model = networks["int8"].path.with_name("small.onnx")
    data = {"x": quantized(model)}
    (wanted,) = nnefc.compile(model).run(data).values()
    for name in ("int8", "int8 with DSP"):
        (made,) = networks[name].run(data).values()
        np.testing.assert_array_equal(made, wanted, err_msg=name)


def test_digits_are_recognized(digits: CNetwork) -> None:
    image = np.random.default_rng(0).random((1, 1, 8, 8)).astype(np.float32)
    (wanted,) = nnefc.compile(DIGITS).run({"image": image}).values()
    compiled([digits], COMPILERS[0], *STRICT)
    np.testing.assert_allclose(digits.run({"image": image})["probability"], wanted, rtol=1e-5, atol=1e-7)


@pytest.mark.skipif(not TCC, reason="needs tcc")
def test_a_simple_compiler_takes_it_too(digits: CNetwork) -> None:
    image = np.random.default_rng(2).random((1, 1, 8, 8)).astype(np.float32)
    made = [compiled([digits], command)[0].run({"image": image})["probability"] for command in (TCC, COMPILERS[0])]
    np.testing.assert_allclose(made[0], made[1], rtol=1e-6)


def test_source_is_c_plus_plus_too(digits: CNetwork, folder: Path) -> None:
    (folder / "digits.cpp").write_text(digits.path.read_text())
    options = ("-std=c++11", *WARNINGS, "-x", "c++", "-c", str(folder / "digits.cpp"), "-o", str(folder / "digits.o"))
    for command in COMPILERS:
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")


def test_source_includes_three_headers_at_most_and_writes_no_variable(digits: CNetwork) -> None:
    text = digits.path.read_text()
    included = {line.split()[1] for line in text.splitlines() if line.startswith("#include")}
    assert included <= {'"digits.h"', "<stdint.h>", "<string.h>", "<math.h>"}
    variables = [line for line in text.splitlines() if line.startswith("static ") and line.endswith("{")]
    assert all("(" in line or line.startswith("static const ") for line in variables)
    assert "malloc" not in text


def test_comments_name_the_operators_of_the_model(digits: CNetwork) -> None:
    text = digits.path.read_text()
    assert "softmax: probability" in text
    assert "Computes probability" in text


def test_empty_constants_are_not_copied(tmp_path: Path) -> None:
    """An output without elements, which has no address to copy from."""
    info, path = helper.make_tensor_value_info, tmp_path / "none.onnx"
    nodes = [helper.make_node("Slice", ["x", "begin", "end"], ["y"]), helper.make_node("Neg", ["x"], ["z"])]
    tensors = [
        [info("x", TensorProto.FLOAT, [3])],
        [info("y", TensorProto.FLOAT, [0]), info("z", TensorProto.FLOAT, [3])],
    ]
    bounds = [helper.make_tensor(name, TensorProto.INT64, [1], [2]) for name in ("begin", "end")]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", *tensors, bounds), ir_version=9), path)
    network = written(nnefc.compile(path, TARGET), tmp_path / "none.c")
    compiled([network], COMPILERS[0], *STRICT)
    x = np.array([1, 2, 3], np.float32)
    np.testing.assert_array_equal(network.run({"x": x})["z"], -x)


def test_functions_are_not_repeated_for_each_register(tmp_path: Path) -> None:
    """The exponential of a row is inlined once: four registers are no vector."""
    info, path = helper.make_tensor_value_info, tmp_path / "rows.onnx"
    nodes = [helper.make_node("Softmax", ["x"], ["y"])]
    tensors = [[info(name, TensorProto.FLOAT, [1, 12])] for name in "xy"]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", *tensors), ir_version=9), path)
    network = written(nnefc.compile(path, TARGET), tmp_path / "rows.c")
    assert network.path.read_text().count("= rows_exp(") == 1


def test_an_arena_may_be_static(digits: CNetwork, folder: Path) -> None:
    main = folder / "main.c"
    main.write_text(
        '#include "digits.h"\nint main(void) {\n'
        "    static float image[DIGITS_INPUT_0_ITEMS], probability[DIGITS_OUTPUT_0_ITEMS];\n"
        "    return digits_run(image, probability, digits_arena);\n}\n"
    )
    program = folder / "main"
    words = [*COMPILERS[0], *STRICT, "-DDIGITS_STATIC_ARENA", str(main), str(digits.path), "-lm", "-o", str(program)]
    subprocess.run(words, check=True)
    assert subprocess.run([str(program)], check=False).returncode == 0


def test_constants_are_in_the_section_that_a_macro_names(digits: CNetwork, folder: Path) -> None:
    made = folder / "sections.o"
    section = '-DDIGITS_CONSTANTS=__attribute__((section(".qspi")))'
    words = [*CLANG, "-target", "aarch64-linux-gnu", *STRICT, section, "-c", str(digits.path), "-o", str(made)]
    subprocess.run(words, check=True)
    file = ElfFile(np.fromfile(made, np.uint8), 1)
    tables = [file.part(each, np.dtype("u1")).tobytes() for each in file.sections if each["type"] == 3]
    (names,) = [table for table in tables if b".qspi" in table]
    (size,) = [each["size"] for each in file.sections if names[each["name"] :].startswith(b".qspi\0")]
    assert size >= digits.artifact.description.constant_bytes * 0.9 > 0


@pytest.mark.parametrize("option", ["-ffast-math", "-D__ARM_BIG_ENDIAN"])
def test_options_that_would_change_results_are_errors(option: str, digits: CNetwork) -> None:
    words = [*COMPILERS[0], "-std=c99", option, "-fsyntax-only", str(digits.path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "#error" in done.stderr or "error:" in done.stderr


def test_names_of_files_become_names_that_c_allows(digits: CNetwork, tmp_path: Path) -> None:
    for file, name in (("kws-small.c", "kws_small"), ("3d.c", "network_3d")):
        digits.artifact.export(tmp_path / file)
        assert f"int {name}_run(" in (tmp_path / f"{name}.h").read_text()
        assert f'#include "{name}.h"' in (tmp_path / file).read_text()


def test_trained_values_may_be_in_a_file_of_their_own(folder: Path, digits: CNetwork) -> None:
    image = np.random.default_rng(1).random((1, 1, 8, 8)).astype(np.float32)
    apart = written(digits.artifact, folder / "apart.c", weights="separate")
    assert "constant0" not in apart.path.read_text()
    compiled([apart, digits], COMPILERS[0], *STRICT)
    np.testing.assert_array_equal(
        apart.run({"image": image})["probability"], digits.run({"image": image})["probability"]
    )


@pytest.mark.parametrize("weights", ["embedded", "separate"])
def test_states_are_in_the_arena_and_begin_again(weights: str, tmp_path: Path) -> None:
    folder = tmp_path / "count"
    folder.mkdir()
    (folder / "graph.nnef").write_text(STATEFUL)
    network = written(nnefc.compile(folder, TARGET, random_weights=3), tmp_path / "count.c", weights)
    compiled([network], COMPILERS[0], *STRICT)
    x = {"x": np.array([[1, 2, 3]], np.float32)}
    with nnefc.compile(folder, random_weights=3).load() as library:
        wanted = [library.run(x)["y"] for _ in range(3)]
    for _ in range(2):
        network.reset()
        for value in wanted:
            np.testing.assert_allclose(network.run(x)["y"], value, rtol=1e-6)


def test_weights_are_replaced_without_the_code(tmp_path: Path) -> None:
    """Networks of one structure have the same code, which compares weights with what it expects."""
    (tmp_path / "count").mkdir()
    (tmp_path / "count" / "graph.nnef").write_text(STATEFUL)
    (tmp_path / "sine").mkdir()
    (tmp_path / "sine" / "graph.nnef").write_text(STATEFUL.replace("tanh", "sin"))
    made = []
    for seed, name in ((3, "count"), (4, "count"), (3, "sine")):
        (tmp_path / f"seed{len(made)}").mkdir()
        artifact = nnefc.compile(tmp_path / name, TARGET, random_weights=seed)
        made.append(written(artifact, tmp_path / f"seed{len(made)}" / "count.c", "separate"))
    old, new, sine = made
    for suffix in (".c", ".h"):
        assert old.path.with_suffix(suffix).read_bytes() == new.path.with_suffix(suffix).read_bytes()
    compiled([old], COMPILERS[0], *STRICT)
    check, weights = old.library.count_check_weights, new.weights
    changed = weights.copy()
    changed[-1] ^= 1
    found = [check(w.ctypes.data_as(ctypes.c_void_p), w.size) for w in (weights, weights[:-1], sine.weights, changed)]
    assert found == [0, 1, 2, 3]
    x, results = {"x": np.array([[1, 2, 3]], np.float32)}, []
    for each in (old.weights, weights):
        old.weights = each
        old.reset()
        results.append(old.run(x)["y"])
    assert np.abs(results[0] - results[1]).min() > 1e-3
    old.weights = sine.weights
    old.run(x, status=-1)


def gather(path: Path) -> None:
    """Writes a network whose second input are positions in the first."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Gather", ["x", "i"], ["y"])],
        "g",
        [info("x", TensorProto.FLOAT, (5, 2)), info("i", TensorProto.INT64, (3,))],
        [info("y", TensorProto.FLOAT, (3, 2))],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def test_dsp_instructions_are_those_of_cmsis_where_its_header_is_named(
    networks: dict[str, CNetwork], tmp_path: Path
) -> None:
    """The header here is one with the same functions, written with the portable ones' arithmetic."""
    network = networks["int8 with DSP"]
    text = network.path.read_text()
    assert "int8_with_DSP_smlad(" in text
    (tmp_path / "cmsis.h").write_text(
        "static inline uint32_t __SMLAD(uint32_t a, uint32_t b, uint32_t c) {\n"
        "    int32_t low = (int16_t)(a & 0xffffu) * (int16_t)(b & 0xffffu);\n"
        "    int32_t high = (int16_t)(a >> 16) * (int16_t)(b >> 16);\n"
        "    return c + (uint32_t)low + (uint32_t)high;\n}\n"
        "static inline uint32_t __SXTB16(uint32_t a) {\n"
        "    return ((uint32_t)(int8_t)(a & 0xffu) & 0xffffu) | ((uint32_t)(int8_t)((a >> 16) & 0xffu) << 16);\n}\n"
        "static inline uint32_t __UXTB16(uint32_t a) { return a & 0x00ff00ffu; }\n"
        "static inline uint32_t __ROR(uint32_t a, uint32_t n) { return (a >> n) | (a << (32u - n)); }\n"
    )
    model = network.path.with_name("small.onnx")
    data = {"x": quantized(model)}
    compiled([network], COMPILERS[0], "-std=c99", f"-I{tmp_path}", '-DINT8_WITH_DSP_CMSIS="cmsis.h"')
    (made,) = network.run(data).values()
    (wanted,) = nnefc.compile(model).run(data).values()
    np.testing.assert_array_equal(made, wanted)


@pytest.mark.parametrize(
    ("options", "message", "hint"),
    [
        ({"target": "generic-c -mcpu=zen4"}, "C source has no instructions of 'zen4'", "cortex-m4"),
        ({"target": "generic-c -mattr=+dsp"}, "unknown option '-mattr=", "-mcpu=cortex-m4"),
        ({"target": "generic-c", "reproducible": True}, "have no reproducible results", ""),
        ({"target": "generic-c", "profile": True}, "do not time their kernels", ""),
    ],
)
def test_options_that_c_source_does_not_have_are_refused(options: dict[str, object], message: str, hint: str) -> None:
    with pytest.raises(CompileError, match=message) as error:
        nnefc.compile(DIGITS, **options)  # type: ignore[arg-type]
    assert hint in (error.value.hint or "")


def test_c_source_is_neither_loaded_nor_a_library(digits: CNetwork, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"is C source.*\n.*end the name with \.c"):
        digits.artifact.export(tmp_path / "digits.so")
    with pytest.raises(CompileError, match="C source"):
        digits.artifact.load()
    assert list(tmp_path.iterdir()) == []


def test_dynamic_sizes_are_refused_with_a_way_out(tmp_path: Path) -> None:
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [info("x", TensorProto.FLOAT, ("batch", 2))],
        [info("y", TensorProto.FLOAT, ("batch", 2))],
    )
    path = tmp_path / "open.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    with pytest.raises(CompileError, match=r"no heap, which sizes that are known at run time need.*\n.*--shape"):
        nnefc.compile(path, TARGET)
    nnefc.compile(path, TARGET, shape={"batch": 3}).export(tmp_path / "known.c")


def test_an_index_out_of_range_is_no_access_out_of_bounds(tmp_path: Path) -> None:
    gather(tmp_path / "gather.onnx")
    network = written(nnefc.compile(tmp_path / "gather.onnx", TARGET), tmp_path / "gather.c")
    compiled([network], CLANG, "-std=c99", "-fsanitize=bounds")
    x = np.arange(10, dtype=np.float32).reshape(5, 2)
    made = network.run({"x": x, "i": np.array([4, -1, 0])})["y"]
    np.testing.assert_array_equal(made, x[[4, 4, 0]])


def test_the_same_bytes_are_written_twice(digits: CNetwork, tmp_path: Path) -> None:
    again = written(nnefc.compile(DIGITS, TARGET), tmp_path / "digits.c")
    assert again.path.read_bytes() == digits.path.read_bytes()
    assert again.path.with_suffix(".h").read_bytes() == digits.path.with_suffix(".h").read_bytes()


@pytest.mark.parametrize("board", ["cortex-m0plus", "cortex-m4", "riscv32imc"])
@pytest.mark.sample(1)
def test_source_runs_on_microcontrollers(board: str, networks: dict[str, CNetwork]) -> None:
    if BOARDS[board].missing:
        pytest.skip(f"needs {BOARDS[board].missing}")
    network = networks["int8 with DSP" if board == "cortex-m4" else "int8"]
    model = network.path.with_name("small.onnx")
    data = {"x": quantized(model)}
    (wanted,) = nnefc.compile(model).run(data).values()
    (made,) = run_on_board(network.artifact, data, target=board).outputs.values()
    np.testing.assert_array_equal(made, wanted)
