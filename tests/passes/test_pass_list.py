"""The lists of passes: their order, what is written and measured of them, and passes of users."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import tvm
from click.testing import CliRunner
from pass_runs import manager_of
from tvm import relax, tirx

import nnefc
from nnefc import CompileError
from nnefc.backends import backend_of, cpu_passes
from nnefc.cli import main
from nnefc.passes.manager import ALWAYS, Pass, PassCondition, PassList, PassRun, Phase, Property, of_phase
from nnefc.targets.machine.any_target import parse_any_target

TARGETS = ("llvm -mcpu=x86-64-v3", "aarch64-linux-gnu", "cortex-m7", "wasm32-wasi", "cuda -arch=sm_80")
DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "model.nnef"

NETWORK = """version 1.0;
graph net(x) -> (y) {
    x = external<scalar>(shape = [2, 5]);
    a = relu(x);
    y = softmax(a);
}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.nnef"
    path.write_text(NETWORK)
    return path


def runs_of(model: Path, **options: Any) -> list[PassRun]:
    runs: list[PassRun] = []
    nnefc.compile(model, observers=[runs.append], **options)
    return runs


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("strict", [False, True])
def test_a_pass_before_ensures_what_a_pass_requires(name: str, strict: bool) -> None:
    backend = backend_of(parse_any_target(name))
    passes = manager_of(backend, strict).passes
    assert [(step.name, missing) for step, missing in passes.unmet()] == []
    assert list(backend.passes.unmet()) == []


def test_what_no_pass_before_ensures_is_found() -> None:
    dynamic = PassCondition("dynamic", lambda _: True)
    flat = {"requires": [Property.FLAT]}

    def step(name: str, where: PassCondition = ALWAYS, **properties: Any) -> Pass:
        return of_phase(Phase.FLAT, name, lambda f, _: f, where=where, **properties)

    listed = [step("first", **flat), step("flatten", dynamic, ensures=[Property.FLAT]), step("all", **flat)]
    found = PassList([*listed, step("dynamic", dynamic, **flat)]).unmet()
    assert [(each.name, missing) for each, missing in found] == [("first", "flat"), ("all", "flat")]


@pytest.mark.parametrize("name", TARGETS)
def test_phases_follow_each_other_and_names_are_unique(name: str) -> None:
    passes = backend_of(parse_any_target(name)).passes
    order = [list(Phase).index(step.phase) for step in passes if not step.name.startswith("host ")]
    assert order == sorted(order)
    assert len({step.name for step in passes}) == len(passes) > 70


def test_passes_over_the_graph_that_both_backends_have_are_in_one_order() -> None:
    cpu, cuda = (
        [step.name for step in backend_of(parse_any_target(name)).passes if step.phase in (Phase.GRAPH, Phase.LEGALIZE)]
        for name in ("llvm", "cuda -arch=sm_80")
    )
    of_precision = ("use narrow floats", "assign layouts")  # for tensor cores: once weights are dequantized
    positions = [cpu.index(name) for name in cuda if name in cpu and name not in of_precision]
    assert positions == sorted(positions) and len(positions) > 12


def test_passes_run_in_the_order_of_the_list(model: Path) -> None:
    runs = runs_of(model)
    of_units: dict[str, list[int]] = {}
    for run in runs:
        of_units.setdefault(f"{run.step.phase is Phase.OBJECT} {run.unit}", []).append(run.number)
    assert all(numbers == sorted(numbers) for numbers in of_units.values())
    ran = {run.step.name for run in runs}
    passes = manager_of(backend_of(parse_any_target("llvm"))).passes
    left_out = [step.name for step in passes if step.name not in ran]
    assert all(passes.named(name).where.text for name in left_out)
    assert {"fold constants", "schedule", "flatten buffers", "build entry", "machine code"} <= ran


def test_observers_are_given_the_program_before_and_after(model: Path) -> None:
    runs = [run for run in runs_of(model) if run.step.phase in (Phase.GRAPH, Phase.LEGALIZE) and run.unit == "main"]
    assert all(later.before is earlier.after for earlier, later in pairwise(runs))
    changed = [run.step.name for run in runs if run.changed]
    assert "legalize" in changed and "tabulate bytes" not in changed
    assert all(run.seconds >= 0 for run in runs)


