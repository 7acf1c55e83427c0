"""Reads the bodies of inference requests over HTTP, JSON followed by raw bytes, and writes those of the answers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nnefc.loader import Tensor
from nnefc.loader.arrays import float32_of_bfloat16
from nnefc.serving.extensions import refuse_extensions
from nnefc.serving.failures import FailureKind, Refused
from nnefc.serving.json_text import parse_json, write_json
from nnefc.serving.repository import Entry
from nnefc.serving.served import Served
from nnefc.serving.shared_memory import REGION, Location, Regions, shared_location
from nnefc.serving.values import DATATYPES, Array, from_numbers, from_raw, to_numbers, to_raw

__all__ = ["HEADER_LENGTH", "RunRequest", "answer", "divided", "json_object", "read_request", "shared_bytes"]

HEADER_LENGTH = "Inference-Header-Content-Length"

_CHUNK = 2048
"""Values that are written as JSON in one call: orjson keeps the interpreter lock, so other threads wait for it."""

_NO_PARAMETERS: dict[str, Any] = {}


@dataclass(eq=False, slots=True)
class RunRequest:
    """An inference request whose body has been read.

    Attributes:
        entry, served: the network.
        inputs: arrays by name.
        wanted: the outputs that it asks for.
        raw: the names of the outputs to be sent as raw bytes.
        shared: the location in shared memory of each output to be written there, by name.
        id: text of the client, which the answer repeats; None for none.
        timeout: the parameter `timeout` in microseconds, not checked.
        outputs: the results by name, once the network has run.
    """

    entry: Entry
    served: Served
    inputs: dict[str, Array]
    wanted: Sequence[Tensor]
    raw: set[str]
    shared: dict[str, Location]
    id: str | None
    timeout: object
    outputs: Mapping[str, Array] | None = None

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the outputs to compute; None for all."""
        return self.served.selection(self.wanted)

    @property
    def text_bytes(self) -> int:
        """Bytes of the outputs that are written value by value: as JSON, or as strings."""
        outputs = self.outputs or {}
        texts = (each for each in self.wanted if each.name not in self.raw or each.dtype == "string")
        return sum(outputs[tensor.name].nbytes for tensor in texts)


def divided(body: bytes | bytearray, length: str | None) -> tuple[memoryview, memoryview]:
    """Divide a body into its JSON and the raw bytes after it.

    Args:
        body: of the request.
        length: the header `Inference-Header-Content-Length`, the bytes of the JSON; None: all of the body is JSON.

    Raises:
        Refused: the length is not a number, or exceeds the body.
    """
    whole = memoryview(body)
    if length is None:
        return whole, whole[:0]
    if not (length.isascii() and length.isdigit() and len(length) < 20 and int(length) <= len(body)):
        raise Refused(FailureKind.INVALID, f"{HEADER_LENGTH} is {length[:20]!r}, but the body has {len(body):,} bytes")
    return whole[: int(length)], whole[int(length) :]


