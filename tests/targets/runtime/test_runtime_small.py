"""Libraries that are compiled for size: they compute the same, and have no more than runs need."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import nnefc
from nnefc.driver.artifact import Artifact
from nnefc.loader import load
from nnefc.targets.link.elf_file import DYNAMIC, ElfFile

DIGITS = Path(__file__).parents[3] / "examples" / "digits" / "model.nnef"
SEAL_BYTES = 32  # the checksum that the loader looks at
IMAGE = np.random.default_rng(0).random((1, 1, 8, 8), np.float32)


@pytest.fixture(scope="module")
def digits() -> Artifact:
    return nnefc.compile(DIGITS, small=True)


@pytest.fixture(scope="module")
def library(digits: Artifact, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("small") / "digits.so"
    digits.export(path)
    return path


def gathering(folder: Path, size: int | str = 3) -> Path:
    """A network that reads rows of a table by numbers, which may be out of range."""
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "i"], ["y"])],
        "rows",
        [helper.make_tensor_value_info("i", TensorProto.INT64, [size])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [size, 2])],
        [numpy_helper.from_array(np.arange(8, dtype=np.float32).reshape(4, 2), "table")],
    )
    path = folder / "rows.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def test_it_computes_the_same(library: Path) -> None:
    expected = nnefc.compile(DIGITS, strict=True).run({"image": IMAGE})["probability"]
    with load(library) as model:
        np.testing.assert_allclose(model.run({"image": IMAGE})["probability"], expected, atol=1e-6)


def test_it_takes_a_third_of_the_room_without_the_trained_values(digits: Artifact, library: Path) -> None:
    trained = 4 * (16 * 9 + 16 + 32 * 16 * 9 + 32 + 512 * 10 + 10)
    assert trained <= digits.description.constant_bytes < trained + 128  # multiples of 64 bytes
    assert library.stat().st_size - digits.description.constant_bytes < 16_000  # of AVX-512, the longest code


@pytest.mark.slow
def test_digits_in_integers_take_24_kib_with_their_weights(tmp_path: Path) -> None:
    images = np.load(DIGITS.parent / "test.npz")["images"][:64].reshape(-1, 1, 1, 8, 8) / np.float32(16)
    options = {"target": "x86-64-v3", "precision": "int8", "calibrate": {"image": images}}
    default, small = (nnefc.compile(DIGITS, small=small, **options) for small in (False, True))
    small.export(tmp_path / "digits.so")
    assert (tmp_path / "digits.so").stat().st_size <= 24 << 10
    assert small.description.constant_bytes < 0.8 * default.description.constant_bytes  # no room for 16 columns of 10
    ours, others = (artifact.run({"image": images[0]})["probability"] for artifact in (small, default))
    np.testing.assert_allclose(ours, others, atol=1e-6)


def test_its_file_ends_with_the_last_segment(library: Path) -> None:
    file = ElfFile(np.fromfile(library, np.uint8), DYNAMIC)
    assert not file.image[0x28:0x30].any() and not file.image[0x3C:0x40].any()  # where, and how many, sections are
    loaded = file.segments[file.segments["type"] == 1]
    assert (loaded["offset"] + loaded["stored"]).max() + SEAL_BYTES == len(file.image)


def test_it_needs_no_threads_files_or_messages(library: Path) -> None:
    image = library.read_bytes()
    assert not [name for name in (b"pthread", b"printf", b"fopen", b"getenv", b"sched", b"is null") if name in image]


def test_what_goes_wrong_has_a_status_and_no_message(tmp_path: Path) -> None:
    with nnefc.compile(gathering(tmp_path), small=True).load() as model:
        with pytest.raises(nnefc.RunError, match="kernel error"):
            model.run({"i": np.int64([0, 4, 1])})
        assert model.run({"i": np.int64([0, 3, 1])})["y"].tolist() == [[0, 1], [6, 7], [2, 3]]


def test_sessions_in_several_threads_do_not_take_failures_for_their_own(tmp_path: Path) -> None:
    path = tmp_path / "rows.so"
    nnefc.compile(gathering(tmp_path), small=True).export(path)

    def runs(index: int) -> int:
        failures = 0
        with load(path) as model:
            for _ in range(500):
                try:
                    model.run({"i": np.int64([index, 0, 0])})
                except nnefc.RunError:
                    failures += 1
        return failures

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(runs, (4, 3))) == [500, 0]


def test_sizes_may_be_open(tmp_path: Path) -> None:
    with nnefc.compile(gathering(tmp_path, "n"), small=True).load() as model:
        for count in (1, 5, 2):
            assert model.run({"i": np.arange(count) % 4})["y"].shape == (count, 2)


@pytest.mark.parametrize(
    ("options", "message"), [({"profile": True}, "does not time"), ({"target": "cuda"}, "is not made small")]
)
def test_what_needs_more_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(nnefc.CompileError, match=message):
        nnefc.compile(DIGITS, small=True, **options)  # type: ignore[arg-type]
