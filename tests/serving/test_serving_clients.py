"""The server as tritonclient sees it, over HTTP and gRPC."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from served_networks import TYPES, get, serving

from nnefc.serving.messages import _MESSAGES, INFERENCE, message
from nnefc.serving.values import DATATYPES

http = pytest.importorskip("tritonclient.http")
grpc = pytest.importorskip("tritonclient.grpc")
InferenceServerException = pytest.importorskip("tritonclient.utils").InferenceServerException

LOADER_NAMES = {"float": "float32", "double": "float64"}


@pytest.fixture(scope="module")
def server(libraries: dict[str, Path]) -> Iterator[Any]:
    with serving(libraries, sessions=2, rows=8, delay=0.002, control=True) as running:
        yield running


@pytest.fixture(params=["http", "grpc"])
def protocol(request: pytest.FixtureRequest) -> Any:
    return {"http": http, "grpc": grpc}[request.param]


@pytest.fixture
def client(protocol: Any, server: Any) -> Iterator[Any]:
    made = protocol.InferenceServerClient(address(protocol, server))
    yield made
    made.close()


def address(protocol: Any, server: Any) -> str:
    return f"127.0.0.1:{server.port if protocol is http else server.grpc_port}"


def given(protocol: Any, name: str, datatype: str, array: np.ndarray, **how: Any) -> Any:
    made = protocol.InferInput(name, list(array.shape), datatype)
    made.set_data_from_numpy(array, **how)
    return made


def test_the_fields_are_those_of_the_protocol() -> None:
    """Their names, numbers and types, as an independent implementation has them."""
    from tritonclient.grpc import service_pb2

    theirs = service_pb2.DESCRIPTOR.message_types_by_name
    for name in _MESSAGES[INFERENCE]:
        outer, _, inner = name.partition(".")
        other = theirs[outer].nested_types_by_name[inner] if inner else theirs[outer]
        own = message(INFERENCE, name).DESCRIPTOR
        assert list(map(described, own.fields)) == list(map(described, other.fields)), name


def described(field: Any) -> tuple[Any, ...]:
    choice = field.containing_oneof
    return field.name, field.number, field.type, field.is_repeated, choice and choice.name


def test_compressed_messages_over_grpc_are_refused(server: Any) -> None:
    """Their size would be known only when they take their memory."""
    client = grpc.InferenceServerClient(address(grpc, server))
    inputs = [given(grpc, name, "FP32", np.ones((1, 3000), np.float32)) for name in ("x", "y")]
    with pytest.raises(InferenceServerException, match="ompress"):
        client.infer("rows", inputs, compression_algorithm="gzip")
    client.close()


def test_health_metadata_and_index(client: Any, protocol: Any) -> None:
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready("rows")
    metadata = client.get_model_metadata("types", **({"as_json": True} if protocol is grpc else {}))
    assert {each["datatype"] for each in metadata["inputs"]} == {kind for kind in DATATYPES.values() if kind != "BYTES"}
    index = client.get_model_repository_index(**({"as_json": True} if protocol is grpc else {}))
    assert {each["name"] for each in (index["models"] if protocol is grpc else index)} == {
        "rows",
        "mixed",
        "lookup",
        "text",
        "types",
    }


def test_every_type_goes_in_and_comes_out(client: Any, protocol: Any) -> None:
    rng = np.random.default_rng(0)
    arrays, inputs = {}, []
    for kind in TYPES:
        name = LOADER_NAMES.get(kind, kind)
        array = rng.integers(0, 2, (2, 3)) if kind == "bool" else rng.integers(-100, 100, (2, 3))
        array = np.abs(array) if kind.startswith("u") else array
        array = array.astype(ml_dtypes.bfloat16 if kind == "bfloat16" else name)
        arrays[kind] = array
        inputs.append(given(protocol, f"i_{kind}", DATATYPES[name], array))
    found = client.infer("types", inputs)
    for kind, array in arrays.items():
        result = found.as_numpy(f"o_{kind}")
        assert result.dtype == array.dtype
        np.testing.assert_array_equal(result, np.concatenate([array, array]), err_msg=kind)


def test_json_over_http_has_every_type(server: Any) -> None:
    client = http.InferenceServerClient(f"127.0.0.1:{server.port}")
    kinds = [kind for kind in TYPES if kind not in ("float16", "bfloat16")]  # which the client sends as bytes alone
    array = np.arange(6).reshape(2, 3)
    inputs = [
        given(http, f"i_{kind}", DATATYPES[LOADER_NAMES.get(kind, kind)], (array % 2).astype(name), binary_data=False)
        for kind, name in ((kind, LOADER_NAMES.get(kind, kind)) for kind in kinds)
    ]
    fp16_values = (array % 2).astype(np.float16)
    inputs.append(given(http, "i_float16", "FP16", fp16_values))
    inputs.append(given(http, "i_bfloat16", "BF16", fp16_values.astype(ml_dtypes.bfloat16)))
    outputs = [http.InferRequestedOutput(f"o_{kind}", binary_data=False) for kind in kinds]
    found = client.infer("types", inputs, outputs=outputs)
    for kind in kinds:
        np.testing.assert_array_equal(found.as_numpy(f"o_{kind}"), np.concatenate([array % 2] * 2), err_msg=kind)
    client.close()


def test_strings_of_any_bytes(client: Any, protocol: Any) -> None:
    words = np.array([b"", b"\xff\x00", "日本".encode()], np.object_)
    found = client.infer("text", [given(protocol, "words", "BYTES", words)])
    assert found.as_numpy("twice").tolist() == words.tolist() * 2


def test_errors_say_what_is_wrong(client: Any, protocol: Any) -> None:
    x = np.ones((1, 3), np.float32)
    wrong = {
        "is missing": ("rows", [given(protocol, "x", "FP32", x)]),
        "there is no model": ("none", [given(protocol, "x", "FP32", x)]),
        "is of FP32, not FP64": ("rows", [given(protocol, "x", "FP64", x.astype(np.float64))]),
        "does not run on these values": ("lookup", [given(protocol, "row", "INT64", np.array([9]))]),
    }
    for words, (model, inputs) in wrong.items():
        with pytest.raises(Exception, match=words) as caught:
            client.infer(model, inputs)
        assert isinstance(caught.value, InferenceServerException)


def test_many_clients_of_odd_sizes_at_once(server: Any, protocol: Any) -> None:
    """Batches are of requests whose other sizes are equal, and every client gets its own rows."""

    def one(number: int) -> None:
        rng = np.random.default_rng(number)
        x, y = rng.random((2, 1 + number % 5, 3 + number % 2), np.float32)
        client = protocol.InferenceServerClient(address(protocol, server))
        found = client.infer("rows", [given(protocol, "x", "FP32", x), given(protocol, "y", "FP32", y)])
        client.close()
        np.testing.assert_array_equal(found.as_numpy("product"), x * y)
        np.testing.assert_allclose(found.as_numpy("total"), (x * y).sum(1), rtol=1e-5)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(48)))


def test_a_stream_answers_in_order_and_goes_on_after_an_error(server: Any) -> None:
    client = grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
    answers: list[Any] = []
    enough = threading.Event()

    def take(result: Any, error: Any) -> None:
        answers.append(error or result.as_numpy("found"))
        if len(answers) == 3:
            enough.set()

    client.start_stream(take)
    for row in (1, 99, 3):
        client.async_stream_infer("lookup", [given(grpc, "row", "INT64", np.array([row]))])
    assert enough.wait(20)
    client.stop_stream()
    client.close()
    assert answers[0].tolist() == [[10, 11]] and "does not run" in str(answers[1]) and answers[2].tolist() == [[30, 31]]


def test_a_stream_without_requests_is_ended(libraries: dict[str, Path]) -> None:
    """It counts among the calls that the server takes at a time."""
    received: list[Any] = []
    ended = threading.Event()

    def take(result: Any, error: Any) -> None:
        received.append(error or result.as_numpy("found"))
        if error is not None:
            ended.set()

    with serving({"lookup": libraries["lookup"]}, idle=1) as server:
        client = grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}")
        client.start_stream(take)
        client.async_stream_infer("lookup", [given(grpc, "row", "INT64", np.array([2]))])
        assert ended.wait(20)
        client.stop_stream()
        client.close()
    assert received[0].tolist() == [[20, 21]] and "no request for 1 second" in str(received[1])


@pytest.mark.parametrize("sequence", [{"sequence_id": 7}, {"sequence_id": "first", "sequence_start": True}])
def test_sequences_are_refused(client: Any, protocol: Any, sequence: dict[str, Any]) -> None:
    with pytest.raises(InferenceServerException, match="there are no sequences"):
        client.infer("lookup", [given(protocol, "row", "INT64", np.array([1]))], **sequence)


def test_shared_memory_is_refused(client: Any, protocol: Any) -> None:
    row = protocol.InferInput("row", [1], "INT64")
    row.set_shared_memory("region", 8)
    with pytest.raises(InferenceServerException, match="there is no shared memory"):
        client.infer("lookup", [row])
    found = protocol.InferRequestedOutput("found")
    found.set_shared_memory("region", 8)
    with pytest.raises(InferenceServerException, match="there is no shared memory"):
        client.infer("lookup", [given(protocol, "row", "INT64", np.array([1]))], outputs=[found])


def test_models_are_loaded_and_unloaded_where_that_is_allowed(client: Any, server: Any) -> None:
    client.unload_model("mixed")
    assert not client.is_model_ready("mixed") and not client.is_server_ready()
    assert get(server, "/v2/models/mixed")[0] == 503
    client.load_model("mixed")
    assert client.is_model_ready("mixed") and client.is_server_ready()
    with pytest.raises(Exception, match="there is no model"):
        client.load_model("none")


def test_the_health_checks_of_grpc(server: Any) -> None:
    import grpc as rpc

    from nnefc.serving.messages import HEALTH

    with rpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        check = channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            request_serializer=message(HEALTH, "HealthCheckRequest").SerializeToString,
            response_deserializer=message(HEALTH, "HealthCheckResponse").FromString,
        )
        asked = message(HEALTH, "HealthCheckRequest")
        assert [check(asked(service=name)).status for name in ("", "rows", "none")] == [1, 1, 3]


def test_values_in_the_fields_of_their_types(server: Any) -> None:
    """As clients without raw contents send them."""
    import grpc as rpc

    request = message(INFERENCE, "ModelInferRequest")(
        model_name="lookup",
        inputs=[{"name": "row", "datatype": "INT64", "shape": [2], "contents": {"int64_contents": [2, 0]}}],
    )
    with rpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as channel:
        infer = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            request_serializer=type(request).SerializeToString,
            response_deserializer=message(INFERENCE, "ModelInferResponse").FromString,
        )
        answer = infer(request)
        assert np.frombuffer(answer.raw_output_contents[0], np.float32).tolist() == [20, 21, 0, 1]
        request.raw_input_contents.append(b"1")
        request.raw_input_contents.append(b"1")
        with pytest.raises(rpc.RpcError, match="there are 1 inputs, but raw contents of 2"):
            infer(request)
