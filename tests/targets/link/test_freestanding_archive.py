"""Archives for programs without an operating system: their files, their symbols, and what cannot be one."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import nnefc
from nnefc.support.diagnostics import CompileError
from nnefc.targets.description.freestanding_source import arena_bytes, freestanding_header, freestanding_source
from nnefc.targets.description.library import LibraryDescription, TensorDescription
from nnefc.targets.description.weights_image import WeightsImage
from nnefc.targets.link.elf_file import RELOCATABLE, ElfFile
from nnefc.targets.link.toolchain import RUNTIME
from nnefc.targets.link.zig import zig

EXAMPLES = Path(__file__).parents[3] / "examples"
DIGITS, EXAMPLE = EXAMPLES / "digits" / "model.nnef", EXAMPLES / "cortex-m"
GNU_LINKER = "arm-none-eabi-ld"


@pytest.fixture(scope="module")
def digits() -> nnefc.Artifact:
    return nnefc.compile(DIGITS, "cortex-m4")


@pytest.fixture(scope="module")
def folder(digits: nnefc.Artifact, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of digits.a, its header, and its members."""
    position = tmp_path_factory.mktemp("digits")
    digits.export(position / "digits.a", name="digits")
    subprocess.run([*zig(), "ar", "x", "digits.a"], cwd=position, check=True)
    return position


def symbols(path: Path) -> dict[str, bool]:
    """The names of an object that others see or that it needs, and whether it defines them."""
    file = ElfFile(np.fromfile(path, np.uint8), RELOCATABLE)
    table = next(section for section in file.sections if section["type"] == 2)
    strings = file.part(file.sections[table["link"]], np.dtype("u1")).tobytes()
    found = file.symbols(table)
    visible = found[found["info"] >> 4 != 0]
    return {strings[at : strings.index(b"\0", at)].decode(): s != 0 for at, s in visible[["name", "section"]].tolist()}


def test_a_program_sees_one_function_and_gives_two(folder: Path) -> None:
    assert sorted(path.name for path in folder.iterdir()) == ["digits.a", "digits.h", "digits.o", "digits_arena.o"]
    found = symbols(folder / "digits.o")
    assert [name for name, defined in found.items() if defined] == ["digits_run"]
    assert {name for name, defined in found.items() if not defined} <= {"memcpy", "memset"}
    assert symbols(folder / "digits_arena.o") == {"digits_arena": True}


def sections(path: Path) -> dict[str, int]:
    """The sections that go into a program, and their sizes."""
    return {name: int(s["size"]) for name, s in named_sections(path).items() if s["flags"] & 2 and s["size"]}


def named_sections(path: Path) -> dict[str, np.void]:
    file = ElfFile(np.fromfile(path, np.uint8), RELOCATABLE)
    names = file.part(file.sections[_names_at(path)], np.dtype("u1")).tobytes()
    return {names[s["name"] : names.index(b"\0", s["name"])].decode(): s for s in file.sections}


def _names_at(path: Path) -> int:
    return int(np.fromfile(path, np.uint8)[50:52].view("<u2")[0])


def test_constants_have_a_section_of_their_own_and_nothing_else_is_written(folder: Path) -> None:
    found = sections(folder / "digits.o")
    text = (folder / "digits.h").read_text()
    assert f"#define DIGITS_CONSTANT_BYTES {found['.rodata.digits_constants']} " in text
    assert not any(name.startswith((".ARM.exidx", ".data")) for name in found)
    assert sum(size for name, size in found.items() if name.startswith(".bss")) == 4  # the note of a failure


def test_the_header_is_c_and_cpp(folder: Path) -> None:
    for name in ("use.c", "use.cpp"):
        (folder / name).write_text(
            '#include "digits.h"\n'
            "int use(const float *x, float *y) { return digits_run(x, y, digits_arena); }\n"
            "int elements[DIGITS_INPUT_0_ITEMS == 64 && DIGITS_OUTPUT_0_ITEMS == 10 ? 1 : -1];\n"
        )
        target = ["-target", "thumb-freestanding-eabihf", "-mcpu=cortex_m4"]
        words = [*zig(), "cc" if name == "use.c" else "c++", *target, "-Wall", "-Werror", "-c", name, "-o", "use.out"]
        subprocess.run(words, cwd=folder, check=True)
        (folder / name).unlink()
    (folder / "use.out").unlink()


