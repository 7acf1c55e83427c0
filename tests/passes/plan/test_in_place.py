"""Which operands a kernel may overwrite; a reader of anything but the very element forbids it."""

from collections.abc import Callable

import numpy as np
import pytest
from relax_programs import Case, Graph, Value, check, program, target
from tvm import relax, s_tir, te, tirx, topi

from nnefc.ir.attributes import CONCATENATION, RULE, SPLIT
from nnefc.ir.padding import Border, write_inside
from nnefc.passes.compute.block_padding import padded_by_block
from nnefc.passes.legalize.reshape_views import VIEWS
from nnefc.passes.schedule import in_place
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cpu.fallback import FallbackRule
from nnefc.passes.schedule.in_place import InPlace
from nnefc.passes.schedule.rule import scheduled


def in_place_of(func: tirx.PrimFunc) -> InPlace:
    return in_place.in_place_of(KernelAnalysis(func))


def tensor(*shape: int, dtype: str = "float32") -> te.Tensor:
    return te.placeholder(shape, dtype=dtype, name="x")


def kernel(*tensors: te.Tensor) -> tirx.PrimFunc:
    return te.create_prim_func(list(tensors))


def relu_plus_its_transpose(x: te.Tensor) -> te.Tensor:
    inner = topi.nn.relu(x)
    return topi.add(inner, topi.transpose(inner))


def relu_over_its_sum(x: te.Tensor) -> te.Tensor:
    inner = topi.nn.relu(x)
    return topi.divide(inner, topi.sum(inner, axis=1, keepdims=True))


UNARY_KERNELS = {
    "an element-wise function": (topi.nn.relu, (4, 4), (0,)),
    "two in a row": (lambda x: topi.exp(topi.nn.relu(x)), (4, 4), (0,)),
    "an element of size 1": (topi.exp, (4, 1), (0,)),
    "an operand used twice": (lambda x: topi.multiply(x, topi.exp(x)), (4, 4), (0,)),
    "a transposition": (topi.transpose, (4, 4), ()),
    "an operand and its transposition": (lambda x: topi.add(x, topi.transpose(x)), (4, 4), ()),
    "a function and its transposition": (relu_plus_its_transpose, (4, 4), ()),
    "a function and its sum": (relu_over_its_sum, (4, 4), ()),
    "softmax": (topi.nn.softmax, (4, 4), ()),
    "a sum to the same shape": (lambda x: topi.sum(x, axis=1, keepdims=True), (4, 1), ()),
    "a shift by one": (lambda x: te.compute(x.shape, lambda i: x[(i + 1) % 4]), (4,), ()),
    "a reversal": (lambda x: topi.flip(x, 0), (4,), ()),
    "a cast": (lambda x: topi.cast(x, "int32"), (4,), ()),
    "a broadcast": (lambda x: topi.broadcast_to(x, (4, 4)), (1, 4), ()),
}


@pytest.mark.parametrize(("function", "shape", "expected"), UNARY_KERNELS.values(), ids=UNARY_KERNELS)
def test_an_operand_is_overwritable_only_if_each_element_is_read_for_itself_alone(
    function: object, shape: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    x = tensor(*shape)
    assert in_place_of(kernel(x, function(x))) == InPlace(overwritable=expected)


def test_several_reshapes_in_a_row_are_a_view() -> None:
    x = tensor(4, 2, 1, 1, 8)
    y = topi.reshape(topi.reshape(x, (4, 16, 1, 1)), (4, 16))
    assert in_place_of(kernel(x, y)) == InPlace(reshape=True)
    assert in_place_of(kernel(x, topi.reshape(topi.transpose(topi.reshape(x, (4, 16))), (4, 16)))) == InPlace()


def test_both_operands_of_a_sum_are_overwritable_but_not_one_that_broadcasts() -> None:
    x, y, z = tensor(4, 4), tensor(4, 4), tensor(1, 4)
    assert in_place_of(kernel(x, y, z, topi.add(topi.add(x, y), z))).overwritable == (0, 1)


def test_a_residual_added_to_a_matrix_product_is_overwritable_and_its_factors_are_not() -> None:
    x, y, residual = tensor(4, 4), tensor(4, 4), tensor(4, 4)
    product = topi.nn.relu(topi.add(topi.matmul(x, y), residual))
    assert in_place_of(kernel(x, y, residual, product)).overwritable == (2,)


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda x: topi.reshape(x, (2, 8)), (4, 4)),
        (lambda x: topi.transpose(x, (1, 0, 2)), (1, 5, 3)),
        (lambda x: topi.squeeze(x), (1, 5, 1)),
    ],
    ids=["reshape", "transposition of a size 1", "squeeze"],
)
def test_a_kernel_that_keeps_the_bytes_in_order_is_a_reshape(function: object, shape: tuple[int, ...]) -> None:
    x = tensor(*shape)
    assert in_place_of(kernel(x, function(x))) == InPlace(reshape=True)


