"""Compiles a network, phase by phase: model files → Relax → TIR → objects → a library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from nnefc.backends import backend_of
from nnefc.driver.artifact import Artifact, build
from nnefc.driver.caching.kernel_cache import FileKernelCache
from nnefc.driver.caching.user_cache import Cache, compiler_state, kernel_files
from nnefc.driver.formats import load_network, load_operator_files
from nnefc.driver.in_memory import AnyModel, file_of
from nnefc.driver.locks import in_turn
from nnefc.driver.model_source import ModelSource
from nnefc.driver.option_keywords import CompileKeywords, compile_options, with_documented_options
from nnefc.driver.options import (
    AUTO,
    DEFAULT_CODE,
    DEFAULT_DEBUG,
    FLOAT,
    INT8,
    CodeOptions,
    CompileOptions,
    DebugOptions,
    PrecisionOptions,
    ReadOptions,
)
from nnefc.driver.programs import lowered_isa_levels
from nnefc.driver.progress import Progress, Silent, Watched
from nnefc.driver.provenance import source_digest
from nnefc.driver.specializations import Specializations
from nnefc.driver.tokenizer_files import with_tokenizer
from nnefc.frontends.dynamic_shapes import check_ranges, dynamic_shape_context
from nnefc.ir.extern_c import c_files
from nnefc.ir.network import Network
from nnefc.loader import LoadError, RunError
from nnefc.passes.backend import Backend, Code
from nnefc.passes.dump import dump_of
from nnefc.passes.manager import Insertion, Observer, PassList, PassManager
from nnefc.passes.pipeline import joined
from nnefc.passes.program_passes import LibraryContext
from nnefc.passes.spec.verifier import Verifier, verifier_is_on
from nnefc.support.diagnostics import CompileError, memory_errors, silence
from nnefc.support.garbage_collection import age_modules, without_collections
from nnefc.support.internal_errors import reports_internal_errors
from nnefc.targets.codegen.cpu.checks import Checks
from nnefc.targets.link.c_objects import c_objects
from nnefc.targets.machine.any_target import AnyTarget, parse_any_target
from nnefc.targets.machine.cpu.multiversioning import MULTI
from nnefc.targets.machine.cpu.target import KEPT_WIDE, Target

if TYPE_CHECKING:
    from nnefc.quantizer.quantize import QuantizationPlan

__all__ = [
    "Progress",
    "compile",
    "compile_model",
    "compile_network",
    "machine_of",
    "passes_of",
    "quantization_of",
]


@with_documented_options(CompileKeywords)
@reports_internal_errors(LoadError, RunError)
def compile(
    model: AnyModel,
    target: str = "llvm",
    *,
    progress: Progress | None = None,
    passes: Sequence[Insertion] = (),
    observers: Sequence[Observer] = (),
    **options: Unpack[CompileKeywords],
) -> Artifact:
    """Compiles a trained network for one target. Several threads may compile at the same time.

    Args:
        model: an NNEF model (a folder, a `.tgz` or `.tar` of it, or a document), an `.onnx` or `.tflite` file, a
            `.pnnx.param` file with its `.pnnx.bin` next to it, a language model (a `.gguf` file, or a folder with
            `config.json` and `.safetensors` files); or a model in memory: an `onnx.ModelProto`, or the bytes of an ONNX
            or TFLite model.
        target: `llvm` is this machine with all its features, `llvm -mcpu=NAME` another CPU, `cuda` NVIDIA GPUs;
            `nnefc targets` lists those with a name.
        progress: called at the beginning and end of every phase.
        passes: passes of the user, each made by `nnefc.passes.after`.
        observers: called after each run of a pass, such as `nnefc.passes.PassTimes()`; some in other threads.
        {options}

    Raises:
        CompileError: the model, an option or the target is invalid or not supported.
    """
    chosen = compile_options("nnefc.compile", options, target)
    return compile_model(model, replace(chosen, passes=tuple(passes), observers=tuple(observers)), progress)


@reports_internal_errors(LoadError, RunError)
def compile_model(
    model: AnyModel, options: CompileOptions, progress: Progress | None = None, cache: Cache = None
) -> Artifact:
    """Compile a model as :func:`compile`, with an object of options.

    Args:
        model: as for :func:`compile`.
        options: of the compilation; `options.precision` may be `auto`.
        progress: called at the beginning and end of every phase.
        cache: of kernels.
    """
    path, folder = file_of(model)
    with folder or nullcontext():
        if options.precision.precision == AUTO:
            return _fastest_precision(path, options, progress, cache)
        return _compile_file(path, options, Watched(progress or Silent()), cache)


def _fastest_precision(path: Path, options: CompileOptions, progress: Progress | None, cache: Cache) -> Artifact:
    """Compile a model in several precisions, and return the fastest one within the error that the options allow."""
    from nnefc.driver.auto_precision import narrowest  # as the quantizer: few compilations need it

    auto = options.precision

    def tried(name: str) -> Artifact:
        single = PrecisionOptions(precision=name, keep_wide=auto.keep_wide, io=auto.io)
        if name == INT8:
            single = replace(single, calibrate=auto.calibrate, method=auto.method)
        with (progress or Silent()).phase(f"try {name}"):
            return compile_model(path, replace(options, precision=single), progress, cache)

    return narrowest(tried, options.target, auto.calibrate, auto.max_error)


def _compile_file(path: Path, options: CompileOptions, progress: Progress, cache: Cache) -> Artifact:
    """Compile a model in one precision."""
    code = options.code
    machine = machine_of(options)
    backend = backend_of(machine)
    load_operator_files(options.read.operators)
    age_modules()
    with without_collections():
        with progress.phase("read"):
            read = _read(path, options.read, code, backend)
        plan = None
        if options.precision.precision == INT8:
            with progress.phase("quantize"):
                plan = quantization_of(read.network, options.precision)
        finished = partial(_finished, plan=plan, io=options.precision.io, fast=code.fast)
        network = with_tokenizer(finished(read.network), code.tokenizer)
        is_apart = bool(network.apart)

        def again(**how: Any) -> Network:
            return finished(read.load(**how))

        with progress.phase("read") if code.specialize else nullcontext():
            special = Specializations.of(
                code.specialize, code.only_specialized, network, partial(again, is_apart=is_apart)
            )
        apart = replace(read.apart, networks=tuple(map(finished, read.apart.networks)))
        special = special.following(apart, network)
        if not machine.host.small:
            with silence():
                special = special.with_equal(network, partial(again, is_tied=True, is_apart=is_apart))
        with ThreadPoolExecutor(1) as pool:  # during the compilation: large files take a while
            source = pool.submit(source_digest, path, network.files)
            artifact = compile_network(
                network,
                machine,
                code,
                debug=options.debug,
                passes=options.passes,
                observers=options.observers,
                progress=progress,
                special=special,
                operators=None if read.source is None else read.source.operators(),
                checked=read.source.locations() if code.checked and read.source is not None else None,
                cache=cache,
            )
            described = replace(artifact.description, source=source.result())
            return replace(artifact, description=described, files=network.files)


def passes_of(options: CompileOptions) -> PassList:
    """Return the passes that run with these options, in order.

    Raises:
        CompileError: there is no such target, or it does not support an option.
    """
    backend = backend_of(machine_of(options))
    return backend.passes.for_settings(backend.settings(options.code.strict, options.code.memory_budget))


def machine_of(options: CompileOptions) -> AnyTarget:
    """Return the target that the options name, with their changes of its code.

    Raises:
        CompileError: there is no such target, or it does not support an option.
    """
    code, precision = options.code, options.precision
    target = f"{options.target} {MULTI}" if code.multi else options.target
    is_int8 = precision.precision == INT8
    machine = parse_any_target(target, *(() if is_int8 else (precision.precision, precision.keep_wide)))
    if code.patches:
        machine = machine.with_patches()
    if code.small:
        machine = machine.made_small()
    return machine.made_reproducible() if code.reproducible else machine


@dataclass(frozen=True)
class _ReadModel:
    """A model that was read.

    Attributes:
        network: the network for all sizes.
        apart: networks for single sizes, such as 1, for which `network` is not correct.
        source: the tensors of the model, if kernels are timed or checked.
        load: reads the model again, for other sizes.
    """

    network: Network
    apart: Specializations
    source: ModelSource | None
    load: Callable[..., Network]


def _read(path: Path, options: ReadOptions, code: CodeOptions, backend: Backend) -> _ReadModel:
    """Read a model as one network for all sizes. If its ranks depend on sizes and the backend supports several
    programs, also read networks for the single sizes that need another program.
    """
    load = partial(load_network, path, options, is_tied=not backend.takes_specializations)
    is_apart = backend.takes_specializations and not code.only_specialized

    def first(**how: Any) -> tuple[Network, ModelSource | None]:
        if not (code.profile or code.checked or backend.labels_calls):
            return load(**how), None
        source = ModelSource.read(partial(load, **how))
        return source.network, source

    network, source = first(is_apart=is_apart)
    apart = Specializations()
    if network.apart:
        try:
            with silence():
                apart = Specializations.of_apart(network, load)
        except CompileError:
            network, source = first()
    check_ranges(network.dynamic_dimensions)
    return _ReadModel(network, apart, source, load)


def _finished(network: Network, plan: QuantizationPlan | None, io: str, fast: bool) -> Network:
    """Return a network quantized by a plan, if there is one, with inputs and outputs of the type `io`.

    Args:
        network: to be quantized.
        plan: of the quantization; None: none.
        io: the element type of quantized inputs and outputs.
        fast: whether rows are quantized to 8 bits before products with block-quantized matrices, although these blocks
            allow 16 bits.
    """
    if fast:
        from nnefc.operators.nn.block_quantization import with_rows_of_bytes

        network = replace(network, module=with_rows_of_bytes(network.module))
    if plan is not None:
        from nnefc.quantizer.quantize import quantized

        network = quantized(network, plan)
    if io == FLOAT:
        return network
    from nnefc.driver.integer_io import with_integer_io

    return with_integer_io(network, io)


def quantization_of(network: Network, options: PrecisionOptions) -> QuantizationPlan:
    """Return how to quantize a network, by its values on samples of its inputs; it runs on this machine for any target.

    Raises:
        CompileError: there are no samples, or they do not fit.
    """
    if options.calibrate is None:
        raise CompileError(
            "precision int8 needs data that the network is typically given: the scales follow from them",
            hint="--calibrate images.npz, with values of the inputs by name",
        )
    from nnefc.quantizer.calibration import samples_of
    from nnefc.quantizer.quantize import QuantizationOptions, input_types, plan_quantization

    samples = samples_of(options.calibrate, input_types(network))
    here = parse_any_target("llvm")
    named = tuple(name for name in options.keep_wide if name not in KEPT_WIDE)
    ends = tuple(name for name in options.keep_wide if name in KEPT_WIDE)
    how = QuantizationOptions(options.method, exclude=named, keep_wide=ends)
    return plan_quantization(network, samples, how, lambda part: compile_network(part, here))


@reports_internal_errors()
def compile_network(
    network: Network,
    target: AnyTarget,
    code: CodeOptions = DEFAULT_CODE,
    *,
    debug: DebugOptions = DEFAULT_DEBUG,
    passes: Sequence[Insertion] = (),
    observers: Sequence[Observer] = (),
    progress: Progress | None = None,
    special: Specializations | None = None,
    operators: Mapping[str, str] | None = None,
    checked: Mapping[str, str] | None = None,
    cache: Cache = None,
) -> Artifact:
    """Compile the network that a front end returns: the second half of :func:`compile`.

    Args:
        network: the network for all sizes.
        target: the machine, as of :func:`machine_of`.
        code: the other options of the code.
        debug: the options of what is dumped.
        passes: passes of the user, each made by `nnefc.passes.after`.
        observers: called after each run of a pass.
        progress: called at the beginning and end of every phase.
        special: specializations of the same model.
        operators: the operators of the model by the tensors that they compute, for libraries that time their kernels.
        checked: the nodes of the model by the tensors that they compute, for libraries whose kernels check accesses.
        cache: of kernels.
    """
    special = special or Specializations()
    progress, backend = Watched(progress or Silent()), backend_of(target)
    listed = backend.passes.with_passes(passes)
    dump = dump_of(debug.dump, [listed.checked_name(name) for name in debug.dump_after])
    managers = [
        PassManager(
            level,
            level.settings(code.strict, code.memory_budget),
            listed,
            [
                *([] if dump is None else [dump]),
                *([Verifier()] if checked is not None or verifier_is_on() else []),
                *observers,
            ],
        )
        for level in backend.levels
    ]
    for each in passes:
        if not any(manager.runs_inserted(each) for manager in managers):
            raise CompileError(
                f"the pass {each.after!r}, which {each.name!r} follows, does not run for this target and these options",
                hint="--print-passes lists those that do",
            )
    backend.check()
    _check_target(network, special, backend, code.profile, checked is not None)
    with (
        without_collections(),
        memory_errors("the network takes more memory to compile than there is"),
        ExitStack() as generators,
    ):
        is_watched = bool(passes) or any(manager.is_observed for manager in managers)
        kernels = None if is_watched else _kernel_cache(cache)
        library_context = LibraryContext(
            has_others=bool(special.networks),
            operators=operators or {},
            checked=checked,
            on_progress=progress.kernels,
            cache=kernels,
        )
        with progress.phase("lower"), in_turn():
            levels = lowered_isa_levels(network, special, managers, code.profile, library_context, generators)
        with progress.phase("generate code"):
            parts = [part for level in levels for part in level.programs]
            c_code = c_objects(c_files(joined(parts).module), levels[0].manager.backend.target.host)
            codes: list[Code] = []
            for level in levels:
                entries = [program.entry for program in level.programs[special.only :]]
                if kernels is not None and level.manager.backend.names_by_content:
                    called = chain(*(program.kernels for program in level.programs))
                    objects = kernels.objects(level.generator, called, entries, level.manager.settings)
                else:
                    objects = level.generator.finish(*entries)
                objects += () if codes else c_code
                write = None if dump is None else dump.text
                codes.append(level.manager.backend.finish(joined(level.programs), objects, level.manager, write))
        with dynamic_shape_context(network.dynamic_dimensions, network.input_shapes, network.all_data_dependent_sizes):
            made = [(level.manager.backend.target, level.programs) for level in levels]
            artifact = build(network, target, made, codes, special)
        if checked is None:
            return artifact
        checks = sum((level.generator.checks for level in levels), Checks())
        return replace(artifact, description=replace(artifact.description, checked=True), checks=checks)


def _kernel_cache(cache: Cache) -> FileKernelCache | None:
    """Return the cache of kernels; None if it is off."""
    files = kernel_files(cache)
    return None if files is None else FileKernelCache(files, compiler_state())


def _check_target(network: Network, special: Specializations, backend: Backend, profile: bool, checked: bool) -> None:
    """Check, before any work, that the target supports a network and the options.

    Args:
        network: the network for all sizes.
        special: specializations of the same model.
        backend: the backend of the target.
        profile: whether kernels are timed.
        checked: whether kernels check their accesses.

    Raises:
        CompileError: the target does not support something; the hint says what to do.
    """
    name = backend.target.name
    if profile and not backend.takes_profile:
        raise CompileError(
            f"libraries for the target {name} do not time their kernels",
            hint="tools of its maker do: for NVIDIA's GPUs, nsys profile and ncu",
        )
    if checked and not backend.takes_checks:
        raise CompileError(
            f"libraries for the target {name} do not check what their kernels do",
            hint="tools of its maker do: for NVIDIA's GPUs, compute-sanitizer",
        )
    if special.networks and not backend.takes_specializations:
        raise CompileError(
            f"code of its own for some sizes is for processors, not for the target {name}",
            hint="compile a library for each of these sizes: --shape NAME=SIZE",
        )
    if special.networks and any(part.unbounded_data_dependent_sizes for part in (network, *special.networks)):
        names = {
            count.dimension.name
            for part in (network, *special.networks)
            for count in part.unbounded_data_dependent_sizes
        }
        raise CompileError(
            "code of its own for some sizes needs limits of the data-dependent sizes: "
            f"{', '.join(sorted(names))} has none",
            hint=f"give it a range: --shape {min(names)}=0..1000",
        )
    if not backend.target.host.hosted:
        _check_without_heap(network, backend.target.host)
    if network.has_text and not backend.takes_text:
        raise CompileError(
            f"the network computes with strings: code for them is for processors, not for the target {name}",
            hint="compile the part that reads and makes strings for the processor, and the rest for the GPU",
        )


def _check_without_heap(network: Network, target: Target) -> None:
    """Check that a network needs no memory without an upper bound, for a target without a heap.

    Raises:
        CompileError: the network has strings, a tokenizer, dynamic dimensions, or data-dependent sizes without a bound.
    """
    name = target.name
    if network.has_text and not target.c_source:
        raise CompileError(
            f"the target {name} has no heap, which strings need",
            hint=f"compile C source, where strings have memory of the caller's: --emit c -t {name}",
        )
    if network.vocabulary:
        raise CompileError(
            f"the target {name} has no heap, which a tokenizer needs",
            hint="compile for a machine with an operating system: nnefc targets lists them",
        )
    if network.dynamic_dimensions:
        raise CompileError(
            f"the target {name} has no heap, which sizes that are known at run time need",
            hint="give the dynamic dimensions: --shape NAME=SIZE",
        )
    unbounded = sorted({count.dimension.name for count in network.unbounded_data_dependent_sizes})
    if unbounded:
        raise CompileError(
            f"the target {name} has no heap, which sizes that depend on the data need: "
            f"{', '.join(unbounded)} {'has' if len(unbounded) == 1 else 'have'} no limit",
            hint=f"give it a range: --shape {unbounded[0]}=0..1000",
        )
