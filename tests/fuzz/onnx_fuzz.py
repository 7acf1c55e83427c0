"""Feeds malformed ONNX models to the front end: `python tests/fuzz/onnx_fuzz.py SECONDS [SEED [FOLDER]]`.

Starts from the models of ONNX's own node tests, or of those in a folder, changes messages and bytes at random, and
demands one of two results, soon: a network, or a `CompileError`. What does anything else is written to
`onnx-found-N.onnx` and `.txt` beside the caller. Bound the memory from outside: `ulimit -v`.
"""

from __future__ import annotations

import faulthandler
import random
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.descriptor import FieldDescriptor
from onnx.backend.test.case.node import collect_testcases

from nnefc.diagnostics import CompileError
from nnefc.formats import load_network

SLOW = 30.0  # seconds for one input
LARGEST = 30_000  # bytes of the models that are changed

INTEGERS = [
    -(1 << 63),
    -(1 << 31),
    -7,
    -2,
    -1,
    0,
    1,
    2,
    3,
    16,
    1000,
    65536,
    (1 << 31) - 1,
    1 << 31,
    1 << 40,
    (1 << 63) - 1,
]
REALS = [0.0, -1.0, 0.5, 1e-30, 1e30, 1e39, float("inf"), float("nan")]


def messages(message: Any) -> list[Any]:
    """A message and those in it."""
    found = [message]
    for message_ in found:
        for field, value in message_.ListFields():
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                found += list(value) if field.is_repeated else [value]
    return found


def changed_scalar(value: Any, rng: random.Random, names: list[str]) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return rng.choice([rng.choice(INTEGERS), value + rng.choice([-1, 1]), rng.randint(-8, 64)])
        case float():
            return rng.choice(REALS)
        case bytes():
            data = bytearray(value)
            if data and rng.random() < 0.8:
                data[rng.randrange(len(data))] = rng.randrange(256)
            else:
                data = data[: rng.randrange(len(data) + 1)] + rng.randbytes(rng.randrange(9))
            return bytes(data)
    return rng.choice([rng.choice(names), "", value + "x", value[:-1]])


def change(model: onnx.ModelProto, rng: random.Random, others: list[onnx.ModelProto]) -> None:
    """One change of a field somewhere."""
    message = rng.choice(messages(model))
    fields = message.ListFields()
    names = [name for node in model.graph.node for name in (*node.input, *node.output)] or ["x"]
    if not fields:
        return
    field, value = rng.choice(fields)
    if field.is_repeated:
        target = getattr(message, field.name)
        place = rng.randrange(len(target))
        match rng.randrange(4):
            case 0:
                del target[place]
            case 1 if field.type == FieldDescriptor.TYPE_MESSAGE:
                target.add().CopyFrom(target[place])
            case 1:
                target.append(target[place])
            case 2 if field.type == FieldDescriptor.TYPE_MESSAGE and field.message_type.name == "NodeProto":
                target.add().CopyFrom(rng.choice(rng.choice(others).graph.node))
            case _ if field.type != FieldDescriptor.TYPE_MESSAGE:
                put(target, place, changed_scalar(target[place], rng, names))
    elif rng.random() < 0.2:
        message.ClearField(field.name)
    elif field.type != FieldDescriptor.TYPE_MESSAGE:
        put(message, field.name, changed_scalar(value, rng, names))


def put(target: Any, place: Any, value: Any) -> None:
    """Set an item or a field, unless the field cannot hold it."""
    try:
        if isinstance(place, str):
            setattr(target, place, value)
        else:
            target[place] = value
    except (ValueError, TypeError):
        pass


class Fuzzer:
    """The inputs and what became of them."""

    def __init__(self, seed: int, folder: Path | None) -> None:
        self.rng = random.Random(seed)
        if folder is None:
            cases = [case.model for case in collect_testcases(None)]
        else:
            cases = [onnx.load(path) for path in sorted(folder.glob("*.onnx"))]
        self.models = [model for model in cases if model is not None and model.ByteSize() < LARGEST]
        self.path = Path(tempfile.mkdtemp()) / "model.onnx"
        self.counts = {"accepted": 0, "refused": 0, "found": 0}
        self.kinds: set[str] = set()
        self.slowest = 0.0

    def data(self) -> bytes:
        """A model, changed."""
        rng = self.rng
        model = onnx.ModelProto()
        model.CopyFrom(rng.choice(self.models))
        for _ in range(rng.choice([1, 1, 2, 3, 5])):
            change(model, rng, self.models)
        data = model.SerializeToString()
        if rng.random() < 0.1 and data:
            changed = bytearray(data)
            for _ in range(rng.randint(1, 6)):
                changed[rng.randrange(len(changed))] = rng.randrange(256)
            data = bytes(changed)
        return data

    def step(self) -> None:
        data = self.data()
        self.path.write_bytes(data)
        faulthandler.dump_traceback_later(4 * SLOW, exit=True)
        start = time.monotonic()
        try:
            load_network(self.path)
            self.counts["accepted"] += 1
        except CompileError as error:
            assert str(error)
            self.counts["refused"] += 1
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            self.report(f"{type(error).__name__} at {frame.filename}:{frame.lineno}", traceback.format_exc(), data)
        faulthandler.cancel_dump_traceback_later()
        took = time.monotonic() - start
        self.slowest = max(self.slowest, took)
        if took > SLOW:
            self.report("slow", f"took {took:.1f} s", data)

    def report(self, kind: str, what: str, data: bytes) -> None:
        """Keep an input, once for each kind."""
        self.counts["found"] += 1
        if kind not in self.kinds:
            self.kinds.add(kind)
            Path(f"onnx-found-{len(self.kinds)}.onnx").write_bytes(data)
            Path(f"onnx-found-{len(self.kinds)}.txt").write_text(what)
            print(kind, what.strip().splitlines()[-1][:200], flush=True)


def main() -> None:
    warnings.simplefilter("ignore")
    seconds, seed = float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    fuzzer = Fuzzer(seed, Path(sys.argv[3]) if len(sys.argv) > 3 else None)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        fuzzer.step()
    print(f"{fuzzer.counts}, the slowest input took {fuzzer.slowest:.1f} s")


if __name__ == "__main__":
    main()
