"""Options of a compilation: how the model is read, the form of the generated code, and the precision.

Each option is a field of one of the frozen dataclasses below and is documented there once. The help of the command
line, the docstring of `nnefc.compile` and the page docs/options.md are made from the fields. Options are checked when
an object is made.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias

from nnefc.driver.option_fields import check_options, documented
from nnefc.support.diagnostics import CompileError

if TYPE_CHECKING:
    import numpy as np

    from nnefc.passes.manager import Insertion, Observer

__all__ = [
    "AUTO",
    "DEFAULT_CODE",
    "DEFAULT_DEBUG",
    "DEFAULT_READ",
    "FLOAT",
    "INT8",
    "MINMAX",
    "Calibration",
    "CodeOptions",
    "CompileOptions",
    "DebugOptions",
    "FilePath",
    "PrecisionOptions",
    "ReadOptions",
    "ShapeLike",
]

ShapeLike: TypeAlias = "SupportsIndex | str | Sequence[ShapeLike] | None"
"""A shape as a user writes it: sizes, or a single size; for a sequence of ONNX the shapes of its elements, and None
for an optional input that is absent."""

Calibration: TypeAlias = "Mapping[str, np.ndarray[Any, Any]] | str | os.PathLike[str]"
"""Values of all inputs by name, or an .npz file with them; several samples are stacked along the first dimension."""

FilePath: TypeAlias = "str | os.PathLike[str]"

AUTO, INT8 = "auto", "int8"
"""Special precisions: `auto` tries several ones, `int8` quantizes the network."""

MINMAX = "minmax"
FLOAT = "float"


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Options that say how a model is read."""

    random_weights: int | None = documented(
        "Model",
        "Seed for random values of weights whose file is missing.",
        default_words="a missing file is an error",
    )
    shape: Mapping[str, ShapeLike] | None = documented(
        "Sizes",
        "Shapes of inputs by name, and sizes of named dynamic dimensions. Sizes that are not given stay dynamic; a "
        "range such as `1..64`, or `32..1280:32` for multiples of 32, limits a dynamic size.",
        command_line="Several with commas: image=1,3,224,224, or batch=1..64,height=32..1280:32 (repeatable).",
        python='`{"image": (1, 3, 224, 224), "batch": "1..64"}`.',
        common=True,
    )
    values: Mapping[str, Any] | None = documented(
        "Model",
        "Inputs of an ONNX model that become constants. The library does not have these inputs.",
        command_line="VALUE is a number, true, false, a list such as 1,2,3 or [[1,2],[3,4]], or a .npy file "
        "(repeatable).",
        python='Arrays, numbers or lists by the names of the inputs: `{"axes": [0, 1]}`.',
        flag="value",
    )
    graph: str | None = documented("Model", "The graph to compile, for an NNEF document that has several.")
    dialect: str | None = documented(
        "Model",
        "The dialect of an NNEF document.",
        choices=("provisional", "final"),
        default_words="recognized from the document",
    )
    pedantic: bool = documented(
        "Model",
        "Reject an NNEF document that breaks a rule of the standard, even where its meaning is clear. Without this "
        "option such a document is compiled with a warning.",
        default=False,
    )
    scan_states: str | None = documented(
        "Model",
        "For tract's dialect of NNEF: `keep` the states of scans for the next run, or `reset` them in each run.",
        choices=("keep", "reset"),
        renamed={"anew": "reset"},
        default_words="keep for streaming models, else reset",
    )
    entry: str | None = documented(
        "Model",
        "The part of a model to compile instead of its main graph: of ONNX `training:0`, one step of its first "
        "training; of TFLite the key of a signature.",
    )
    overridable: bool = documented(
        "Model",
        "Make initializers of an ONNX model that are listed among its inputs inputs of the library. Without this "
        "option they are constants.",
        default=False,
    )
    output_tensors: Sequence[str] = documented(
        "Model",
        "Names of tensors to return in place of the network's outputs.",
        command_line="(repeatable)",
        default=(),
        default_words="the network's outputs",
        flag="output-tensor",
    )
    operators: Sequence[FilePath] = documented(
        "Model",
        "Python files that register custom operators. The files are executed.",
        command_line="(repeatable)",
        default=(),
    )
    max_depth: int | None = documented(
        "Model", "Maximum nesting of fragments in an NNEF document.", minimum=1, default_words="2000"
    )
    max_operations: int | None = documented(
        "Model",
        "Maximum number of operations of an NNEF document after its fragments are expanded.",
        minimum=1,
        default_words="100000",
    )

    context: int | None = documented(
        "Language models",
        "Maximum number of tokens of a conversation with a language model, or of a text that an encoder reads.",
        minimum=1,
        default_words="that of its training, at most 2048",
    )
    sequences: int | None = documented(
        "Language models",
        "Number of conversations that a session keeps side by side; of an encoder, of texts that a run has at most.",
        minimum=1,
        default_words="1; of encoders 32",
    )
    candidates: int | None = documented(
        "Language models",
        "Let the network choose the next token, one of so many likeliest ones; 1 for the likeliest.",
        minimum=1,
        default_words="the network returns logits",
    )
    quantize: str | None = documented(
        "Language models",
        "Round matrices of floats to integers of 8 or 4 bits in blocks of 32.",
        choices=("q8", "q4"),
        default_words="as the file has them",
    )
    kv_cache: str | None = documented(
        "Language models",
        "Keep keys and values in 16 bits, in 8 bits with a scale for each head and position, or in float32.",
        choices=("f16", "q8", "f32"),
        default_words="f16",
        flag="cache",
    )
    rewind: int | None = documented(
        "Language models",
        "Number of its last tokens that a conversation can forget where layers see a window of tokens: their caches "
        "hold so many besides the window.",
        minimum=0,
        default_words="256",
    )
    all_logits: bool = documented(
        "Language models",
        "Return the logits of any tokens of a run, whose indices are a further input, `rows`, and not only those of "
        "the last tokens: so texts are scored in a few runs. Encoders have none.",
        default=False,
    )

    def __post_init__(self) -> None:
        """Checks what can be checked without the model.

        Raises:
            CompileError: a value is of a wrong type or out of range.
        """
        check_options(self)
        if self.shape is not None and not isinstance(self.shape, Mapping):
            raise CompileError(
                f"shape is a {type(self.shape).__name__}, not shapes by the names of inputs",
                hint='such as shape={"image": (1, 3, 224, 224)}',
            )
        if self.values is not None and not isinstance(self.values, Mapping):
            raise CompileError(
                f"values is a {type(self.values).__name__}, not values by the names of inputs",
                hint='such as values={"axes": [0, 1]}',
            )


