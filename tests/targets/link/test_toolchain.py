"""Linking: what is in a library, what is not, and what is refused."""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import elf
import numpy as np
import pytest
from runtime_samples import CONSTANTS, SAMPLE, ZIG_CC, ZIG_TARGET, link, object_file, object_of, sample_library

from nnefc.loader import load
from nnefc.support.diagnostics import CompileError
from nnefc.targets.link.constants import Constants
from nnefc.targets.link.toolchain import LibraryDescription, TensorDescription, link_library, public_symbols
from nnefc.targets.link.zig import run_compiler

X = TensorDescription("x", "float32", (4,))
Y = TensorDescription("y", "float32", (4,))
NEGATE = LibraryDescription("negate", "here", "nnefc test", (X,), (Y,))
NEGATE_SOURCE = """
#include <stdint.h>
int32_t nnefc_network(float *x, float *y, uint8_t *state, uint8_t *workspace, const uint8_t *constants) {
    for (int i = 0; i < 4; i++) y[i] = -x[i];
    return state != 0 || workspace != 0 || constants != 0;
}
"""


def test_only_the_public_interface_is_exported() -> None:
    assert elf.read(sample_library()).exported == set(public_symbols(SAMPLE))


def test_every_import_comes_from_the_c_library() -> None:
    library = elf.read(sample_library())
    assert all(name.startswith(("libc.", "libm.", "libpthread.", "ld-linux")) for name in library.needed)
    here = [ctypes.CDLL(ctypes.util.find_library(name)) for name in ("c", "m", "pthread")]
    assert [name for name in library.imported if not any(hasattr(known, name) for known in here)] == []


def test_a_compiler_that_may_open_too_few_files_gives_a_hint(tmp_path: Path) -> None:
    script = "echo 'error: failed to spawn: ProcessFdQuotaExceeded' >&2; exit 1"
    with pytest.raises(CompileError, match="may not open as many files") as failed:
        run_compiler(["sh", "-c", script], tmp_path)
    assert failed.value.hint == "allow more: ulimit -n 256"


def test_a_library_has_no_variables_of_threads() -> None:
    """glibc has room for those of about sixty opened libraries, and ends a process that has no memory for them."""
    assert not {".tdata", ".tbss"} & elf.read(sample_library()).sections.keys()


def test_soname_is_the_file_name() -> None:
    assert elf.read(sample_library()).soname == "sample.so"


def test_few_constants_are_among_the_other_data_that_is_only_read() -> None:
    names = elf.read(sample_library()).sections
    assert not any(name.startswith((".lrodata", ".nnefc")) for name in names)
    assert names[".rodata"][2] > len(CONSTANTS)


def test_many_constants_are_read_only_and_aligned_to_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nnefc.targets.link.toolchain._FEW_BYTES", 0)
    sections = elf.read(link([object_file("network.c")], CONSTANTS, SAMPLE, tmp_path / "model.so")).sections
    flags, address, size = next(sections[name] for name in sections if name.startswith((".lrodata", ".nnefc")))
    writable, allocated = flags & 1, flags & 2
    assert (address % 4096, size, writable, allocated) == (0, 4104, 0, 2)


def test_library_is_small_compared_with_its_constants() -> None:
    assert sample_library().stat().st_size < 40_000


def test_library_takes_few_pages_for_itself() -> None:
    sections = elf.read(sample_library()).sections
    assert sum(size for name, (_, _, size) in sections.items() if name in (".bss", ".data")) < 8192


def test_same_arguments_give_the_same_bytes(tmp_path: Path) -> None:
    images = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        library = link([object_file("network.c")], CONSTANTS, SAMPLE, tmp_path / name / "model.so")
        images.append(library.read_bytes())
    assert images[0] == images[1]


def test_no_path_of_the_build_is_in_the_library() -> None:
    image = sample_library().read_bytes()
    for path in (str(Path.home()), "nnefc-link-", "/tmp", str(Path(__file__).parents[3])):
        assert path.encode() not in image


def test_new_constants_are_never_mixed_up_with_old_ones(tmp_path: Path) -> None:
    for scale in (1, 2):
        blob = Constants.of(np.full(1024, scale, np.float32).tobytes() + CONSTANTS[4096:])
        link_library([object_file("network.c")], blob, SAMPLE, tmp_path / "model.so", zig_target=ZIG_TARGET)
        with load(tmp_path / "model.so") as model:
            assert model(np.ones(1024, np.float32))[0].tolist() == [scale] * 1024


def test_nothing_but_the_library_is_left_behind(tmp_path: Path) -> None:
    link([object_file("network.c")], CONSTANTS, SAMPLE, tmp_path / "model.so")
    assert os.listdir(tmp_path) == ["model.so"]


