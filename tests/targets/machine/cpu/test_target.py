"""Names of targets, and what they say about the machine."""

import json
import re
import warnings
from pathlib import Path

import pytest
from tvm.target import codegen

from nnefc.support.diagnostics import CompileError, ModelWarning
from nnefc.targets.machine.any_target import parse_any_target
from nnefc.targets.machine.cpu.multiversioning import with_levels
from nnefc.targets.machine.cpu.parsing import parse_target
from nnefc.targets.machine.named_targets import NAMED_TARGETS, NamedTarget


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
        ("raspberypi4", "unknown target 'raspberypi4'", "did you mean 'raspberrypi4'"),
        ("aarch64-linux-gnu -mcpu=cortex-a72", "unknown target", "follow the word llvm"),
        ("llvm -mtriple=sparc-linux-gnu", "unknown instruction set 'sparc'", "aarch64"),
        ("llvm -mtriple=aarch64-plan9", "unknown system", "linux-musl"),
        ("llvm -mtriple=aarch64", "unknown system", "linux-musl"),
        ("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a7x", "unknown CPU 'cortex-a7x'", "cortex-a7"),
        ("llvm -mattr=+warp", "unknown feature 'warp'", ""),
        ("llvm -mattr=avx2", "not of the form", ""),
        ("llvm -mattr=+avx2,", "not of the form", ""),
        ("llvm -mcpu=pentium", "lacks 64bit", ""),
        ("llvm -mtriple=aarch64-linux-gnu -mattr=-neon", "lacks neon", ""),
        ("llvm -mtriple=wasm32-wasi -mattr=-relaxed-udot", "switches off relaxed-udot", "leave out -relaxed-udot"),
        ("llvm -mtriple=wasm32-wasi -mattr=+relaxed-udot,+relaxed-sdot", "of which no machine has two", "one of these"),
    ],
)
def test_wrong_targets_are_errors_that_say_what_is_meant(text: str, message: str, hint: str) -> None:
    with pytest.raises(CompileError) as raised:
        parse_target(text)
    assert message in raised.value.message
    assert hint in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("arm64", "say aarch64-linux-gnu"),
        ("ARM64", "say aarch64-linux-gnu"),
        ("aarch64", "say aarch64-linux-gnu"),
        ("armhf", "say armv7-linux-gnueabihf"),
        ("armv6", "needs NEON"),
        ("x86_64", "say x86-64-v3"),
        ("amd64", "say x86-64-v3"),
        ("avx2", "say x86-64-v3"),
        ("avx512f", "say x86-64-v4"),
        ("neon", "say aarch64-linux-gnu"),
        ("Cortex-M7F", "say cortex-m7"),
        ("llvm -mtriple=armv7-linux-gnueabihf -mcpu=cortex-m4", "say cortex-m4"),
        ("llvm -mtriple=x86_64-none-eabi", "thumb-none-eabihf"),
        ("llvm -mtriple=thumb-linux-gnueabihf", "thumb-none-eabihf"),
        ("stm32f407", "say cortex-m4"),
        ("cortex-m55f", "say cortex-m55"),
        ("esp32-c6", "say riscv32imc"),
        ("esp32-s3", "generic-c"),
        ("stm32f103", "cortex-m3"),
        ("apple-m1", "say aarch64-macos"),
        ("M2", "-mcpu=apple-a15"),
        ("m4-max", "-mcpu=apple-m4"),
        ("windows", "say x86_64-windows-gnu"),
        ("android", "say aarch64-linux-android"),
        ("armeabi-v7a", "say armv7-linux-androideabi"),
        ("iOS", "say aarch64-ios"),
        ("visionOS", "say llvm -mtriple=aarch64-tvos"),
        ("mac-catalyst", "say aarch64-ios-macabi"),
        ("wasm", "say wasm32-wasi"),
        ("riscv", "say riscv64-linux-gnu"),
        ("cpu", "say llvm"),
        ("gpu", "say cuda"),
        ("sm_90", "say cuda -arch=sm_90"),
        ("vulkan", "NVIDIA's"),
        ("jetson-orin", "-arch=sm_87"),
        ("H100", "say cuda -device=h100"),
        ("RTX-4090", "say cuda -device=rtx4090"),
        ("pi4", "say raspberrypi4"),
        ("raspberry-pi-5", "say raspberrypi5"),
        ("zen4", "say znver4"),
        ("sve2", "-mattr=+sve2"),
        ("icelake", "say icelake-client"),
        ("pi0-2w", "say raspberrypi3"),
        ("graviton3", "say neoverse-v1"),
        ("cortex_a72", "did you mean 'cortex-a72'?"),
        ("AlderLake", "did you mean 'alderlake'?"),
        ("sapphire-rapids", "did you mean 'sapphirerapids'?"),
        ("cortex-a720x", "did you mean 'cortex-a720"),
        ("aarch64-unknown-linux-musl", 'say "llvm -mtriple=aarch64-unknown-linux-musl"'),
        ("llvm -mattr=avx2", "say +avx2"),
        ("llvm -mtriple=x86_64-linux-gnu -mattr=+avx512-fp16", "did you mean 'avx512fp16'?"),
    ],
)
def test_names_that_people_give_machines_are_answered_with_those_that_work(text: str, hint: str) -> None:
    with pytest.raises(CompileError) as raised:
        parse_target(text)
    given = raised.value.hint or ""
    assert hint in given
    for words in re.findall(r"say ((?:llvm|cuda)(?: -[^ ,;]+)*|[a-z][\w-]+)", given):
        parse_any_target(words)


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
    assert (target.cpu, target.vectors.bytes, target.vectors.registers) == (cpu, vector_bytes, registers)
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


