"""Names of targets, and what they say about the machine."""

from pathlib import Path

import pytest
from tvm.target import codegen

from nnefc.diagnostics import CompileError
from nnefc.targets.target import parse_target


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "unknown target ''", "'llvm'"),
        ("cuda-nonsense", "unknown target 'cuda-nonsense'", "'llvm'"),
        ("llvm -mcpu=pentium-99", "unknown CPU 'pentium-99'", "such as x86-64"),
        ("llvm -mcpu", "unknown option '-mcpu'", "-mcpu=NAME"),
        ("llvm -mcpu=", "unknown option '-mcpu='", "-mcpu=NAME"),
        ("llvm -O3", "unknown option '-O3'", "-mcpu=NAME"),
        ("llvm '-mcpu=x86-64-v3", "ends inside a quotation", ""),
    ],
)
def test_wrong_targets_are_errors_that_say_what_is_meant(text: str, message: str, hint: str) -> None:
    with pytest.raises(CompileError) as raised:
        parse_target(text)
    assert message in raised.value.message
    assert hint in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("cpu", "vector_bytes", "registers", "has", "lacks"),
    [
        ("x86-64", 16, 16, (), ("sse4.2", "avx", "fma")),
        ("x86-64-v2", 16, 16, ("sse4.2",), ("avx", "fma")),
        ("x86-64-v3", 32, 16, ("avx2", "fma", "f16c"), ("avx512f",)),
        ("x86-64-v4", 64, 32, ("avx512f", "avx512vl", "fma"), ("avx512vnni",)),
        ("znver4", 64, 32, ("avx512vnni", "avx512bf16"), ()),
        ("knl", 32, 16, ("avx512f",), ("avx512vl",)),
    ],
)
def test_a_cpu_has_the_vectors_and_features_of_its_kind(
    cpu: str, vector_bytes: int, registers: int, has: tuple[str, ...], lacks: tuple[str, ...]
) -> None:
    target = parse_target(f"llvm -mcpu={cpu}")
    assert (target.cpu, target.vector_bytes, target.vector_registers) == (cpu, vector_bytes, registers)
    assert set(has) <= set(target.features)
    assert not set(lacks) & set(target.features)


def test_lanes_follow_from_the_width_of_the_type() -> None:
    target = parse_target("llvm -mcpu=x86-64-v3")
    assert [target.lanes(dtype) for dtype in ("float64", "float32", "float16", "int8")] == [4, 8, 16, 32]


def test_the_own_machine_is_asked_for_what_it_has() -> None:
    target = parse_target("llvm")
    assert target.cpu == codegen.llvm_get_system_cpu()
    flags = next(line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("flags")).split()
    assert ("avx512f" in target.features) == ("avx512f" in flags)
    assert ("fma" in target.features) == ("fma" in flags)


def test_native_is_another_name_of_the_own_machine() -> None:
    assert parse_target("native").features == parse_target("llvm").features


def test_a_target_is_a_value() -> None:
    assert parse_target("llvm -mcpu=x86-64-v3") == parse_target("llvm -mcpu=x86-64-v3")
    assert hash(parse_target("llvm")) == hash(parse_target("llvm"))
