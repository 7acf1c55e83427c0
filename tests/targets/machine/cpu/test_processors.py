"""Code that a processor cannot run is refused: what LLVM may use is checked for at run time, or switched off."""

from __future__ import annotations

import ctypes
import platform
import re
import subprocess
from pathlib import Path

import pytest
from emulation import Machine, refused_by, with_glibc
from runtime_samples import ZIG_CC
from tvm.target import Target, codegen

import nnefc
from nnefc.support.diagnostics import CompileError
from nnefc.targets.link.toolchain import RUNTIME
from nnefc.targets.machine.cpu.architecture import ARCHITECTURES, Architecture
from nnefc.targets.machine.cpu.parsing import parse_target

HOSTED = [architecture for architecture in ARCHITECTURES if architecture.hosted]

SOURCE = """version 1.0;
graph halved(x) -> (y)
{
    x = external<scalar>(shape = [4, 5]);
    y = x * 0.5;
}
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "graph.nnef").write_text(SOURCE)
    return folder


TRIPLES = {
    "x86_64": "x86_64-linux-gnu",
    "x86": "i686-linux-musl",
    "aarch64": "aarch64-linux-gnu",
    "arm": "armv7-linux-gnueabihf",
    "riscv64": "riscv64-linux-gnu",
    "wasm32": "wasm32-wasi",
}

# What has been looked at and is not worth a check: instructions that LLVM uses for functions that no kernel calls
# (cryptography, atomics, transactions, systems), and few others. A new LLVM's new names belong here or in `checked`.
SWITCHED_OFF = {
    "x86_64": """adx aes amx-avx512 amx-complex amx-fp16 amx-fp8 amx-movrs amx-tf32
        avx512vp2intersect cldemote clflushopt clwb clzero cmpccxadd crc32 cx16 enqcmd fsgsbase hreset invpcid kl lwp
        movdir64b movdiri movrs mwaitx pclmul pconfig pku prefer-256-bit prefetchi prfchw ptwrite rdpid rdpru rdrnd
        rdseed sahf serialize sha sha512 shstk sm3 sm4 tsxldtrk uintr usermsr vaes vpclmulqdq waitpkg wbnoinvd widekl
        xsave xsavec xsaveopt xsaves""",
    "aarch64": """CONTEXTIDREL2 aes altnzcv am amvs brbe bti ccdp ccidx ccpp chk clrbhb complxnum crc cssc dit ecv
        el2vmsa el3 faminmax fgt flagm fp8 fp8dot2 fp8dot4 fp8fma fpac fptoint hbc hcx jsconv lor ls64 lse2 lut mec
        mops mpam mte nmi nv pan pan-rwv pauth perfmon predres rand ras rcpc rcpc-immo rcpc3 rme sb sel2 sha2 sha3 sm4
        sme-b16b16 sme-f16f16 sme-f64f64 sme-i16i64 sme2 sme2p1 spe spe-eef specres2 specrestrict ssbs sve-aes
        sve-b16b16 sve-bitperm sve-sha3 sve-sm4 tlb-rmi tracev8.4 uaops vh wfxt xs""",
    "arm": "acquire-release aes crc crypto fp16 hwdiv mp ras sb sha2 trustzone v8 virtualization",
    "riscv64": """b experimental-zicfilp experimental-zicfiss h sha shcounterenw shgatpa shtvala shvsatpa shvstvala
        shvstvecd smaia smcsrind smdbltrp smmpm smnpm smrnmi smstateen ssaia ssccptr sscofpmf sscounterenw sscsrind
        ssdbltrp ssnpm sspm ssstateen ssstrict sstc sstvala sstvecd ssu64xl supm svade svbare svinval svnapot svpbmt
        unaligned-scalar-mem unaligned-vector-mem xandesperf xmipscbop xmipscmov xmipsexectl xmipslsp
        xsifivecdiscarddlone xsifivecflushdlone xsmtvdot xventanacondops za64rs zacas zama16b zawrs zbc zbkb zbkc zbkx
        zcb zcmop zfbfmin zic64b zicbom zicbop zicboz ziccamoa ziccif zicclsm ziccrse zicntr zifencei zihintntl
        zihintpause zihpm zimop zkn zknd zkne zknh zkr zks zksed zksh zkt zvbc zvfbfmin zvfbfwma zvkg zvkn zvknc
        zvkned zvkng zvknhb zvks zvksc zvksed zvksg zvksh zvkt""",
    "wasm32": "",
}
SWITCHED_OFF["x86"] = SWITCHED_OFF["x86_64"] + " amx-bf16 amx-int8 amx-tile"


def llvm_features(triple: str, cpu: str, attributes: tuple[str, ...], abi: str) -> set[str]:
    """What LLVM's code generator takes for granted, asked without help of the compiler's own."""
    config = {"kind": "llvm", "mtriple": triple, "mcpu": cpu}
    config |= {"mattr": list(attributes)} if attributes else {}
    config |= {"mabi": abi} if abi else {}
    return {str(name) for name in codegen.llvm_get_cpu_features(Target(config))}


@pytest.mark.parametrize("architecture", HOSTED, ids=lambda architecture: architecture.name)
def test_every_feature_of_every_processor_of_llvms_is_checked_or_switched_off(architecture: Architecture) -> None:
    triple = TRIPLES[architecture.name]
    cpus = [str(name) for name in codegen.llvm_get_cpu_archlist(Target({"kind": "llvm", "mtriple": triple}))]
    supported, off = 0, set()
    for cpu in cpus:
        try:
            target = parse_target(f"llvm -mtriple={triple} -mcpu={cpu}")
        except CompileError as error:
            assert "which nnefc's code needs" in error.message
            continue
        supported += 1
        used = llvm_features(target.triple, target.cpu, target.attributes, target.abi)
        features = architecture.known_to_llvm(target.features)
        checked = (*architecture.attributes, *(f"+{name}" for name in (*features, *target.tiles)))
        there = llvm_features(target.triple, architecture.cpu, checked, target.abi)
        unchecked = {name for name in used - there if not re.fullmatch(architecture.tuning, name)}
        assert not unchecked, f"{cpu} has {unchecked}, which is not looked for"
        assert set(features) <= used, f"{cpu} has lost what it was checked for"
        off |= {name[1:] for name in target.attributes if name.startswith("-")}
    assert supported > 1 or architecture.name == "wasm32"
    assert off == set(SWITCHED_OFF[architecture.name].split())


@pytest.mark.parametrize("architecture", HOSTED, ids=lambda architecture: architecture.name)
def test_tuning_is_no_instruction(architecture: Architecture) -> None:
    """Names that a pattern could take by accident."""
    if architecture.name == "wasm32":
        pytest.skip("engines look for themselves")
    instructions = {*architecture.checked, *architecture.required, *SWITCHED_OFF[architecture.name].split()}
    assert {name for name in instructions if re.fullmatch(architecture.tuning, name)} <= {"prefer-256-bit"}


SOURCES = {
    "x86_64": "machine/cpu_x86.c",
    "x86": "machine/cpu_x86.c",
    "aarch64": "machine/cpu_arm.c",
    "arm": "machine/cpu_arm.c",
    "riscv64": "machine/cpu_riscv.c",
    "wasm32": "machine/cpu_other.c",
}


@pytest.mark.parametrize("architecture", [a for a in HOSTED if a.checked], ids=lambda a: a.name)
def test_the_runtime_knows_every_feature_that_it_is_to_look_for(architecture: Architecture) -> None:
    text = (RUNTIME / SOURCES[architecture.name]).read_text()
    if architecture.name in ("aarch64", "arm"):  # two tables in one file
        wide, _, narrow = text.partition("#elif defined(__APPLE__)")[0].partition("#else")
        text = wide if architecture.name == "aarch64" else narrow
    known = set(re.findall(r'"([a-z][a-z0-9.-]*)"', text))
    if architecture.lengths:  # which the same function looks for
        known |= set(re.findall(r'strcmp\(feature, "(\w+)"\)', (RUNTIME / SOURCES[architecture.name]).read_text()))
    lengths = {name for name in architecture.checked if name.startswith("zvl")}  # one rule for all of them
    assert {*architecture.checked, *architecture.tiles} - lengths <= known


# A processor that has everything, under a system that saves what `saved` says.
EVERYTHING = f"""
#include <stdint.h>
unsigned saved, version, xgetbv_is_there;
static int all(unsigned leaf, unsigned sub, unsigned *a, unsigned *b, unsigned *c, unsigned *d) {{
    (void)sub;
    *a = *b = *c = *d = ~0u;
    if (leaf == 1 && !xgetbv_is_there) *c &= ~(1u << 27);
    if (leaf == 0x24) *b = version;
    return 1;
}}
static uint32_t xcr0(void) {{ return saved; }}
#define NNEFC_CPUID all
#define NNEFC_XGETBV xcr0
int asked_for, refused;
static long arch_prctl(int request, int argument) {{
    asked_for = request == 0x1023 ? argument : -1;
    return refused ? -1 : 0;
}}
#define NNEFC_ARCH_PRCTL arch_prctl
#include "{RUNTIME / "machine" / "cpu_x86.c"}"
void forget(void) {{
    for (int i = 0; i < QUESTIONS; i++) answers[i] = 0;
}}
"""
SSE, AVX, AVX512, TILES, APX = 0x3, 0x7, 0xE7, 0x600E7, 0xE00E7


def state_of(feature: str) -> int:
    """What of the registers' state an instruction set needs, from the manuals: bits of XCR0."""
    if feature in ("egpr", "push2pop2", "ppx", "ccmp", "cf", "ndd", "nf", "zu"):
        return APX & ~TILES
    if feature.startswith("amx"):
        return TILES & ~AVX512
    if feature.startswith(("avx512", "avx10")):
        return AVX512 & ~SSE
    return AVX & ~SSE if feature.startswith("avx") or feature in ("fma", "f16c", "fma4", "xop") else 0


