"""Graphs in nnefc and its peers: what differs, and from whom."""

from __future__ import annotations

import re
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from bounds import Bounds, bounds_of
from dynamic_dims import drawn_sizes, may_be_dynamic
from emulated_networks import on_cuda
from emulation import run_on
from graph import Graph, joined
from other_sizes import with_other_sizes
from peer import ENDED, peer_results
from special import nearby_values, special_difference, with_special_values
from states import in_run, kept_of, with_variables, written_out
from steps import is_float
from ways import RUNS_OF_STATES, Way

import nnefc
from nnefc.backends import backend_of
from nnefc.comparison.kernel_stages import kernel_stages
from nnefc.comparison.passes import check_unfused, outputs_after_each
from nnefc.driver.formats import load_network
from nnefc.loader.session import Session
from nnefc.passes.backend import MEMORY_BUDGET
from nnefc.targets.machine.any_target import parse_any_target

_KERNEL_BOUND = 1e-4
"""What a kernel's results may be from those of another order of its sums, over the largest of them."""
_NOT_EQUAL = re.compile(r" is (\d+), but .* is (\d+)(?:: both are the same| by the other sizes)")
"""What libraries say of sizes that they were compiled to take for equal; not that one is 1."""
_WRONG_SIZE = re.compile(r"the data ask for a size '[^']+' that is not \d+, but")
"""What libraries say of data-dependent sizes, which were taken for equal to others, and are 1 and are repeated."""
_UNKNOWN = re.compile("sizes cannot stay open: |internal error in nnefc")
"""How the compiler refuses dynamic sizes for an error that is none of its own, which tells users nothing."""
_NOT_APART = "passes cannot be distinguished"
"""The message for graphs that become loops or choices, or with data-dependent sizes."""
_SQUEEZED = "has no axes, so it leaves out dimensions of 1"
"""The message for a `Squeeze` without axes of what has a data-dependent size."""
_EXPECTED = ".*( must be .* operators|integers of NNEF have no width)"
"""Warnings: of sizes, which graphs have; of 32 bits, which are enough where there is no arithmetic of integers."""
_OF_EMULATOR = re.compile(r"qemu-\S+: .*: Assertion `")

__all__ = ["Arrays", "Finding", "Outcome", "compare", "difference"]

Arrays = Mapping[str, npt.NDArray[np.generic]]


@dataclass(frozen=True)
class Finding:
    """Something that ought not to be.

    Attributes:
        way: how the graph was compiled.
        what: the difference or the error.
        peer: whose side onnxruntime takes: "reference", "neither", or why it takes none; "" if it was not asked.
        graph: that shows it.
    """

    way: Way
    what: str
    peer: str
    graph: Graph = field(repr=False)


@dataclass(frozen=True)
class Outcome:
    """What became of some graphs that were compiled in one way.

    Attributes:
        agreed: how many agree with float64.
        refused: the reasons of those that the compiler refuses.
        doubtful: those that agree with onnxruntime, but not with the reference, in which there are errors, too.
        findings: the others.
        validated: the passes and steps after which a graph, or one of its kernels, was computed and found right.
        counts: other counts, by what it is: graphs "not run", for an error of the emulator's own, or "not
            judged", as nothing is asked of any of their results, or that "ended the peer" when it was asked; "elements"
            of the results of graphs that agree, and those "not asked"; "sizes" that were drawn to be left open, those
            "closed" again, and graphs "without dynamic sizes"; "states" of graphs.
    """

    agreed: int = 0
    refused: tuple[str, ...] = ()
    doubtful: tuple[Graph, ...] = ()
    findings: tuple[Finding, ...] = ()
    validated: tuple[str, ...] = ()
    counts: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Outcome) -> Outcome:
        return Outcome(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(Outcome)))


def compare(graphs: Sequence[Graph], way: Way) -> Outcome:
    """Compile graphs into one library, run it, and compare with the reference.

    If something is wrong with the library, its halves are tried by themselves, down to single graphs.
    """
    outcome = Outcome()
    if way.dynamic_sizes:
        graphs, counts = _opened(graphs)
        outcome += Outcome(counts=counts)
    if way.states:
        graphs = [replace(g, kept=kept_of(g)) if g.kept is None else g for g in graphs]
        outcome += Outcome(counts=Counter({"states": sum(len(g.kept or ()) for g in graphs)}))
    if way.special:
        graphs, counts = _with_special(graphs)
        outcome += Outcome(counts=counts)
    if way.nnef and len(graphs) > 1:
        graphs, refused = _written(graphs, way)
        outcome += Outcome(refused=refused)
    return outcome + _compared(graphs, way) if graphs else outcome


