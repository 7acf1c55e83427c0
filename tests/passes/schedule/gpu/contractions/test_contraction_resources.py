"""What kernels of contractions take of a GPU, at the sizes of well-known networks."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from contraction_cases import PROCESSOR_REGISTERS, TARGET, Operation, kernels, lowered
from emulate import device_code
from tvm.relax import op

from nnefc.targets.codegen.cuda.compiler import compile_image

Shapes = tuple[tuple[int, ...], ...]


def convolution(channels: int, size: int, outputs: int, kernel: int, groups: int = 1) -> tuple[Operation, Shapes]:
    """A convolution of a batch of 8, and its operands' shapes."""
    pad = kernel // 2

    def operation(x: object, w: object, b: object) -> object:
        return op.nn.relu(op.add(op.nn.conv2d(x, w, padding=(pad, pad), groups=groups), b))

    shapes = ((8, channels, size, size), (outputs, channels // groups, kernel, kernel), (1, outputs, 1, 1))
    return operation, shapes


@pytest.mark.parametrize(
    ("operation", "shapes", "dtype", "precision"),
    [
        (*convolution(128, 28, 128, 3), "float32", "fp32"),
        (*convolution(256, 14, 1024, 1), "float32", "fp32"),
        (*convolution(96, 28, 96, 3, groups=96), "float32", "fp32"),
        (*convolution(128, 28, 128, 3), "float16", "fp16"),
        (lambda a, b, c: op.add(op.matmul(a, b), c), ((512, 768), (768, 3072), (3072,)), "float32", "tf32"),
        (lambda a, b, c: op.add(op.matmul(a, b), c), ((1, 2048), (2048, 1000), (1000,)), "float32", "fp32"),
    ],
    ids=["convolution", "pointwise", "depthwise", "half", "rounded", "vector"],
)
@pytest.mark.sample(3)
def test_nothing_spills_and_threads_find_room(operation: Operation, shapes: Shapes, dtype: str, precision: str) -> None:
    target = replace(TARGET, precision=precision)
    data, *constants = (np.zeros(shape, dtype) for shape in shapes)
    code = device_code(kernels(lowered(operation, [data], constants), target), target)
    threads = {launch.kernel: math.prod(launch.block) for launch in code.launches}
    for usage in compile_image(code.source, (80, 90)).usage:
        print(usage)
        assert usage.stack_bytes == usage.spill_stores == usage.spill_loads == 0
        assert usage.shared_bytes <= TARGET.shared_bytes
        registers = usage.registers - (8 if "nnefc_is_last" in code.source else 0)  # for the sums of other slices
        assert registers * threads[usage.kernel] <= PROCESSOR_REGISTERS // (1 if precision == "fp16" else 2)
