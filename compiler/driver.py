"""The whole way of a network, on one page: model files → Relax → TIR → objects → a library."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import tvm

from nnefc.artifact import Artifact, build
from nnefc.backends import backend_of
from nnefc.c_sources import c_files
from nnefc.calibration import Calibration, samples_of
from nnefc.diagnostics import CompileError, memory_errors, silence
from nnefc.formats import ShapeLike, load_network, load_operator_files
from nnefc.frontends.leaving_open import check_ranges, leaving_open
from nnefc.in_memory import AnyModel, file_of
from nnefc.integer_io import FLOAT, INTEGERS, with_integer_io
from nnefc.internal_errors import reports_internal_errors
from nnefc.loader import LoadError, RunError
from nnefc.narrowest import AUTO, narrowest
from nnefc.network import Network
from nnefc.output_files import write_error, write_text
from nnefc.passes.backend import MEMORY_BUDGET, Code
from nnefc.passes.pipeline import Place, joined
from nnefc.programs import lowered_levels
from nnefc.progress import Progress, Silent, Watched
from nnefc.provenance import source_digest
from nnefc.quantizer import INT8
from nnefc.quantizer.quantize import QuantizationOptions, QuantizationPlan, input_types, plan_quantization, quantized
from nnefc.quantizer.ranges import MINMAX, check_method
from nnefc.source import Source
from nnefc.specializations import Given, Specializations
from nnefc.targets.codegen.cpu.checks import Checks
from nnefc.targets.link.c_objects import c_objects
from nnefc.targets.machine.any_target import AnyTarget, parse_any_target
from nnefc.targets.machine.cpu.isa_levels import MULTI
from nnefc.targets.machine.cpu.target import KEPT_WIDE
from nnefc.turns import in_turn

__all__ = ["Progress", "compile", "compile_network", "quantization_of"]


@reports_internal_errors(LoadError, RunError)
def compile(
    model: AnyModel,
    target: str = "llvm",
    *,
    multi: bool = False,
    small: bool = False,
    patches: bool = False,
    random_weights: int | None = None,
    shape: Mapping[str, ShapeLike] | None = None,
    values: Mapping[str, Any] | None = None,
    graph: str | None = None,
    dialect: str | None = None,
    pedantic: bool = False,
    scan_states: str | None = None,
    entry: str | None = None,
    overridable: bool = False,
    output_tensors: tuple[str, ...] = (),
    max_depth: int | None = None,
    max_operations: int | None = None,
    strict: bool = False,
    memory_budget: float = MEMORY_BUDGET,
    precision: str | None = None,
    keep_wide: Sequence[str] = (),
    max_error: float | None = None,
    calibrate: Calibration | None = None,
    method: str = MINMAX,
    io: str = "float",
    dump: str | os.PathLike[str] | None = None,
    specialize: Sequence[Given] = (),
    only_specialized: bool = False,
    profile: bool = False,
    checked: bool = False,
    reproducible: bool = False,
    operators: Sequence[str | os.PathLike[str]] = (),
    progress: Progress | None = None,
) -> Artifact:
    """Compile a trained network for one target. Several threads may compile at the same time.

    Args:
        model: an NNEF model (a folder, a `.tgz` or `.tar` of it, or a document), an `.onnx` file, or a `.pnnx.param`
            file with its `.pnnx.bin` beside it; or an ONNX model in memory, an `onnx.ModelProto` or its bytes.
        target: `llvm` is this machine with all its features, `llvm -mcpu=NAME` another CPU, `cuda` NVIDIA GPUs.
        multi: whether the library has code for each level of the target's instruction set, from the target on, and
            chooses among them when it is loaded.
        patches: whether the first layers are computed a few rows at a time, where that makes the workspace smaller.
        small: whether the library shall be small rather than fast: it has one thread, no messages, no names of trained
            values, no tables for debuggers, and no algorithm whose constants are larger than the model's.
        random_weights: a seed; variables without a file get random values from it.
        shape: shapes of inputs, by name, and sizes of ONNX's named dimensions, for models that leave them open:
            `{"image": (1, 3, 224, 224)}`, `{"batch": 1}`. The others stay open, on CPUs; those in a range are given as
            `{"batch": "1..64", "height": "32..1280:32"}`, the latter for multiples of 32.
        values: inputs of an ONNX model that become constants, by name; the library does not have these inputs.
        graph: the graph to compile, if an NNEF document has several.
        dialect: `provisional` or `final`, of an NNEF document; by default it is told from the document.
        pedantic: whether an NNEF document may break no rule; else it may, with a warning, where its meaning is clear.
        scan_states: `keep` lets scans of a model in tract's dialect go on where the last one ended, `anew` lets
            each run begin anew; by default models that tract made for pieces of streams keep them.
        entry: the part of an ONNX model to compile instead of its graph: `training:0`, one step of its first training.
        overridable: whether initializers of an ONNX model that are also its inputs are inputs of the library.
        output_tensors: names of tensors to return instead of the network's outputs.
        max_depth: how deep fragments of an NNEF document may be nested, 2,000 by default.
        max_operations: how many operations an NNEF document may have when flattened, 100,000 by default.
        strict: use no algorithm that rounds differently from a plain sum, such as Winograd's: slower, and more exact.
        memory_budget: how much larger the constants may become, as a factor, for algorithms that compute convolutions
            and matrix products in less time: 1 for not at all, `math.inf` for no limit. Fewer than 8 MiB count as 8.
            GPUs use no such algorithms.
        precision: the type that convolutions and matrix products multiply: `fp32`, `bf16` or `fp16`; for GPUs `fp32`,
            `tf32` (float32 of which tensor cores use 10 bits of the fraction), `bf16` or `fp16`. Sums are float32;
            inputs and outputs keep their types. A CPU that does not multiply half floats faster stores the weights in
            them. For this machine also `auto`: of those whose results, tried here, are within `max_error`, the one
            whose runs take the least time; with `calibrate`, of `int8` too. `Artifact.trials` says what was found.
            `int8` quantizes the network by what is seen of it on the data of `calibrate`, for any target.
        keep_wide: `first`, `last`, and names of tensors, with `*` for any letters: of the convolutions and matrix
            products that these are the results of, operands are float32 nevertheless.
        max_error: for `auto`, how far a result may be from that in float32, over the largest value of its output;
            1e-2 by default.
        calibrate: for `int8` and `auto`, values of the inputs by name, or an .npz file of them, with one dimension more
            if there are several of each, or along the first one. For `auto`, random values by default.
        method: for `int8` and `auto`, how the ranges of integers follow from the data: `minmax`, `percentile` or
            `entropy`.
        io: `int8` or `uint8` if inputs and outputs of float32 shall be integers: those that the network quantizes its
            inputs to, and dequantizes its outputs from. The scales are in `Artifact.inputs` and `Artifact.outputs`.
        dump: a folder that the program is written to after every phase, as text.
        specialize: sizes of open dimensions, by name, that the library gets code of its own for, faster than that for
            all sizes: `[{"height": 640, "width": 640}]`. It is run when inputs have these sizes; dimensions that are
            not given stay open in it. Or the name of a scenario of an NNEF model: `["tg"]`.
        only_specialized: whether the library has no other code, and refuses other sizes.
        profile: whether the library times its kernels, for `Model.profile` and `nnefc profile`; some 80 ns each.
        checked: whether kernels look at every place that they read or write, and at every divisor: a run in which
            something is wrong ends with an error that names the kernel, what of the model it computes, and the index.
            For finding errors of the compiler; slower.
        reproducible: whether results have the same bits on all processors, x86-64, Arm, RISC-V and WebAssembly, with
            any number of threads: sums have one order, multiply-adds are not fused. Slower; see docs/precision.md.
        operators: Python files that register operators of the user's; they are run.
        progress: called at the beginning and end of every phase.

    Raises:
        CompileError: the model, an option or the target is invalid or not supported.
    """
    arguments = dict(locals())
    path, folder = file_of(model)
    if folder is not None:
        with folder:
            return compile(**{**arguments, "model": path})
    _check_io(io, precision)
    check_method(method)
    if precision == AUTO:
        if calibrate is None and method != MINMAX:
            raise CompileError(
                f"precision auto tries int8 only on data that are given, and there are none for the method {method}",
                hint="--calibrate images.npz, or leave out --method",
            )
        given = {
            name: value
            for name, value in arguments.items()
            if name not in ("precision", "max_error", "calibrate", "method")
        }
        integers: dict[str, Any] = {"calibrate": calibrate, "method": method}

        def tried(name: str) -> Artifact:
            with (progress or Silent()).phase(f"try {name}"):
                return compile(**given, precision=name, **(integers if name == INT8 else {}))

        return narrowest(tried, target, calibrate, max_error)
    if max_error is not None or (precision != INT8 and (calibrate is not None or method != MINMAX)):
        raise CompileError(
            "max_error is for precision auto, and calibrate and method for precision auto and int8",
            hint="say which: --precision auto or --precision int8",
        )
    progress = Watched(progress or Silent())
    if not memory_budget >= 1:
        raise CompileError(
            f"the memory budget {memory_budget} is less than 1",
            hint="it is a factor of the constants' size: 1 keeps it as it is, 1.25 lets it grow by a quarter",
        )
    machine = parse_any_target(
        f"{target} {MULTI}" if multi else target, *(() if precision == INT8 else (precision, keep_wide))
    )
    if patches:
        if checked:
            raise CompileError("kernels that compute a few rows at a time are not checked", hint="leave out --patches")
        machine = machine.with_patches()
    if small:
        machine = machine.made_small()
        if profile or checked:
            what = "time" if profile else "check"
            raise CompileError(f"a small library does not {what} its kernels", hint="leave out one of the two options")
    if reproducible:
        machine = machine.made_reproducible()
    load_operator_files(operators)
    with _without_collections():
        with progress.phase("read"):
            read = partial(
                load_network,
                path,
                random_weights=random_weights,
                shape=shape,
                values=values,
                graph=graph,
                dialect=dialect,
                pedantic=pedantic,
                scan_states=scan_states,
                entry=entry,
                overridable=overridable,
                output_tensors=tuple(output_tensors),
                max_depth=max_depth,
                max_operations=max_operations,
            )
            backend = backend_of(machine)
            read = partial(read, is_tied=not backend.takes_specializations)
            is_apart = backend.takes_specializations and not only_specialized
            said = Source.read(partial(read, is_apart=is_apart)) if profile or checked else None
            network = read(is_apart=is_apart) if said is None else said.network
            apart = Specializations()
            if network.apart:
                try:
                    with silence():
                        apart = Specializations.of_apart(network, read)
                except CompileError:
                    said = Source.read(read) if profile or checked else None
                    network = read() if said is None else said.network
            check_ranges(network.open_dimensions)
        plan = None
        if precision == INT8:
            with progress.phase("quantize"):
                plan = quantization_of(network, calibrate, keep_wide, method)
                network = quantized(network, plan)
        network = _with_io(network, io)
        is_apart = bool(network.apart)

        def again(**options: Any) -> Network:
            return _with_io(_as_planned(read(**options), plan), io)

        with progress.phase("read") if specialize else nullcontext():
            special = Specializations.of(specialize, only_specialized, network, partial(again, is_apart=is_apart))
        apart = replace(apart, networks=tuple(_with_io(_as_planned(part, plan), io) for part in apart.networks))
        special = special.following(apart, network)
        if not machine.host.small:
            with silence():
                special = special.with_equal(network, partial(again, is_tied=True, is_apart=is_apart))
        with ThreadPoolExecutor(1) as pool:  # beside the compilation: large files take a while
            source = pool.submit(source_digest, path, network.files)
            artifact = compile_network(
                network,
                machine,
                strict=strict,
                memory_budget=memory_budget,
                dump=dump,
                progress=progress,
                special=special,
                profile=profile,
                operators=None if said is None else said.operators(),
                checked=said.places() if checked and said is not None else None,
            )
            described = replace(artifact.description, source=source.result())
            return replace(artifact, description=described, files=network.files)


def quantization_of(
    network: Network, calibrate: Calibration | None, keep_wide: Sequence[str], method: str
) -> QuantizationPlan:
    """How a network is quantized by what its inputs look like; its code is run on this machine, whatever the target is.

    Raises:
        CompileError: there are no data, or they do not fit.
    """
    if calibrate is None:
        raise CompileError(
            "precision int8 needs data that the network is typically given: the scales follow from them",
            hint="--calibrate images.npz, with values of the inputs by name",
        )
    samples = samples_of(calibrate, input_types(network))
    here = parse_any_target("llvm")
    named = tuple(name for name in keep_wide if name not in KEPT_WIDE)
    ends = tuple(name for name in keep_wide if name in KEPT_WIDE)
    options = QuantizationOptions(method, exclude=named, keep_wide=ends)
    return plan_quantization(network, samples, options, lambda part: compile_network(part, here))


def _as_planned(network: Network, plan: QuantizationPlan | None) -> Network:
    return network if plan is None else quantized(network, plan)


def _check_io(io: str, precision: str | None) -> None:
    if io not in (FLOAT, *INTEGERS):
        raise CompileError(
            f"inputs and outputs cannot be in {io!r}", hint=f"choose one of {', '.join((FLOAT, *INTEGERS))}"
        )
    if io != FLOAT and precision == AUTO:
        raise CompileError(
            f"precision auto may choose floats, of which no inputs and outputs in {io} can be made",
            hint=f"say --precision int8 --io {io}, or leave out --io",
        )


def _with_io(network: Network, io: str) -> Network:
    return network if io == FLOAT else with_integer_io(network, io)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Leave cycles of objects alone: Python would look for them again and again among all that a network is made of."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@reports_internal_errors()
def compile_network(
    network: Network,
    target: AnyTarget,
    *,
    strict: bool = False,
    memory_budget: float = MEMORY_BUDGET,
    dump: str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    special: Specializations | None = None,
    profile: bool = False,
    operators: Mapping[str, str] | None = None,
    checked: Mapping[str, str] | None = None,
) -> Artifact:
    """The second half of :func:`compile`: from a front end's network on, and those of known sizes beside it.

    `operators` are what the model computes tensors by, for the description of a library that times its kernels;
    `checked` what of the model computes them, for one whose kernels check what they do.
    """
    special = special or Specializations()
    progress, folder, backend = Watched(progress or Silent()), _Dump(dump), backend_of(target)
    backend.check()
    if profile and not backend.takes_profile:
        raise CompileError(
            f"libraries for the target {target.name} do not time their kernels",
            hint="tools of its maker do: for NVIDIA's GPUs, nsys profile and ncu",
        )
    if checked is not None and not backend.takes_checks:
        raise CompileError(
            f"libraries for the target {target.name} do not check what their kernels do",
            hint="tools of its maker do: for NVIDIA's GPUs, compute-sanitizer",
        )
    if special.networks and not backend.takes_specializations:
        raise CompileError(
            f"code of its own for some sizes is for processors, not for the target {target.name}",
            hint="compile a library for each of these sizes: --shape NAME=SIZE",
        )
    if special.networks and any(part.unlimited_counts for part in (network, *special.networks)):
        names = {count.dimension.name for part in (network, *special.networks) for count in part.unlimited_counts}
        raise CompileError(
            "code of its own for some sizes needs limits of the sizes that only the data tell: "
            f"{', '.join(sorted(names))} has none",
            hint=f"give it a range: --shape {min(names)}=0..1000",
        )
    if not target.host.hosted and (network.open_dimensions or network.all_counts or network.has_text):
        raise CompileError(
            f"the target {target.name} has no heap, which "
            + ("strings need" if network.has_text else "sizes that are known at run time need"),
            hint=None if network.has_text else "give the open dimensions: --shape NAME=SIZE",
        )
    if network.has_text and not backend.takes_text:
        raise CompileError(
            f"the network computes with strings: code for them is for processors, not for the target {target.name}",
            hint="compile the part that reads and makes strings for the processor, and the rest for the GPU",
        )
    with (
        _without_collections(),
        memory_errors("the network takes more memory to compile than there is"),
        ExitStack() as generators,
    ):
        place = Place(
            has_others=bool(special.networks), operators=operators or {}, checked=checked, told=progress.kernels
        )
        with progress.phase("lower"), in_turn():
            levels = lowered_levels(
                network, special, backend, strict, memory_budget, place, profile, folder.module, generators
            )
        with progress.phase("generate code"):
            parts = [part for level in levels for part in level.programs]
            c_code = c_objects(c_files(joined(parts).module), levels[0].backend.target.host)
            codes: list[Code] = []
            for level in levels:
                objects = level.generator.finish(*(program.entry for program in level.programs[special.only :]))
                objects += () if codes else c_code
                codes.append(level.backend.finish(joined(level.programs), objects, folder.text))
        with leaving_open(network.open_dimensions, network.input_shapes, network.all_counts):
            made = [(level.backend.target, level.programs) for level in levels]
            artifact = build(network, target, made, codes, special)
        if checked is None:
            return artifact
        checks = sum((level.generator.checks for level in levels), Checks())
        return replace(artifact, description=replace(artifact.description, checked=True), checks=checks)


class _Dump:
    """Writes each phase's program into a folder, if there is one, numbered; constants as references only."""

    def __init__(self, folder: str | os.PathLike[str] | None) -> None:
        self._place = Path(folder) if folder is not None else None
        self._count = 0
        if self._place is not None:
            try:
                self._place.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise write_error(self._place, error) from error

    def module(self, name: str, module: tvm.IRModule) -> None:
        """Called after each phase with its name and the module as it is then."""
        if self._place is not None:
            self.text(f"{name.replace(' ', '_')}.py", module.script() + "\n")

    def text(self, name: str, text: str) -> None:
        """Called with what is no module."""
        if self._place is None:
            return
        write_text(self._place / f"{self._count:02d}_{name}", text)
        self._count += 1
