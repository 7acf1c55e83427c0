"""JSON by orjson and by Python's own module."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from nnefc.loader import Tensor
from nnefc.serving import json_text
from nnefc.serving.json_text import parse_json, write_json
from nnefc.serving.run_requests import _json


@pytest.fixture(params=["orjson", "json"])
def module(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ModuleType | None:
    """What reads and writes JSON."""
    found = pytest.importorskip("orjson") if request.param == "orjson" else None
    monkeypatch.setattr(json_text, "orjson", found)
    return found


def test_the_same_texts_are_read(module: ModuleType | None) -> None:
    texts = [b'{"a": [1, -2.5e3, true, null, "\\u00e9"], "a": 2}', b"[NaN, -Infinity]", b'"\\ud800"']
    texts += [
        b"18446744073709551615",
        b"-9223372036854775808",
        b"1e400",
        "[1]".encode("utf-16"),
        b"\xef\xbb\xbf[1]",
        b"[1.0, 1]",
    ]
    for text in texts:
        for given in (text, bytearray(text), memoryview(text)):
            found, wanted = parse_json(given), json.loads(text)
            np.testing.assert_equal(found, wanted)
            assert str(found) == str(wanted)
    for text in (b"", b"[1,]", b"{1: 2}", b"\xff", b"[01]", b"1 2", b"[" * 100_000):
        with pytest.raises((ValueError, RecursionError)):
            parse_json(text)


def test_what_cannot_be_written_with_its_values_is_left_to_others(module: ModuleType | None) -> None:
    numbers = np.array([0.1, -0.0, 3e-45, 1e38], np.float32)
    if module is None:
        assert write_json(numbers) is None
        return
    text = write_json({"data": numbers})
    assert text is not None and b"[0.1," in text
    np.testing.assert_array_equal(np.array(json.loads(text)["data"], np.float32), numbers)
    for value in (np.array([np.nan]), np.array([np.inf], np.float32), np.array(["a"], object), np.eye(4)[:, 1], None):
        assert write_json({"data": value}) is None


@pytest.mark.parametrize("count", [0, 3, 5000])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "uint8", "bool", "string"])
def test_answers_have_the_values_of_outputs(module: ModuleType | None, dtype: str, count: int) -> None:
    values: Any = np.random.default_rng(0).standard_normal(count) * 9
    if dtype == "string":
        array = np.array([f"\u00e9{value}" for value in values], object)
    elif dtype == "bfloat16":
        array = (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
        values = (array.astype(np.uint32) << 16).view(np.float32)
    else:
        values = array = np.abs(values).astype(dtype)
    if dtype == "float32" and count:
        array[1] = np.nan
    listed = [{"name": "raw"}, {"name": "y"}]
    found = json.loads(_json({"id": "null"}, listed, {1: (Tensor("y", dtype, (count,)), array)}))
    assert json.loads(_json({"id": "7"}, [], {})) == {"id": "7", "outputs": []}
    assert found["id"] == "null" and found["outputs"][0] == {"name": "raw"}
    if dtype == "string":
        assert found["outputs"][1]["data"] == array.tolist()
    else:
        np.testing.assert_array_equal(np.array(found["outputs"][1]["data"], values.dtype), values)