def json_object(text: bytes | bytearray | memoryview) -> dict[str, Any]:
    """Parse a JSON object.

    Raises:
        Refused: `text` is not JSON, or not an object.
    """
    try:
        given = parse_json(text)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise Refused(FailureKind.INVALID, f"the body is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise Refused(FailureKind.INVALID, "the body is not an object of JSON")
    return given


def read_request(
    entry: Entry,
    served: Served,
    given: Mapping[str, Any],
    raw: memoryview,
    values: Mapping[int, memoryview],
    regions: Regions,
) -> RunRequest:
    """Read an inference request.

    Args:
        entry, served: the network.
        given: the request's JSON.
        raw: the raw bytes after it.
        values: raw bytes of tensors that a worker process has parsed, by the number of the input.
        regions: registered shared memory.

    Raises:
        Refused: a tensor is wrong, or the request has inputs or asks for outputs that the network has not, or asks for
            an extension that is not implemented.
    """
    parameters = _parameters(given)
    if parameters:
        refuse_extensions(parameters)
    inputs = _inputs(served, given, raw, values, regions)
    asked = _objects(given, "outputs") if given.get("outputs") else []
    wanted = served.outputs_for([_text(each, "name") for each in asked])
    shared: dict[str, Location] = {}
    own: dict[str, object] = {}
    for each in asked:
        if each_parameters := _parameters(each):
            refuse_extensions(each_parameters, REGION)
            own[each["name"]] = each_parameters.get("binary_data")
            if (location := shared_location(each_parameters)) is not None:
                shared[each["name"]] = location
    all_raw = parameters.get("binary_data_output") is True
    as_bytes = {t.name for t in wanted if own.get(t.name) is True or (all_raw and own.get(t.name) is None)}
    name = given.get("id")
    return RunRequest(
        entry,
        served,
        inputs,
        wanted,
        as_bytes,
        shared,
        name if isinstance(name, str) else None,
        parameters.get("timeout"),
    )


def _inputs(
    served: Served, given: Mapping[str, Any], raw: memoryview, values: Mapping[int, memoryview], regions: Regions
) -> dict[str, Array]:
    """Return the arrays of a request by name; arguments as in :func:`read_request`."""
    arrays: dict[str, Array] = {}
    offset = 0
    for number, each in enumerate(_objects(given, "inputs")):
        tensor, shape = served.input_for(_text(each, "name"), _text(each, "datatype"), _list(each, "shape"))
        if tensor.name in arrays:
            raise Refused(FailureKind.INVALID, f'input "{tensor.name}" is given twice')
        size = None
        if parameters := _parameters(each):
            refuse_extensions(parameters, REGION)
            if (shared := shared_location(parameters)) is not None:
                arrays[tensor.name] = from_raw(tensor, shape, regions.read(shared))
                continue
            size = parameters.get("binary_data_size")
        if size is None and number in values:
            arrays[tensor.name] = from_raw(tensor, shape, values[number])
            continue
        if size is None:
            arrays[tensor.name] = from_numbers(tensor, shape, _list(each, "data"))
            continue
        if type(size) is not int or not 0 <= size <= len(raw) - offset:
            raise Refused(
                FailureKind.INVALID,
                f'input "{tensor.name}" has binary_data_size {str(size)[:20]!r}, more than the body or no size',
            )
        arrays[tensor.name] = from_raw(tensor, shape, raw[offset : offset + size])
        offset += size
    if offset != len(raw):
        raise Refused(FailureKind.INVALID, f"the body has {len(raw) - offset:,} bytes more than its inputs")
    return arrays


def shared_bytes(given: Mapping[str, Any]) -> int:
    """Return the bytes of a request's inputs that are in shared memory."""
    locations = (shared_location(_parameters(each)) for each in _objects(given, "inputs"))
    return sum(location.size for location in locations if location is not None)


def answer(request: RunRequest, regions: Regions) -> list[bytes]:
    """Return the parts of an answer, its JSON and the raw bytes of outputs; write outputs to shared memory."""
    reply: dict[str, Any] = {"model_name": request.entry.name, "model_version": request.entry.version}
    if request.id is not None:
        reply["id"] = request.id
    outputs, blobs = request.outputs or {}, []
    listed: list[dict[str, Any]] = []
    numbers: dict[int, tuple[Tensor, Array]] = {}
    for number, tensor in enumerate(request.wanted):
        array = outputs[tensor.name]
        one: dict[str, Any] = {"name": tensor.name, "datatype": DATATYPES[tensor.dtype], "shape": list(array.shape)}
        if (shared := request.shared.get(tensor.name)) is not None:
            data = to_raw(tensor, array)
            regions.write(shared, data)
            one["parameters"] = shared.described(len(data))
        elif tensor.name in request.raw:
            blobs.append(to_raw(tensor, array))
            one["parameters"] = {"binary_data_size": len(blobs[-1])}
        else:
            numbers[number] = tensor, array.reshape(-1)
        listed.append(one)
    return [_json(reply, listed, numbers), *blobs]


def _json(reply: dict[str, Any], listed: list[dict[str, Any]], numbers: Mapping[int, tuple[Tensor, Array]]) -> bytes:
    """Serialize an answer.

    Args:
        reply: its fields apart from the outputs.
        listed: the description of each output.
        numbers: the outputs whose values are written as JSON, flat, by their position in `listed`.
    """
    if sum(array.size for _, array in numbers.values()) <= _CHUNK:
        whole = [one | {"data": _as_numbers(*numbers[n])} if n in numbers else one for n, one in enumerate(listed)]
        if (text := write_json(reply | {"outputs": whole})) is not None:
            return text
    parts = []
    for number, one in enumerate(listed):
        if number in numbers:
            parts.append(f'{json.dumps(one)[:-1]}, "data": [{", ".join(_texts(*numbers[number]))}]}}')
        else:
            parts.append(json.dumps(one))
    return f'{json.dumps(reply)[:-1]}, "outputs": [{", ".join(parts)}]}}'.encode()


def _texts(tensor: Tensor, flat: Array) -> Iterator[str]:
    """Yield an output's values as JSON without brackets, in chunks."""
    for start in range(0, len(flat), _CHUNK):
        part = flat[start : start + _CHUNK]
        text = write_json(_as_numbers(tensor, part))
        yield json.dumps(to_numbers(tensor, part))[1:-1] if text is None else text[1:-1].decode()


def _as_numbers(tensor: Tensor, flat: Array) -> Array:
    """Return bfloat16 as float32, and other arrays unchanged."""
    return float32_of_bfloat16(flat) if tensor.dtype == "bfloat16" else flat


def _objects(given: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found = _list(given, name)
    for each in found:
        if not isinstance(each, dict):
            raise Refused(FailureKind.INVALID, f'"{name}" has an element that is no object')
    return found


def _list(given: Mapping[str, Any], name: str) -> list[Any]:
    if not isinstance(found := given.get(name), list):
        raise Refused(FailureKind.INVALID, f'"{name}" is missing, or is no list')
    return found


def _text(given: Mapping[str, Any], name: str) -> str:
    if not isinstance(found := given.get(name), str):
        raise Refused(FailureKind.INVALID, f'"{name}" is missing, or is no text')
    return found


def _parameters(given: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(found := given.get("parameters", _NO_PARAMETERS), dict):
        raise Refused(FailureKind.INVALID, '"parameters" is no object')
    return found