@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs: x86_64")
def test_instructions_whose_state_the_system_does_not_save_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "all.c").write_text(EVERYTHING)
    command = [*ZIG_CC, "-shared", f"-I{RUNTIME}"]
    subprocess.run([*command, str(tmp_path / "all.c"), "-o", str(tmp_path / "cpu.so")], check=True)
    library = ctypes.CDLL(str(tmp_path / "cpu.so"))
    library.nnefc_cpu_has.restype = ctypes.c_bool
    checked = next((*a.checked, *a.tiles) for a in ARCHITECTURES if a.name == "x86_64")

    def present(saved: int, *, version: int = 2, xgetbv: bool = True) -> set[str]:
        values = {"saved": saved, "version": version, "xgetbv_is_there": xgetbv}
        for name, value in values.items():
            ctypes.c_uint.in_dll(library, name).value = value
        library.forget()  # the answers of another processor
        return {name for name in checked if library.nnefc_cpu_has(name.encode())}

    for saved in (SSE, AVX, AVX512, TILES, APX, APX & ~TILES | SSE):
        assert present(saved) == {name for name in checked if state_of(name) & ~saved == 0}
    assert present(APX, xgetbv=False) == {name for name in checked if not state_of(name)}
    assert present(APX) - present(APX, version=1) == {"avx10.2"}