def test_reshapes_of_dynamic_sizes_are_known_to_be_some() -> None:
    """TVM does not see it: it takes sizes for any numbers."""
    module = program("""x["n", "s", 24] -> d
        a = R.reshape(x, (-1, 3, 8))
        b = R.expand_dims(a, 1)
        c = R.squeeze(b, [1])
        d = R.flatten(c)""")
    made = relax.transform.LegalizeOps(VIEWS)(module)
    kernels = [func for func in made.functions.values() if isinstance(func, tirx.PrimFunc)]
    assert [in_place_of(func).reshape for func in kernels] == [True] * 4


@pytest.mark.parametrize(
    "function",
    [
        lambda x: topi.nn.relu(topi.reshape(x, (2, 8))),
        lambda x: topi.reshape(topi.exp(x), (2, 8)),
        lambda x: topi.reshape(topi.transpose(x), (2, 8)),
        lambda x: topi.cast(topi.reshape(x, (2, 8)), "int32"),
    ],
    ids=["then relu", "after exp", "of a transposition", "as integers"],
)
def test_a_kernel_that_also_computes_is_no_reshape(function: object) -> None:
    x = tensor(4, 4)
    assert not in_place_of(kernel(x, function(x))).reshape


def test_the_attribute_says_that_a_kernel_concatenates() -> None:
    x, y = tensor(4), tensor(4)
    func = kernel(x, y, topi.concatenate([x, y])).with_attr(CONCATENATION, True)
    assert in_place_of(func) == InPlace(concatenation=True)


def test_the_attribute_says_that_a_kernel_takes_apart() -> None:
    x = tensor(4)
    func = kernel(x, *topi.split(x, [1], 0)).with_attr(SPLIT, True)
    assert in_place_of(func) == InPlace(parts=True)


def test_a_matrix_plus_its_transpose_is_right_where_the_matrix_dies() -> None:
    def build(graph: Graph, x: Value) -> Value:
        inner = graph.unary("relu", graph.softmax(x, 1))
        return graph.softmax(graph.binary("add", inner, graph.transpose(inner, [1, 0])), 1)

    check([Case([np.random.default_rng(0).standard_normal((24, 24)).astype(np.float32)], build)])


def test_a_tensor_is_not_what_is_padded_after_its_end() -> None:
    """The elements have the same positions in both, and TVM calls that a reshape."""
    padded = write_inside((1, 9, 8), "float32", Border((0, 0, 0), (0, 2, 0)))
    assert not in_place_of(padded).reshape
    assert in_place_of(write_inside((1, 9, 8), "float32", Border((0, 0, 0), (0, 0, 0)))).reshape


def windows(x: te.Tensor, size: int) -> te.Tensor:
    """The sums of windows of a padded tensor, `[N, C blocks, W, block]`."""
    batch, outer, width, block = x.shape
    k = te.reduce_axis((0, size))
    shape = (batch, outer, width - size + 1, block)
    return te.compute(shape, lambda n, o, i, c: te.sum(x[n, o, i + k, c], axis=k))


def across_blocks(x: te.Tensor, size: int) -> te.Tensor:
    """The same, of the blocks in reverse order."""
    made = windows(x, size)
    return te.compute(made.shape, lambda n, o, i, c: made[n, made.shape[1] - 1 - o, i, c])


def all_blocks(x: te.Tensor, size: int) -> te.Tensor:
    """The same, of the sums over blocks."""
    batch, outer, width, block = x.shape
    k, b = te.reduce_axis((0, size)), te.reduce_axis((0, outer))
    shape = (batch, outer, width - size + 1, block)
    return te.compute(shape, lambda n, o, i, c: te.sum(x[n, b, i + k, c], axis=[k, b]))


@pytest.mark.parametrize(
    ("function", "before", "expected"),
    [(windows, 1, (0,)), (windows, 0, ()), (across_blocks, 1, ()), (all_blocks, 1, ())],
    ids=["each block", "a smaller result", "blocks in another order", "sums over blocks"],
)
def test_an_operand_that_is_copied_block_by_block_is_overwritable_where_its_block_alone_is_read(
    function: Callable[[te.Tensor, int], te.Tensor], before: int, expected: tuple[int, ...]
) -> None:
    x = tensor(1, 3, 9, 8)
    made = padded_by_block(function, [before], [1], 0)(x, 3)
    assert in_place_of(kernel(x, topi.nn.relu(made))).overwritable == expected


def test_a_rule_that_inlines_the_copy_of_an_overwritable_operand_is_not_taken() -> None:
    class Inlining:
        def apply(self, kernel: KernelAnalysis, target: object) -> s_tir.Schedule:
            sch = kernel.schedule()
            sch.compute_inline(sch.get_sblock("padded"))
            return sch

    x = tensor(1, 3, 9, 8)
    analysis = KernelAnalysis(kernel(x, padded_by_block(windows, [1], [1], 0)(x, 3)))
    made = scheduled(analysis, [Inlining(), FallbackRule()], target("llvm"))
    assert made.attrs[RULE] == "FallbackRule"
    assert any(step.name == "padded" for step in KernelAnalysis(made).steps)