@dataclass(frozen=True, kw_only=True)
class CodeOptions:
    """Options that say what code is generated."""

    strict: bool = documented(
        "Precision",
        "Use only algorithms that round as a direct sum does: no Winograd convolutions, for example. Slower and more "
        "accurate.",
        default=False,
    )
    fast: bool = documented(
        "Precision",
        "Round rows to 8 bits instead of 16, with a scale for each block, before they are multiplied by matrices in "
        "blocks of integers, as those of GGUF files are: llama.cpp does so. Faster and less accurate.",
        default=False,
    )
    tokenizer: FilePath | None = documented(  # noqa: RUF009
        "Output",
        "The tokenizer of a language model, which becomes a part of the library: a tokenizer.json of the package "
        "tokenizers, a folder with one, or a GGUF file. The library then takes and gives text: `nnefc_tokenize` and "
        "`nnefc_detokenize` in C, `Model.tokenize` and `Model.detokenize` in Python.",
        default_words="that of the model's file, if it has one",
    )
    reproducible: bool = documented(
        "Precision",
        "Compute results with the same bits on x86-64, Arm, RISC-V and WebAssembly, with any number of threads: sums "
        "have a fixed order, multiply-adds are not fused. Slower.",
        default=False,
    )
    small: bool = documented(
        "Speed against size",
        "Optimize for size instead of speed: one thread, error numbers without messages, no names of weights, no "
        "unwind tables, no algorithm that needs larger constants than the model.",
        default=False,
        common=True,
    )
    memory_budget: float = documented(
        "Speed against size",
        "How much the constants may grow for faster convolutions and matrix products, as a factor of their size, which "
        "counts as at least 8 MiB, and as the data and the result of the largest layer: 1 for no growth, inf for no "
        "limit. GPUs use no such algorithms.",
        default=1.25,
    )
    patches: bool = documented(
        "Speed against size",
        "Compute the first layers a few rows at a time where this makes the workspace smaller, mostly for "
        "microcontrollers.",
        default=False,
    )
    multi: bool = documented(
        "Output",
        "Generate code for each ISA level of x86-64 or 64-bit Arm, from the target on. The library selects a level "
        "when it is loaded.",
        default=False,
    )
    specialize: Sequence[Mapping[str, Any] | str] = documented(
        "Sizes",
        "Sizes of dynamic dimensions to generate additional, faster code for, which runs when inputs have these sizes; "
        "dimensions that are not given stay dynamic. Or the name of a scenario of an NNEF model.",
        command_line="(repeatable)",
        python='`[{"height": 640, "width": 640}]`, or `["scenario"]`.',
        default=(),
        common=True,
    )
    only_specialized: bool = documented(
        "Sizes", "Generate only the code of `specialize`. The library rejects other sizes.", default=False
    )
    profile: bool = documented(
        "Debugging",
        "Record the time of each kernel, for `nnefc profile` and `Model.profile`. Costs about 80 ns per kernel.",
        default=False,
        common=True,
    )
    checked: bool = documented(
        "Debugging",
        "Check the bounds of every memory access and every divisor in kernels. A run with an error ends with a message "
        "that names the kernel, the operator and the index. For finding errors of the compiler; slower.",
        default=False,
    )

    def __post_init__(self) -> None:
        """Checks the options, and which of them exclude each other.

        Raises:
            CompileError: a value is of a wrong type or out of range, or two options exclude each other.
        """
        check_options(self)
        if not self.memory_budget >= 1:
            raise CompileError(
                f"the memory budget {self.memory_budget} is less than 1",
                hint="it is a factor of the constants' size: 1 keeps it as it is, 1.25 lets it grow by a quarter",
            )
        if self.fast and self.strict:
            raise CompileError("the options fast and strict exclude each other", hint="leave out one of the two")
        if self.patches and self.checked:
            raise CompileError("kernels that compute a few rows at a time are not checked", hint="leave out --patches")
        if self.small and (self.profile or self.checked):
            what = "time" if self.profile else "check"
            raise CompileError(f"a small library does not {what} its kernels", hint="leave out one of the two options")
        if self.only_specialized and not self.specialize:
            raise CompileError(
                "there are no specialized sizes that the library could be for alone",
                hint="give them: --specialize NAME=SIZE",
            )


