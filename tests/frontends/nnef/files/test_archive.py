"""Folders, archives and single documents; nothing leads out of a model."""

import gzip
import io
import os
import tarfile

import numpy as np
import pytest

from nnefc.frontends import compressed
from nnefc.frontends.nnef.files.archive import open_model
from nnefc.support.diagnostics import CompileError

TEXT = "version 1.0;\ngraph g(x) -> (y)\n{\n}\n"


def tar(members, mode="w", links=()):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as packed:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            packed.addfile(info, io.BytesIO(content))
        for name, target, kind in links:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, target
            packed.addfile(info)
    return file.getvalue()


MEMBERS = [("graph.nnef", TEXT.encode()), ("a/b.dat", b"12345"), ("graph.quant", b"# none")]


@pytest.mark.parametrize("mode", ["w", "w:gz"])
@pytest.mark.parametrize("prefix", ["", "./", "model/"])
def test_archives_are_read_in_place(tmp_path, mode, prefix):
    path = tmp_path / "model.tgz"
    path.write_bytes(tar([(prefix + name, content) for name, content in MEMBERS], mode))
    with open_model(path) as files:
        assert files.text() == TEXT
        assert files.find("a/b.dat").tobytes() == b"12345"
        assert files.find("a/c.dat") is None
        assert files.quantization() == "# none"
        assert str(path) in files.document
    assert sorted(p.name for p in tmp_path.iterdir()) == ["model.tgz"]


def test_folders_and_documents_are_read(tmp_path):
    (tmp_path / "graph.nnef").write_text(TEXT)
    (tmp_path / "other.nnef").write_text(TEXT + "# other\n")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b.dat").write_bytes(b"12345")
    for path, text in ((tmp_path, TEXT), (tmp_path / "other.nnef", TEXT + "# other\n")):
        with open_model(path) as files:
            assert files.text() == text
            assert files.find("a/b.dat").tobytes() == b"12345"
            assert files.quantization() is None


def test_folders_know_what_was_asked_for(tmp_path):
    (tmp_path / "part").mkdir()
    (tmp_path / "graph.nnef").write_text(TEXT)
    (tmp_path / "part" / "graph.nnef").write_text(TEXT)
    with open_model(tmp_path) as files:
        assert files.asked == ()
        files.find("./w.dat")
        files.inner("part").find("w.dat")
        assert files.inner("none") is None
        assert {"w.dat", "part/graph.nnef", "part/w.dat", "none.nnef.tgz"} <= set(files.asked)


def test_several_compressed_parts_are_one_archive(tmp_path):
    whole = tar(MEMBERS)
    (tmp_path / "m.tgz").write_bytes(gzip.compress(whole[:1000]) + gzip.compress(whole[1000:]))
    with open_model(tmp_path / "m.tgz") as files:
        assert files.text() == TEXT


@pytest.mark.parametrize(
    ("members", "links", "message"),
    [
        ([("../graph.nnef", b"")], [], "leads out of it"),
        ([*MEMBERS, ("a/../../b", b"")], [], "leads out of it"),
        ([*MEMBERS, ("/etc/passwd", b"")], [], "leads out of it"),
        (MEMBERS, [("c.dat", "/etc/passwd", tarfile.SYMTYPE)], "not an ordinary file"),
        (MEMBERS, [("c.dat", "graph.nnef", tarfile.LNKTYPE)], "not an ordinary file"),
        (MEMBERS, [("c.dat", "", tarfile.FIFOTYPE)], "not an ordinary file"),
        ([*MEMBERS, ("a/b.dat", b"")], [], "holds 'a/b.dat' twice"),
        ([*MEMBERS, ("a/./b.dat", b"")], [], "holds 'a/b.dat' twice"),
        ([("x", b"")], [], "it holds none"),
        ([("a/graph.nnef", b""), ("b/graph.nnef", b"")], [], "it holds 2"),
        ([("graph.nnef", b"\xff\xfe")], [], "byte 0 is not UTF-8"),
    ],
)
def test_unsafe_archives_are_refused(tmp_path, members, links, message):
    (tmp_path / "m.tar").write_bytes(tar(members, links=links))
    with pytest.raises(CompileError) as caught, open_model(tmp_path / "m.tar") as files:
        files.text()
    assert message in str(caught.value)