@pytest.mark.parametrize("known", NAMED_TARGETS, ids=lambda known: known.name)
def test_every_named_target_can_be_had(known: NamedTarget) -> None:
    target = parse_target(known.name)
    assert target.name == known.name
    assert target.vectors.bytes >= 16
    assert target.to_tvm().attrs["mtriple"] == target.triple


@pytest.mark.parametrize(
    ("text", "triple", "cpu", "zig"),
    [
        (
            "llvm -mtriple=aarch64-linux-musl -mcpu=cortex-a72",
            "aarch64-unknown-linux-musl",
            "cortex-a72",
            "aarch64-linux-musl",
        ),
        ("llvm -mtriple=aarch64-unknown-linux-musl", "aarch64-unknown-linux-musl", "generic", "aarch64-linux-musl"),
        ("llvm -mtriple=arm64-apple-macos", "aarch64-apple-macosx11.0.0", "generic", "aarch64-macos.11.0"),
        ("llvm -mtriple=armv7l-linux-musleabihf", "armv7a-unknown-linux-musleabihf", "generic", "arm-linux-musleabihf"),
        ("znver4", "x86_64-unknown-linux-gnu", "znver4", "x86_64-linux-gnu.2.17"),
        ("neoverse-n1", "aarch64-unknown-linux-gnu", "neoverse-n1", "aarch64-linux-gnu.2.17"),
        ("sifive-x280", "riscv64-unknown-linux-gnu", "sifive-x280", "riscv64-linux-gnu.2.27"),
    ],
)
def test_triples_and_processors_name_machines(text: str, triple: str, cpu: str, zig: str) -> None:
    target = parse_target(text)
    assert (target.triple, target.cpu, target.zig_target) == (triple, cpu, zig)


def test_features_are_switched_on_and_off() -> None:
    triple = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76"
    assert "dotprod" in parse_target(triple).features
    assert "dotprod" not in parse_target(f"{triple} -mattr=-dotprod").features
    assert "i8mm" in parse_target(f"{triple} -mattr=-dotprod,+i8mm").features


def test_features_that_no_code_uses_are_a_warning_of_one_line() -> None:
    triple = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v2"
    with pytest.warns(ModelWarning, match="no code uses aes, pauth yet") as warned:
        asked = parse_target(f"{triple} -mattr=+pauth,+aes,+i8mm")
    assert len(warned) == 1
    usual = parse_target(triple)
    assert (asked.features, asked.vectors, asked.tiles) == (usual.features, usual.vectors, usual.tiles)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in (
            "llvm -mtriple=x86_64-linux-gnu -mattr=+amx-tile,+amx-int8,+avx2",
            f"{triple} -mattr=+sme2",
            *(n.name for n in NAMED_TARGETS),
        ):
            parse_target(name)