def test_network_without_constants_states_and_workspace(tmp_path: Path) -> None:
    with load(link([object_of(NEGATE_SOURCE, "negate")], b"", NEGATE, tmp_path / "negate.so")) as model:
        assert model(np.arange(4, dtype=np.float32)).tolist() == [0, -1, -2, -3]


def test_network_of_several_objects(tmp_path: Path) -> None:
    parts = [
        object_of("float twice(float x) { return 2 * x; }", "twice"),
        object_of(
            "#include <stdint.h>\nfloat twice(float);\n"
            "int32_t nnefc_network(float *x, float *y, uint8_t *s, uint8_t *w, const uint8_t *c) {"
            " for (int i = 0; i < 4; i++) y[i] = twice(x[i]); return 0; }",
            "caller",
        ),
    ]
    with load(link(parts, b"", NEGATE, tmp_path / "twice.so")) as model:
        assert model(np.arange(4, dtype=np.float32)).tolist() == [0, 2, 4, 6]


def test_many_inputs_and_outputs_keep_their_order(tmp_path: Path) -> None:
    count = 150
    parameters = ", ".join([f"float *x{i}" for i in range(count)] + [f"float *y{i}" for i in range(count)])
    body = " ".join(f"*y{i} = *x{i} + {i};" for i in range(count))
    source = (
        f"#include <stdint.h>\nint32_t nnefc_network({parameters}, uint8_t *s, uint8_t *w, const uint8_t *c)"
        f" {{ {body} return 0; }}"
    )
    description = replace(
        NEGATE,
        inputs=tuple(TensorDescription(f"x{i}", "float32", ()) for i in range(count)),
        outputs=tuple(TensorDescription(f"y{i}", "float32", ()) for i in range(count)),
    )
    with load(link([object_of(source, "many")], b"", description, tmp_path / "many.so")) as model:
        values = [np.array(3 * i, np.float32) for i in range(count)]
        assert [float(y) for y in model(*values)] == [4 * i for i in range(count)]


def test_names_of_any_characters_survive(tmp_path: Path) -> None:
    names = ('in"put\\n', "Ünïcode/層:0", "??/tri??=graph", "%s %d\n\t", "")
    description = replace(
        NEGATE,
        model='mo"del\\ \u2603',
        inputs=(replace(X, name=names[0]),),
        outputs=(replace(Y, name=names[1]),),
        target=names[2],
        compiler=names[3],
    )
    with load(link([object_of(NEGATE_SOURCE, "negate")], b"", description, tmp_path / 'o"d, d\u2603.so')) as model:
        assert (model.inputs[0].name, model.outputs[0].name, model.target, model.compiler) == names[:4]
        assert model.name == 'mo"del\\ \u2603'


@pytest.mark.parametrize("cc", [(), pytest.param(ZIG_CC, marks=pytest.mark.slow)], ids=["own", "other"])
def test_temporary_files_under_a_path_with_odd_characters(
    cc: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    position = tmp_path / "a b $c ü"
    position.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(position))
    library = tmp_path / "model.so"
    blob = Constants.of(CONSTANTS)
    link_library([object_file("network.c")], blob, SAMPLE, library, zig_target=ZIG_TARGET, cc=cc)
    with load(library) as model:
        assert model(np.ones(1024, np.float32))[1].tolist() == [6]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"constant_bytes": 4100}, "the constants have 4104 bytes, but the description says 4100"),
        ({"state_initial_offset": 4105}, "beyond the constants"),
        ({"workspace_bytes": -1}, "workspace_bytes is -1"),
        ({"scratch_bytes": 1 << 63}, "scratch_bytes"),
        ({"inputs": (TensorDescription("x", "complex64", (1,)),)}, "complex64"),
        ({"inputs": (TensorDescription("x", "float32", (-1,)),)}, "shape"),
        ({"inputs": (TensorDescription("x", "float32", (1 << 62, 1 << 62)),)}, "shape"),
        ({"outputs": (Y, Y)}, "same name"),
        ({"model": "a\0b"}, "null character"),
        ({"model": "a\ud800b"}, "cannot be written as UTF-8"),
    ],
)
def test_inconsistent_description_is_refused(change: dict[str, object], message: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=message):
        link([object_file("network.c")], CONSTANTS, replace(SAMPLE, **change), tmp_path / "model.so")
    assert os.listdir(tmp_path) == []


