"""Writes a document atomically to files: a folder, or an archive of one.

model.nnef/graph.nnef, model.nnef/conv1.weight.dat, …       model.nnef.tgz
"""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from nnefc.frontends.file_names import NNEF_DOCUMENT, NNEF_QUANTIZATION
from nnefc.frontends.nnef.files.tensor_file import write_tensor
from nnefc.frontends.nnef.flat import print_flat, print_fragment
from nnefc.frontends.nnef.properties import spelled_comments, spelled_properties
from nnefc.frontends.nnef.writing.network import Written
from nnefc.support.diagnostics import CompileError
from nnefc.support.output_files import scratch_next_to

__all__ = ["check_output", "write_files", "write_model"]

_ARCHIVES = {".tgz": "gz", ".tar.gz": "gz", ".tar": ""}


def _compression(output: Path) -> str | None:
    """How an archive is compressed, "" for not at all; None for a folder."""
    return next((how for suffix, how in _ARCHIVES.items() if output.name.lower().endswith(suffix)), None)


def check_output(output: Path) -> None:
    """Say before the work that a model cannot be written there.

    Raises:
        CompileError: there is no folder for it, or something else that must not be replaced.
    """
    parent = output.parent
    if not parent.is_dir():
        raise CompileError(
            f"cannot write {output}: there is no folder {parent}", hint=f"make it first: mkdir -p {parent}"
        )
    if _compression(output) is not None:
        if output.exists() and not output.is_file():
            raise CompileError(f"cannot write {output}: it exists and is not a regular file")
    elif output.is_dir():
        if any(output.iterdir()) and not (output / NNEF_DOCUMENT).is_file():
            raise CompileError(
                f"cannot write {output}: it is a folder with other files in it, and would be replaced",
                hint="give the name of a new folder, or of an archive, such as model.nnef.tgz",
            )
    elif output.exists():
        raise CompileError(
            f"cannot write {output}: it is a file, and the model would be a folder",
            hint="give another name, or that of an archive, such as model.nnef.tgz",
        )


def write_model(written: Written, output: Path) -> None:
    """Write the model; what was there is replaced in the end.

    Raises:
        CompileError: it cannot be written.
    """
    _write_at(lambda folder: _write_folder(written, folder), output)


def write_files(document: str, tensors: Iterable[tuple[str, Iterable[bytes]]], output: Path) -> None:
    """Writes a document and its tensors, one after the other; what was there is replaced in the end.

    Args:
        document: its text.
        tensors: the label of each, and the parts of its file.
        output: a folder, or an archive by the end of its name.

    Raises:
        CompileError: it cannot be written.
    """

    def write(folder: Path) -> None:
        folder.mkdir()
        (folder / NNEF_DOCUMENT).write_text(document, encoding="utf-8")
        for label, parts in tensors:
            with (folder / f"{label}.dat").open("wb") as file:
                file.writelines(parts)

    _write_at(write, output)


def _write_at(write: Callable[[Path], None], output: Path) -> None:
    """Writes a folder next to the output, and puts it there, or an archive of it."""
    check_output(output)
    with scratch_next_to(output) as scratch:
        folder = scratch / "model"
        write(folder)
        compression = _compression(output)
        if compression is None:
            _replace_folder(folder, output, scratch / "old")
        else:
            archive = scratch / "archive"
            _write_archive(folder, archive, compression)
            os.replace(archive, output)


def _write_folder(written: Written, folder: Path) -> None:
    folder.mkdir()
    (folder / NNEF_DOCUMENT).write_text(document_text(written), encoding="utf-8")
    if written.quantization:
        (folder / NNEF_QUANTIZATION).write_text(written.quantization, encoding="utf-8")
    for label, array in written.values.items():
        path = folder / f"{label}.dat"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_tensor(path, array, quantized=label in written.coded)


def document_text(written: Written) -> str:
    """The document, with what the model says of itself, and a comment for each tensor that it calls by another name."""
    renamed = "".join(f"# {name} is {_printable(own)}\n" for name, own in written.renamed.items())
    first, tail = print_flat(written.graph).split("\n", 1)
    if written.extensions:  # in tract's dialect
        renamed += ("\n" if renamed and written.metadata else "") + spelled_properties(written.metadata)
    else:
        renamed = spelled_comments(written.metadata) + renamed
    if written.fragments:
        head, graph, body = tail.partition("graph ")
        tail = "".join([head, *map(print_fragment, written.fragments), graph, body])
    extensions = "".join(f"extension {extension};\n" for extension in written.extensions)
    return f"{first}\n{extensions}{tail}" if not renamed else f"{first}\n{extensions}\n{renamed}{tail}"


def _printable(name: str) -> str:
    """A name in a comment, which ends with its line."""
    return repr(name)


def _replace_folder(folder: Path, output: Path, old: Path) -> None:
    if output.is_dir():
        os.replace(output, old)
    os.replace(folder, output)
    if old.is_dir():
        shutil.rmtree(old, ignore_errors=True)


def _write_archive(folder: Path, archive: Path, compression: str) -> None:
    """Writes a reproducible archive: without times and owners, and sorted."""
    with _opened(archive, compression) as tar:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            member = tarfile.TarInfo(path.relative_to(folder).as_posix())
            member.size, member.mode = path.stat().st_size, 0o644
            with path.open("rb") as file:
                tar.addfile(member, file)


@contextmanager
def _opened(archive: Path, compression: str) -> Iterator[tarfile.TarFile]:
    if not compression:
        with tarfile.open(archive, "w", format=tarfile.GNU_FORMAT) as tar:
            yield tar
        return
    with (
        archive.open("wb") as file,
        gzip.GzipFile("", "wb", 6, file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        yield tar
