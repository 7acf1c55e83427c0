"""TVM's conversions of fp16 are in the objects of kernels that have such numbers alone."""

from __future__ import annotations

import pytest
from pass_runs import lower_kernel, objects_of
from relax_programs import target
from tvm import te, tirx

from nnefc.targets.codegen.cpu.fp16_conversions import without_fp16_conversions
from nnefc.targets.codegen.cpu.objects import CodeGenerator

CONVERSIONS = (b"__truncsfhf2", b"__extendhfsf2")

TEXT = """target triple = "x86_64-unknown-linux-gnu"

define i32 @kernel(ptr %half_done) #0 {
entry:
  %x = load @TYPE@, ptr %half_done, align 4
  ret i32 0
}

define weak dso_local half @__truncsfhf2(float %a0) #1 section ".text.tvm.fp16.conv" {
b0:
  br label %b1

b1:                                               ; preds = %b0
  ret half 0xH0000
}

declare half @llvm.fabs.f16(half) #2

define weak dso_local float @__extendhfsf2(half %a0) #1 section ".text.tvm.fp16.conv" {
b0:
  ret float 0.000000e+00
}

attributes #0 = { "target-features"="+fullfp16" }
!0 = !{!"-mattr=+fullfp16"}
"""


def square(dtype: str) -> tirx.PrimFunc:
    x = te.placeholder((64,), dtype, name="x")
    made = te.create_prim_func([x, te.compute((64,), lambda i: x[i] * x[i], name="y")])
    attrs = {"global_symbol": "square", "calling_conv": 1}
    return lower_kernel(made.with_attr("tirx.noalias", True)).func.with_attrs(attrs)


def code_of(dtype: str, suffix: str) -> bytes:
    with CodeGenerator(objects_of(target("llvm")), suffix) as generator:
        (code,) = generator.finish(square(dtype))
    return code


@pytest.mark.parametrize("type_", ["float", "<8 x float>", "i16"])
def test_they_are_dropped_where_no_other_function_has_fp16(type_: str) -> None:
    source = TEXT.replace("@TYPE@", type_)
    first, last = source.index("define weak"), source.index("attributes")
    declared = "\ndeclare half @llvm.fabs.f16(half) #2\n\n\n"
    assert without_fp16_conversions(source) == source[:first] + declared + source[last:]


@pytest.mark.parametrize("type_", ["half", "<8 x half>", "i16, !fp16"])
def test_they_stay_where_one_has(type_: str) -> None:
    source = TEXT.replace("@TYPE@", type_)
    assert without_fp16_conversions(source) is source


def test_tvm_adds_them_to_every_module_and_objects_have_them_where_they_are_needed() -> None:
    written = code_of("float32", "ll")
    assert all(name in written for name in CONVERSIONS)  # else the text need not be rewritten
    compiled = code_of("float32", "o")
    assert b"square" in compiled and not any(name in compiled for name in CONVERSIONS)
    assert all(name in code_of("float16", "o") for name in CONVERSIONS)
