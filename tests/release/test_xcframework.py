"""The XCFramework: its parts, and that each library says what it is for, by which name, and is signed as it is."""

from __future__ import annotations

import plistlib
import struct
from pathlib import Path

import pytest
from mach_o import broken_pages, commands, undefined_names
from xcframework import PLATFORMS, Platform, for_platform, write_xcframework

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "model.nnef"
SYSTEM = {
    *("__cxa_atexit", "__error", "__extendhfsf2", "__memcpy_chk", "__truncsfhf2", "bzero", "calloc", "clock_gettime"),
    *("free", "getenv", "getpid", "malloc", "memcpy", "memset", "posix_memalign", "snprintf", "strcmp", "strlen"),
    *("strtol", "sysconf", "sysctlbyname", "vsnprintf"),
}
"""What libraries call of libSystem besides threads: functions of C, of POSIX, and of its compiler."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("apple") / "digits.xcframework"
    write_xcframework(DIGITS, path)
    return path


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda platform: platform.folder)
def test_a_library_for_each_platform(made: Path, platform: Platform) -> None:
    framework = made / platform.folder / "digits.framework"
    data = (framework / "digits").read_bytes()
    found = commands(data)
    version = platform.oldest[0] << 16 | platform.oldest[1] << 8
    assert struct.unpack_from("<III", found[0x32], 8) == (platform.number, version, version)
    called = {name.removeprefix("_") for name in undefined_names(data) - {"dyld_stub_binder"}}
    assert {name for name in called if not name.startswith("pthread_")} <= SYSTEM
    name = found[0xD][struct.unpack_from("<I", found[0xD], 8)[0] :].rstrip(b"\0").decode()
    assert (made / platform.folder / name.removeprefix("@rpath/")).read_bytes() == data
    assert broken_pages(data) == []
    resources = framework / "Resources" if platform.name == "macos" else framework
    about = plistlib.loads((resources / "Info.plist").read_bytes())
    assert (about["CFBundleExecutable"], about["CFBundlePackageType"]) == ("digits", "FMWK")
    assert (framework / "Headers" / "nnefc.h").is_file()


def test_the_list_names_every_folder(made: Path) -> None:
    listed = plistlib.loads((made / "Info.plist").read_bytes())
    assert listed["CFBundlePackageType"] == "XFWK"
    for library in listed["AvailableLibraries"]:
        assert (made / library["LibraryIdentifier"] / library["LibraryPath"]).is_dir()


def test_names_that_c_does_not_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a name"):
        write_xcframework(DIGITS, tmp_path / "my-digits.xcframework")


def test_a_library_without_a_load_command_is_refused() -> None:
    empty = struct.pack("<8I", 0xFEEDFACF, *[0] * 7)
    with pytest.raises(ValueError, match="no load command 0x32"):
        for_platform(empty, PLATFORMS[0], "name")


def test_the_same_model_gives_the_same_files_and_a_folder_that_is_there_is_kept(made: Path, tmp_path: Path) -> None:
    again = tmp_path / made.name
    write_xcframework(DIGITS, again)
    files = [path.relative_to(made) for path in sorted(made.rglob("*")) if path.is_file()]
    assert files == [path.relative_to(again) for path in sorted(again.rglob("*")) if path.is_file()]
    assert all((made / file).read_bytes() == (again / file).read_bytes() for file in files)
    with pytest.raises(ValueError, match="is there already"):
        write_xcframework(DIGITS, again)
    assert list(tmp_path.iterdir()) == [again]
