"""The Open Inference Protocol over HTTP in JSON: what a client without a library of its own sees."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served_networks import get, post, serving, tensor

from nnefc.loader import Model


@pytest.fixture(scope="module")
def server(libraries: dict[str, Path]) -> Iterator[Any]:
    paths = {name: libraries[name] for name in ("lookup", "text", "types")}
    with serving(paths | {"rows/1": libraries["rows"], "rows/10": libraries["rows"]}) as running:
        yield running


X = np.array([[1.5, -2, 3]], np.float32)


def test_health_and_metadata(server: Any) -> None:
    assert get(server, "/v2/health/live") == (200, {"live": True})
    assert get(server, "/v2/health/ready") == (200, {"ready": True})
    status, reply = get(server, "/v2")
    assert status == 200 and reply["name"] == "nnefc" and "binary_tensor_data" in reply["extensions"]
    assert get(server, "/v2/models/rows/ready")[0] == 200
    status, reply = get(server, "/v2/models/rows")
    assert (status, reply["versions"], reply["platform"]) == (200, ["1", "10"], "nnefc")
    assert reply["inputs"][0] == {"name": "x", "datatype": "FP32", "shape": [-1, -1]}
    assert reply["outputs"][1] == {"name": "total", "datatype": "FP32", "shape": [-1]}
    status, index = post(server, "/v2/repository/index", {})
    assert {"name": "rows", "version": "10", "state": "READY", "reason": ""} in index


def test_inference_in_json(server: Any) -> None:
    given = {"id": "7", "inputs": [tensor("x", X), tensor("y", X)], "outputs": [{"name": "total"}]}
    status, reply = post(server, "/v2/models/rows/infer", given)
    assert status == 200 and reply["id"] == "7" and reply["model_version"] == "10"
    assert reply["outputs"] == [{"name": "total", "datatype": "FP32", "shape": [1], "data": [15.25]}]
    status, reply = post(server, "/v2/models/rows/versions/1/infer", given)
    assert (status, reply["model_version"]) == (200, "1")


def test_runs_compute_the_outputs_that_requests_name(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted: list[object] = []
    run = Model.run

    def noted(self: Model, *arguments: Any, **options: Any) -> Any:
        wanted.append(options["outputs"])
        return run(self, *arguments, **options)

    monkeypatch.setattr(Model, "run", noted)
    for names in (["total"], ["product"], ["total", "product"], []):
        reply = post(server, "/v2/models/rows/infer", GOOD | {"outputs": [{"name": name} for name in names]})[1]
        assert [output["name"] for output in reply["outputs"]] == (names or ["product", "total"])
        assert wanted.pop() == (tuple(names) if len(names) == 1 else None) and wanted == []


def test_lists_in_lists_are_row_major(server: Any) -> None:
    nested = {"name": "x", "datatype": "FP32", "shape": [2, 2], "data": [[1, 2], [3, 4]]}
    status, reply = post(server, "/v2/models/rows/infer", {"inputs": [nested, {**nested, "name": "y"}]})
    assert status == 200 and reply["outputs"][0]["data"] == [1, 4, 9, 16]


def test_raw_bytes_and_json_in_one_request(server: Any) -> None:
    raw = {"name": "x", "datatype": "FP32", "shape": [1, 3], "parameters": {"binary_data_size": 12}}
    outputs = [{"name": "product", "parameters": {"binary_data": True}}, {"name": "total"}]
    head = json.dumps({"inputs": [tensor("y", X), raw], "outputs": outputs}).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{server.port}/v2/models/rows/infer",
        head + X.tobytes(),
        {"Inference-Header-Content-Length": str(len(head))},
    )
    with urllib.request.urlopen(request) as answer:
        size, body = int(answer.headers["Inference-Header-Content-Length"]), answer.read()
    reply = json.loads(body[:size])
    assert reply["outputs"][0]["parameters"] == {"binary_data_size": 12}
    np.testing.assert_array_equal(np.frombuffer(body[size:], np.float32), (X * X)[0])
    assert reply["outputs"][1]["data"] == [15.25]


def test_strings(server: Any) -> None:
    words = {"name": "words", "datatype": "BYTES", "shape": [3], "data": ["", "日本", "a\u0000b"]}
    status, reply = post(server, "/v2/models/text/infer", {"inputs": [words]})
    assert status == 200 and reply["outputs"][0]["data"] == words["data"] * 2


def test_numbers_that_are_not_finite(server: Any) -> None:
    x = np.array([[np.nan, np.inf, -np.inf]], np.float32)
    status, reply = post(server, "/v2/models/rows/infer", {"inputs": [tensor("x", x), tensor("y", X)]})
    assert status == 200 and "NaN" in json.dumps(reply) and reply["outputs"][0]["data"][1] == -np.inf


def test_metrics_count_what_was_asked(server: Any) -> None:
    post(server, "/v2/models/lookup/infer", {"inputs": [tensor("row", np.array([1, 3]), "INT64")]})
    post(server, "/v2/models/lookup/infer", {"inputs": []})
    with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/metrics") as answer:
        text = answer.read().decode()
    one = 'model="lookup",protocol="http",result="{}",version="1"'
    assert f"nnefc_requests_total{{{one.format('ok')}}} 1.0" in text
    assert f"nnefc_requests_total{{{one.format('invalid')}}} 1.0" in text
    assert 'nnefc_run_seconds_count{model="lookup",version="1"} 1.0' in text


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("/v2/models/other", 404, 'there is no model "other", but lookup, rows, text, types'),
        ("/v2/models/rows/versions/3", 404, 'model "rows" has no version "3", but 1, 10'),
        ("/v2/models/other/ready", 404, "there is no model"),
        ("/v3", 404, "Not Found"),
        ("/v2/models/rows/infer", 405, "Method Not Allowed"),
    ],
)
def test_what_is_not_there(server: Any, path: str, status: int, words: str) -> None:
    found, reply = get(server, path)
    assert found == status and words in reply["error"]


GOOD = {"inputs": [tensor("x", X), tensor("y", X)]}


def changed(**changes: Any) -> dict[str, Any]:
    return {"inputs": [GOOD["inputs"][0], GOOD["inputs"][1] | changes]}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "the body is not JSON"),
        (b"[" * 100_000, "the body is not JSON"),
        (b"\xff\xfe", "the body is not JSON"),
        (b"[]", "not an object"),
        ({}, '"inputs" is missing'),
        ({"inputs": 3}, '"inputs" is missing, or is no list'),
        ({"inputs": [3]}, "an element that is no object"),
        ({"inputs": [{}]}, '"name" is missing'),
        ({"inputs": [tensor("x", X)]}, 'input "y" is missing; the inputs are x: FP32[batch, w]'),
        ({"inputs": [tensor("x", X), tensor("x", X)]}, "given twice"),
        (changed(name="z"), 'there is no input "z"'),
        (changed(datatype="FP64"), "is of FP32, not FP64"),
        (changed(datatype=None), '"datatype" is missing'),
        (changed(shape=[3]), "has 2 dimensions"),
        (changed(shape=[1, "3"]), "has a shape whose sizes are not all integers of 64 bits"),
        (changed(shape=[True, 3]), "has a shape whose sizes are not all integers of 64 bits"),
        (changed(shape=[1, -3]), "but takes w: 1 to"),
        (changed(shape=[1, 10**30]), 'input "y" has a shape whose sizes are not all integers of 64 bits'),
        (changed(shape=[1, 4], data=[1, 2, 3, 4]), '"w" is 3 in one input, but 4 in input "y"'),
        (changed(data=[1, 2]), "has 2 elements, but the shape [1, 3] needs 3"),
        (changed(data=[[1, 2], 3]), "lists next to values"),
        (changed(data=[1, 2, "3"]), "an element that is a str"),
        (changed(data=[1, 2, True]), "an element that is a bool"),
        (changed(data=[1, 2, None]), "an element that is a NoneType"),
        (changed(data={"0": 1}), '"data" is missing, or is no list'),
        (changed(parameters=3), '"parameters" is no object'),
        (changed(parameters={"binary_data_size": 12}), "more than the body"),
        (changed(parameters={"binary_data_size": -1}), "more than the body or no size"),
        (GOOD | {"outputs": [{"name": "none"}]}, 'there is no output "none"'),
        (GOOD | {"outputs": [{"name": "total"}, {"name": "total"}]}, "asked for twice"),
        (GOOD | {"parameters": []}, '"parameters" is no object'),
    ],
)
def test_requests_that_are_not_right_are_reported_why(server: Any, body: Any, words: str) -> None:
    status, reply = post(server, "/v2/models/rows/infer", body)
    assert status == 400 and words in reply["error"], reply
    assert post(server, "/v2/models/rows/infer", GOOD)[0] == 200


@pytest.mark.parametrize("length", ["x", "-1", "9" * 30, "1000000", "1e1"])
def test_a_wrong_length_of_the_header(server: Any, length: str) -> None:
    status, reply = post(server, "/v2/models/rows/infer", GOOD, **{"Inference-Header-Content-Length": length})
    assert status == 400 and "Inference-Header-Content-Length" in reply["error"]


@pytest.mark.parametrize(
    ("kind", "data"), [("INT8", [128]), ("UINT8", [-1]), ("INT32", [1.5]), ("BOOL", [1]), ("UINT64", [2**64])]
)
def test_values_out_of_a_types_range(server: Any, kind: str, data: list[Any]) -> None:
    name = {"BOOL": "bool"}.get(kind, kind.lower())
    given = {"inputs": [{"name": f"i_{name}", "datatype": kind, "shape": [2, 3], "data": data * 6}]}
    status, reply = post(server, "/v2/models/types/infer", given)
    assert status == 400 and f'input "i_{name}"' in reply["error"] and "element" in reply["error"]


def test_values_that_the_network_refuses(server: Any) -> None:
    status, reply = post(server, "/v2/models/lookup/infer", {"inputs": [tensor("row", np.array([99]), "INT64")]})
    assert status == 400 and "does not run on these values" in reply["error"] and ".so" not in reply["error"]