def _with_special(graphs: Sequence[Graph]) -> tuple[list[Graph], Counter[str]]:
    """The graphs with special values in their inputs, and of how many nothing says what they give then."""
    found = [g if g.special else with_special_values(g) for g in graphs]
    return [g for g in found if g is not None], +Counter({"not judged": found.count(None)})


def _opened(graphs: Sequence[Graph]) -> tuple[list[Graph], Counter[str]]:
    """The graphs with what is left open in them, and how much that is of what was drawn."""
    opened = [replace(g, opened=may_be_dynamic(g)) if g.opened is None else g for g in graphs]
    counts: Counter[str] = Counter()
    for drawn, graph in ((len(drawn_sizes(g)), g) for g in opened):
        left = len(graph.opened or ())
        counts += Counter({"sizes": drawn, "closed": max(0, drawn - left), "without dynamic sizes": int(left == 0)})
    return opened, counts


def _written(graphs: Sequence[Graph], way: Way) -> tuple[list[Graph], tuple[str, ...]]:
    """The graphs that can be written in this way, and why the others cannot."""
    written, refused = [], []
    for graph in graphs:
        with tempfile.TemporaryDirectory() as folder, _strict_warnings():
            try:
                _source(graph, way, Path(folder))
            except NotWritten as error:
                refused.append(str(error))
                continue
            except Exception:  # whatever else is raised is found when it is compiled
                pass
        written.append(graph)
    return written, tuple(refused)