def test_a_dump_has_kernels_and_objects_after_each_pass_that_changed_them(model: Path, tmp_path: Path) -> None:
    runs = runs_of(model, dump=tmp_path / "dump")
    changed = {
        f"{run.number:03d}_{run.step.name.replace(' ', '_')}.py"
        for run in runs
        if run.changed and run.step.phase not in (Phase.PROGRAM, Phase.PLAN) and isinstance(run.after, tvm.Object)
    }
    written = {path.name for path in (tmp_path / "dump").rglob("*.py")}
    assert {"000_network.py", "000_kernel.py", "000_functions.py"} <= written
    assert changed - written <= {name for name in changed if "LLVM" in name}
    (kernel,) = {
        path.parent.name for path in (tmp_path / "dump").glob("kernels/*/*_schedule.py") if "relu" in str(path)
    }
    assert "T.sblock" in next((tmp_path / "dump" / "kernels" / kernel).glob("*_schedule.py")).read_text()
    assert "T.sblock" not in next((tmp_path / "dump" / "kernels" / kernel).glob("*_raw_pointers.py")).read_text()


def test_a_dump_after_some_passes_has_these_alone(model: Path, tmp_path: Path) -> None:
    nnefc.compile(model, dump=tmp_path / "dump", dump_after=["fuse", "schedule"])
    written = {path.name[4:] for path in (tmp_path / "dump").rglob("*.py")}
    assert written == {"fuse.py", "schedule.py"}


