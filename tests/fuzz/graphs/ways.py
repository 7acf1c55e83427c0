"""The ways in which random graphs are compiled and run."""

from __future__ import annotations

from dataclasses import dataclass, replace

from emulation import MACHINES, Machine, with_glibc
from spaces.strings_space import WITH_STRINGS
from walk import LARGEST

from nnefc.targets.machine.cpu.isa_levels import LEVELS

__all__ = ["RUNS_OF_STATES", "WAYS", "Way"]

RUNS_OF_STATES = 3
"""Runs of a graph that has states, one after the other."""


@dataclass(frozen=True)
class Way:
    """A way to compile and run graphs.

    Attributes:
        name: in reports.
        target: the machine, if it is this one or an older one of its kind.
        options: of :func:`nnefc.compile`.
        threads: of the sessions, one after the other, on this machine.
        levels: of a library that has several, one after the other, with the first number of threads.
        dynamic_sizes: whether the inputs' sizes are left open.
        other_sizes: how many more times a library of dynamic sizes is run, each with other sizes of some of its graphs.
        nnef: whether the graph is written as NNEF first.
        states: whether some inputs are variables that outputs update, and it is run several times.
        registry: of NNEF's operations, such as tract's; None for those of the standard alone.
        machine: another machine that is emulated; None for this one.
        on_gpu: whether kernels are those of a GPU, which this machine plays.
        twin: another way whose results shall have the same bits.
        special: whether inputs hold infinities, zeros and NaN.
        validates: whether it is not run, but computed after each pass, and each kernel after each of its steps.
        share: of the graphs, next to the others; those that take long have small ones.
        together: how many graphs are one library.
        without: operators that the graphs shall not have.
        integers: whether they have tensors of integers.
        floats: the type of their floats.
    """

    name: str
    target: str = "native"
    options: tuple[tuple[str, object], ...] = ()
    threads: tuple[int, ...] = (1, 3)
    levels: tuple[str, ...] = ()
    dynamic_sizes: bool = False
    other_sizes: int = 0
    nnef: bool = False
    states: bool = False
    registry: str | None = None
    machine: Machine | None = None
    on_gpu: bool = False
    twin: Way | None = None
    special: bool = False
    validates: bool = False
    share: float = 1
    together: int = 16
    without: frozenset[str] = frozenset()
    integers: bool = True
    floats: str = "float32"

    @property
    def precision(self) -> str:
        """What products multiply; "" if these are the graph's own numbers."""
        return str(dict(self.options).get("precision", ""))

    @property
    def largest(self) -> float:
        """Of the numbers between the operators: 16-bit floats end at 65,504, and less is in range where sums are
        ones."""
        return 1e3 if self.precision == "fp16" else 1e4 if self.floats == "float16" else LARGEST

    @property
    def runs(self) -> int:
        """How often each graph is run."""
        own = 1 if self.machine is not None or self.validates else len(self.levels or self.threads)
        own *= RUNS_OF_STATES if self.states else 1
        return own + (self.twin.runs if self.twin is not None else 0)

    @property
    def is_emulated(self) -> bool:
        """Whether another machine, or a GPU, is played for it."""
        return self.machine is not None or self.on_gpu or (self.twin is not None and self.twin.is_emulated)

    @property
    def missing(self) -> str:
        """What has to be installed for it; "" if nothing."""
        return next((way.machine.missing for way in (self, self.twin) if way and way.machine), "")


_BY_NAME = {machine.name: machine for machine in MACHINES}
_A53, _A76 = (
    with_glibc(core, f"llvm -mtriple=aarch64-linux-gnu -mcpu={core}", "qemu-aarch64", "-cpu", "max", opened=True)
    for core in ("cortex-a53", "cortex-a76")
)
_VECTORS = replace(_BY_NAME["riscv64gcv"], opened=True)

_CLASSICAL = frozenset(
    ("Binarizer", "Imputer", "LabelEncoder", "OneHotEncoder", "TreeEnsembleClassifier", "TreeEnsembleRegressor")
)
"""Operators of classical models that NNEF has no operations for."""

