"""Defines the protocol's gRPC messages as tables, without a .proto compiler or generated code.

They are in a descriptor pool of their own, so that a program can also import a client that defines the same messages.

Source: the Open Inference Protocol, «gRPC API», with the extensions for model repositories and shared memory;
gRPC's protocol for health checks.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["HEALTH", "INFERENCE", "message"]

INFERENCE = "inference"
HEALTH = "grpc.health.v1"

_MODEL = "name: string 1, version: string 2"
_CHANGE = "repository_name: string 1, model_name: string 2, parameters: map ModelRepositoryParameter 3"
_TENSOR = "name: string 1, datatype: string 2, shape: repeated int64 3"
_REGION = "name: string 1, key: string 2, offset: uint64 3, byte_size: uint64 4"
_ANSWER = "parameters: map InferParameter 4, contents: InferTensorContents 5"

_MESSAGES: Mapping[str, Mapping[str, str]] = {
    INFERENCE: {
        "ServerLiveRequest": "",
        "ServerLiveResponse": "live: bool 1",
        "ServerReadyRequest": "",
        "ServerReadyResponse": "ready: bool 1",
        "ModelReadyRequest": _MODEL,
        "ModelReadyResponse": "ready: bool 1",
        "ServerMetadataRequest": "",
        "ServerMetadataResponse": "name: string 1, version: string 2, extensions: repeated string 3",
        "ModelMetadataRequest": _MODEL,
        "ModelMetadataResponse": "name: string 1, versions: repeated string 2, platform: string 3, "
        "inputs: repeated ModelMetadataResponse.TensorMetadata 4, "
        "outputs: repeated ModelMetadataResponse.TensorMetadata 5",
        "ModelMetadataResponse.TensorMetadata": _TENSOR,
        "InferParameter": "parameter_choice = bool_param: bool 1, int64_param: int64 2, string_param: string 3, "
        "double_param: double 4, uint64_param: uint64 5",
        "InferTensorContents": "bool_contents: repeated bool 1, int_contents: repeated int32 2, "
        "int64_contents: repeated int64 3, uint_contents: repeated uint32 4, uint64_contents: repeated uint64 5, "
        "fp32_contents: repeated float 6, fp64_contents: repeated double 7, bytes_contents: repeated bytes 8",
        "ModelInferRequest": "model_name: string 1, model_version: string 2, id: string 3, "
        "parameters: map InferParameter 4, inputs: repeated ModelInferRequest.InferInputTensor 5, "
        "outputs: repeated ModelInferRequest.InferRequestedOutputTensor 6, raw_input_contents: repeated bytes 7",
        "ModelInferRequest.InferInputTensor": f"{_TENSOR}, {_ANSWER}",
        "ModelInferRequest.InferRequestedOutputTensor": "name: string 1, parameters: map InferParameter 2",
        "ModelInferResponse": "model_name: string 1, model_version: string 2, id: string 3, "
        "parameters: map InferParameter 4, outputs: repeated ModelInferResponse.InferOutputTensor 5, "
        "raw_output_contents: repeated bytes 6",
        "ModelInferResponse.InferOutputTensor": f"{_TENSOR}, {_ANSWER}",
        "ModelStreamInferResponse": "error_message: string 1, infer_response: ModelInferResponse 2",
        "RepositoryIndexRequest": "repository_name: string 1, ready: bool 2",
        "RepositoryIndexResponse": "models: repeated RepositoryIndexResponse.ModelIndex 1",
        "RepositoryIndexResponse.ModelIndex": "name: string 1, version: string 2, state: string 3, reason: string 4",
        "ModelRepositoryParameter": "parameter_choice = bool_param: bool 1, int64_param: int64 2, "
        "string_param: string 3, bytes_param: bytes 4",
        "RepositoryModelLoadRequest": _CHANGE,
        "RepositoryModelLoadResponse": "",
        "RepositoryModelUnloadRequest": _CHANGE,
        "RepositoryModelUnloadResponse": "",
        "SystemSharedMemoryStatusRequest": "name: string 1",
        "SystemSharedMemoryStatusResponse": "regions: map SystemSharedMemoryStatusResponse.RegionStatus 1",
        "SystemSharedMemoryStatusResponse.RegionStatus": _REGION,
        "SystemSharedMemoryRegisterRequest": _REGION,
        "SystemSharedMemoryRegisterResponse": "",
        "SystemSharedMemoryUnregisterRequest": "name: string 1",
        "SystemSharedMemoryUnregisterResponse": "",
    },
    HEALTH: {
        "HealthCheckRequest": "service: string 1",
        "HealthCheckResponse": "status: int32 1",  # an enumeration, which is the same on the wire
    },
}
"""Fields of each message as `name: type number`, by package and message; `name =` before them makes a oneof of them."""

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    name: getattr(_Field, f"TYPE_{name.upper()}")
    for name in ("bool", "bytes", "double", "float", "int32", "int64", "string", "uint32", "uint64")
}


def message(package: str, name: str) -> Any:
    """Return the class of a message."""
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(f"{package}.{name}"))


@cache
def _pool() -> descriptor_pool.DescriptorPool:
    pool = descriptor_pool.DescriptorPool()
    for package, messages in _MESSAGES.items():
        file = descriptor_pb2.FileDescriptorProto(name=f"nnefc/{package}.proto", package=package, syntax="proto3")
        made: dict[str, descriptor_pb2.DescriptorProto] = {}
        for name, fields in messages.items():
            outer, _, own = name.rpartition(".")
            made[name] = made[outer].nested_type.add(name=own) if outer else file.message_type.add(name=own)
            _add_fields(made[name], f".{package}", name, fields)
        pool.AddSerializedFile(file.SerializeToString())
    return pool


def _add_fields(made: descriptor_pb2.DescriptorProto, package: str, own: str, fields: str) -> None:
    choice, equals, listed = fields.rpartition(" = ")
    if equals:
        made.oneof_decl.add(name=choice)
    for text in filter(None, listed.split(", ")):
        name, label, kind, number = _parts(text)
        field = made.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
        if equals:
            field.oneof_index = 0
        if label is not None:
            field.label = _Field.LABEL_REPEATED
        if label == "map":
            entry = made.nested_type.add(name=f"{name.title().replace('_', '')}Entry")
            entry.options.map_entry = True
            entry.field.add(name="key", number=1, label=_Field.LABEL_OPTIONAL, type=_Field.TYPE_STRING)
            _set_type(entry.field.add(name="value", number=2, label=_Field.LABEL_OPTIONAL), package, kind)
            kind = f"{own}.{entry.name}"
        _set_type(field, package, kind)


def _parts(text: str) -> tuple[str, str | None, str, int]:
    """Return a field's name, its label (`repeated`, `map` or None), its type and its number."""
    found = re.fullmatch(r"(\w+): (?:(repeated|map) )?([\w.]+) (\d+)", text)
    assert found is not None, text
    name, label, kind, number = found.groups()
    return name, label, kind, int(number)


def _set_type(field: Any, package: str, kind: str) -> None:
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f"{package}.{kind}"
