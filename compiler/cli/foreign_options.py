"""Suggests nnefc options for command lines of other compilers: trtexec, iree-compile, ovc, ncnn, onnx2c, tvmc, GCC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import PurePath

__all__ = ["hint_for_command", "hint_for_option"]

_WHOLE = "nnefc compile {model} -o {stem}.so"
_NOT_NEEDED = "kernels are always compiled for speed: leave it out"

_PRECISION = "16-bit floats are --precision fp16 or --precision bf16"
_INTEGERS = "integers need data to choose their scales from: --precision int8 --calibrate data.npz"
_MODEL = "the model is an argument without an option: nnefc compile model.onnx -o model.so"
_OUTPUT = "the file to write is -o FILE: nnefc compile model.onnx -o model.so"
_LIBRARY = "libraries run with nnefc run model.so, and are timed with nnefc bench model.so"
_SHAPE = "shapes are --shape NAME=1,3,224,224, sizes of dynamic dimensions --shape batch=1"
_RANGES = "a range of a dynamic dimension is --shape batch=1..64; --specialize batch=8 adds code for one size"
_TARGET = "the machine is --target: nnefc targets lists those with a name; the default is this machine"
_FEATURES = 'processors and their features are --target "llvm -mcpu=NAME -mattr=+FEATURE"'
_GPU = "NVIDIA GPUs are --target cuda; the default is this machine's processor"
_TIMES = "times are measured of compiled libraries: nnefc bench model.so, and per kernel nnefc profile model.so"
_INPUTS = "values of inputs are given when a library runs: nnefc run model.so --input NAME=x.npy"
_THREADS = "the number of threads is chosen when a library runs: nnefc run model.so --threads 4"
_PROGRESS = "-v prints the phases; --dump DIR writes the program after each"
_TEXT = "code as text is --emit c -o model.c, or --emit llvm-ir, asm or cuda with a folder: -o DIR"
_MEMORY = "the workspace is planned when the network is compiled; --memory-budget limits how much constants may grow"
_FORMAT = "the format of a model is recognized by its content, that of the output by its ending: -o model.so"
_LINKED = "-o model.so is a shared library, model.a a static one, model.o an object file"
_ACCURACY = "--strict uses no algorithm that rounds differently, --reproducible gives the same bits on all machines"
_PREPROCESSING = "preprocessing is part of the model: add operators to it, or apply it before nnefc run"
_SIMPLIFIED = "constants are folded and operators fused always: leave it out"
_OPSET = "all opsets of ONNX are read as they are: leave it out"

_OPTIONS: Mapping[str, Sequence[str]] = {
    _PRECISION: ("fp16", "half", "bf16", "amp", "compress-to-fp16", "data-type", "float16", "no-tf32", "dtype", "fp32"),
    _INTEGERS: ("int8", "uint8", "quantize", "quant", "calib", "calibration", "best", "ptq", "fp8", "int4"),
    _MODEL: (
        *("onnx", "model", "input-model", "model-file", "model-path", "uff", "deploy", "saved-model", "path-model"),
        *("graph-file", "network", "tflite", "pnnx", "nnef", "m", "i"),
    ),
    _OUTPUT: ("save-engine", "output-model", "output-dir", "output-file", "out", "output-path", "engine", "outdir"),
    _LIBRARY: ("load-engine", "module", "run"),
    _SHAPE: ("shapes", "input-shape", "input-shapes", "inputshape", "batch", "batch-size", "imgsz", "example-shape"),
    _RANGES: (
        *("min-shapes", "opt-shapes", "max-shapes", "explicit-batch", "max-batch", "dynamic", "dynamic-axes"),
        *("dynamic-shape", "inputshape2"),
    ),
    _TARGET: (
        *("iree-hal-target-backends", "iree-hal-target-device", "target-backend", "device", "d", "arch", "platform"),
        *("backend", "triple", "mtriple", "iree-llvmcpu-target-triple", "provider", "ep", "target-device", "mabi"),
    ),
    _FEATURES: (
        *("march", "mcpu", "mtune", "mattr", "mfpu", "iree-llvmcpu-target-cpu", "iree-llvmcpu-target-cpu-features"),
        *("cpu", "mavx2", "mavx512f", "msse4.2", "mfma", "f16c", "target-cpu"),
    ),
    _GPU: ("gpu", "cuda", "gpus", "use-dla-core", "use-gpu", "sm", "cuda-arch", "use-cuda-graph"),
    _TIMES: (
        *("iterations", "warm-up", "duration", "niter", "nireq", "dump-profile", "benchmark", "avg-runs", "repeat"),
        *("hint", "profiling-verbosity", "separate-profile-run", "loop"),
    ),
    _INPUTS: ("load-inputs", "input", "inputs", "input-data"),
    _THREADS: ("threads", "nthreads", "num-threads", "intra-op-num-threads", "num-cores"),
    _PROGRESS: ("debug", "log-level", "mlir-print-ir-after-all", "print-ir", "dump-ir", "trace"),
    _TEXT: ("s", "emit-llvm", "compile-to", "iree-hal-dump-executable-sources-to", "dump-code", "emit-c"),
    _MEMORY: ("workspace", "mem-pool-size", "workspace-size", "tactic-sources", "timing-cache-file", "l"),
    _FORMAT: ("format", "model-format", "framework", "output-format", "input-format", "iree-input-type", "f"),
    _LINKED: ("shared", "fpic", "static", "c"),
    _ACCURACY: ("ffast-math", "fast-math", "deterministic", "precision-constraints"),
    _PREPROCESSING: ("mean-values", "scale-values", "reverse-input-channels", "mean", "std", "norm", "layout"),
    _SIMPLIFIED: ("simplify", "optimize", "sim", "fold-constants", "fuse", "iree-opt-const-eval"),
    _OPSET: ("opset", "opset-version", "target-opset"),
    _NOT_NEEDED: (
        *("opt-level", "optimization-level", "builder-optimization-level", "o0", "o1", "o2", "o3", "ofast", "os", "oz"),
        *("iree-opt-level", "og"),
    ),
}
"""The hint for options of other compilers, whose names are listed without dashes."""

_BY_OPTION = {_name: _hint for _hint, _names in _OPTIONS.items() for _name in _names}

_COMMANDS: Mapping[str, Sequence[str]] = {
    "models are compiled with nnefc compile model.onnx -o model.so": (
        *("build", "export", "optimize", "lower", "translate", "codegen", "make", "aot", "engine", "tune"),
    ),
    "nnefc bench model.so times libraries, nnefc profile model.so their kernels": ("benchmark", "perf", "time"),
    "nnefc run model.so runs a library": ("infer", "predict", "exec", "execute", "inference", "eval"),
    "nnefc inspect FILE describes models and libraries, nnefc view MODEL -o page.html draws them": (
        *("info", "show", "summary", "describe", "dump", "draw", "visualize", "netron", "print"),
    ),
    "nnefc compare MODEL compares its results with a reference": (
        "check",
        "test",
        "validate",
        "accuracy",
        "polygraphy",
    ),
    "nnefc --help lists the commands, nnefc --version shows the version": ("help", "version", "commands"),
}
"""The hint for commands of other programs."""

_BY_COMMAND = {_name: _hint for _hint, _names in _COMMANDS.items() for _name in _names}

_MODELS = (".onnx", ".nnef", ".param", ".pt2", ".tgz", ".tar", ".gz", ".ort", ".pb", ".tflite", ".pt", ".pth", ".mlir")
_LIBRARIES = (".so", ".dylib", ".dll")


def hint_for_option(option: str, words: Sequence[str]) -> str | None:
    """Return a hint what to use instead of an option of another compiler; None if the option is unknown.

    Args:
        option: as click's parser reports it, `-O` for the word `-O3`.
        words: of the command line.
    """
    whole = (word for word in words if word.startswith(option))
    return next((_BY_OPTION[name] for name in chain.from_iterable(map(_spellings, whole)) if name in _BY_OPTION), None)


def _spellings(word: str) -> tuple[str, ...]:
    """Return the name of an option without dashes and value, in two spellings: `min-shapes`, `minshapes` for
    `--minShapes=x`.
    """
    name = word.lstrip("-").partition("=")[0].replace("_", "-")
    parted = "".join(f"-{c.lower()}" if c.isupper() and name[at - 1 : at].islower() else c for at, c in enumerate(name))
    return parted.lower(), name.lower()


def hint_for_command(name: str) -> str | None:
    """Return a hint for a command of another program, or for a file instead of a command; None if it is unknown."""
    path = PurePath(name)
    if path.suffix.lower() in _LIBRARIES:
        return f"a command comes first: nnefc run {name}, or nnefc inspect {name}"
    if path.suffix.lower() in _MODELS:
        return f"a command comes first: {_WHOLE.format(model=name, stem=path.name.partition('.')[0] or 'model')}"
    return _BY_COMMAND.get(name.lower())