def test_a_dump_after_a_pass_goes_to_standard_output_without_a_folder(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nnefc.compile(model, dump_after=["fuse"])
    out = capsys.readouterr().out
    assert out.startswith("# ") and "_fuse.py\n" in out and "def main" in out


def test_a_name_that_no_pass_has_is_reported_with_the_nearest(model: Path) -> None:
    with pytest.raises(CompileError, match=r"there is no pass 'fold afine'\nhint: did you mean 'fold affine'"):
        nnefc.compile(model, dump_after=["fold afine"])


def test_times_are_those_of_all_passes_without_what_runs_inside() -> None:
    times = nnefc.passes.PassTimes()
    for outer, inner in ((0.5, 0.25), (0.25, 0.125)):
        for name, seconds in (("outer", outer), ("inner", inner)):
            step = of_phase(Phase.FLAT, name, lambda f, _: f)
            times(PassRun(step, 1, "kernel", None, None, seconds))
    assert dict(times.seconds) == {"outer": 0.75, "inner": 0.375}
    assert (times.total, times.runs["inner"]) == (1.125, 2)
    assert [line.split()[-1] for line in times.table().splitlines()[1:3]] == ["outer", "inner"]


def test_the_command_prints_passes_and_times(model: Path, tmp_path: Path) -> None:
    def printed(*arguments: str) -> str:
        result = CliRunner().invoke(main, ["compile", *arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    listed = printed("--print-passes", "-t", "cortex-m7", "--strict")
    assert "serialize loops" in listed and "large scratch parameters" not in listed
    assert "join attention" in printed("--print-passes") and "join attention" not in listed
    times = printed(str(model), "-o", str(tmp_path / "net.so"), "--time-passes")
    assert "machine code" in times and times.splitlines()[-1].endswith("total, of processor time")


def identity(program: Any) -> Any:
    return program


def relu_away(module: tvm.IRModule) -> tvm.IRModule:
    """Replaces relu(x) by x."""

    @relax.expr_functor.mutator
    class Rewriter(relax.PyExprMutator):
        def visit_call_(self, call: relax.Call) -> relax.Expr:
            call = self.visit_expr_post_order(call)
            return call.args[0] if call.op == tvm.ir.Op.get("relax.nn.relu") else call

    rewriter = Rewriter(module)
    rewriter.builder_.update_func(module.get_global_var("main"), rewriter.visit_expr(module["main"]))
    return rewriter.builder_.get()


def test_a_pass_of_a_user_changes_the_program_and_is_dumped(model: Path, tmp_path: Path) -> None:
    passes = [nnefc.passes.after("fold affine", relu_away)]
    nnefc.compile(model, passes=passes, dump=tmp_path)
    assert "nn.relu" in (tmp_path / "000_network.py").read_text()
    assert "nn.relu" not in next(tmp_path.glob("*_relu_away.py")).read_text()


@pytest.mark.parametrize("after", ["fuse", "schedule", "flatten buffers", "raw pointers", "export", "vectorize"])
@pytest.mark.sample(3)
def test_a_pass_of_a_user_runs_after_the_pass_that_it_names(model: Path, after: str) -> None:
    of_units: dict[str, list[str]] = {}
    for run in runs_of(model, passes=[nnefc.passes.after(after, identity)]):
        of_units.setdefault(run.unit, []).append(run.step.name)  # objects are made in several threads
    pairs = [pair for names in of_units.values() for pair in pairwise(names)]
    assert {earlier for earlier, later in pairs if later == "identity"} == {after}


def test_passes_after_one_pass_run_in_the_order_in_which_they_are_given() -> None:
    given = [nnefc.passes.after("fuse", identity, called=name) for name in ("a", "b", "c")]
    names = [step.name for step in cpu_passes.PASSES.with_passes(given)]
    start = names.index("fuse")
    assert names[start : start + 4] == ["fuse", "a", "b", "c"]


def fails(_program: Any) -> Any:
    raise KeyError("broken on purpose")


def without_main(module: tvm.IRModule) -> tvm.IRModule:
    return tvm.IRModule({gv: func for gv, func in module.functions.items() if gv.name_hint != "main"})


def of_one_parameter(func: tirx.PrimFunc) -> tirx.PrimFunc:
    return tirx.PrimFunc(func.params[:1], func.body, func.ret_type, func.attrs)


@pytest.mark.parametrize(
    ("after", "change", "message"),
    [
        ("fuze", identity, "there is no pass 'fuze'\nhint: did you mean 'fuse'"),
        ("fuse", fails, "the pass 'fails', after 'fuse', failed: KeyError: 'broken on purpose'"),
        ("fuse", lambda _: None, "the pass '<lambda>', after 'fuse', returned NoneType, not IRModule"),
        ("fuse", without_main, "the pass 'without main', after 'fuse', removed the function 'main'"),
        ("schedule", of_one_parameter, "after 'schedule', changed the parameters of a kernel"),
        ("plan buffers", identity, "no pass can follow 'plan buffers'"),
        ("portable functions", identity, "'portable functions', which 'identity' follows, does not run for"),
    ],
)
def test_a_wrong_pass_of_a_user_is_refused_with_one_message(
    model: Path, after: str, change: Callable[[Any], Any], message: str
) -> None:
    with pytest.raises(CompileError) as caught:
        nnefc.compile(model, passes=[nnefc.passes.after(after, change)])
    assert message in str(caught.value)


def test_a_name_that_is_taken_is_refused(model: Path) -> None:
    with pytest.raises(CompileError, match="there is a pass 'fuse' already"):
        nnefc.compile(model, passes=[nnefc.passes.after("legalize", identity, called="fuse")])


def test_kernels_with_long_names_have_folders_with_shorter_ones(tmp_path: Path) -> None:
    steps = "\n".join(f"    a{n + 1} = {'sin' if n % 2 else 'floor'}(a{n}) + a0;" for n in range(60))
    path = tmp_path / "long.nnef"
    path.write_text(
        "version 1.0;\ngraph long(a0) -> (a60) {\n    a0 = external<scalar>(shape = [2, 3]);\n" + steps + "\n}\n"
    )
    nnefc.compile(path, dump=tmp_path / "dump", dump_after=["schedule"])
    folders = [folder.name for folder in (tmp_path / "dump" / "kernels").iterdir()]
    assert folders and max(map(len, folders)) == 120
