"""Machine code of single kernels, called as C functions."""

import ctypes
import random
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pass_runs import lower_kernel, objects_of
from relax_programs import target
from runtime_samples import ZIG_CC
from tvm import te, tirx

from nnefc.ir.attributes import DYNAMIC_SHAPES
from nnefc.passes.schedule.schedules import schedule_of
from nnefc.targets.codegen.cpu.objects import CodeGenerator

ELEMENTS = 4096


@dataclass(frozen=True)
class Gather:
    """The squares of `x[(i + shift) // group · jump + (i + shift) % group + first + line · j]`; 0 outside a window."""

    columns: int
    lines: int
    begin: int
    end: int
    shift: int
    group: int
    jump: int
    first: int
    line: int

    def position(self, j: Any, i: Any) -> Any:
        position = (i + self.shift) // self.group * self.jump + (i + self.shift) % self.group
        return position + self.first + j * self.line

    def func(self, name: str) -> tirx.PrimFunc:
        """Vectors of 16 columns, of which the last may be cut off."""
        x = te.placeholder((ELEMENTS,), "float32", name="x")

        def element(j: tirx.Var, i: tirx.Var) -> tirx.Expr:
            inside = tirx.all(i >= self.begin, i < self.end)
            value = tirx.if_then_else(inside, x(self.position(j, i)), tirx.const(0, "float32"))
            return value * value

        shape = (tirx.IntImm("int64", self.lines), tirx.IntImm("int64", self.columns))
        sch = schedule_of(
            te.create_prim_func([x, te.compute(shape, element, name="y")]).with_attr("tirx.noalias", True)
        )
        _, lane = sch.split(sch.get_loops(sch.get_sblock("y"))[-1], [None, 16])
        sch.vectorize(lane)
        return lower_kernel(sch.mod["main"]).func.with_attrs({"global_symbol": name, "calling_conv": 1})

    def expected(self, x: np.ndarray) -> np.ndarray:
        result = np.zeros((self.lines, self.columns), np.float32)
        for j in range(self.lines):
            for i in range(self.begin, self.end):
                result[j, i] = x[self.position(j, i)] ** 2
        return result


def gathers(count: int) -> Sequence[Gather]:
    """Random ones that stay inside."""
    random_ = random.Random(0)
    found: list[Gather] = []
    while len(found) < count:
        columns, lines = random_.choice([17, 20, 24, 40, 50]), random_.choice([1, 2, 5])
        begin = random_.randrange(columns)
        shift, jump = random_.choice([16 - begin % 16, 12, 3, 8]), random_.choice([16, 100, 400])
        made = Gather(
            columns, lines, begin, random_.randrange(begin, columns + 1), shift, random_.choice([3, 4, 8, 16]), jump,
            random_.choice([0, -jump, 40]), random_.choice([7, 16, 48]),
        )  # fmt: skip
        if all(0 <= made.position(j, i) < ELEMENTS for j in range(lines) for i in range(begin, made.end)):
            found.append(made)
    return found


def test_indices_computed_by_divisions_under_a_condition(tmp_path: Path) -> None:
    # as local response normalization in blocked layout has them; the first four were wrong with indices of 32 bits
    cases = [
        Gather(17, 5, 9, 11, 8, 8, 16, 0, 48),
        Gather(24, 5, 5, 8, 12, 4, 100, -100, 48),
        Gather(20, 5, 8, 14, 8, 16, 100, 40, 7),
        Gather(17, 5, 12, 17, 4, 4, 16, 0, 16),
        *gathers(25),
    ]
    with CodeGenerator(objects_of(target("llvm"))) as generator:
        for number, case in enumerate(cases[1:], 1):
            generator.add(case.func(f"gather{number}"))
        parts = generator.finish(cases[0].func("gather0"))
    objects = [tmp_path / f"{number}.o" for number in range(len(parts))]
    for path, part in zip(objects, parts, strict=True):
        path.write_bytes(part)
    library = tmp_path / "gathers.so"
    link = [*ZIG_CC, "-shared", "-Wl,-z,undefs", "-o", library, *objects]
    subprocess.run(link, check=True, capture_output=True)
    functions = ctypes.CDLL(str(library))
    x = np.random.default_rng(0).standard_normal(ELEMENTS).astype(np.float32)
    for number, case in enumerate(cases):
        result = np.empty((case.lines, case.columns), np.float32)
        getattr(functions, f"gather{number}")(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(result.ctypes.data))
        np.testing.assert_array_equal(result, case.expected(x), err_msg=str(case))


def test_a_function_is_compiled_once_and_not_again_under_a_name_of_tvms() -> None:
    (case,) = gathers(1)
    with CodeGenerator(objects_of(target("llvm"))) as generator:
        (code,) = generator.finish(case.func("gather"))
    assert b"gather" in code
    assert b"__tvm_ffi_main" not in code


def test_kernels_of_dynamic_sizes_are_spread_over_more_objects() -> None:
    """They take several times as long as others, and all processors should have work to the end."""
    kernels = [case.func(f"gather{number}") for number, case in enumerate(gathers(6))]
    counts = []
    for attrs in ({}, {DYNAMIC_SHAPES: True}):
        with CodeGenerator(objects_of(target("llvm"))) as generator:
            for kernel in kernels:
                generator.add(kernel.with_attrs(attrs))
            counts.append(len(generator.finish()))
    assert counts == [2, 3]


def test_generators_with_the_same_threads_stop_each_for_itself() -> None:
    cases = gathers(4)
    with ThreadPoolExecutor(1) as threads, CodeGenerator(objects_of(target("llvm")), threads=threads) as kept:
        with CodeGenerator(objects_of(target("llvm")), threads=threads) as stopped:
            for number, case in enumerate(cases):
                stopped.add(case.func(f"stopped{number}"))
        (code,) = kept.finish(cases[0].func("kept"))
    assert b"kept" in code