@contextmanager
def _strict_warnings() -> Iterator[None]:
    """Warnings of models are errors, but for those that say nothing of what is compiled."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", nnefc.ModelWarning)
        warnings.filterwarnings("ignore", _EXPECTED, nnefc.ModelWarning)
        yield


def _compared(graphs: Sequence[Graph], way: Way) -> Outcome:
    graph = joined(graphs)
    validated: list[str] = []
    others: list[tuple[list[Graph | None], Arrays]] = []
    wrong, refused, stopped = "", "", False
    try:
        with _strict_warnings():
            results = [_validate(graph, way, validated)] if way.validates else run(graph, way, graphs, others)
            if way.twin is not None:
                first, *twins = [*results, *run(graph, way.twin)]
                for other in twins:
                    _check_bits(first, other, f"{way.twin.name}, or other threads")
    except Wrong as error:
        wrong = str(error)
    except NotWritten as error:
        refused = str(error)
    except (nnefc.CompileError, nnefc.ModelWarning) as error:
        if way.nnef:
            wrong = f"what was written is refused: {error}"
        elif _may_be_refused(str(error), way):
            refused = str(error).partition("\n")[0]
        else:  # the graph is valid, and so is each of its operators
            wrong = f"refused: {error}"
    except nnefc.RunError as error:
        if _WRONG_SIZE.search(str(error)) or (way.dynamic_sizes and _meets_one(str(error))):
            refused = str(error).partition("network.so: ")[2]
        else:
            wrong = f"RunError: {error}"
    except Exception as error:  # whatever else is raised is what is looked for
        wrong = f"{type(error).__name__}: {error}"
        stopped = _OF_EMULATOR.search(wrong) is not None
    if not wrong and not refused:
        outcome = Outcome(validated=tuple(validated))
        for one in graphs:
            own = _judged(one, [{name: found[name] for name in _results_of(one, way)} for found in results], way)
            outcome += own if len(graphs) == 1 else _by_itself(own, graph)
        return outcome + _of_other_sizes(graphs, others, way)
    if len(graphs) > 1:
        half = len(graphs) // 2
        parts = _compared(graphs[:half], way) + _compared(graphs[half:], way)
        if not stopped and not parts.findings and not (refused and parts.refused):
            what = f"{wrong or f'refused: {refused}'} [in none of the halves]"
            return parts + Outcome(findings=(Finding(way, what, "", graph),))
        return parts
    if stopped:
        return Outcome(counts=Counter({"not run": 1}))
    return Outcome(refused=(refused,)) if refused else Outcome(findings=(Finding(way, wrong, "", graph),))


def _of_other_sizes(
    graphs: Sequence[Graph], runs: Sequence[tuple[Sequence[Graph | None], Arrays]], way: Way
) -> Outcome:
    """What is found in runs of a library in which some of the graphs have other sizes."""
    outcome = Outcome()
    for resized, results in runs:
        together = joined([other or one for one, other in zip(graphs, resized, strict=True)])
        for graph in filter(None, resized):
            own = _judged(graph, [{name: results[name] for name in _results_of(graph, way)}], way)
            own = own if len(graphs) == 1 else _by_itself(own, together)
            outcome += Outcome(findings=own.findings, counts=own.counts + Counter({"of other sizes": 1}))
    return outcome


def _may_be_refused(message: str, way: Way) -> bool:
    """Whether an error in this way, or a warning, says of a valid graph the message of such graphs."""
    if way.dynamic_sizes:
        return not _UNKNOWN.search(message)
    return _SQUEEZED in message or (way.validates and _NOT_APART in message)


def _meets_one(message: str) -> bool:
    """Whether a library refuses a size for one that it is taken to be equal to, of which one is 1 and is repeated."""
    matched = _NOT_EQUAL.search(message)
    return matched is not None and "1" in matched.groups()


def _by_itself(outcome: Outcome, together: Graph) -> Outcome:
    """What is found of a graph is sought again in a library of its own; if not there, that of all graphs shows it."""
    if not outcome.findings:
        return outcome
    (finding,) = outcome.findings
    again = compare([finding.graph], finding.way)
    if again.findings:
        return replace(again, counts=outcome.counts)  # others count with those of all graphs
    return replace(outcome, findings=(replace(finding, what=f"{finding.what} [next to others]", graph=together),))


def _judged(graph: Graph, runs: Sequence[Arrays], way: Way) -> Outcome:
    """What the results of a graph are worth, each with another number of threads."""
    if way.special:
        return _judged_special(graph, runs, way)
    stateless = written_out(graph, graph.kept or {}) if way.states else graph
    bounds = bounds_of(stateless, way.precision)
    first, *others = runs
    is_doubtful = False
    for results in (first, *(other for other in others if not _are_same(first, other))):
        wrong = {name: bound for name, bound in bounds.items() if difference(results, {name: bound})}
        if not wrong:
            continue
        what = difference(results, wrong)
        peer = peer_results(stateless.model(), stateless.feeds())
        side = peer if isinstance(peer, str) else "neither" if difference(peer, wrong) else "reference"
        if isinstance(peer, str) or side == "reference" or difference(results, _around(peer, wrong)):
            counts = Counter({"ended the peer": 1} if side == ENDED else {})
            return Outcome(findings=(Finding(way, what, side, graph),), counts=counts)
        is_doubtful = True
    if is_doubtful:
        return Outcome(doubtful=(graph,))
    elements = sum(value.size for value in first.values())
    spared = sum(_not_asked(first[name], bound) for name, bound in bounds.items())
    if 0 < spared == elements:
        return Outcome(counts=Counter({"not judged": 1}))
    return Outcome(agreed=1, counts=+Counter({"elements": elements, "not asked": spared}))


def _judged_special(graph: Graph, runs: Sequence[Arrays], way: Way) -> Outcome:
    """What results of special values are worth: a finding is what neither the reference nor onnxruntime gives."""
    exact = {tensor.name: tensor.exact for tensor in graph.outputs}
    what = next(filter(None, (special_difference(results, exact) for results in runs)), "")
    if what:
        near = list(nearby_values(graph))
        what = next(filter(None, (special_difference(results, exact, *near) for results in runs)), "")
    if not what:
        return Outcome(agreed=1)
    peer = peer_results(graph.model(), graph.feeds())
    if isinstance(peer, str):
        counts = Counter({"ended the peer": 1} if peer == ENDED else {})
        return Outcome(findings=(Finding(way, what, peer, graph),), counts=counts)
    what = next(filter(None, (special_difference(results, exact, peer) for results in runs)), "")
    if not what:
        return Outcome(doubtful=(graph,))
    return Outcome(findings=(Finding(way, what, "neither" if special_difference(peer, exact) else "reference", graph),))


def _not_asked(value: npt.NDArray[np.generic], bound: Bounds) -> int:
    """Of how many elements that are not the exact ones, but for the errors of the last step, nothing is asked."""
    if value.shape != bound.exact.shape:
        return value.size
    apart = np.abs(value.astype(np.float64) - bound.exact.astype(np.float64))
    near = apart <= bound.own
    return 0 if near.all() else int((~near & ~np.isfinite(bound.allowed)).sum())


def _are_same(results: Arrays, others: Arrays) -> bool:
    return all(value.tobytes() == others[name].tobytes() for name, value in results.items())


def _around(peer: Arrays, bounds: Mapping[str, Bounds]) -> dict[str, Bounds]:
    """The same bounds around onnxruntime's results, which may be as far from the exact ones."""
    around = {}
    for name, bound in bounds.items():
        value = peer[name]
        same = value.shape == bound.exact.shape
        allowed = 2 * bound.allowed if same else np.full(value.shape, 1e-5 * np.abs(value.astype(float)).max(initial=0))
        around[name] = Bounds(name, value, allowed)
    return around