def test_sizes_beyond_the_archive_are_refused(tmp_path):
    content = bytearray(tar([("graph.nnef", b"x" * 2000)]))
    (tmp_path / "m.tar").write_bytes(content[:1024])
    with pytest.raises(CompileError, match=r"m\.tar"), open_model(tmp_path / "m.tar"):
        pass


def test_headers_that_speak_of_each_other_without_end_are_refused(tmp_path):
    header = tarfile.TarInfo("././@LongLink")
    header.type = tarfile.GNUTYPE_LONGNAME
    (tmp_path / "m.tar").write_bytes(header.tobuf(tarfile.GNU_FORMAT) * 2000 + tar(MEMBERS))
    with pytest.raises(CompileError, match="headers for one member"), open_model(tmp_path / "m.tar"):
        pass


def test_compressed_bombs_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(compressed, "MIN_UNPACKED_BYTES", 1 << 20)
    (tmp_path / "m.tgz").write_bytes(gzip.compress(tar([("graph.nnef", bytes(1 << 24))])))
    with pytest.raises(CompileError, match="unpacks to more"), open_model(tmp_path / "m.tgz"):
        pass


@pytest.mark.parametrize("cut", [10, 50, 100, -1])
def test_damaged_compression_is_refused(tmp_path, cut):
    (tmp_path / "m.tgz").write_bytes(tar(MEMBERS, "w:gz")[:cut])
    with pytest.raises(CompileError, match=r"m\.tgz"), open_model(tmp_path / "m.tgz"):
        pass


def test_damaged_archives_are_refused_or_read(tmp_path):
    rng, whole = np.random.default_rng(16), tar(MEMBERS)
    for _ in range(200):
        damaged = bytearray(whole)
        for position in rng.integers(0, 3000, 3):
            damaged[position] = rng.integers(256)
        (tmp_path / "m.tar").write_bytes(damaged)
        try:
            with open_model(tmp_path / "m.tar") as files:
                files.text()
        except CompileError:
            pass


@pytest.mark.parametrize("name", ["../secret.dat", "/etc/passwd", "a/../../secret.dat", "a\\b", "a\0b"])
def test_names_stay_inside_the_folder(tmp_path, name):
    (tmp_path / "secret.dat").write_bytes(b"1")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "graph.nnef").write_text(TEXT)
    with open_model(tmp_path / "model") as files, pytest.raises(CompileError, match="leads out"):
        files.find(name)


def test_links_out_of_the_folder_are_refused(tmp_path):
    (tmp_path / "secret.dat").write_bytes(b"1")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "graph.nnef").write_text(TEXT)
    os.symlink(tmp_path / "secret.dat", tmp_path / "model" / "a.dat")
    with open_model(tmp_path / "model") as files, pytest.raises(CompileError, match="link out of"):
        files.find("a.dat")


@pytest.mark.parametrize("what", ["none", "empty", "folder"])
def test_missing_models_are_errors(tmp_path, what):
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "folder").mkdir()
    with pytest.raises(CompileError, match=what), open_model(tmp_path / what) as files:
        files.text()


def test_names_that_are_cut_off_behind_a_slash_are_files(tmp_path):
    """As tract writes them: an ordinary file of the oldest kind, whose whole name is in a block before it."""
    name = "a" * 99 + "/" + "b" * 30 + ".dat"
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for each, content in ((name, b"c" * 300), ("graph.nnef", b"version 1.0;")):
            member = tarfile.TarInfo(each)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    data = bytearray(made.getvalue())
    header = memoryview(data)[1024:1536]  # after the long name: its own header, and its text
    assert bytes(header[99:101]) == b"/" + header[100:101] and header[156] == ord("0")
    header[156] = 0
    header[148:156] = b" " * 8
    header[148:156] = f"{sum(header):06o}\0 ".encode()
    (tmp_path / "m.tar").write_bytes(data)
    with open_model(tmp_path / "m.tar") as files:
        found = files.find(name)
        assert found is not None and found.tobytes() == b"c" * 300
        assert files.text() == "version 1.0;"