@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs: x86_64")
def test_the_system_is_asked_for_the_registers_of_the_matrix_unit_alone(tmp_path: Path) -> None:
    (tmp_path / "all.c").write_text(EVERYTHING)
    command = [*ZIG_CC, "-shared", f"-I{RUNTIME}"]
    subprocess.run([*command, str(tmp_path / "all.c"), "-o", str(tmp_path / "cpu.so")], check=True)
    library = ctypes.CDLL(str(tmp_path / "cpu.so"))
    library.nnefc_cpu_permit.restype = ctypes.c_bool
    asked_for, refused = (ctypes.c_int.in_dll(library, name) for name in ("asked_for", "refused"))
    assert library.nnefc_cpu_permit(b"avx512f") and asked_for.value == 0
    assert library.nnefc_cpu_permit(b"amx-tile") and asked_for.value == 18
    refused.value = 1
    assert library.nnefc_cpu_permit(b"avx512f") and not library.nnefc_cpu_permit(b"amx-tile")


# LLVM's names of instruction sets → Linux' names, where they differ
OTHER_NAMES = {
    "x86_64": {
        "sse3": "pni",
        "sse4.1": "sse4_1",
        "sse4.2": "sse4_2",
        "bmi": "bmi1",
        "lzcnt": "abm",
        **{f"avx512{n}": f"avx512_{n}" for n in ("vnni", "bf16", "vbmi2", "bitalg", "vpopcntdq", "fp16")},
        **{f"amx-{n}": f"amx_{n}" for n in ("tile", "bf16", "int8")},
        "avxvnni": "avx_vnni",
        "avxifma": "avx_ifma",
    },
    "aarch64": {
        "lse": "atomics",
        "rdm": "asimdrdm",
        "dotprod": "asimddp",
        "fullfp16": "asimdhp",
        "fp16fml": "asimdfhm",
    },
}

