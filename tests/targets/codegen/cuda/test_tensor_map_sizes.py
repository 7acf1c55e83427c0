"""Tensor maps of dynamic sizes, which the host encodes before a launch."""

import tvm
from tvm import tirx
from tvm.script import tirx as T

from nnefc.targets.codegen.cuda.device_functions import EncodedMap
from nnefc.targets.codegen.cuda.kernels import device_kernel
from nnefc.targets.machine.cuda.target import parse_cuda_target

N = tirx.Var("n", "int64")


@T.prim_func(s_tir=True)
def copies_the_tail(A: T.Buffer((N,), "float32"), B: T.Buffer((N,), "float32")):  # type: ignore[no-untyped-def]
    for _block in T.thread_binding(1, "blockIdx.x"):
        for _thread in T.thread_binding(1, "threadIdx.x"):
            with T.sblock("copy"):
                tail: T.let[T.int64] = N - T.int64(5)
                B[T.max(tail, T.int64(0))] = A[T.max(tail, T.int64(0))]
                T.evaluate(
                    T.call_extern(
                        "handle", "nnefc_tensor_map", 3, T.address_of(A[0]),
                        T.max(tail, T.int64(0)), 8, 1,  # sizes
                        64, 512,  # strides
                        4, 1, 1,  # box
                        1, 1, 1,  # steps
                        1, 1,
                    )
                )  # fmt: skip


def test_a_size_is_simplified_with_the_values_of_its_variables() -> None:
    """`tail` is no size, but negative for an `n` below 5."""
    assert isinstance(copies_the_tail, tvm.tirx.PrimFunc)
    kernel = device_kernel("copy", copies_the_tail, 0, parse_cuda_target("cuda -arch=sm_90a"), [N])
    (launch,) = kernel.function.launches
    (found,) = (argument for argument in launch.arguments if isinstance(argument, EncodedMap))
    assert [str(size) for size in found.sizes] == ["nnefc_greatest((size0 - INT64_C(5)), INT64_C(0))", "8", "1"]
