from __future__ import annotations

from collections import namedtuple

from tvm import relax, te, tirx

from nnefc.ir.kernel_calls import te_kernel

Pair = namedtuple("Pair", "left right")
N, K = (tirx.Var(name, "int64") for name in "nk")
X, Y = (relax.Var(name, relax.TensorType((4, N), "float32")) for name in "xy")


def scaled(pair: Pair, scale: float) -> te.Tensor:
    return te.compute(pair.left.shape, lambda *index: pair.left(*index) + pair.right(*index) * scale)


def test_tensors_inside_arguments_are_operands_in_order() -> None:
    made = te_kernel(scaled, (Pair(X, Y), 2.0), {})
    assert made.tensors == [X, Y]
    assert [str(param.name) for param in made.kernel.params[:2]] == ["x", "y"]
    assert [(list(each.shape.values)[1], str(each.dtype)) for each in made.types] == [(N, "float32")]


def test_dimensions_among_the_arguments_are_scalars_in_the_order_of_their_use() -> None:
    made = te_kernel(lambda x, sizes: te.compute(sizes, lambda *_: x(0, 0)), (X, [K, N + K]), {})
    assert made.sizes == [K, N]
    assert list(made.kernel.params[1:3]) == [K, N]
    given = te_kernel(lambda x, sizes: te.compute(sizes, lambda *_: x(0, 0)), (X, relax.ShapeExpr([K])), {})
    assert given.sizes == [K]


def test_a_kernel_has_the_attributes_that_are_asked_for() -> None:
    assert int(te_kernel(lambda x: te.compute(x.shape, lambda *i: x(*i)), (X,), {"mark": 3}).kernel.attrs["mark"]) == 3