def test_names_of_tensors_that_c_does_not_take_are_numbers() -> None:
    tensors = [TensorDescription(name, "int8", (2, 3)) for name in ("a.b", "int", "a_b", "größe", "*/")]
    description = LibraryDescription("m", "cortex-m4", "", tuple(tensors), (TensorDescription("y", "bool", ()),))
    header = freestanding_header(description)
    assert "const int8_t *a_b, const int8_t *input_1, const int8_t *input_2," in header
    assert header.count("*/") == header.count("/*")
    assert arena_bytes(description) == 0


def test_names_that_the_c_uses_itself_are_left_to_it(tmp_path: Path) -> None:
    names = ("status", "before", "memcpy", "uint8_t", "nnefc_failed", "xor", "nullptr", "linux", "input_9", "input.9")
    tensors = [TensorDescription(name, "int8", (2,)) for name in names]
    states = {"states": (TensorDescription("s", "int8", (2,)),), "state_bytes": 2}
    outputs = (TensorDescription("asm", "bool", ()),)
    description = LibraryDescription("m", "cortex-m4", "", tuple(tensors), outputs, **states)
    (tmp_path / "m.c").write_text(freestanding_source(description))
    (tmp_path / "m.cpp").write_text(freestanding_header(description))
    flags = ["-target", "thumb-freestanding-eabihf", "-mcpu=cortex_m4", "-c", "-o", "m.o", "-I", str(RUNTIME)]
    for words in (["cc", "m.c"], ["c++", "m.cpp"]):
        subprocess.run([*zig(), words[0], *flags, words[1]], cwd=tmp_path, check=True)


@pytest.mark.parametrize("name", ["net.so", "net.o", "net"])
@pytest.mark.sample(2)
def test_other_files_are_errors(name: str, digits: nnefc.Artifact, tmp_path: Path) -> None:
    with pytest.raises(CompileError) as raised:
        digits.export(tmp_path / name)
    assert ".a" in (raised.value.hint or "")


def test_weights_may_be_an_image_of_their_own(digits: nnefc.Artifact, tmp_path: Path) -> None:
    digits.export(tmp_path / "digits.a", name="digits", weights="separate")
    subprocess.run([*zig(), "ar", "x", "digits.a"], cwd=tmp_path, check=True)
    found = symbols(tmp_path / "digits.o")
    assert {name for name, defined in found.items() if defined} == {"digits_check_weights", "digits_run"}
    assert ".rodata.digits_constants" not in sections(tmp_path / "digits.o")
    content, header = (tmp_path / "digits.weights").read_bytes(), (tmp_path / "digits.h").read_text()
    assert content[:8] == b"NNEFCIMG" and f"#define DIGITS_WEIGHTS_BYTES {len(content)} " in header
    assert f"_IDENTITY 0x{int.from_bytes(content[16:24], 'little'):016x}ull" in header
    assert "float *probability, void *arena, const void *weights);" in header


