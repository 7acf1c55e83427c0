"""What is found out of a kernel, once, before rules look at it."""

from collections.abc import Callable

import pytest
from tvm import te, tirx, topi

from nnefc.passes.schedule import analysis
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cpu import CPU_RULES
from nnefc.passes.schedule.rule import scheduled
from nnefc.targets.machine.cpu.parsing import parse_target


def tensor(name: str, *shape: int, dtype: str = "float32") -> te.Tensor:
    return te.placeholder(shape, dtype, name)


def product_and_relu() -> KernelAnalysis:
    left, right = tensor("left", 5, 7), tensor("right", 7, 12)
    return KernelAnalysis(te.create_prim_func([left, right, topi.nn.relu(topi.matmul(left, right))]))


def test_steps_have_axes_with_roles_and_know_whom_they_read() -> None:
    kernel = product_and_relu()
    product, relu = kernel.steps
    assert [(axis.size, axis.is_reduced) for axis in product.axes] == [(5, False), (12, False), (7, True)]
    assert (product.elements, product.iterations, product.trip_counts) == (60, 420, (5, 12, 7))
    assert (product.producers, product.consumers, relu.producers) == ((), (relu.name,), (product.name,))
    assert (kernel.reductions, kernel.outputs) == ((product,), (relu,))
    assert relu.read_of(product.result) is not None and product.read_of(relu.result) is None


def diamond() -> KernelAnalysis:
    x = tensor("x", 5, 7)
    one = topi.exp(x)
    left, right = topi.nn.relu(one), topi.add(one, x)
    return KernelAnalysis(te.create_prim_func([x, topi.sum(topi.multiply(left, topi.tanh(right)), axis=1), right]))


@pytest.mark.parametrize("kernel", [product_and_relu(), diamond()], ids=["product", "diamond"])
def test_steps_read_without_a_schedule_are_those_of_a_schedule(kernel: KernelAnalysis) -> None:
    found, wanted = analysis._blocks_in_order(kernel.func), analysis.steps_of(kernel.schedule())
    assert len(found) == len(wanted) > 1
    for own, other in zip(found, wanted, strict=True):
        assert (own.name, own.sizes, own.trip_counts) == (other.name, other.sizes, other.trip_counts)
        assert [axis.kind for axis in own.axes] == [axis.kind for axis in other.axes]
        assert (set(own.producers), set(own.consumers)) == (set(other.producers), set(other.consumers))


def test_the_factor_with_the_last_axis_is_the_right_one() -> None:
    x, filters = tensor("x", 2, 8, 9, 9), tensor("filters", 16, 8, 3, 3)
    product = product_and_relu().steps[0]
    convolved = topi.nn.conv2d_nchw(x, filters, 1, 0, 1)
    convolution = KernelAnalysis(te.create_prim_func([x, filters, convolved])).steps[-1]
    assert product.contraction == analysis.Contraction((0,), (1,), (), (2,))
    assert convolution.contraction == analysis.Contraction((1,), (0, 2, 3), (), (4, 5, 6))
    assert product_and_relu().steps[1].contraction is None


def running_sum(x: te.Tensor) -> te.Tensor:
    return topi.cumsum(x, axis=0)


@pytest.mark.parametrize(
    "function", [lambda x: topi.transpose(topi.exp(x)), topi.nn.softmax, lambda x: topi.sum(x, axis=0), running_sum]
)
def test_all_rules_share_one_schedule_to_copy(
    function: Callable[[te.Tensor], te.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tirx.PrimFunc] = []
    first = analysis.schedule_of
    monkeypatch.setattr(analysis, "schedule_of", lambda func: made.append(func) or first(func))
    x = tensor("x", 33, 65)
    kernel = KernelAnalysis(te.create_prim_func([x, function(x)]))
    scheduled(kernel, CPU_RULES, parse_target("llvm"))
    assert len(made) == 1


def test_a_schedule_that_a_rule_changes_is_its_own() -> None:
    kernel = product_and_relu()
    sch = kernel.schedule()
    sch.fuse(*sch.get_loops(sch.get_sblock(kernel.steps[1].name)))
    assert kernel.schedule().mod["main"].script() != sch.mod["main"].script()
    assert analysis.steps_of(sch)[1].trip_counts == (60,) and kernel.steps[1].trip_counts == (5, 12)
