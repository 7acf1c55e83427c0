"""The programs in the documentation run, and its links lead somewhere."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import fuzz_counts
import narrow_instructions
import numpy as np
import onnx
import onnx.parser
import pytest
import tvm
from click.testing import CliRunner
from relax_programs import target
from runtime_samples import CPP, ZIG_CC
from tvm import relax, te

from nnefc.cli import main
from nnefc.ir.attributes import RULE
from nnefc.loader import load
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cpu import CPU_RULES
from nnefc.passes.schedule.rule import scheduled

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
DIGITS = ROOT / "examples" / "digits"


def test_the_table_of_instructions_is_that_of_the_compiler() -> None:
    assert narrow_instructions.PAGE.read_text() == narrow_instructions.page(), "run: python docs/narrow_instructions.py"


def test_what_was_tried_is_what_the_record_says() -> None:
    assert fuzz_counts.PAGE.read_text() == fuzz_counts.page(), "run: python docs/fuzz_counts.py"
    assert fuzz_counts.FINDINGS.read_text() == fuzz_counts.findings(), "run: python docs/fuzz_counts.py"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder like the repository's root to a program: the same examples, but empty otherwise."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import nnefc

    path = tmp_path_factory.mktemp("library") / "digits.so"
    nnefc.compile(DIGITS / "model.nnef").export(path)
    return path


def run(command: list[str], folder: Path) -> str:
    """The output of a program that finds this environment's `nnefc` and must succeed."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=environment, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_commands_of_the_readme(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, which has imported what they need."""
    monkeypatch.chdir(folder)
    (commands,) = blocks(ROOT / "README.md", "sh")
    output = ""
    for line in commands.splitlines():
        program, *words = shlex.split(line, comments=True)
        done = CliRunner().invoke(main, words)
        assert (program, done.exit_code) == ("nnefc", 0), done.output
        output += done.output
    assert "multiply-adds" in output
    assert "milliseconds a run" in output