def test_a_run_begins_by_comparing_the_image_with_the_code(tmp_path: Path) -> None:
    """The functions around a network, compiled for this machine: its own returns its first constant."""
    tensor = TensorDescription("y", "bool", ())
    states = {"states": (TensorDescription("s", "int8", (2,)),), "state_bytes": 2, "state_initial_offset": 4}
    description = LibraryDescription("m", "cortex-m4", "", (), (tensor,), constant_bytes=6, prefix="m", **states)
    image, data = WeightsImage(0x123456789ABCDEF0, 70, 64), b"\x07abcde"
    source = freestanding_source(description, image)
    (tmp_path / "m.c").write_text(
        f"{source}\n"
        "volatile int32_t nnefc_failed;\n"
        "int32_t nnefc_network(void *y, uint8_t *states, uint8_t *arena, const uint8_t *constants) {\n"
        "    (void)y; (void)arena; return constants[0] * 256 + states[0];\n}\n"
    )
    words = [*zig(), "cc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-I{RUNTIME}", "m.c", "-o", "m.so"]
    subprocess.run(words, cwd=tmp_path, check=True)
    library, memory = ctypes.CDLL(str(tmp_path / "m.so")), ctypes.create_string_buffer(192)
    arena = ctypes.c_void_p(-(-ctypes.addressof(memory) // 64) * 64)
    whole = image.header([data]) + data

    def run(content: bytes) -> tuple[int, int]:
        library.m_reset(arena, content)
        return library.m_check_weights(content, len(content)), library.m_run(arena, arena, content)

    assert run(whole) == (0, 7 * 256 + ord("d"))
    assert run(whole[:-1] + b"x") == (3, 7 * 256 + ord("d"))
    assert run(whole[:16] + b"x" + whole[17:]) == (2, -1)
    assert run(b"x" + whole[1:]) == (1, -1)
    assert library.m_run(arena, ctypes.c_void_p(arena.value + 1), whole) == -2
    assert library.m_check_weights(whole, 69) == 1


def test_sizes_that_depend_on_the_data_are_written_to_a_parameter(tmp_path: Path) -> None:
    """The network's function writes such sizes one after the other; the one for programs writes whole shapes."""
    description = LibraryDescription(
        "m",
        "cortex-m4",
        "",
        (),
        (
            TensorDescription("found", "int64", (2, "n"), limits=(2, 5)),
            TensorDescription("y", "uint8", (1,)),
            TensorDescription("kept", "uint8", ("k",), limits=(7,)),
        ),
        data_dependent=((0, 1), (2, 0)),
        prefix="m",
    )
    header = freestanding_header(description)
    assert "#define M_OUTPUT_0_ITEMS 10 /* found: int64[2, n], at most 80 bytes */" in header
    prototype = "int m_run(int64_t *found, int32_t found_shape[2], uint8_t *y, uint8_t *kept, int32_t kept_shape[1], "
    assert f"{prototype}void *arena);" in header
    (tmp_path / "m.c").write_text(
        f"{freestanding_source(description)}\n"
        "volatile int32_t nnefc_failed;\n"
        "int32_t nnefc_network(void *found, void *y, void *kept, uint8_t *states, uint8_t *arena,\n"
        "                      const uint8_t *constants, int64_t *sizes) {\n"
        "    (void)found; (void)y; (void)kept; (void)states; (void)arena; (void)constants;\n"
        "    sizes[0] = 4; sizes[1] = 6; return 0;\n}\n"
    )
    words = [*zig(), "cc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", f"-I{RUNTIME}", "m.c", "-o", "m.so"]
    subprocess.run(words, cwd=tmp_path, check=True)
    found, kept = (ctypes.c_int32 * 2)(), (ctypes.c_int32 * 1)()
    assert ctypes.CDLL(str(tmp_path / "m.so")).m_run(None, found, None, None, kept, None) == 0
    assert (list(found), list(kept)) == ([2, 4], [6])


def test_dynamic_dimensions_are_an_error(tmp_path: Path) -> None:
    text = "version 1.0;\ngraph g(x) -> (y)\n{\n    x = external<scalar>(shape = [1, 3]);\n    y = relu(x);\n}\n"
    model = tmp_path / "g"
    model.mkdir()
    (model / "graph.nnef").write_text(text)
    with pytest.raises(CompileError) as raised:
        nnefc.compile(model, "cortex-m4", shape={"x": ("1..4", 3)})
    assert "has no heap" in raised.value.message
    assert "--shape" in (raised.value.hint or "")


FREESTANDING = ("-O1", "-g0", "-ffreestanding", "-fno-sanitize=all", "-fno-unwind-tables")


@pytest.mark.parametrize("enumerations", ["-fshort-enums", "-fno-short-enums"])
def test_the_linker_of_gnu_warns_of_nothing(folder: Path, tmp_path: Path, enumerations: str) -> None:
    """Whatever widths the program's own enumerations have."""
    if shutil.which(GNU_LINKER) is None:
        pytest.skip(f"needs {GNU_LINKER}")
    names = ("startup", "main")
    words = [*zig(), "cc", "-target", "thumb-freestanding-eabihf", "-mcpu=cortex_m4+vfp4d16sp", enumerations]
    words += [*FREESTANDING, f"-I{EXAMPLE}", f"-I{folder}"]
    for name in names:
        subprocess.run([*words, "-c", str(EXAMPLE / f"{name}.c"), "-o", str(tmp_path / f"{name}.o")], check=True)
    inputs = [*(str(tmp_path / f"{name}.o") for name in names), str(folder / "digits.a")]
    options = ["--fatal-warnings", "--gc-sections", "-e", "board_start", "-T", str(EXAMPLE / "board.ld")]
    command = [GNU_LINKER, *options, *inputs, "-o", str(tmp_path / "digits.elf")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_objects_say_that_the_stack_is_not_executed(folder: Path) -> None:
    for name in ("digits.o", "digits_arena.o"):
        note = named_sections(folder / name)[".note.GNU-stack"]
        assert not note["flags"] & 4, "executable"
