"""Numbers that the host computes before a launch, as C writes them."""

from __future__ import annotations

from tvm import tirx

from nnefc.symbolic.dims import Size
from nnefc.targets.codegen.cuda.device_functions import DeviceFunction, Launch, LaunchParameter, Scalar
from nnefc.targets.codegen.cuda.formulas import number_of
from nnefc.targets.codegen.cuda.launches import launches_source


def test_a_size_that_a_kernel_takes_as_a_float_is_one_in_c() -> None:
    """As is left of a kernel whose launches all need it."""
    n = tirx.Var("n", "int64")
    value = number_of(Size(tirx.Cast("float32", n * 120 + 1)), {n: "size0"})
    launch = Launch("scale_kernel", (1, 1, 1), (32, 1, 1), 0, (0, Scalar("float32", value, (0, 0))))
    function = DeviceFunction("scale", (LaunchParameter("x", 4),), (launch,), ("size0",))
    source = launches_source(
        [function], [], image_bytes=8, architectures=[80], capturable=True, readers={}, messages=()
    )
    assert "&p0, (float[1]){(float)(float)((size0 * INT64_C(120)) + INT64_C(1))}" in source


def test_conditions_on_sizes_are_conditions_in_c() -> None:
    n, m = (tirx.Var(name, "int64") for name in "nm")
    other = tirx.Not(tirx.EQ(n, tirx.const(3, "int64")))
    empty = tirx.Or(tirx.And(n < m, other), tirx.Cast("int32", n) >= tirx.const(7, "int32"))
    number = number_of(Size(tirx.Select(empty, tirx.truncdiv(n, m), tirx.truncmod(n, m))), {n: "a", m: "b"})
    condition = "(((a < b) && (!(a == INT64_C(3)))) || (a >= INT64_C(7)))"
    assert str(number) == f"({condition} ? (a / b) : (a % b))"
