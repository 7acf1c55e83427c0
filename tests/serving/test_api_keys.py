"""Clients without one of the operator's keys are refused, over both protocols."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from served_networks import get, post, serving, tensor

from nnefc.cli import main

X = np.ones((1, 3), np.float32)
GOOD = {"inputs": [tensor("x", X), tensor("y", X)]}
INFER = "/v2/models/rows/infer"
SERVICE = "/inference.GRPCInferenceService"


def test_only_clients_with_a_key_are_let_in(libraries: dict[str, Path]) -> None:
    wrong: list[dict[str, str]] = [{}, {"X-API-Key": "third"}, {"Authorization": "first"}, {"Authorization": "Bearer"}]
    right = [{"X-API-Key": "second"}, {"Authorization": "Bearer first"}, {"Authorization": "bearer second"}]
    with serving({"rows": libraries["rows"]}, api_keys=("first", "second")) as server:
        for number in range(2):  # in one piece, and by the general server
            general = {"Accept-Charset": "utf-8"} if number else {}
            for headers in wrong:
                status, reply = post(server, INFER, GOOD, **headers, **general)
                assert status == 401 and "wants a key" in reply["error"]
            assert [post(server, INFER, GOOD, **headers, **general)[0] for headers in right] == [200] * 3
        assert get(server, "/v2/models/rows")[0] == get(server, "/metrics")[0] == 401
        assert get(server, "/v2/health/ready") == (200, {"ready": True})
        asyncio.run(_over_grpc(server.grpc_port or 0))


async def _over_grpc(port: int) -> None:
    import grpc

    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        assert await channel.unary_unary(f"{SERVICE}/ServerReady")(b"") == b"\x08\x01"
        metadata = channel.unary_unary(f"{SERVICE}/ServerMetadata")
        assert b"nnefc" in await metadata(b"", metadata=(("x-api-key", "first"),))
        assert b"nnefc" in await metadata(b"", metadata=(("authorization", "Bearer second"),))
        for given in ((), (("x-api-key", "firs"),)):
            with pytest.raises(grpc.aio.AioRpcError, match="wants a key") as error:
                await metadata(b"", metadata=given)
            assert error.value.code() is grpc.StatusCode.UNAUTHENTICATED
        stream = channel.stream_stream(f"{SERVICE}/ModelStreamInfer")()
        await stream.done_writing()
        with pytest.raises(grpc.aio.AioRpcError, match="wants a key"):
            await stream.read()


@pytest.mark.parametrize("text", ["", "# none\n\n", "a b\n", "ä\n"])
def test_a_file_without_keys_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(text, encoding="utf-8")
    done = CliRunner().invoke(main, ["serve", "net.so", "--api-keys", str(tmp_path / "keys")])
    assert done.exit_code and "does not have a key in each line" in done.output