@dataclass(frozen=True, kw_only=True)
class PrecisionOptions:
    """Options that say in which element types a network computes."""

    precision: str | None = documented(
        "Precision",
        "Element type of the operands of convolutions and matrix products; sums are float32, inputs and outputs keep "
        "their types. CPUs have `fp32`, `bf16` and `fp16` (a CPU without such instructions stores the weights in 16 "
        "bits), GPUs have `tf32` too. `int8` quantizes the network with the data of `calibrate`. `auto` compiles for "
        "this machine, tries these and takes the fastest within `max_error`.",
        choices=("fp32", "tf32", "bf16", "fp16", INT8, AUTO),
        default_words="fp32",
        common=True,
    )
    keep_wide: Sequence[str] = documented(
        "Precision",
        "Convolutions and matrix products that keep float32 operands: `first`, `last`, or names of their results, "
        "where * stands for any characters.",
        default=(),
    )
    max_error: float | None = documented(
        "Precision",
        "For `auto`: the maximum error of a result compared with float32, relative to the largest value of the output.",
        default_words="1e-2",
        common=True,
    )
    calibrate: Calibration | None = documented(  # noqa: RUF009
        "Precision",
        "For `int8` and `auto`: typical values of the inputs. Several samples are stacked along an additional first "
        "dimension, or along the first one.",
        command_line="An .npz file with an array for each input.",
        python="Arrays by the names of the inputs, or an .npz file of them.",
        default_words="random values for auto, without int8",
        common=True,
    )
    method: str = documented(
        "Precision",
        "For `int8` and `auto`: how quantization ranges follow from the samples: the range of all values (`minmax`), "
        "without the rarest (`percentile`), or with the smallest loss of information (`entropy`).",
        choices=(MINMAX, "percentile", "entropy"),
        default=MINMAX,
    )
    io: str = documented(
        "Precision",
        "Element type of float32 inputs and outputs: `int8` and `uint8` are the integers that a quantized network "
        "converts them to and from. The scales are in `Artifact.inputs` and `Artifact.outputs`, and in the headers for "
        "microcontrollers.",
        choices=(FLOAT, "int8", "uint8"),
        default=FLOAT,
    )

    def __post_init__(self) -> None:
        """Checks the options, and which of them exclude or need each other.

        Raises:
            CompileError: a value is of a wrong type or not among the choices, or options do not fit together.
        """
        check_options(self)
        if self.precision == AUTO:
            self._check_auto()
        elif self.max_error is not None or (
            self.precision != INT8 and (self.calibrate is not None or self.method != MINMAX)
        ):
            raise CompileError(
                "max_error is for precision auto, and calibrate and method for precision auto and int8",
                hint="say which: --precision auto or --precision int8",
            )

    def _check_auto(self) -> None:
        if self.io != FLOAT:
            raise CompileError(
                f"precision auto may choose floats, of which no inputs and outputs in {self.io} can be made",
                hint=f"say --precision int8 --io {self.io}, or leave out --io",
            )
        if self.calibrate is None and self.method != MINMAX:
            raise CompileError(
                f"precision auto tries int8 only on data that are given, and there are none for the method "
                f"{self.method}",
                hint="--calibrate images.npz, or leave out --method",
            )
        if self.max_error is not None and not self.max_error > 0:
            raise CompileError(
                f"the largest error {self.max_error} is not above 0", hint="1e-2 allows a hundredth of each output"
            )