def _source(graph: Graph, way: Way, folder: Path) -> Path:
    """The file of a graph that is compiled, in a folder.

    Raises:
        NotWritten: it cannot be written as NNEF.
    """
    source = folder / "graph.onnx"
    onnx.save(graph.model(graph.opened or () if way.dynamic_sizes else ()), source)
    if not way.nnef:
        return source
    written = folder / "graph.nnef"
    try:
        nnefc.convert(source, written, registry=way.registry)
    except (nnefc.CompileError, nnefc.ModelWarning) as error:
        raise NotWritten(str(error).partition("\n")[0]) from None
    if way.states:
        with_variables(written, graph, graph.kept or {})
    return written


def run(
    graph: Graph,
    way: Way,
    parts: Sequence[Graph] = (),
    others: list[tuple[list[Graph | None], Arrays]] | None = None,
) -> list[Arrays]:
    """The results of one way, by output, with each number of threads.

    Args:
        parts: the graphs that are joined in this one.
        others: what runs of the same library with other sizes of some parts give is added to it.
    """
    options = dict(way.options)
    on_gpu = on_cuda(precision=str(options.pop("precision", "fp32"))) if way.on_gpu else nullcontext()
    with tempfile.TemporaryDirectory() as name, on_gpu:
        source = _source(graph, way, Path(name))
        target = way.target if way.machine is None else way.machine.target
        artifact = nnefc.compile(source, target, **options)  # type: ignore[arg-type]
        kinds = {tensor.name: tensor.dtype for tensor in artifact.inputs}  # NNEF has but one integer
        feeds = {name: _as_bits(value.astype(kinds[name])) for name, value in graph.feeds().items() if name in kinds}
        if way.machine is not None:
            found = [run_on(way.machine, artifact, feeds)]
        elif way.levels:
            found = [_on_level(artifact, level, feeds, way) for level in way.levels]
        else:
            found = []
            with artifact.load(threads=way.threads[0]) as model:
                found.append(_in_turn(model, feeds, way))
                for threads in way.threads[1:]:
                    with model.session(threads=threads) as session:
                        found.append(_in_turn(session, feeds, way))
                if others is not None:
                    others += _runs_of_other_sizes(model, parts, way)
    narrow = {tensor.name for tensor in artifact.outputs if tensor.dtype == "bfloat16"}
    found = [
        {name: value.view(ml_dtypes.bfloat16) if name in narrow else value for name, value in results.items()}
        for results in found
    ]
    names = _results_of(graph, way)
    return [
        dict(zip(names, results.values(), strict=True)) if way.nnef else {name: results[name] for name in names}
        for results in found
    ]


def _runs_of_other_sizes(
    model: nnefc.Model, parts: Sequence[Graph], way: Way
) -> Iterator[tuple[list[Graph | None], Arrays]]:
    """Runs in which some parts have other sizes, and these parts; not those whose sizes the library refuses."""
    rng = np.random.default_rng(parts[0].seed if parts else 0)
    shapes = {tensor.name: tensor.shape for tensor in model.inputs}
    for _ in range(way.other_sizes):
        resized = [
            with_other_sizes(part, shapes, model.dimensions, rng) if len(parts) == 1 or rng.random() < 0.5 else None
            for part in parts
        ]
        if not any(resized):
            continue
        graph = joined([other or part for part, other in zip(parts, resized, strict=True)])
        try:
            results = model.run({name: value for name, value in graph.feeds().items() if name in shapes})
        except nnefc.RunError as error:
            if "size" in str(error) and "CUDA" not in str(error):
                continue
            raise
        yield resized, dict(results)


