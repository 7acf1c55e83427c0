"""Inputs for fuzzing the ONNX front end: the models of ONNX's own tests, with messages and bytes changed."""

from __future__ import annotations

import contextlib
from pathlib import Path
from random import Random
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError
from onnx.backend.test.case.node import collect_testcases

from nnefc.driver.formats import load_network

__all__ = ["INSTRUMENTED", "TARGETS", "mutate", "seeds"]

INSTRUMENTED = ["nnefc.frontends.onnx"]
LARGEST = 30_000  # bytes of the models that are changed

INTEGERS = (
    *(-(1 << 63), -(1 << 31), -7, -2, -1, 0, 1, 2, 3, 16, 1000, 65536),
    *((1 << 31) - 1, 1 << 31, 1 << 40, (1 << 63) - 1),
)
REALS = (0.0, -1.0, 0.5, 1e-30, 1e30, 1e39, float("inf"), float("nan"))


def model(content: bytes, folder: Path) -> None:
    """A model's file, down to Relax."""
    path = folder / "model.onnx"
    path.write_bytes(content)
    load_network(path)


TARGETS = {b"O": model}


def seeds() -> list[bytes]:
    """The models."""
    models = (case.model for case in collect_testcases(None))
    return [b"O" + each.SerializeToString() for each in models if each is not None and each.ByteSize() < LARGEST]


def mutate(data: bytes, random: Random, corpus: list[bytes]) -> bytes:
    """A model with some changes, of its messages or of its bytes."""
    changed = _parsed(data)
    other = _parsed(random.choice(corpus))
    if changed is not None and other is not None:
        with contextlib.suppress(UnicodeDecodeError):  # of names whose bytes were changed
            for _ in range(random.choice([1, 1, 2, 3, 5])):
                _change(changed, random, other)
        data = b"O" + changed.SerializeToString()
    if changed is None or random.random() < 0.1:
        content = bytearray(data)
        for _ in range(random.randint(1, 6)):
            if len(content) > 1:
                content[random.randrange(1, len(content))] = random.randrange(256)
        data = bytes(content)
    return data


def _parsed(data: bytes) -> onnx.ModelProto | None:
    found = onnx.ModelProto()
    try:
        found.ParseFromString(data[1:])
    except DecodeError:
        return None
    return found


def _messages(message: Any) -> list[Any]:
    """A message and those in it."""
    found = [message]
    for each in found:
        for field, value in each.ListFields():
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                found += list(value) if field.is_repeated else [value]
    return found


def _changed_scalar(value: Any, random: Random, names: list[str]) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return random.choice([random.choice(INTEGERS), value + random.choice([-1, 1]), random.randint(-8, 64)])
        case float():
            return random.choice(REALS)
        case bytes():
            data = bytearray(value)
            if data and random.random() < 0.8:
                data[random.randrange(len(data))] = random.randrange(256)
            else:
                data = data[: random.randrange(len(data) + 1)] + random.randbytes(random.randrange(9))
            return bytes(data)
    return random.choice([random.choice(names), "", value + "x", value[:-1]])


def _change(model: onnx.ModelProto, random: Random, other: onnx.ModelProto) -> None:
    """One change of a field somewhere."""
    message = random.choice(_messages(model))
    fields = message.ListFields()
    names = [name for node in model.graph.node for name in (*node.input, *node.output)] or ["x"]
    if not fields:
        return
    field, value = random.choice(fields)
    if field.is_repeated:
        target = getattr(message, field.name)
        index = random.randrange(len(target))
        match random.randrange(4):
            case 0:
                del target[index]
            case 1 if field.type == FieldDescriptor.TYPE_MESSAGE:
                target.add().CopyFrom(target[index])
            case 1:
                target.append(target[index])
            case 2 if field.type == FieldDescriptor.TYPE_MESSAGE and field.message_type.name == "NodeProto":
                if other.graph.node:
                    target.add().CopyFrom(random.choice(other.graph.node))
            case _ if field.type != FieldDescriptor.TYPE_MESSAGE:
                _put(target, index, _changed_scalar(target[index], random, names))
    elif random.random() < 0.2:
        message.ClearField(field.name)
    elif field.type != FieldDescriptor.TYPE_MESSAGE:
        _put(message, field.name, _changed_scalar(value, random, names))


def _put(target: Any, key: Any, value: Any) -> None:
    """Set an element or a field, unless the field cannot hold it."""
    try:
        if isinstance(key, str):
            setattr(target, key, value)
        else:
            target[key] = value
    except (ValueError, TypeError):
        pass
