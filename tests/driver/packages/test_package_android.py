"""Archives for Android: the files, which apps and C programs look for, and the class of Java, run by Java here."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from elf import read

import nnefc
from nnefc.driver.packages.files import zip_archive
from nnefc.driver.packages.jni import class_archive, java_source, jni_library
from nnefc.driver.packages.networks import Networks
from nnefc.support.diagnostics import CompileError

ROOT = Path(__file__).parents[3]
TEXT = "version 1.0;\ngraph g(x) -> (y) { x = external(shape = [8]); y = relu(x); }\n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.nnef"
    path.write_text(TEXT)
    return path


def test_an_archive_has_what_androids_build_system_and_prefab_look_for(model: Path, tmp_path: Path) -> None:
    targets = ["aarch64-linux-android", "armv7-linux-androideabi"]
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        nnefc.package(model, "aar", tmp_path / name / "small_net.aar", targets=targets, version="2.0.0")
    content = (tmp_path / "one" / "small_net.aar").read_bytes()
    assert content == (tmp_path / "two" / "small_net.aar").read_bytes()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    module, name = "prefab/modules/small_net", "small_net"
    abis = ("arm64-v8a", "armeabi-v7a")
    assert set(files) == {
        *("AndroidManifest.xml", "R.txt", "proguard.txt", "classes.jar", "prefab/prefab.json"),
        f"java/nnefc/{name}/Network.java",
        *(f"jni/{abi}/lib{name}{end}.so" for abi in abis for end in ("", "_jni")),
        f"{module}/module.json",
        *(f"{module}/include/{header}" for header in ("nnefc.h", "nnefc.hpp", "nnefc_image.hpp", f"{name}.h")),
        *(f"{module}/libs/android.{abi}/{part}" for abi in abis for part in ("abi.json", f"lib{name}.so")),
    }
    assert zipfile.is_zipfile(io.BytesIO(files["classes.jar"]))
    assert json.loads(files["prefab/prefab.json"]) == {
        "schema_version": 2,
        "name": name,
        "version": "2.0.0",
        "dependencies": [],
    }
    assert json.loads(files[f"{module}/module.json"])["library_name"] == f"lib{name}"
    for abi in abis:
        assert json.loads(files[f"{module}/libs/android.{abi}/abi.json"])["abi"] == abi
        assert files[f"jni/{abi}/lib{name}.so"] == files[f"{module}/libs/android.{abi}/lib{name}.so"]
    for file in (f"lib{name}.so", f"lib{name}_jni.so"):
        (tmp_path / file).write_bytes(files[f"jni/arm64-v8a/{file}"])
    library, bridge = read(tmp_path / f"lib{name}.so"), read(tmp_path / f"lib{name}_jni.so")
    assert library.soname == f"lib{name}.so"
    assert f"{name}_create" in library.exported
    assert bridge.needed[0] == f"lib{name}.so"
    methods = ("bytes", "create", "destroy", "run")
    assert bridge.exported == {f"Java_nnefc_small_1net_Network_{method}" for method in methods}
    assert bridge.imported - {"memset"} <= library.exported


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("my-net.aar", {}, "is no name for a package"),
        ("net.aar", {"targets": ["aarch64-linux-gnu"]}, "no files for the target 'aarch64-linux-gnu'"),
        ("native.aar", {}, "is a word of Java"),
        ("net.aar", {"version": "1.0"}, "is not three numbers"),
        ("net.aar", {"javac": "/no/such/javac", "targets": ["aarch64-linux-android"]}, "cannot run /no/such/javac"),
    ],
)
def test_what_cannot_be_is_refused(
    name: str, options: dict[str, str], message: str, model: Path, tmp_path: Path
) -> None:
    with pytest.raises(CompileError, match=message):
        nnefc.package(model, "aar", tmp_path / name, **options)
    assert not list(tmp_path.iterdir())


PROGRAM = """
import nnefc.small_net.Network;
public class Main {
    public static void main(String[] words) {
        try (Network network = new Network(1)) {
            float[] x = {-1, 2, -3, 4, -5, 6, -7, 8.5f};
            System.out.println(java.util.Arrays.toString(network.run(x)[0]));
            System.out.println(java.util.Arrays.toString(network.run(x)[0]));
            network.run(new float[3]);
        } catch (IllegalArgumentException error) {
            System.out.println(error.getMessage());
        }
    }
}
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("javac") is None, reason="needs: javac")
def test_java_calls_the_library(model: Path, tmp_path: Path) -> None:
    """The class, and the library between, are those of Android, here with this system's C library."""
    artifact = nnefc.compile(model)
    networks = Networks("small_net", "1.0.0", ("llvm",), lambda target: artifact, "javac")
    artifact.export(tmp_path / "libsmall_net.so", name="small_net")
    bridge = jni_library(networks, (tmp_path / "libsmall_net.so").read_bytes(), artifact.target.zig_target)
    (tmp_path / "libsmall_net_jni.so").write_bytes(bridge)
    (tmp_path / "classes.jar").write_bytes(class_archive(networks))
    with zipfile.ZipFile(tmp_path / "classes.jar") as archive:
        assert "nnefc/small_net/Network.class" in archive.namelist()
    assert java_source(networks)[0] == "nnefc/small_net/Network.java"
    (tmp_path / "Main.java").write_text(PROGRAM)
    run = ["java", "-cp", f"{tmp_path}/classes.jar", f"-Djava.library.path={tmp_path}", f"{tmp_path}/Main.java"]
    environment = {"LD_LIBRARY_PATH": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(run, capture_output=True, text=True, check=False, timeout=120, env=environment)
    assert done.returncode == 0, done.stderr
    row = "[0.0, 2.0, 0.0, 4.0, 0.0, 6.0, 0.0, 8.5]"
    assert done.stdout.splitlines() == [row, row, "input 0 has 8 elements"]


def test_archives_have_one_time_and_sorted_names() -> None:
    made = zip_archive({"b": b"2", "a": b"1"})
    assert made == zip_archive({"a": b"1", "b": b"2"})
    with zipfile.ZipFile(io.BytesIO(made)) as archive:
        assert [(entry.filename, entry.date_time[0]) for entry in archive.infolist()] == [("a", 1980), ("b", 1980)]
