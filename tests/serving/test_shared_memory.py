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


def test_clients_of_triton_share_memory_over_grpc(memory: Path, libraries: dict[str, Path]) -> None:
    grpc = pytest.importorskip("tritonclient.grpc")
    with serving({"rows": libraries["rows"]}, shared_memory=True) as server:
        client = grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        client.register_system_shared_memory("part", f"/{memory.name}", 1024, offset=64)
        region = client.get_system_shared_memory_status().regions["part"]
        assert (region.key, region.offset, region.byte_size) == (f"/{memory.name}", 64, 1024)
        assert "system_shared_memory" in client.get_server_metadata().extensions
        inputs = [grpc.InferInput(name, [2, 3], "FP32") for name in "xy"]
        outputs = [grpc.InferRequestedOutput(name) for name in ("product", "total")]
        inputs[0].set_shared_memory("part", 24)
        outputs[0].set_shared_memory("part", 24, offset=100)
        for is_shared in (False, True):
            if is_shared:
                inputs[1].set_shared_memory("part", 24, offset=24)
            else:
                inputs[1].set_data_from_numpy(X + 1)
            reply = client.infer("rows", inputs, outputs=outputs)
            y = X if is_shared else X + 1
            np.testing.assert_array_equal(reply.as_numpy("total"), (X * y).sum(axis=1))
            assert reply.get_output("product").parameters["shared_memory_byte_size"].int64_param == 24
            np.testing.assert_array_equal(np.fromfile(memory, np.float32, 6, offset=164).reshape(2, 3), X * y)
        inputs[1].set_shared_memory("part", 24, offset=1020)
        with pytest.raises(Exception, match="goes beyond"):
            client.infer("rows", inputs, outputs=outputs)
        client.unregister_system_shared_memory("part")
        with pytest.raises(Exception, match="register it"):
            client.infer("rows", inputs, outputs=outputs)
        client.unregister_system_shared_memory()
        assert not client.get_system_shared_memory_status().regions


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
