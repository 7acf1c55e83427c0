"""Tensors in memory that a client shares with the server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served_networks import get, post, serving

INFER = "/v2/models/rows/infer"
REGIONS = "/v2/systemsharedmemory"
X = np.arange(6, dtype=np.float32).reshape(2, 3)

pytestmark = pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="needs: shared memory as files")


@pytest.fixture
def memory() -> Iterator[Path]:
    """An object of 4,096 bytes, with two tensors from byte 64 on."""
    path = Path("/dev/shm", f"nnefc-test-{os.getpid()}")
    path.write_bytes(bytes(64) + X.tobytes() + X.tobytes() + bytes(4096 - 64 - 48))
    try:
        yield path
    finally:
        path.unlink()


def within(offset: int, size: int) -> dict[str, Any]:
    return {"shared_memory_region": "part", "shared_memory_offset": offset, "shared_memory_byte_size": size}


def request(**changes: Any) -> dict[str, Any]:
    one = {"datatype": "FP32", "shape": [2, 3]}
    inputs = [one | {"name": n, "parameters": within(24 * i, 24) | changes} for i, n in enumerate("xy")]
    outputs = [{"name": "product", "parameters": within(100, 24)}, {"name": "total"}]
    return {"inputs": inputs, "outputs": outputs}


def test_inputs_and_outputs_in_shared_memory(memory: Path, libraries: dict[str, Path]) -> None:
    with serving({"rows": libraries["rows"]}, shared_memory=True) as server:
        part = {"key": f"/{memory.name}", "offset": 64, "byte_size": 1024}
        assert post(server, f"{REGIONS}/region/part/register", part) == (200, {})
        assert get(server, f"{REGIONS}/status") == (200, [{"name": "part"} | part])
        assert "system_shared_memory" in get(server, "/v2")[1]["extensions"]
        status, reply = post(server, INFER, request())
        assert status == 200, reply
        product, total = reply["outputs"]
        assert product["parameters"] == within(100, 24) and "data" not in product
        assert total["data"] == (X * X).sum(axis=1).tolist()
        np.testing.assert_array_equal(np.fromfile(memory, np.float32, 6, offset=164).reshape(2, 3), X * X)

        for changes in (
            {"shared_memory_region": "other"},
            {"shared_memory_byte_size": 20},
            {"shared_memory_offset": 1020},
            {"shared_memory_offset": -1},
            {"shared_memory_byte_size": "24"},
        ):
            assert post(server, INFER, request(**changes))[0] == 400
        os.truncate(memory, 80)  # which must not end the server
        assert "has become smaller" in post(server, INFER, request())[1]["error"]
        assert post(server, f"{REGIONS}/region/part/unregister", b"") == (200, {})
        assert get(server, f"{REGIONS}/region/part/status")[0] == 400
        assert post(server, f"{REGIONS}/unregister", b"")[0] == 200


@pytest.mark.parametrize(
    "given",
    [
        {"key": "../etc/passwd", "byte_size": 1},
        {"key": "..", "byte_size": 1},
        {"key": "none-of-this-name", "byte_size": 1},
        {"key": 3, "byte_size": 1},
        {"key": "NAME", "byte_size": 5000},
        {"key": "NAME", "byte_size": 0},
        {"key": "NAME", "offset": -1, "byte_size": 1},
    ],
)
def test_what_is_no_region_is_refused(given: dict[str, Any], memory: Path, libraries: dict[str, Path]) -> None:
    if given["key"] == "NAME":
        given = given | {"key": memory.name}
    with serving({"rows": libraries["rows"]}, shared_memory=True, grpc_port=None) as server:
        assert post(server, f"{REGIONS}/region/part/register", given)[0] == 400
        assert get(server, f"{REGIONS}/status") == (200, [])


def test_it_must_be_allowed(memory: Path, libraries: dict[str, Path]) -> None:
    with serving({"rows": libraries["rows"]}, grpc_port=None) as server:
        given = {"key": memory.name, "byte_size": 64}
        for path in (f"{REGIONS}/region/part/register", f"{REGIONS}/unregister"):
            assert post(server, path, given)[0] == 501
        assert "--shared-memory" in post(server, INFER, request())[1]["error"]