def _as_bits(value: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The values as libraries take them: bfloat16 as its bits."""
    return value.view(np.uint16) if value.dtype == ml_dtypes.bfloat16 else value


def _results_of(graph: Graph, way: Way) -> list[str]:
    """The names of what a graph gives in one way: with states, of each of its runs."""
    names = [tensor.name for tensor in graph.outputs]
    return [in_run(name, number) for number in range(RUNS_OF_STATES) for name in names] if way.states else names


def _on_level(artifact: nnefc.Artifact, level: str, feeds: Arrays, way: Way) -> Arrays:
    """The results of a library's code for a level; those of the last one that this machine runs, if it does not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NNEFC_LEVEL", level)
        with artifact.load(threads=way.threads[0]) as model:
            return _in_turn(model, feeds, way)


def _in_turn(session: nnefc.Model | Session, feeds: Arrays, way: Way) -> Arrays:
    """The results of one run, or with states of several one after the other."""
    if not way.states:
        return session.run(feeds)
    runs = [session.run(feeds) for _ in range(RUNS_OF_STATES)]
    return {in_run(name, number): value for number, results in enumerate(runs) for name, value in results.items()}


class NotWritten(Exception):
    """A graph cannot be written as NNEF."""


class Wrong(Exception):
    """A pass, or a step of a kernel, changes what is computed; or another machine gives other bits."""


def _check_bits(results: Arrays, others: Arrays, machine: str) -> None:
    """Raise `Wrong` where results differ in a bit; NaN has no bits that count."""
    for name, own in results.items():
        floats = is_float(own.dtype)
        if not np.array_equal(own, others[name], equal_nan=floats) or (
            floats and not np.array_equal(np.signbit(own[own == 0]), np.signbit(others[name][own == 0]))
        ):
            raise Wrong(f"{name} has other bits with {machine}")


def _validate(graph: Graph, way: Way, validated: list[str]) -> Arrays:
    """Compute a graph after each pass, and each of its kernels after each step; the results after the last pass.

    Args:
        validated: what was looked at and found right is added to it.

    Raises:
        Wrong: what makes results wrong, or other ones by more than rounding.
    """
    bounds = bounds_of(graph)
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "graph.onnx"
        onnx.save(graph.model(), source)
        network = load_network(source)
    check_unfused(network)
    backend, strict = backend_of(parse_any_target(way.target)), bool(dict(way.options).get("strict"))
    backend.check()
    results: Arrays = {}
    wrong_before = ""
    for step, found in outputs_after_each(network, backend, graph.feeds(), strict, MEMORY_BUDGET):
        wrong = difference(found, bounds)
        if wrong and not wrong_before and results:
            raise Wrong(f"after the pass {step}: {wrong}")
        wrong_before, results = wrong, found
        validated.append(step)
    for kernel in kernel_stages(network, backend, graph.feeds(), strict, MEMORY_BUDGET):
        apart = kernel.difference
        if not (apart.relative <= _KERNEL_BOUND or (kernel.is_integer and apart.largest <= 1)):
            raise Wrong(f"after the step {kernel.step} the kernel {kernel.kernel} gives others: {apart}")
        validated.append(kernel.step)
    return results


def _kind(values: npt.NDArray[np.generic]) -> str:
    """How integers of all widths, floats and booleans are distinguished."""
    return "float" if is_float(values.dtype) else "boolean" if values.dtype == np.bool_ else "integer"


def difference(results: Arrays, bounds: Mapping[str, Bounds]) -> str:
    """How results differ from what they may be; empty if they do not."""
    for name, bound in bounds.items():
        value = results[name]
        if value.shape != bound.exact.shape:
            if np.isinf(bound.allowed).all():  # a comparison or a rounding tells the size
                continue
            return f"{name} has the shape {value.shape}, not {bound.exact.shape}"
        if _kind(value) != _kind(bound.exact):
            return f"{name} has the type {value.dtype}, not {bound.exact.dtype}"
        apart = np.abs(value.astype(np.float64) - bound.exact.astype(np.float64))
        if (apart <= bound.own).all():
            continue
        wrong = ~(apart <= bound.allowed) & np.isfinite(bound.allowed)
        if wrong.any():
            where = tuple(int(k) for k in np.argwhere(wrong)[0])
            return (
                f"{name}{list(where)} is {value[where]!r}, not {bound.exact[where]!r} ± {bound.allowed[where]:.2g}; "
                f"{int(wrong.sum())} of {wrong.size} elements"
            )
    return ""