def test_the_python_program_of_the_readme(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    (program,) = blocks(ROOT / "README.md", "python")
    exec(program, {})
    assert int(capsys.readouterr().out) == np.load(DIGITS / "test.npz")["labels"][0]


def test_the_c_program_of_the_page_on_deployment(folder: Path, library: Path) -> None:
    program, _ = blocks(ROOT / "docs" / "deployment.md", "c")
    (folder / "main.c").write_text(program)
    shutil.copy(library, folder / "digits.so")
    run(
        [*ZIG_CC, f"-I{ROOT / 'targets' / 'runtime'}", "main.c", "digits.so", "-Wl,-rpath,$ORIGIN", "-o", "main"],
        folder,
    )
    lines = run(["./main"], folder).splitlines()
    probabilities = [float(line.partition(": ")[2]) for line in lines]
    assert len(probabilities) == 10
    assert sum(probabilities) == pytest.approx(1, abs=0.01)


def test_the_loader_alone_runs_the_program_of_the_page_on_deploying(folder: Path, library: Path) -> None:
    (program,) = blocks(ROOT / "docs" / "deployment.md", "python")
    shutil.copy(library, folder / "digits.so")
    shutil.copytree(ROOT / "compiler" / "loader", folder / "loader")
    (folder / "main.py").write_text(f"{program}\nimport sys\nassert 'nnefc' not in sys.modules\n")
    assert "probability: float32[1, 10]" in run([sys.executable, "main.py"], folder)


def test_the_cpp_program_of_the_page_on_deploying(folder: Path, library: Path) -> None:
    (program,) = blocks(ROOT / "docs" / "deployment.md", "cpp")
    (folder / "main.cpp").write_text(program)
    shutil.copy(library, folder / "digits.so")
    include = f"-I{ROOT / 'targets' / 'runtime'}"
    run([*CPP, "-std=c++17", include, "main.cpp", "-ldl", "-o", "main"], folder)
    assert run(["./main"], folder) == "10\n"


@pytest.mark.slow
def test_the_networks_of_the_page_on_deploying_link_into_its_program(folder: Path) -> None:
    commands, _ = blocks(ROOT / "docs" / "deployment.md", "sh")
    _, program = blocks(ROOT / "docs" / "deployment.md", "c")
    run(["sh", "-e", "-c", commands], folder)
    (folder / "main.c").write_text(program)
    run([*ZIG_CC, "-I.", "main.c", "libdigits.a", "again.o", "-lm", "-lpthread", "-o", "main"], folder)
    first, second = run(["./main"], folder).splitlines()
    assert first == second
    assert first.startswith("digits: 0.")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs: openssl")
def test_the_page_on_deploying_signs(folder: Path, library: Path) -> None:
    _, commands = blocks(ROOT / "docs" / "deployment.md", "sh")
    signed = folder / "signed"
    signed.mkdir()
    shutil.copy(library, signed / "digits.so")
    assert "digits.so is as it was signed" in run(["sh", "-e", "-c", commands], signed).splitlines()
    load(signed / "digits.so", key=signed / "key.pub.pem").close()


def test_the_page_on_serving(folder: Path, library: Path) -> None:
    """Its client, and its requests by hand, which are those of a shell with curl."""
    for package in ("aiohttp", "grpc", "tritonclient.http"):
        pytest.importorskip(package)
    page = ROOT / "docs" / "how-to" / "serving.md"
    (program, *_), (commands, *_) = blocks(page, "python"), blocks(page, "sh")
    command = [sys.executable, "-m", "nnefc", "serve", str(library), "--port", "0", "--no-grpc"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        try:
            lines = iter(server.stderr or ())
            port = next(found[1] for found in (re.match(r"listening: http .*:(\d+)", line) for line in lines) if found)
            program = program.replace("8000", port) + "print(scores.shape)\n"
            assert run([sys.executable, "-c", program], folder) == "(1, 10)\n"
            if shutil.which("curl"):
                output = run(["sh", "-e", "-c", commands.replace("8000", port)], folder)
                compact = output.replace(" ", "")
                assert '"datatype":"FP32","shape":[1,1,8,8]' in compact and '"data":[' in compact
        finally:
            server.terminate()


@pytest.mark.slow
def test_the_page_on_looking_inside(folder: Path) -> None:
    view, passes, compare, checked = blocks(ROOT / "docs" / "how-to" / "look-inside.md", "sh")
    run(["sh", "-e", "-c", view], folder)
    assert "as compiled" in (folder / "digits.html").read_text()
    output = run(["sh", "-e", "-c", passes], folder)
    assert re.search(r"^ +\d+  legalize +fuse$", output, re.M)  # the list
    assert "R.call_tir(" in output  # the program after fusion
    assert (folder / "phases" / "000_network.py").exists()
    output = run(["sh", "-e", "-c", compare], folder)
    assert re.search(
        r"^compared with each operator by itself: \d+ tensors and 1 outputs, 0 of them too far", output, re.M
    )
    run(["sh", "-e", "-c", checked], folder)
    assert "every divisor" in run([f"{Path(sys.executable).parent}/nnefc", "inspect", "digits.so"], folder)


@pytest.mark.slow
def test_the_page_on_conversion(folder: Path) -> None:
    page = ROOT / "docs" / "how-to" / "convert.md"
    make, use = blocks(page, "python")
    standard, tract = blocks(page, "sh")
    (error,) = blocks(page, "text")
    run([sys.executable, "-c", make], folder)
    output = run(["sh", "-e", "-c", standard], folder)
    assert "# _features is '/features'\n" in output
    assert "net_kernel = variable<scalar>(shape = [10, 3, 3, 3], label = 'net.kernel');" in output
    with pytest.raises(AssertionError) as caught:
        run([f"{Path(sys.executable).parent}/nnefc", "convert", "net.onnx", "-o", "net.nnef"], folder)
    assert " ".join(error.split()) in " ".join(str(caught.value).split())
    assert "tract_core_erf(" in run(["sh", "-e", "-c", tract], folder)
    assert run([sys.executable, "-c", use], folder) == "True\n"


@pytest.mark.slow
def test_the_digits_are_quantized_as_the_documentation_shows(folder: Path) -> None:
    page = ROOT / "docs" / "how-to" / "quantize.md"
    (program,), (compile_it, quantize_it) = blocks(page, "python"), blocks(page, "sh")
    run([sys.executable, "-c", program], folder)
    run(["sh", "-e", "-c", compile_it], folder)
    whole = (folder / "digits.so").read_bytes()
    printed = run(["sh", "-e", "-c", quantize_it], folder)
    names = [line.split()[0] for line in blocks(page, "text")[0].splitlines()]
    assert [line.split()[0] for line in printed.splitlines()] == names
    page_of_memory = 4096  # files name their sources, which may take one more
    assert abs(len((folder / "digits.so").read_bytes()) - len(whole)) <= page_of_memory


@pytest.mark.slow
def test_the_page_on_dynamic_sizes_from_the_model_to_the_c_program(folder: Path) -> None:
    page = ROOT / "docs" / "how-to" / "dynamic-shapes.md"
    make, use = blocks(page, "python")
    (commands,), (program,) = blocks(page, "sh"), blocks(page, "c")
    run([sys.executable, "-c", make], folder)
    output = run(["sh", "-e", "-c", commands], folder)
    assert "--shape batch=1..64,height=32..1280:32,width=32..1280:32" in output
    assert "dimension  height  32 to 256, multiples of 8" in output
    assert "[3, 10]" in output
    lines = run([sys.executable, "-c", use], folder).splitlines()
    assert lines[:3] == ["image: float32[batch, 3, height, width]", "scores: float32[batch, 10]", "batch: 1 to 64"]
    assert lines[5:] == ["(1, 10)", "(8, 10)", "(3, 10)"]
    (folder / "main.c").write_text(program)
    words = [f"-I{ROOT / 'targets' / 'runtime'}", "main.c", "net.so", "-Wl,-rpath,$ORIGIN", "-o", "main"]
    run([*ZIG_CC, *words], folder)
    assert run(["./main"], folder) == "3 x 10\n"


def programs_for_python() -> list[str]:
    return blocks(ROOT / "docs" / "how-to" / "python.md", "python")


def rows_network() -> onnx.ModelProto:
    """Products of a dynamic number of rows."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    rows (float[batch, 8] x) => (float[batch, 3] y) { y = MatMul (x, w) }"""
    model = onnx.parser.parse_model(text)
    weights = np.random.default_rng(0).standard_normal((8, 3)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    return model


def test_the_page_on_programs_in_python(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Options, sessions in place of onnxruntime's, and pools of sessions."""
    import nnefc

    monkeypatch.chdir(folder)
    onnx.save(rows_network(), "net.onnx")
    nnefc.compile("net.onnx").export("net.so")
    images = np.random.default_rng(1).random((9, 8), np.float32)
    wanted = nnefc.load("net.so")(images)
    options, session, pool, *_ = programs_for_python()
    names: dict[str, Any] = {"images": images}
    exec(options, names)
    assert [str(size) for size in names["artifact"].inputs[0].shape] == ["batch", "8"]
    exec(session, names)
    np.testing.assert_array_equal(names["scores"], wanted)
    exec(pool, names)
    np.testing.assert_array_equal(names["some"], wanted[:3])
    np.testing.assert_array_equal(names["all_of_them"], wanted)


def test_the_page_on_programs_with_pytorch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")

    monkeypatch.chdir(folder)
    (program,) = (text for text in programs_for_python() if "# with torch" in text)
    module, images = torch.nn.Linear(5, 2), torch.randn(3, 5)
    names: dict[str, Any] = {"torch": torch, "module": module, "images": images}
    exec(program.replace('"nnefc"', "nnefc.torch.backend"), names)  # by its name where the package is installed
    torch.testing.assert_close(names["scores"], module(images).detach())


def test_the_page_on_programs_with_scikit_learn(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("skl2onnx")
    from sklearn.linear_model import LogisticRegression

    monkeypatch.chdir(folder)
    (program,) = (text for text in programs_for_python() if "# with scikit-learn" in text)
    samples = np.random.default_rng(2).random((20, 3), np.float32)
    pipeline = LogisticRegression().fit(samples, samples[:, 0] > 0.5)
    names: dict[str, Any] = {"pipeline": pipeline, "samples": samples}
    exec(program, names)
    np.testing.assert_array_equal(names["labels"], pipeline.predict(samples))


def test_the_pass_of_the_page_on_passes_does_what_it_says() -> None:
    *_, program = blocks(ROOT / "docs" / "how-to" / "add-a-pass.md", "python")
    example = types.ModuleType("example")
    exec(compile(program, "add-a-pass.md", "exec"), example.__dict__)

    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((3,), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            b = builder.emit(relax.op.negative(builder.emit(relax.op.negative(x))))
            result = builder.emit_output(relax.Tuple([builder.emit(relax.op.exp(b))]))
        builder.emit_func_output(result)
    text = example.drop_double_negation(builder.get()).script()
    assert text.count("R.negative") == 0
    assert text.count("R.exp(x)") == 1


def test_a_users_pass_of_the_page_on_passes_does_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program, times, _ = blocks(ROOT / "docs" / "how-to" / "add-a-pass.md", "python")
    nodes = [onnx.helper.make_node(name, *edges) for name, *edges in NEGATED]
    given, result = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [3]) for name in "xy")
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", [given], [result])), tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(program, "add-a-pass.md", "exec"), names)
    exec(compile(times, "add-a-pass.md", "exec"), names)
    (after,) = Path("dump").glob("*_drop_double_negation.py")
    assert "R.negative" not in after.read_text()
    assert "fold affine" in capsys.readouterr().out
    x = np.array([-1, 0, 2], np.float32)
    np.testing.assert_allclose(load("model.so")(x), np.exp(x), rtol=1e-6)


NEGATED = [("Neg", ["x"], ["a"]), ("Neg", ["a"], ["b"]), ("Exp", ["b"], ["y"])]


@pytest.mark.parametrize(("columns", "vectors"), [(32, True), (33, False)])
def test_the_rule_of_the_page_on_schedule_rules_takes_what_it_says(columns: int, vectors: bool) -> None:
    (program,) = blocks(ROOT / "docs" / "how-to" / "add-a-schedule-rule.md", "python")
    example = types.ModuleType("example")
    exec(compile(program, "add-a-schedule-rule.md", "exec"), example.__dict__)

    x = te.placeholder((7, columns))
    func = te.create_prim_func([x, te.compute(x.shape, lambda i, j: x(i, j) * x(i, j))])
    machine = target("llvm -mcpu=x86-64-v3")
    scheduled_func = scheduled(KernelAnalysis(func), (example.LastAxisRule(), *CPU_RULES), machine)
    assert (scheduled_func.attrs[RULE] == "LastAxisRule") is vectors
    if vectors:
        assert "T.vectorized(8)" in scheduled_func.script()
    data = np.random.default_rng(0).standard_normal((7, columns)).astype(np.float32)
    result = tvm.runtime.tensor(np.zeros_like(data))
    tvm.compile(scheduled_func, target=machine.to_tvm())["main"](tvm.runtime.tensor(data), result)
    np.testing.assert_array_equal(result.numpy(), data * data)


def test_every_image_of_a_page_is_written_by_the_script_for_them_and_shown() -> None:
    from screenshots import FOLDER, IMAGES

    assert {path.stem for path in FOLDER.iterdir()} == set(IMAGES)
    text = "".join(page.read_text() for page in PAGES)
    assert [name for name in IMAGES if f"pictures/{name}.png" not in text] == []


FOLDERS = "benchmarks|compiler|docs|examples|passes|targets|tests"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_and_folders_that_pages_name_are_there(page: Path) -> None:
    """A star stands for any letters."""
    named = re.findall(rf"`((?:{FOLDERS})/[\w./*-]*)`", page.read_text())
    assert [name for name in named if not any(ROOT.glob(name.rstrip("/")))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / link).exists(), link