@pytest.mark.parametrize(
    ("attributes", "bits"),
    [("+v", 128), ("+v,+zvl256b", 256), ("+v,+zvl512b", 512), ("+v,+zvl1024b", 1024), ("+zba", 128)],
)
def test_vectors_of_riscv_are_as_long_as_requested(attributes: str, bits: int) -> None:
    target = parse_target(f"llvm -mtriple=riscv64-linux-gnu -mattr={attributes}")
    assert target.vectors.bytes * 8 == bits * target.vectors.group
    assert target.vectors.registers * target.vectors.group == (32 if "+v" in attributes else 8)
    assert target.vectors.bytes >= 64 or "+v" not in attributes


def test_a_file_names_a_machine(tmp_path: Path) -> None:
    path = tmp_path / "board.json"
    members = {"triple": "aarch64-linux-gnu", "cpu": "cortex-a76", "attributes": ["-dotprod"], "l2_bytes": 262144}
    path.write_text(json.dumps(members))
    target = parse_target(str(path))
    assert (target.name, target.cpu, target.costs.l2_bytes) == ("board", "cortex-a76", 262144)
    assert "dotprod" not in target.features
    path.write_text(json.dumps({**members, "name": "our board"}))
    assert parse_target(str(path)).name == "our board"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not JSON"),
        ("[" * 60_000, "is not JSON"),
        ("[]", "is not one JSON object"),
        ('"' + "x" * 70_000 + '"', "is not one JSON object"),
        ("{}", "has no triple"),
        ('{"triple": 7}', "triple of the target"),
        ('{"tripel": "aarch64-linux-gnu"}', "unknown member 'tripel'"),
        ('{"triple": "aarch64-linux-gnu", "attributes": "+dotprod"}', "is not a list of strings"),
        ('{"triple": "aarch64-linux-gnu", "attributes": [1]}', "is not a list of strings"),
        ('{"triple": "aarch64-linux-gnu", "l2_bytes": true}', "is not a whole number"),
        ('{"triple": "aarch64-linux-gnu", "l1_bytes": -1}', "not a number of bytes"),
        ('{"triple": "aarch64-linux-gnu", "cpu": "z80"}', "unknown CPU 'z80'"),
    ],
)
def test_wrong_files_are_errors(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "board.json").write_text(text)
    with pytest.raises(CompileError) as raised:
        parse_target(str(tmp_path / "board.json"))
    assert message in raised.value.message


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="cannot read the target"):
        parse_target(str(tmp_path / "none.json"))


def test_llvm_is_asked_once_about_a_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    first = parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76")

    def asked(*_: object) -> None:
        raise AssertionError("LLVM was asked again")

    for name in ("llvm_get_cpu_archlist", "llvm_get_cpu_features"):
        monkeypatch.setattr(codegen, name, asked)
    assert parse_target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76") == first


@pytest.mark.parametrize("text", ["llvm -mattr=+avx2 -mattr=+fma", "llvm -mcpu=x86-64-v3 -mcpu=x86-64-v2"])
def test_an_option_that_is_reported_twice(text: str) -> None:
    with pytest.raises(CompileError, match="twice"):
        parse_target(text)


@pytest.mark.parametrize(
    ("target", "off", "kept"),
    [
        ("llvm -mtriple=x86_64-linux-gnu -mattr=-avx512f", "avx512f", "fma"),
        ("llvm -mtriple=x86_64-linux-gnu -mattr=-avx512bf16", "avx512bf16", "avx512vnni"),
        ("llvm -mtriple=aarch64-linux-gnu -mattr=-dotprod", "dotprod", "fullfp16"),
    ],
)
def test_features_that_are_switched_off_are_in_no_level(target: str, off: str, kept: str) -> None:
    whole = with_levels(parse_target(target.partition(" -mattr")[0])).levels
    cut = with_levels(parse_target(target)).levels
    assert any(off in level.features for level in whole)
    assert not any(off in level.features for level in cut)
    assert any(kept in level.features for level in cut)
