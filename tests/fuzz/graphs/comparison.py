"""One graph in nnefc and its peers: what differs, and from whom."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
from bounds import Bounds, bounds_of
from walk import Graph

import nnefc
from nnefc.backends import backend_of
from nnefc.comparison.kernels import kernel_steps
from nnefc.comparison.passes import check_plain, outputs_after_each
from nnefc.formats import load_network
from nnefc.passes.backend import MEMORY_BUDGET
from nnefc.targets.machine.any_target import parse_any_target

_KERNEL_BOUND = 1e-4
"""What a kernel's results may be from those of another order of its sums, over the largest of them."""
_KINDS = {"i": "integer", "u": "integer", "f": "float", "b": "boolean"}

__all__ = ["WAYS", "Finding", "Outcome", "Way", "compare", "difference"]

Arrays = Mapping[str, npt.NDArray[np.generic]]


@dataclass(frozen=True)
class Way:
    """A way to compile and run a graph.

    Attributes:
        name: in reports.
        target: the machine; "native" for this one.
        options: of :func:`nnefc.compile`.
        threads: of the session.
        open_sizes: whether the inputs' sizes are left open.
        nnef: whether the graph is written as NNEF first.
        twin: another machine, on which results shall have the same bits.
        validates: whether it is not run, but computed after each pass, and each kernel after each of its steps.
    """

    name: str
    target: str = "native"
    options: tuple[tuple[str, object], ...] = ()
    threads: int = 1
    open_sizes: bool = False
    nnef: bool = False
    twin: str = ""
    validates: bool = False


WAYS = {
    way.name: way
    for way in (
        Way("default"),
        Way("strict", options=(("strict", True),)),
        Way("threads", threads=3),
        Way("open", open_sizes=True),
        Way("open threads", open_sizes=True, threads=2),
        Way("x86-64", "x86-64"),
        Way("x86-64-v3", "x86-64-v3"),
        Way("nnef", nnef=True),
        Way("checked", options=(("checked", True),)),
        Way("checked open", options=(("checked", True),), open_sizes=True, threads=2),
        Way("reproducible", options=(("reproducible", True),), threads=3, twin="x86-64-v2"),
        Way("passes", validates=True),
    )
}


@dataclass(frozen=True)
class Finding:
    """Something that ought not to be.

    Attributes:
        way: how the graph was compiled.
        what: the difference or the error.
        peer: whose side onnxruntime takes: "reference", "neither", or "" if it does not take the graph.
    """

    way: str
    what: str
    peer: str


@dataclass(frozen=True)
class Outcome:
    """What became of one graph.

    Attributes:
        agreed: the ways that agree with float64.
        refused: the reason of each way that refuses it.
        doubtful: the ways that agree with onnxruntime, but not with the reference, in which there are errors, too.
        findings: the others.
        validated: the passes and steps after which the graph, or one of its kernels, was computed and found right.
    """

    agreed: tuple[str, ...]
    refused: Mapping[str, str]
    doubtful: tuple[str, ...]
    findings: tuple[Finding, ...]
    validated: tuple[str, ...] = ()


def compare(graph: Graph, ways: Sequence[Way]) -> Outcome:
    """Compile and run a graph in each way, and compare with the reference."""
    bounds = bounds_of(graph)
    agreed, refused, doubtful, findings = [], {}, [], []
    validated: list[str] = []
    for way in ways:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", nnefc.ModelWarning)
                results = validate(graph, validated) if way.validates else run(graph, way)
                if way.twin:
                    _check_bits(results, run(graph, replace(way, target=way.twin, threads=1)), way.twin)
        except Wrong as error:
            findings.append(Finding(way.name, str(error), ""))
            continue
        except (nnefc.CompileError, nnefc.ModelWarning) as error:
            refused[way.name] = str(error).partition("\n")[0]
            continue
        except nnefc.RunError as error:
            if not way.open_sizes or "bad argument" not in str(error):
                findings.append(Finding(way.name, f"RunError: {error}", ""))
            else:  # open sizes that meet known ones in an operation are taken for equal to them
                refused[way.name] = str(error).partition("bad argument")[2]
            continue
        except Exception as error:  # whatever else is raised is what is looked for
            findings.append(Finding(way.name, f"{type(error).__name__}: {error}", ""))
            continue
        what = difference(results, bounds)
        if not what:
            agreed.append(way.name)
            continue
        peer = _peer_results(graph)
        side = "" if peer is None else "neither" if difference(peer, bounds) else "reference"
        if peer is not None and side == "neither" and not difference(results, _around(peer, bounds)):
            doubtful.append(way.name)
        else:
            findings.append(Finding(way.name, what, side))
    return Outcome(tuple(agreed), refused, tuple(doubtful), tuple(findings), tuple(validated))


