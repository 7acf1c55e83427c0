"""The files that a network can be: shared and static libraries, object files, headers, and weights next to them."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import elf
import numpy as np
import pytest
from runtime_samples import CONSTANTS, SAMPLE, WEIGHTS, ZIG_CC, ZIG_CPP, ZIG_TARGET, object_file, object_of

from nnefc.loader import LoadError, load
from nnefc.support.diagnostics import CompileError
from nnefc.targets.description.library import LibraryDescription, TensorDescription
from nnefc.targets.description.library_functions import public_symbols
from nnefc.targets.link.constants import Constants
from nnefc.targets.link.outputs import write_network
from nnefc.targets.link.zig import zig

X = np.random.default_rng(5).standard_normal(1024).astype(np.float32)
X[0] = 1  # the sample network takes negative values there as orders

MUSL = ZIG_TARGET.replace("gnu", "musl")

needs_cc = pytest.mark.skipif(shutil.which("cc") is None, reason="needs: cc")
compilers = pytest.mark.parametrize(
    "compiler",
    [
        pytest.param(ZIG_CC, id="zig"),
        pytest.param(("cc",), id="cc", marks=needs_cc),
    ],
)


def write(path: Path, description: LibraryDescription = SAMPLE, *, weights: str = "embedded") -> Path:
    blob = Constants.of(CONSTANTS)
    write_network([object_file("network.c")], blob, description, path, zig_target=ZIG_TARGET, weights=weights)
    return path


def run(command: list[object], **options: object) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=240, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return str(done.stdout)


# --- which file


def test_the_end_of_the_name_says_which_file_is_written(tmp_path: Path) -> None:
    for name, start in (("a.so", b"\x7fELF"), ("b.o", b"\x7fELF"), ("c.a", b"!<arch>\n"), ("lib.so.1.2", b"\x7fELF")):
        folder = tmp_path / name
        folder.mkdir()
        assert write(folder / name).read_bytes().startswith(start)
    kinds = {name: int.from_bytes((tmp_path / name / name).read_bytes()[16:18], "little") for name in ("a.so", "b.o")}
    assert kinds == {"a.so": 3, "b.o": 1}  # ET_DYN, ET_REL
    files = {folder.name: sorted(os.listdir(folder)) for folder in tmp_path.iterdir()}
    assert files == {
        "a.so": ["a.so"], "b.o": ["b.o", "nnefc.h"], "c.a": ["c.a", "nnefc.h"], "lib.so.1.2": ["lib.so.1.2"],
    }  # fmt: skip


@pytest.mark.parametrize("name", ["model", "model.txt", "model.dll", "model.dylib", "model.so.x"])
def test_other_ends_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError) as caught:
        write(tmp_path / name)
    assert ".so for a shared library, .a for a static one, .o for an object file" in str(caught.value)
    assert os.listdir(tmp_path) == []


def test_objects_of_webassembly_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"a network is a module\n.*\.wasm"):
        write_network([], None, SAMPLE, tmp_path / "model.a", zig_target="wasm32-wasi")


@pytest.mark.parametrize(("target", "end"), [("x86_64-windows-gnu", ".dll"), ("wasm32-wasi", ".wasm")])
def test_weights_stay_in_libraries_for_systems_that_map_no_files(target: str, end: str, tmp_path: Path) -> None:
    blob = Constants.of(CONSTANTS)
    with pytest.raises(CompileError, match="cannot map a file of weights"):
        write_network([], blob, SAMPLE, tmp_path / f"model{end}", zig_target=target, weights="separate")


@pytest.mark.parametrize("prefix", ["", "1st", "a-b", "a b", "é", "x" * 65, "nnefc_pool", "TVMx", "pthread", "timer"])
def test_names_that_c_cannot_take_are_refused(prefix: str, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="begin"):
        write(tmp_path / "model.a", replace(SAMPLE, prefix=prefix))
    assert os.listdir(tmp_path) == []


# --- names


def test_a_shared_library_has_the_functions_by_both_names(tmp_path: Path) -> None:
    library = write(tmp_path / "model.so", replace(SAMPLE, prefix="digits"))
    assert elf.read(library).exported == {
        name for prefix in ("nnefc", "digits") for name in public_symbols(SAMPLE, prefix)
    }
    with load(library) as model:
        assert np.array_equal(model(X)[0], X * WEIGHTS)


@pytest.mark.skipif(shutil.which("nm") is None, reason="needs: nm")
@pytest.mark.parametrize("prefix", ["nnefc", "digits"])
def test_an_object_shows_its_functions_and_nothing_else(prefix: str, tmp_path: Path) -> None:
    path = write(tmp_path / "model.o", replace(SAMPLE, prefix=prefix))
    lines = run(["nm", "--extern-only", "--defined-only", path]).splitlines()
    assert {line.split()[-1] for line in lines} == set(public_symbols(SAMPLE, prefix))


TWO_NETWORKS = """
#include <stdio.h>
#include "first.h"
#include "second.h"

