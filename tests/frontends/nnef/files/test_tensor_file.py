"""Tensor files of both kinds: what is written is read, here and by the `nnef` package; nothing else is believed."""

import io
import struct

import nnef
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nnefc.frontends.nnef.files.tensor_file import ElementType, parse_tensor, read_tensor, write_tensor
from nnefc.support.diagnostics import CompileError

RNG = np.random.default_rng(15)
DTYPES = ["f2", "f4", "f8", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "?"]


def values(dtype, shape):
    if dtype == "?":
        return RNG.random(shape) < 0.5
    if dtype.startswith("f"):
        return RNG.standard_normal(shape).astype(dtype)
    info = np.iinfo(dtype)
    return RNG.integers(info.min, info.max, shape, dtype, endpoint=True)


def final(shape=(2, 3), bits=32, code=0, data=None, *, version=(1, 0), size=None, reserved=0, rank=None):
    data = bytes(range(256))[: int(np.prod(shape)) * bits // 8] if data is None else data
    sizes = [*shape, *[0] * (8 - len(shape))]
    size = len(data) if size is None else size
    rank = len(shape) if rank is None else rank
    header = struct.pack("<2s2B2I8I2I19I", b"\x4e\xef", *version, size, rank, *sizes, bits, code, reserved, *[0] * 18)
    return header + data


def provisional(shape=(2, 3), bits=32, code=0, data=None, *, algorithm=b"", length=None):
    data = np.arange(np.prod(shape), dtype="<f4").tobytes() if data is None else data
    length = 16 + 4 * len(shape) + len(algorithm) if length is None else length
    header = struct.pack(
        f"<2s2B2I{len(shape)}I2BH", b"\x4e\xef", 1, 0, length, len(shape), *shape, code, bits, len(algorithm)
    )
    return header + algorithm + data


def parse(content):
    return parse_tensor(np.frombuffer(content, np.uint8), "x.dat")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3,), (2, 3, 5), (1, 1, 2, 1, 3, 1, 1, 2), ()])
def test_a_written_array_is_read_back(tmp_path, dtype, shape):
    array = values(dtype, shape)
    write_tensor(tmp_path / "x.dat", array)
    stored = read_tensor(tmp_path / "x.dat")
    np.testing.assert_array_equal(stored.array, array)
    assert stored.array.dtype == array.dtype
    assert not stored.quantized


@pytest.mark.parametrize("dtype", DTYPES)
def test_files_are_the_same_to_the_nnef_package(tmp_path, dtype):
    array = values(dtype, (3, 5))
    write_tensor(tmp_path / "x.dat", array)
    with open(tmp_path / "x.dat", "rb") as file:
        theirs = nnef.read_tensor(file)
    np.testing.assert_array_equal(theirs, array)
    with open(tmp_path / "y.dat", "wb") as file:
        nnef.write_tensor(file, array)
    assert (tmp_path / "y.dat").read_bytes() == (tmp_path / "x.dat").read_bytes()


def test_quantized_elements_are_integers_with_a_mark(tmp_path):
    for dtype, element_type in (("u1", ElementType.QUANTIZED_UNSIGNED), ("i2", ElementType.QUANTIZED_SIGNED)):
        array = values(dtype, (4, 2))
        write_tensor(tmp_path / "x.dat", array, quantized=True)
        stored = read_tensor(tmp_path / "x.dat")
        assert stored.quantized
        assert stored.element_type is element_type
        np.testing.assert_array_equal(stored.array, array)
        with open(tmp_path / "x.dat", "rb") as file:
            theirs, quantized = nnef.read_tensor(file, return_quantization=True)
        assert quantized
        np.testing.assert_array_equal(theirs, array)


def test_single_bits_are_packed_from_the_most_significant_one():
    stored = parse(final((3, 3), 1, 5, bytes([0b10110010, 0b10000000])))
    assert stored.array.tolist() == [[True, False, True], [True, False, False], [True, False, True]]
    stored = parse(final((9,), 1, 2, bytes([0b10110010, 0b10000000])))
    assert stored.quantized
    assert stored.array.tolist() == [1, 0, 1, 1, 0, 0, 1, 0, 1]


