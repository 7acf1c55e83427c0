"""Two operators of our own: one written with TE, one in C. Models of all three formats may have them.

nnefc compile model.onnx -o model.so --operators examples/custom_operator/operators.py
"""

from pathlib import Path

from tvm import tirx

from nnefc import custom


@custom.register(
    onnx="com.example::SoftThreshold",
    nnef="soft_threshold",
    pnnx=["example::soft_threshold", "example.SoftThreshold"],
)
class SoftThreshold(custom.CustomOperator):
    """`x` moved towards zero by `level`, and zero where it would go past."""

    level: float = 0.5

    def shape(self, x):
        return x

    def lower(self, ctx, x):
        def element(given, index):
            (tensor,) = given
            scalar, zero = tensor(*index), tirx.const(0, tensor.dtype)
            moved = tirx.max(tirx.abs(scalar) - tirx.const(self.level, tensor.dtype), zero)
            return tirx.Select(scalar < zero, -moved, moved)

        return ctx.elements(custom.shape_of(x), element, x, name="soft_threshold")


@custom.register(onnx="com.example::PairwiseDistance", nnef="pairwise_distance", pnnx="example::pairwise_distance")
class PairwiseDistance(custom.CustomOperator):
    """The distances of the rows of `a`, `[n, k]`, from those of `b`, `[m, k]`: `[n, m]`, by the norm of order `p`."""

    p: float = 2.0

    def shape(self, a, b):
        return (a[0], b[0])

    def lower(self, ctx, a, b):
        (n, k), (m, _) = custom.shape_of(a), custom.shape_of(b)
        source = custom.CSource.file(Path(__file__).with_name("pairwise_distance.c"))
        return custom.call_c(ctx, source, "pairwise_distance", [a, b], [((n, m), "float32")], n, m, k, float(self.p))