def _around(peer: Arrays, bounds: Mapping[str, Bounds]) -> dict[str, Bounds]:
    """The same bounds around onnxruntime's results, which may be as far from the exact ones."""
    around = {}
    for name, bound in bounds.items():
        value = peer[name]
        same = value.shape == bound.exact.shape
        allowed = 2 * bound.allowed if same else np.full(value.shape, 1e-5 * np.abs(value.astype(float)).max(initial=0))
        around[name] = Bounds(value, allowed)
    return around


def run(graph: Graph, way: Way) -> Arrays:
    """The results of one way, by output."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "graph.onnx"
        onnx.save(graph.model(way.open_sizes), source)
        if way.nnef:
            written = folder / "graph.nnef"
            nnefc.convert(source, written)
            source = written
        artifact = nnefc.compile(source, way.target, **dict(way.options))  # type: ignore[arg-type]
        with artifact.load(threads=way.threads) as model:
            kinds = {tensor.name: tensor.dtype for tensor in model.inputs}
            found = model.run({n: v.astype(kinds[n]) for n, v in graph.feeds().items()})  # NNEF has but one integer
    names = [tensor.name for tensor in graph.outputs]
    return dict(zip(names, found.values(), strict=True)) if way.nnef else {name: found[name] for name in names}


class Wrong(Exception):
    """A pass, or a step of a kernel, changes what is computed; or another machine gives other bits."""


def _check_bits(results: Arrays, others: Arrays, machine: str) -> None:
    """Raise `Wrong` where results differ in a bit; what is no number has no bits that count."""
    for name, own in results.items():
        kind = own.dtype.kind
        if not np.array_equal(own, others[name], equal_nan=kind == "f") or (
            kind == "f" and not np.array_equal(np.signbit(own[own == 0]), np.signbit(others[name][own == 0]))
        ):
            raise Wrong(f"{name} has other bits on {machine}")


def validate(graph: Graph, validated: list[str]) -> Arrays:
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
    check_plain(network)
    backend = backend_of(parse_any_target("native"))
    backend.check()
    results: Arrays = {}
    wrong_before = ""
    for step, found in outputs_after_each(network, backend, graph.feeds(), False, MEMORY_BUDGET):
        wrong = difference(found, bounds)
        if wrong and not wrong_before and results:
            raise Wrong(f"after the pass {step}: {wrong}")
        wrong_before, results = wrong, found
        validated.append(step)
    for kernel in kernel_steps(network, backend, graph.feeds(), False, MEMORY_BUDGET):
        apart = kernel.difference
        if not (apart.relative <= _KERNEL_BOUND or (kernel.is_integer and apart.largest <= 1)):
            raise Wrong(f"after the step {kernel.step} the kernel {kernel.kernel} gives others: {apart}")
        validated.append(kernel.step)
    return results


def difference(results: Arrays, bounds: Mapping[str, Bounds]) -> str:
    """How results differ from what they may be; empty if they do not."""
    for name, bound in bounds.items():
        value = results[name]
        if value.shape != bound.exact.shape:
            return f"{name} has the shape {value.shape}, not {bound.exact.shape}"
        if _KINDS[value.dtype.kind] != _KINDS[bound.exact.dtype.kind]:
            return f"{name} has the type {value.dtype}, not {bound.exact.dtype}"
        apart = np.abs(value.astype(np.float64) - bound.exact.astype(np.float64))
        wrong = ~(apart <= bound.allowed) & np.isfinite(bound.allowed)
        if wrong.any():
            where = tuple(int(k) for k in np.argwhere(wrong)[0])
            return (
                f"{name}{list(where)} is {value[where]!r}, not {bound.exact[where]!r} ± {bound.allowed[where]:.2g}; "
                f"{int(wrong.sum())} of {wrong.size} items"
            )
    return ""


def _peer_results(graph: Graph) -> Arrays | None:
    """onnxruntime's results; None if it does not take the graph."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(
            graph.model().SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        found = session.run([t.name for t in graph.outputs], graph.feeds())
    except Exception:  # onnxruntime has many kinds of errors, of which none matters here
        return None
    return {t.name: value for t, value in zip(graph.outputs, found, strict=True)}