def test_old_writers_mark_signed_integers_in_the_reserved_words():
    stored = parse(final((2,), 8, 1, b"\xff\x01", reserved=1))
    assert stored.element_type is ElementType.SIGNED
    assert stored.array.tolist() == [-1, 1]


def test_provisional_files_are_read():
    stored = parse(provisional())
    np.testing.assert_array_equal(stored.array, np.arange(6, dtype=np.float32).reshape(2, 3))
    # Data of 24 bytes is also the length of this header: the rest of the file tells the kinds apart.
    np.testing.assert_array_equal(parse(final((2, 3), data=np.ones(6, "<f4").tobytes())).array, np.ones((2, 3)))
    stored = parse(provisional((4,), 8, 1, bytes([0, 1, 2, 255]), algorithm=b"linear_quantize(-1.0, 1.0, bits = 8)"))
    assert stored.quantized
    assert stored.algorithm == "linear_quantize(-1.0, 1.0, bits = 8)"
    assert stored.array.tolist() == [0, 1, 2, 255]
    assert parse(provisional((2,), 16, 2, b"\xff\xff\x01\x00")).array.tolist() == [-1, 1]
    assert parse(provisional((2,), 16, 3, b"\xff\xff\x01\x00")).array.tolist() == [65535, 1]
    assert parse(provisional((10,), 1, 3, b"\xff\x40")).array.tolist() == [1] * 8 + [0, 1]


def test_provisional_files_of_the_nnef_package_are_read():
    from nnef.binary import _write_tensor_provisional

    array = values("f4", (2, 3, 4))
    file = io.BytesIO()
    file.seekable = lambda: False
    _write_tensor_provisional(file, array)
    np.testing.assert_array_equal(parse(file.getvalue()).array, array)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "does not begin with the bytes 4E EF"),
        (b"PNG" * 100, "does not begin with the bytes 4E EF"),
        (final(version=(2, 0)), "version 2.0"),
        (final()[:100], "the header alone 128"),
        (final()[:-1], "holds 23 bytes of data"),
        (final() + b"x", "holds 25 bytes of data"),
        (final(size=20), "says 20 bytes of data"),
        (final(rank=9), "rank is 9"),
        (final(rank=2**31), "rank is 2147483648"),
        (final((2**31, 2**31), data=b""), "take 18446744073709551616"),
        (final((0, 3)), "size of 0"),
        (final(code=9), "element type 9 is unknown"),
        (final(bits=24), "cannot be 24 bits wide"),
        (final(bits=8), "cannot be 8 bits wide"),
        (final(bits=1, code=4, data=b"x"), "cannot be 1 bits wide"),
        (final(bits=0, data=b""), "cannot be 0 bits wide"),
        (provisional()[:-4], "holds 20 bytes of data"),
        (provisional(code=7), "element type 7 is unknown"),
        (provisional((1,) * 100), "rank is 100"),
        (provisional((4,), 8, 1, b"abcd", algorithm=b"\xff\xfe"), "not ASCII"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "file",
)
def test_malformed_files_are_refused(content, message):
    with pytest.raises(CompileError, match=r"x\.dat") as caught:
        parse(content)
    assert message in str(caught.value)


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(CompileError, match="cannot read"):
        read_tensor(tmp_path / "none.dat")


def test_what_the_format_lacks_is_not_written(tmp_path):
    for array in (np.zeros([1] * 9), np.zeros(2, np.complex64), np.array(["text"])):
        with pytest.raises(ValueError, match="tensor file"):
            write_tensor(tmp_path / "x.dat", array)
    with pytest.raises(ValueError, match="quantized"):
        write_tensor(tmp_path / "x.dat", np.zeros(2, np.float32), quantized=True)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(
        [final(), provisional(), final((2, 2, 2), 8, 3), provisional((4,), 8, 1, b"abcd", algorithm=b"f()")]
    ),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=4),
    st.integers(-30, 30),
)
def test_damaged_files_are_refused_or_read_without_a_crash(content, changes, cut):
    damaged = bytearray(content[:cut] if cut < 0 else content + b"\0" * cut)
    for position, byte in changes:
        if position < len(damaged):
            damaged[position] = byte
    try:
        stored = parse(bytes(damaged))
    except CompileError:
        return
    assert stored.array.nbytes <= 8 * len(damaged)