# fmt: off
_NOT_IN_NNEF = frozenset((
    "AffineGrid", "Attention", "BiasGelu", "BitCast", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr",
    "BitwiseXor", "BlackmanWindow", "CastLike", "Col2Im", "ConstantOfShape", "ConvInteger", "CumProd", "CumSum",
    "DeformConv", "Det", "DynamicQuantizeLinear", "DynamicQuantizeMatMul", "Einsum", "Erf", "GatherElements",
    "GatherND", "Gelu", "GridSample", "HammingWindow", "HannWindow", "Hardmax", "MatMulInteger",
    "MatMulIntegerToFloat", "MatMulNBits", "MaxUnpool", "Mod", "MultiHeadAttention", "NegativeLogLikelihoodLoss",
    "NonMaxSuppression", "NonZero", "OneHot", "Range", "ReduceProd", "Resize", "ReverseSequence", "RoiAlign",
    "RotaryEmbedding", "STFT", "ScatterElements", "ScatterND", "SoftmaxCrossEntropyLoss", "TensorScatter", "TopK",
    "Unique",
))
_NOT_IN_TRACT = frozenset((
    "AffineGrid", "Attention", "BitCast", "Col2Im", "ConvInteger", "CumProd", "CumSum", "DeformConv", "Det",
    "GridSample", "Hardmax", "MatMulNBits", "MaxUnpool", "Mod", "MultiHeadAttention", "NonMaxSuppression",
    "NonZero", "Resize", "ReverseSequence", "RoiAlign", "RotaryEmbedding", "TensorScatter", "Unique",
))
# fmt: on
"""Operators that most graphs cannot have when they are written as NNEF."""

_CONTROL = frozenset(("If", "Loop", "Scan", "SequenceInsert"))
_NEVER_IN_NNEF = _CLASSICAL | WITH_STRINGS | _CONTROL
_NOT_IN_DOUBLES = frozenset(("MatMulNBits",))
_NOT_ON_GPUS = frozenset(("MatMulNBits",)) | WITH_STRINGS
"""Operators that GPUs compute in 16-bit floats, however wide the numbers are, and those that they have not."""
# fmt: off
_TIMES_ZERO = frozenset((
    "AffineGrid", "Attention", "ComplexMul", "ComplexMulConj", "Conv", "ConvTranspose", "CropAndResize", "DFT",
    "DecoderMaskedMultiHeadAttention", "DeformConv", "FusedConv", "GRU", "GridSample", "GroupQueryAttention",
    "Inverse", "Irfft", "LSTM",
    "MatMulNBits", "MultiHeadAttention", "NhwcConv", "NhwcFusedConv", "PackedAttention", "PackedMultiHeadAttention",
    "QAttention", "Resize", "Rfft", "RoiAlign", "STFT", "com.microsoft.Attention", "com.microsoft.GridSample",
))
# fmt: on
"""Operators of which nothing says whether they multiply NaN by 0."""
# fmt: off
_TO_INTEGERS = frozenset((
    "Cast", "CastLike", "DynamicQuantizeLinear", "DynamicQuantizeMatMul", "QLinearSigmoid", "QuantizeLinear",
    "com.microsoft.QuantizeLinear",
))
# fmt: on
"""Operators that make integers of floats; nothing says which one is made of NaN."""
_OF_EQUAL_ELEMENTS = frozenset(("MeanVarianceNormalization",))
"""Operators that divide what rounding leaves of the differences of equal elements by what it leaves of their
deviation."""
_BY_ORDER = frozenset(("LinearClassifier", "MaxRoiPool", "MoE"))
"""Operators of which nothing says whether NaN is the largest; onnxruntime goes by the items' order."""
_LEVELS = tuple(level.name for level in LEVELS["x86_64"][:5])  # few machines have the matrix unit of the last
_BRAIN, _HALF = ((("precision", name),) for name in ("bf16", "fp16"))
_CHECKED = (("checked", True),)
_SAME = (("reproducible", True),)


def _reproducible(name: str, twin: Way, **more: object) -> Way:
    """A way whose results shall be the same on another machine."""
    same = replace(twin, name=name.partition(" ")[2], options=_SAME)
    return Way(name, options=_SAME, twin=same, together=8, **more)  # type: ignore[arg-type]


def _special(way: Way) -> Way:
    """The way with inputs that hold special values."""
    together = 16 if way.machine is not None else 32
    return replace(
        way, special=True, together=together, without=_TIMES_ZERO | _TO_INTEGERS | _OF_EQUAL_ELEMENTS | _BY_ORDER
    )