def test_undefined_function_is_an_error_that_names_it(tmp_path: Path) -> None:
    part = object_of(
        "#include <stdint.h>\nint nowhere(void);\nint32_t nnefc_network(float *x, float *y, uint8_t *s, uint8_t *w,"
        " const uint8_t *c) { return nowhere(); }",
        "undefined",
    )
    with pytest.raises(CompileError, match="nowhere"):
        link([part], b"", NEGATE, tmp_path / "model.so")
    assert os.listdir(tmp_path) == []


def test_failed_link_keeps_the_old_library(tmp_path: Path) -> None:
    library = link([object_of(NEGATE_SOURCE, "negate")], b"", NEGATE, tmp_path / "model.so")
    before = library.read_bytes()
    with pytest.raises(CompileError, match="nnefc_network"):
        link([], b"", NEGATE, library)
    assert library.read_bytes() == before


@pytest.mark.slow
def test_user_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stubs of the C library are then made again, which takes some seconds."""
    part = object_of(NEGATE_SOURCE, "negate")
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    for name in ("XDG_CACHE_HOME", "ZIG_GLOBAL_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    with load(link([part], b"", NEGATE, tmp_path / "negate.so")) as model:
        assert model(np.ones(4, np.float32)).tolist() == [-1] * 4
    assert sorted(os.listdir(tmp_path)) == ["file", "negate.so"]


def test_a_process_whose_environment_names_no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As systemd starts services: the system knows a home, zig does not ask it."""
    part = object_of(NEGATE_SOURCE, "negate")
    for name in ("HOME", "XDG_CACHE_HOME", "ZIG_GLOBAL_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    with load(link([part], b"", NEGATE, tmp_path / "negate.so")) as model:
        assert model(np.ones(4, np.float32)).tolist() == [-1] * 4


def test_unknown_target_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="unknown instruction set 'pdp11'"):
        link_library([], None, NEGATE, tmp_path / "model.so", zig_target="pdp11-unix-v7")


def test_output_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="cannot write"):
        link([object_of(NEGATE_SOURCE, "negate")], b"", NEGATE, tmp_path / "none" / "model.so")


def test_tensors_keep_types_and_shapes(tmp_path: Path) -> None:
    dtypes = ["bool", *(f"{s}int{n}" for s in ("", "u") for n in (8, 16, 32, 64))]
    dtypes += ["float16", "bfloat16", "float32", "float64"]
    parameters = ", ".join(f"const void *x{i}" for i in range(len(dtypes)))
    sizes = [1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 2, 4, 8]
    body = " ".join(f"memcpy((char *)y + {sum(sizes[:i])}, x{i}, {size});" for i, size in enumerate(sizes))
    source = (
        "#include <stdint.h>\n#include <string.h>\n"
        f"int32_t nnefc_network({parameters}, void *y, uint8_t *s, uint8_t *w, const uint8_t *c) {{ {body} return 0; }}"
    )
    description = replace(
        NEGATE,
        inputs=tuple(TensorDescription(dtype, dtype, (1,) * i) for i, dtype in enumerate(dtypes)),
        outputs=(TensorDescription("y", "uint8", (sum(sizes),)),),
    )
    with load(link([object_of(source, "types")], b"", description, tmp_path / "types.so")) as model:
        assert [t.dtype for t in model.inputs] == dtypes
        assert [len(t.shape) for t in model.inputs] == list(range(len(dtypes)))
        values = [
            np.full((1,) * i, 1, np.uint16 if dtype == "bfloat16" else np.dtype(dtype))
            for i, dtype in enumerate(dtypes)
        ]
        assert model(*values).tobytes() == b"".join(value.tobytes() for value in values)


@pytest.mark.slow
@pytest.mark.parametrize("megabytes", [600, 2500])
def test_constants_of_gigabytes_keep_code_in_reach(megabytes: int, tmp_path: Path) -> None:
    size = megabytes << 20
    blob = Constants(size, ((size - 4, np.float32([42])),))
    source = f"""
    #include <stdint.h>
    int32_t nnefc_network(float *x, float *y, uint8_t *s, uint8_t *w, const uint8_t *c) {{
        for (int i = 0; i < 4; i++) y[i] = x[i] + *(const float *)(c + {size - 4});
        return 0;
    }}"""
    description = replace(NEGATE, constant_bytes=size)
    library = tmp_path / "big.so"
    link_library([object_of(source, "big")], blob, description, library, zig_target=ZIG_TARGET)
    with load(library) as model:
        assert model(np.zeros(4, np.float32)).tolist() == [42] * 4
    library.unlink()  # pytest would keep the gigabytes for a while


def test_toolchain_does_not_import_tvm() -> None:
    code = "import sys, nnefc.targets.link.toolchain; sys.exit('tvm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
