"""Data of tensors in files next to the model: ranges, checksums, and paths that would lead elsewhere."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx_models import loaded, model, node, results

from nnefc.support.diagnostics import CompileError

W = np.arange(6, dtype=np.float32).reshape(2, 3)
X = np.ones((2, 3), np.float32)


def external(shape: tuple[int, ...] = (2, 3), **entries: str) -> onnx.ModelProto:
    """`y = x + w`, the data of `w` as the entries say."""
    w = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, value in entries.items():
        w.external_data.add(key=key, value=value)
    return model([node("Add", ["x", "w"], ["y"])], None, None, [w])


def message_of(proto: onnx.ModelProto, folder: Path) -> str:
    with pytest.raises(CompileError) as caught:
        loaded(proto, folder)
    assert "the initializer 'w'" in str(caught.value)
    return str(caught.value)


def test_data_is_read_at_its_offset(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(b"12345" + W.tobytes() + b"678")
    proto = external(location="data.bin", offset="5", length="24")
    np.testing.assert_array_equal(results(loaded(proto, tmp_path), x=X)["y"], X + W)


def test_offset_and_length_may_be_missing(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "data.bin").write_bytes(W.tobytes())
    np.testing.assert_array_equal(results(loaded(external(location="sub/data.bin"), tmp_path), x=X)["y"], X + W)


def test_what_onnx_writes_is_read(tmp_path: Path) -> None:
    proto = model([node("Add", ["x", "w"], ["y"])], None, None, [onnx.numpy_helper.from_array(W, "w")])
    path = tmp_path / "model.onnx"
    onnx.save(proto, path, save_as_external_data=True, location="all.bin", size_threshold=0)
    from nnefc.frontends.onnx import load

    np.testing.assert_array_equal(results(load(path), x=X)["y"], X + W)


def test_checksums_are_checked(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(W.tobytes())
    digest = hashlib.sha1(W.tobytes()).hexdigest()
    loaded(external(location="data.bin", checksum=digest.upper()), tmp_path)
    wrong = digest[:-1] + ("0" if digest[-1] != "0" else "1")
    assert f"SHA-1 digest {digest}" in message_of(external(location="data.bin", checksum=wrong), tmp_path)
    assert "not a SHA-1 digest" in message_of(external(location="data.bin", checksum="abc"), tmp_path)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({}, "not a path"),
        ({"location": ""}, "not a path"),
        ({"location": "."}, "leads out"),
        ({"location": "none.bin"}, "cannot be read: No such file"),
        ({"location": "folder"}, "not a regular file"),
        ({"location": "data.bin", "offset": "-1"}, "offset as '-1'"),
        ({"location": "data.bin", "offset": "0x4"}, "offset as '0x4'"),
        ({"location": "data.bin", "offset": "9" * 30}, "not as a number of bytes"),
        ({"location": "data.bin", "offset": "1"}, "ends at byte 25 of data.bin, which has 24"),
        ({"location": "data.bin", "offset": str(1 << 62)}, "which has 24"),
        ({"location": "data.bin", "length": "23"}, "needs 24 bytes, its 'length' in data.bin is 23"),
        ({"location": "data.bin", "length": "many"}, "length as 'many'"),
        ({"location": "../data.bin"}, "not a path inside the model's folder"),
        ({"location": "a/../../data.bin"}, "not a path inside the model's folder"),
        ({"location": "..\\data.bin"}, "not a path inside the model's folder"),
        ({"location": "/etc/passwd"}, "not a path inside the model's folder"),
        ({"location": "a\0b"}, "not a path inside the model's folder"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, entries: dict[str, str], message: str) -> None:
    (tmp_path / "data.bin").write_bytes(W.tobytes())
    (tmp_path / "folder").mkdir()
    assert message in message_of(external(**entries), tmp_path)


def test_symbolic_links_must_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    inside, outside = tmp_path / "model", tmp_path / "secret.bin"
    inside.mkdir()
    outside.write_bytes(W.tobytes())
    (inside / "link.bin").symlink_to(outside)
    (inside / "up").symlink_to(tmp_path)
    (inside / "loop").symlink_to("loop")
    for location in ("link.bin", "up/secret.bin"):
        assert "leads out of the model's folder" in message_of(external(location=location), inside)
    assert "lead in a circle" in message_of(external(location="loop"), inside)


def test_symbolic_links_inside_the_folder_are_followed(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(W.tobytes())
    (tmp_path / "link.bin").symlink_to("data.bin")
    np.testing.assert_array_equal(results(loaded(external(location="link.bin"), tmp_path), x=X)["y"], X + W)


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "not a regular file" in message_of(external(location="pipe"), tmp_path)


def test_data_must_not_be_in_the_model_too(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(W.tobytes())
    proto = external(location="data.bin")
    proto.graph.initializer[0].raw_data = W.tobytes()
    assert "and in the field raw_data too" in message_of(proto, tmp_path)


def test_keys_must_not_be_given_twice(tmp_path: Path) -> None:
    (tmp_path / "data.bin").write_bytes(W.tobytes())
    proto = external(location="data.bin")
    proto.graph.initializer[0].external_data.add(key="location", value="other.bin")
    assert "'location' of its data twice" in message_of(proto, tmp_path)


def test_models_may_have_more_than_two_gigabytes(tmp_path: Path) -> None:
    """The file is sparse: it takes no room, and only what is used of it is read."""
    rows, width = 20_000, 30_000
    begin = rows * width * 4
    with (tmp_path / "large.bin").open("wb") as file:
        file.truncate(begin + 24)
        file.seek(begin)
        file.write(W.tobytes())
    proto = external(location="large.bin", offset=str(begin))
    large = TensorProto(name="t", data_type=TensorProto.FLOAT, dims=(rows, width))
    large.data_location = TensorProto.EXTERNAL
    large.external_data.add(key="location", value="large.bin")
    proto.graph.initializer.append(large)
    proto.graph.node.insert(0, node("Shape", ["t"], ["s"]))
    np.testing.assert_array_equal(results(loaded(proto, tmp_path), x=X)["y"], X + W)


def test_files_of_two_gigabytes_are_no_messages(tmp_path: Path) -> None:
    from nnefc.frontends.onnx import load

    path = tmp_path / "large.onnx"
    with path.open("wb") as file:
        file.truncate(1 << 31)
    with pytest.raises(CompileError, match="2 GB or more"):
        load(path)