WAYS = {
    way.name: way
    for way in (
        Way("default", share=96, together=32),
        Way("strict", options=(("strict", True),), share=16),
        Way("open", dynamic_sizes=True, share=12, together=8),
        Way("x86-64", "x86-64", share=12),
        Way("x86-64-v3", "x86-64-v3", share=12),
        Way("nnef", nnef=True, without=_NOT_IN_NNEF | _NEVER_IN_NNEF, integers=False, share=12),
        Way("nnef of tract", nnef=True, registry="tract_core", share=8, without=_NOT_IN_TRACT | _NEVER_IN_NNEF),
        Way("states", nnef=True, states=True, without=_NOT_IN_NNEF | _NEVER_IN_NNEF, integers=False, share=8),
        _special(Way("special values", share=24)),
        _special(Way("special values on x86-64-v2", target="x86-64-v2", options=(("strict", True),), share=8)),
        _special(Way("special values on cortex-a76", machine=_A76, share=2)),
        _special(Way("special values on wasm32", machine=_BY_NAME["wasm32"], share=2)),
        Way("levels", "x86-64", options=(("multi", True),), levels=_LEVELS, share=4),
        Way("float16", floats="float16", share=8),
        Way("float16 on cortex-a76", machine=_A76, floats="float16", share=2),
        Way("bfloat16", floats="bfloat16", share=8),
        Way("bfloat16 on cortex-a76", machine=_A76, floats="bfloat16", share=2),
        Way("float64", floats="float64", share=6, without=_NOT_IN_DOUBLES),
        Way("bf16", options=_BRAIN, share=6),
        Way("bf16 of x86-64-v3", "x86-64-v3", options=_BRAIN, share=4),
        Way("bf16 open", options=_BRAIN, dynamic_sizes=True, share=2, together=8),
        Way("fp16 on cortex-a76", options=_HALF, machine=_A76, share=4),
        Way("checked", options=_CHECKED, share=8),
        Way("checked open", options=_CHECKED, dynamic_sizes=True, share=2, together=8),
        _reproducible("reproducible x86-64-v2", Way("", "x86-64-v2")),
        _reproducible("reproducible open", Way("", "x86-64-v2", dynamic_sizes=True), dynamic_sizes=True),
        _reproducible("reproducible aarch64", Way("", machine=_BY_NAME["aarch64-opened"])),
        _reproducible("reproducible cortex-a76", Way("", machine=_A76)),
        _reproducible("reproducible riscv64gcv", Way("", machine=_VECTORS)),
        Way("cortex-a53", machine=_A53, share=4),
        Way("cortex-a76", machine=_A76, share=6),
        Way("armv7", machine=_BY_NAME["armv7-opened"], share=6),
        Way("riscv64gcv", machine=_VECTORS, share=4),
        Way("wasm32", machine=_BY_NAME["wasm32"], share=6),
        Way("open on x86-64-v3", "x86-64-v3", dynamic_sizes=True, share=4, together=8),
        Way("open on cortex-a76", machine=_A76, dynamic_sizes=True, share=4, together=8),
        Way("open on riscv64gcv", machine=_VECTORS, dynamic_sizes=True, share=2, together=8),
        Way("open on wasm32", machine=_BY_NAME["wasm32"], dynamic_sizes=True, share=4, together=8),
        Way(
            "open cuda",
            dynamic_sizes=True,
            other_sizes=8,
            on_gpu=True,
            threads=(1,),
            share=4,
            together=8,
            without=_NOT_ON_GPUS,
        ),
        Way("cuda", on_gpu=True, threads=(1,), share=8, without=_NOT_ON_GPUS),
        *(
            Way(f"cuda {name}", floats=name, on_gpu=True, threads=(1,), share=2, without=_NOT_ON_GPUS)
            for name in ("float16", "bfloat16", "float64")
        ),
        *(
            Way(f"cuda {name}", options=how, on_gpu=True, threads=(1,), share=2, without=_NOT_ON_GPUS)
            for name, how in (("bf16", _BRAIN), ("fp16", _HALF), ("tf32", (("precision", "tf32"),)))
        ),
        *(
            Way(f"passes{name}", target, options, validates=True, share=0.2, together=2, without=_CONTROL)
            for name, target, options in (
                ("", "native", ()),
                (" of x86-64", "x86-64", ()),
                (" of x86-64-v3", "x86-64-v3", ()),
                (" strict", "native", (("strict", True),)),
            )
        ),
    )
}