static int run(const nnefc_interface *network, float *y) {
    nnefc_session *session = NULL;
    nnefc_options options = {0};
    options.struct_size = sizeof options;
    options.threads = 2;
    if (network->create(&options, &session) != NNEFC_OK) return puts(network->last_error(NULL)), 1;
    static float x[1024];
    for (int i = 0; i < 1024; i++) x[i] = 1;
    int64_t count;
    const void *inputs[] = {x};
    void *outputs[] = {y, &count};
    if (network->run(session, inputs, outputs) != NNEFC_OK) return puts(network->last_error(session)), 1;
    return network->destroy(session) != NNEFC_OK;
}

int main(void) {
    static float a[1024], b[1024];
    const nnefc_interface first = NNEFC_INTERFACE(first), second = NNEFC_INTERFACE(second);
    if (run(&first, a) || run(&second, b)) return 1;
    printf("%s %.6f %s %.6f\\n", first.describe()->model, a[7], second.describe()->model, b[7]);
    return first_destroy(NULL) + second_destroy(NULL);
}
"""


@compilers
@pytest.mark.parametrize("end", ["o", "a", "so"])
@pytest.mark.sample(3)
def test_two_networks_link_into_one_program(compiler: tuple[str, ...], end: str, tmp_path: Path) -> None:
    """Each has the same runtime, kernels of the same names, and constants of its own."""
    for name, scale in (("first", 1), ("second", -2)):
        blob = Constants.of((WEIGHTS * np.float32(scale)).tobytes() + CONSTANTS[4096:])
        description = replace(SAMPLE, model=f"the {name}", prefix=name)
        write_network([object_file("network.c")], blob, description, tmp_path / f"{name}.{end}", zig_target=ZIG_TARGET)
        if end == "so":  # its header is an archive's
            write(tmp_path / f"{name}.a", description)
    (tmp_path / "main.c").write_text(TWO_NETWORKS)
    libraries = [tmp_path / f"{name}.{end}" for name in ("first", "second")]
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pthread", f"-Wl,-rpath,{tmp_path}"]
    run([*compiler, *flags, tmp_path / "main.c", *libraries, "-lm", "-o", tmp_path / "main"])
    assert run([tmp_path / "main"]) == f"the first {WEIGHTS[7]:.6f} the second {-2 * WEIGHTS[7]:.6f}\n"


@pytest.mark.parametrize(
    ("machine", "compiler"),
    [
        pytest.param(
            ZIG_TARGET, ("cc",), id="cc", marks=pytest.mark.skipif(shutil.which("cc") is None, reason="needs: cc")
        ),
        # zig compiles musl first
        pytest.param(MUSL, (*zig(), "cc", "-target", MUSL, "-O1", "-s"), id="musl", marks=pytest.mark.slow),
    ],
)
def test_a_network_links_into_a_static_program(machine: str, compiler: tuple[str, ...], tmp_path: Path) -> None:
    """One that needs nothing of the system it runs on."""
    for name in ("first", "second"):
        write_network(
            [object_file("network.c")],
            Constants.of(CONSTANTS),
            replace(SAMPLE, prefix=name),
            tmp_path / f"{name}.a",
            zig_target=machine,
            weights="separate" if name == "first" else "embedded",
        )
    (tmp_path / "main.c").write_text(TWO_NETWORKS)
    libraries = [tmp_path / "first.a", tmp_path / "second.a", "-lm", "-lpthread"]
    run([*compiler, "-static", tmp_path / "main.c", *libraries, "-o", tmp_path / "main"])
    assert run([tmp_path / "main"]) == f"sample {WEIGHTS[7]:.6f} sample {WEIGHTS[7]:.6f}\n"
    assert elf.interpreter(tmp_path / "main") is None
    (tmp_path / "first.weights").unlink()  # it lies next to the program
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True)
    assert (done.returncode, "first.weights cannot be read" in done.stdout) == (1, True)


def test_groups_of_sections_that_two_objects_share_survive(tmp_path: Path) -> None:
    """Objects of C++ have functions that linkers keep once a program: here each network keeps its own."""
    source = tmp_path / "network.cpp"
    source.write_text(
        "#include <cstdint>\n"
        "inline __attribute__((noinline)) float plus(float x) { return x + OFFSET; }\n"
        'extern "C" int32_t nnefc_network(float *x, float *y, uint8_t *, uint8_t *, const uint8_t *)'
        " { for (int i = 0; i < 4; i++) y[i] = plus(x[i]); return 0; }"
    )
    tensors = [TensorDescription(name, "float32", (4,)) for name in "xy"]
    program = ["#include <stdio.h>", "int main(void) { float x[4] = {0}, y[4]; nnefc_session *s;"]
    for offset in (1, 2):
        part = tmp_path / f"{offset}.o"
        flags = [f"-DOFFSET={offset}", "-O1", "-fPIC", "-ffunction-sections", "-c"]
        run([*ZIG_CPP, *flags, source, "-o", part])
        description = LibraryDescription("n", "t", "c", (tensors[0],), (tensors[1],), prefix=f"net{offset}")
        write_network([part], None, description, tmp_path / f"net{offset}.o", zig_target=ZIG_TARGET)
        program.insert(0, f'#include "net{offset}.h"')
        program.append(
            f"const void *in{offset}[] = {{x}}; void *out{offset}[] = {{y}};"
            f" if (net{offset}_create(NULL, &s)) return 1;"
            f' net{offset}_run(s, in{offset}, out{offset}); printf("%g ", y[3]); net{offset}_destroy(s);'
        )
    (tmp_path / "main.c").write_text("\n".join([*program, "return 0; }"]))
    run([*ZIG_CC, tmp_path / "main.c", tmp_path / "net1.o", tmp_path / "net2.o", "-o", tmp_path / "main"])
    assert run([tmp_path / "main"]) == "1 2 "


# --- headers


@pytest.mark.parametrize("language", ["c", "c++"])
def test_headers_are_self_contained(language: str, tmp_path: Path) -> None:
    odd = TensorDescription('a */ "b"\\\n??/ é', "float32", (1, 1024))
    write(tmp_path / "net.o", replace(SAMPLE, prefix="net", model="*/ #error", inputs=(odd,)))
    text = (tmp_path / "net.h").read_text()
    assert 'input 0: a __ "b"__' in text
    assert "float32[1, 1024]" in text
    source = tmp_path / f"main.{language}"
    source.write_text('#include "net.h"\n#include "net.h"\nint main(void) { return net_describe() == 0; }\n')
    flags = ["-x", language, "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    run([*ZIG_CC, *flags, source, "-x", "none", tmp_path / "net.o", "-o", tmp_path / "main"])
    run([tmp_path / "main"])


# --- weights in a file of their own


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("separate") / "model.so", weights="separate")


@pytest.fixture
def separate(original: Path, tmp_path: Path) -> Path:
    shutil.copy(original.with_suffix(".weights"), tmp_path)
    return Path(shutil.copy(original, tmp_path))


def test_separate_weights_give_the_same_results(separate: Path) -> None:
    assert sorted(os.listdir(separate.parent)) == ["model.so", "model.weights"]
    assert not any(name.startswith((".lrodata", ".nnefc")) for name in elf.read(separate).sections)
    with load(separate, threads=2) as model:
        assert model.weights == "model.weights"
        assert [int(model(X)[1][0]) for _ in range(2)] == [6, 7]
        assert np.array_equal(model(X)[0], X * WEIGHTS)
        with model.session() as other:
            assert int(other(X)[1][0]) == 6


def test_sessions_share_the_pages_of_the_file(separate: Path) -> None:
    with load(separate, threads=1) as model, model.session(threads=1):
        lines = [line for line in Path("/proc/self/maps").read_text().splitlines() if line.endswith("model.weights")]
        assert len(lines) == 2
        assert all(line.split()[1] == "r--p" for line in lines)
    assert "model.weights" not in Path("/proc/self/maps").read_text()


def test_weights_may_lie_elsewhere(separate: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    position = (tmp_path / "model.weights").rename(tmp_path / "elsewhere" / "w é")
    with load(separate, weights=position) as model, model.session() as other:
        assert np.array_equal(other(X)[0], X * WEIGHTS)
    with pytest.raises(LoadError, match=r"bad weights: .*model\.weights cannot be read"):
        load(separate)


def test_weights_are_found_next_to_a_library_in_a_folder_with_an_odd_name(tmp_path: Path) -> None:
    folder = tmp_path / "a  b\té"
    folder.mkdir()
    with load(write(folder / "my model.so", weights="separate")) as model:
        assert np.array_equal(model(X)[0], X * WEIGHTS)


def test_weights_of_a_library_that_has_its_own_are_refused(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="contains its weights"):
        load(write(tmp_path / "model.so"), weights=tmp_path / "w")


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 8191, 8255, 8257, 12288])
def test_weights_that_are_cut_off_or_longer(separate: Path, size: int) -> None:
    os.truncate(separate.with_suffix(".weights"), size)
    with pytest.raises(LoadError, match=r"bad weights: .*model\.weights is cut off"):
        load(separate)


@pytest.mark.parametrize("position", [4096, 4103, 5000, 8199])
@pytest.mark.parametrize("bit", [0, 7])
def test_any_changed_bit_of_the_weights_is_noticed(separate: Path, position: int, bit: int) -> None:
    with separate.with_suffix(".weights").open("r+b") as file:
        file.seek(position)
        old = file.read(1)[0]
        file.seek(position)
        file.write(bytes([old ^ 1 << bit]))
    with pytest.raises(LoadError, match="damaged: its checksum is wrong"):
        load(separate)


@pytest.mark.parametrize("position", [0, 8, 12])
def test_a_file_that_holds_no_weights(separate: Path, position: int) -> None:
    with separate.with_suffix(".weights").open("r+b") as file:
        file.seek(position)
        file.write(b"\xff\xff")
    with pytest.raises(LoadError, match="not a weights file that this library knows"):
        load(separate)


def test_weights_of_another_network(separate: Path, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    blob = Constants.of((2 * WEIGHTS).tobytes() + CONSTANTS[4096:])
    description = replace(SAMPLE, model="the other")
    write_network(
        [object_file("network.c")], blob, description, folder / "o.so", zig_target=ZIG_TARGET, weights="separate"
    )
    with pytest.raises(LoadError, match='belongs to another network or compilation, called "the other"'):
        load(separate, weights=folder / "o.weights")


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo], ids=["folder", "pipe"])
def test_weights_that_are_no_file(separate: Path, make: object) -> None:
    separate.with_suffix(".weights").unlink()
    make(separate.with_suffix(".weights"))
    with pytest.raises(LoadError, match="not a regular file"):
        load(separate)


def test_a_network_without_constants_has_no_file_of_weights(tmp_path: Path) -> None:
    part = object_of(
        "#include <stdint.h>\nint32_t nnefc_network(float *x, float *y, uint8_t *s, uint8_t *w, const uint8_t *c)"
        " { *y = -*x; return c != 0; }",
        "bare",
    )
    x, y = (TensorDescription(name, "float32", ()) for name in "xy")
    description = LibraryDescription("n", "t", "c", (x,), (y,))
    write_network([part], None, description, tmp_path / "n.so", zig_target=ZIG_TARGET, weights="separate")
    assert os.listdir(tmp_path) == ["n.so"]
    with load(tmp_path / "n.so") as model:
        assert model.weights is None
        assert float(model(np.float32(3))) == -3


# --- whole or not at all, and the same each time


@pytest.mark.parametrize("name", ["model.so", "model.a", "model.o"])
def test_a_failure_leaves_what_was_there(name: str, tmp_path: Path) -> None:
    for old in (name, "nnefc.h", "model.weights"):
        (tmp_path / old).write_text(old)
    blob = Constants.of(CONSTANTS)
    with pytest.raises(CompileError):
        write_network([], blob, SAMPLE, tmp_path / name, zig_target=ZIG_TARGET, weights="separate")
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        old: old for old in (name, "nnefc.h", "model.weights")
    }


def test_a_folder_in_the_way_is_an_error_and_nothing_is_moved(tmp_path: Path) -> None:
    (tmp_path / "model.so").mkdir()
    with pytest.raises(CompileError, match=r"model\.so: it is a folder"):
        write(tmp_path / "model.so", weights="separate")
    assert os.listdir(tmp_path) == ["model.so"]


@pytest.mark.skipif(os.geteuid() == 0, reason="needs: a user whom permissions hold back")
def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(CompileError, match="cannot write"):
        write(tmp_path / "model.a")


@pytest.mark.parametrize("name", ["model.so", "model.a", "model.o"])
def test_the_same_network_gives_the_same_bytes(name: str, tmp_path: Path) -> None:
    images = []
    for folder in (tmp_path / "first", tmp_path / "second"):
        folder.mkdir()
        write(folder / name, replace(SAMPLE, prefix="net"), weights="separate")
        images.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert images[0] == images[1]
    for image in images[0].values():
        assert str(tmp_path).encode() not in image