@dataclass(frozen=True, kw_only=True)
class DebugOptions:
    """Options that show how the compiler works; they change no code."""

    dump: FilePath | None = documented(  # noqa: RUF009
        "Debugging",
        "Write the program after each pass that changes it to this folder, as numbered text files; `-` is standard "
        "output.",
    )
    dump_after: Sequence[str] = documented(
        "Debugging",
        "Write the program after passes of these names only, to standard output if there is no `dump`.",
        default=(),
        command_line="Repeatable; --print-passes lists the names.",
    )

    def __post_init__(self) -> None:
        """Checks the options.

        Raises:
            CompileError: a value is of a wrong type.
        """
        check_options(self)


DEFAULT_READ, DEFAULT_CODE = ReadOptions(), CodeOptions()
DEFAULT_PRECISION, DEFAULT_DEBUG = PrecisionOptions(), DebugOptions()


@dataclass(frozen=True, kw_only=True)
class CompileOptions:
    """All options of a compilation.

    Attributes:
        read: how the model is read.
        code: what code is generated.
        precision: in which element types the network computes.
        debug: what is written on the way.
        passes: passes of the user, each made by `nnefc.passes.after`.
        observers: called after each run of a pass.
    """

    target: str = documented(
        "Output",
        "The machine to compile for: `llvm` is this machine with all its features, `llvm -mcpu=NAME` another CPU, "
        "`cuda` NVIDIA GPUs; `nnefc targets` lists those with a name.",
        default="llvm",
        common=True,
    )
    read: ReadOptions = DEFAULT_READ
    code: CodeOptions = DEFAULT_CODE
    precision: PrecisionOptions = DEFAULT_PRECISION
    debug: DebugOptions = DEFAULT_DEBUG
    passes: tuple[Insertion, ...] = ()
    observers: tuple[Observer, ...] = ()

    def __post_init__(self) -> None:
        """Check the type of the target, which is parsed later.

        Raises:
            CompileError: it is not a text.
        """
        check_options(self)