# Linux shows none of these in /proc/cpuinfo.
UNTOLD = {
    *("avxvnniint8", "avxvnniint16", "avxneconvert", "avx10.1", "avx10.2"),
    *("egpr", "push2pop2", "ppx", "ccmp", "cf", "ndd", "nf", "zu"),
}


@pytest.mark.skipif(platform.machine() not in OTHER_NAMES, reason="needs: x86_64 or aarch64")
def test_detection_agrees_with_the_operating_system(tmp_path: Path) -> None:
    machine = platform.machine()
    library = tmp_path / "cpu.so"
    command = [*ZIG_CC, "-shared", "-O2", f"-I{RUNTIME}"]
    subprocess.run([*command, str(RUNTIME / SOURCES[machine]), "-o", str(library)], check=True)
    detect = ctypes.CDLL(str(library)).nnefc_cpu_has
    detect.restype = ctypes.c_bool
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    present = set(next(line for line in lines if line.startswith(("flags", "Features"))).split(":")[1].split())
    checked = {name for a in ARCHITECTURES if a.name == machine for name in (*a.checked, *a.tiles)} - UNTOLD
    linux = {name: OTHER_NAMES[machine].get(name, name) for name in checked}
    assert {name: detect(name.encode()) for name in checked} == {name: linux[name] in present for name in checked}
    assert not detect(b"") and not detect(b"avx1024f") and not detect(b"amx-fp16")


@pytest.mark.parametrize(
    ("machine", "missing"),
    [
        (Machine("x86", "bdver1", ("qemu-x86_64", "-cpu", "max"), opened=True), {"xop", "fma4"}),
        (Machine("x86", "llvm -mcpu=x86-64-v3 -mattr=+egpr,+ndd", ("qemu-x86_64", "-cpu", "max"), opened=True),
         {"egpr", "ndd"}),
        (Machine("x86", "diamondrapids", ("qemu-x86_64", "-cpu", "Nehalem"), opened=True), {"avx", "avx2"}),
        (with_glibc("arm", "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-v2", "qemu-aarch64", "-cpu", "max,sve=off"),
         {"sve", "sve2"}),
        (with_glibc("arm", "llvm -mtriple=armv7-linux-gnueabihf -mcpu=cortex-a72", "qemu-arm", "-cpu", "cortex-a15"),
         {"fp-armv8"}),
        (with_glibc("riscv", "llvm -mtriple=riscv64-linux-gnu -mcpu=sifive-x280", "qemu-riscv64", "-cpu", "rv64"),
         {"v", "zvl512b"}),
    ],
    ids=lambda value: value.target.split("-mcpu=")[-1] if isinstance(value, Machine) else "",
)  # fmt: skip
@pytest.mark.sample(2)
def test_a_library_for_a_richer_processor_says_what_is_missing(
    machine: Machine, missing: set[str], model: Path
) -> None:
    if machine.missing:
        pytest.skip(f"needs: {machine.missing}")
    text = refused_by(machine, nnefc.compile(model, machine.target))
    assert text.startswith("status 3: compiled for ")
    assert missing <= set(re.split("[ ,]+", text.rpartition("lacks ")[2].partition(";")[0].strip()))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="needs: x86_64")
@pytest.mark.parametrize("cpu", ["bdver4", "novalake"])
def test_what_this_machine_lacks_is_a_load_error(cpu: str, model: Path) -> None:
    """One that AMD alone made, and one that is to come."""
    artifact = nnefc.compile(model, cpu)
    with pytest.raises(nnefc.LoadError, match=f"compiled for {cpu}, but this processor lacks "):
        artifact.load()
