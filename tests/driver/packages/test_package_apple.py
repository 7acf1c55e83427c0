"""XCFrameworks and Swift packages: the files, what each library says it is for, and its signature."""

from __future__ import annotations

import plistlib
import struct
from pathlib import Path

import pytest
from mach_o import broken_pages, commands, undefined_names

import nnefc
from nnefc.support.diagnostics import CompileError

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "model.nnef"
SYSTEM = {
    *("__cxa_atexit", "__error", "__extendhfsf2", "__memcpy_chk", "__truncsfhf2", "bzero", "calloc", "clock_gettime"),
    *("free", "getenv", "getpid", "malloc", "memcpy", "memset", "mmap", "munmap", "posix_memalign", "snprintf"),
    *("strcmp", "strlen", "strtol", "sysconf", "sysctlbyname", "vsnprintf"),
}
"""What libraries call of libSystem besides threads: functions of C, of POSIX, and of its compiler."""

PLATFORMS = {  # folder → number, oldest version
    "ios-arm64": (2, (14, 0)),
    "ios-arm64-simulator": (7, (14, 0)),
    "ios-arm64-maccatalyst": (6, (14, 0)),
    "macos-arm64": (1, (11, 0)),
}


@pytest.fixture(scope="module")
def swift_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("apple") / "digits"
    nnefc.package(DIGITS, "swift-package", path, version="1.2.3")
    return path


@pytest.mark.parametrize("platform", PLATFORMS)
def test_a_library_for_each_platform(swift_package: Path, platform: str) -> None:
    made = swift_package / "digits.xcframework"
    framework = made / platform / "digits.framework"
    data = (framework / "digits").read_bytes()
    found = commands(data)
    number, oldest = PLATFORMS[platform]
    version = oldest[0] << 16 | oldest[1] << 8
    assert struct.unpack_from("<III", found[0x32], 8) == (number, version, version)
    called = {name.removeprefix("_") for name in undefined_names(data) - {"dyld_stub_binder"}}
    assert {name for name in called if not name.startswith("pthread_")} <= SYSTEM
    name = found[0xD][struct.unpack_from("<I", found[0xD], 8)[0] :].rstrip(b"\0").decode()
    assert (made / platform / name.removeprefix("@rpath/")).read_bytes() == data
    assert broken_pages(data) == []
    is_versioned = (framework / "Versions").is_dir()
    assert is_versioned == (platform in ("macos-arm64", "ios-arm64-maccatalyst"))
    resources = framework / "Resources" if is_versioned else framework
    about = plistlib.loads((resources / "Info.plist").read_bytes())
    assert (about["CFBundleExecutable"], about["CFBundlePackageType"]) == ("digits", "FMWK")
    assert about["CFBundleShortVersionString"] == "1.2.3"
    privacy = plistlib.loads((resources / "PrivacyInfo.xcprivacy").read_bytes())
    assert privacy["NSPrivacyTracking"] is False
    assert (framework / "Headers" / "nnefc.h").is_file()
    assert "framework module digits" in (framework / "Modules" / "module.modulemap").read_text()


def test_the_list_names_every_folder(swift_package: Path) -> None:
    made = swift_package / "digits.xcframework"
    listed = plistlib.loads((made / "Info.plist").read_bytes())
    assert listed["CFBundlePackageType"] == "XFWK"
    assert {library["LibraryIdentifier"] for library in listed["AvailableLibraries"]} == set(PLATFORMS)
    variants = {
        library["LibraryIdentifier"]: library.get("SupportedPlatformVariant")
        for library in listed["AvailableLibraries"]
    }
    assert variants["ios-arm64-simulator"] == "simulator"
    assert variants["ios-arm64-maccatalyst"] == "maccatalyst"
    for library in listed["AvailableLibraries"]:
        assert (made / library["LibraryIdentifier"] / library["LibraryPath"]).is_dir()
        assert (made / library["LibraryIdentifier"] / library["BinaryPath"]).is_file()


def test_a_swift_package_names_its_parts(swift_package: Path) -> None:
    manifest = (swift_package / "Package.swift").read_text()
    assert manifest.startswith("// swift-tools-version:")
    assert '.binaryTarget(name: "digits", path: "digits.xcframework")' in manifest
    assert '.target(name: "DigitsNetwork", dependencies: ["digits"])' in manifest
    source = (swift_package / "Sources" / "DigitsNetwork" / "Network.swift").read_text()
    header = (
        swift_package / "digits.xcframework" / "ios-arm64" / "digits.framework" / "Headers" / "digits.h"
    ).read_text()
    assert source.startswith("import digits\n")
    functions = [f"digits_{name}" for name in ("describe", "create", "run", "destroy", "last_error")]
    for name in (*functions, "NNEFC_FLOAT32", "nnefc_options"):
        assert name in source
        assert name in header


@pytest.mark.slow
def test_the_same_model_gives_the_same_files_and_a_folder_that_is_there_is_kept(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        path = tmp_path / name / "digits.xcframework"
        nnefc.package(DIGITS, "xcframework", path, targets=["aarch64-macos"])
    first, again = (tmp_path / name / "digits.xcframework" for name in ("one", "two"))
    files = [path.relative_to(first) for path in sorted(first.rglob("*")) if path.is_file()]
    assert files == [path.relative_to(again) for path in sorted(again.rglob("*")) if path.is_file()]
    assert all((first / file).read_bytes() == (again / file).read_bytes() for file in files)
    with pytest.raises(CompileError, match="it exists"):
        nnefc.package(DIGITS, "xcframework", again)
    assert list((tmp_path / "two").iterdir()) == [again]
