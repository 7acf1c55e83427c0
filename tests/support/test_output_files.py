"""Output files: whole or not at all, and the messages about disks that cannot be written."""

from __future__ import annotations

import errno
import os
import re
import tempfile
from pathlib import Path

import pytest

from nnefc.support.diagnostics import CompileError
from nnefc.support.output_files import (
    check_folder,
    output_folder,
    temporary_errors,
    temporary_folder,
    write_text,
    write_together,
    written_whole,
)


@pytest.mark.parametrize(
    ("number", "hint"),
    [
        (errno.ENOSPC, "has .* free: make room there"),
        (errno.EDQUOT, "your quota on .* is used up, of whose disk .* are free"),
        (errno.EROFS, "is read-only, with .* free: write to another folder"),
        (errno.EACCES, "you have no permission to write to .*, with .* free"),
        (errno.EPERM, "you have no permission to write to .*, with .* free"),
    ],
)
def test_an_error_of_a_disk_names_the_file_the_reason_and_the_free_space(
    number: int, hint: str, tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    with pytest.raises(CompileError) as caught, written_whole(path) as new:
        new.write_text("half")
        raise OSError(number, os.strerror(number))
    assert caught.value.message == f"cannot write {path}: {os.strerror(number)}"
    assert caught.value.hint is not None
    assert re.search(hint, caught.value.hint)
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    assert path.read_text() == "old"


def test_an_interruption_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    with pytest.raises(KeyboardInterrupt), written_whole(path) as new:
        new.write_text("half")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_new_folders_that_stay_empty_are_removed(tmp_path: Path) -> None:
    for error in (KeyboardInterrupt, CompileError("no such model")):
        with pytest.raises((KeyboardInterrupt, CompileError)), output_folder(tmp_path / "made" / "inner"):
            raise error
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "old").mkdir()
    with pytest.raises(KeyboardInterrupt), output_folder(tmp_path / "old" / "new") as folder:
        (folder / "first").touch()
        raise KeyboardInterrupt
    assert [file.name for file in (tmp_path / "old" / "new").iterdir()] == ["first"]


def test_a_folder_that_cannot_be_made_is_an_error_before_anything_is_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(CompileError, match=r"cannot write .*file/made/inner: "):
        check_folder(tmp_path / "file" / "made" / "inner")
    check_folder(tmp_path / "made" / "inner")
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_link_keeps_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "page")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "page").read_text() == "new"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="Linux alone has a device that is always full")
def test_a_device_is_written_to_and_not_replaced() -> None:
    with pytest.raises(CompileError, match="cannot write /dev/full: No space left on device"):
        write_text(Path("/dev/full"), "text" * 10000)


def test_errors_of_files_that_are_written_together_name_the_folder(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "a").write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(CompileError, match=f"cannot write {tmp_path}: No space"):
        write_together(tmp_path, fail)
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_temporary_files_names_their_folder_and_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(CompileError) as caught, temporary_folder("nnefc-") as folder:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder / "x"))
    assert caught.value.message == f"cannot write temporary files to {tmp_path}: No space left on device"
    assert "TMPDIR" in (caught.value.hint or "")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(CompileError, match="none: it does not exist"), temporary_folder("nnefc-"):
        pass


def test_errors_of_other_files_are_not_those_of_temporary_ones(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="elsewhere"), temporary_folder("nnefc-"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "elsewhere"))


def test_where_no_temporary_file_can_be_written_the_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setattr(tempfile, "gettempdir", fail)
    with pytest.raises(CompileError, match="no folder that temporary files can be written to"), temporary_errors():
        pass
