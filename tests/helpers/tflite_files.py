"""Writes TFLite files for tests by the schema that the front end reads with, and runs them with LiteRT's kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nnefc.frontends.tflite.flatbuffer import SCALARS
from nnefc.frontends.tflite.schema import BUILTIN_OPERATORS, DTYPES, UNIONS, fields_of

__all__ = ["Graph", "flatbuffer", "model_file", "reference"]


@dataclass
class Graph:
    """A subgraph that is being made.

    Attributes:
        tensors, operators: tables, by the names of their fields.
        inputs, outputs: indices of tensors.
        data: the bytes of constants, by index.
    """

    name: str = "main"
    tensors: list[dict[str, Any]] = field(default_factory=list)
    operators: list[dict[str, Any]] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    data: dict[int, bytes] = field(default_factory=dict)

    def tensor(
        self,
        shape: Sequence[int],
        dtype: str = "float32",
        value: np.ndarray | None = None,
        scale: Any = None,
        zero: Any = 0,
        axis: int = 0,
        **fields: Any,
    ) -> int:
        """Adds a tensor, a constant if it has a value; returns its index."""
        index = len(self.tensors)
        made: dict[str, Any] = {"name": f"t{index}", "shape": list(shape), "type": DTYPES.index(dtype), "has_rank": 1}
        if scale is not None:
            scales = np.atleast_1d(np.asarray(scale, np.float32))
            zeros = np.broadcast_to(np.asarray(zero, np.int64), scales.shape)
            made["quantization"] = {"scale": scales, "zero_point": zeros, "quantized_dimension": axis}
        if value is not None:
            write = {"string": _strings} | dict.fromkeys(("int4", "uint4", "int2"), packed)
            self.data[index] = write.get(dtype, lambda x: np.ascontiguousarray(x).tobytes())(value)
        self.tensors.append(made | fields)
        return index

    def input(self, *args: Any, **options: Any) -> int:
        """Adds a tensor that is an input."""
        index = self.tensor(*args, **options)
        self.inputs.append(index)
        return index

    def output(self, *args: Any, **options: Any) -> int:
        """Adds a tensor that is an output."""
        index = self.tensor(*args, **options)
        self.outputs.append(index)
        return index

    def add(self, name: str, inputs: Sequence[int], outputs: Sequence[int], options: str = "", **fields: Any) -> None:
        """Adds an operator; `options` is the table of its attributes, of which `fields` are.

        Among the fields are those of the operator's table, and the `version` of a custom operator.
        """
        made: dict[str, Any] = {"name": name, "inputs": list(inputs), "outputs": list(outputs)}
        for key in ("custom_options", "intermediates", "mutating_variable_inputs", "version"):
            if key in fields and not (key == "version" and name in BUILTIN_OPERATORS):
                made[key] = fields.pop(key)
        if options:
            slot = "builtin_options" if options in UNIONS["BuiltinOptions"] else "builtin_options_2"
            made[slot] = (options, fields)
        self.operators.append(made)


def packed(value: np.ndarray) -> bytes:
    """Integers of 4 bits, two a byte, the first in the low bits."""
    codes = np.append(value.reshape(-1), [0] * (value.size % 2)).astype(np.int64) & 15
    return (codes[::2] | codes[1::2] << 4).astype(np.uint8).tobytes()


def _strings(value: np.ndarray) -> bytes:
    """Strings as the format has them: their number, where each begins, where the last ends, and their bytes."""
    words = [str(word).encode() for word in value.reshape(-1)]
    ends = np.cumsum([4 * (len(words) + 2), *map(len, words)])
    return np.array([len(words), *ends], "<i4").tobytes() + b"".join(words)


def model_file(*graphs: Graph, signatures: Sequence[Mapping[str, Any]] = (), **fields: Any) -> bytes:
    """The bytes of a model."""
    codes: list[tuple[str, int]] = []
    buffers: list[dict[str, Any]] = [{}]
    subgraphs = []
    for graph in graphs:
        tensors = []
        for index, tensor in enumerate(graph.tensors):
            if index in graph.data:
                buffers.append({"data": np.frombuffer(graph.data[index], np.uint8)})
                tensor = {**tensor, "buffer": len(buffers) - 1}
            tensors.append(tensor)
        operators = []
        for each in graph.operators:
            each = dict(each)
            code = each.pop("name"), each.pop("version", 1)
            if code not in codes:
                codes.append(code)
            operators.append({**each, "opcode_index": codes.index(code)})
        subgraphs.append(
            {"tensors": tensors, "inputs": graph.inputs, "outputs": graph.outputs, "operators": operators,
             "name": graph.name}
        )  # fmt: skip
    model = {
        "version": 3, "operator_codes": [_code(*code) for code in codes], "subgraphs": subgraphs, "buffers": buffers,
        "description": "test", "signature_defs": list(signatures),
    }  # fmt: skip
    return flatbuffer("Model", model | fields)


_VERSIONS = {"BROADCAST_TO": 2}
"""Versions of operators whose first one LiteRT does not know."""


def _code(name: str, version: int) -> dict[str, Any]:
    if name not in BUILTIN_OPERATORS:
        return {"custom_code": name, "deprecated_builtin_code": 32, "builtin_code": 32, "version": version}
    number = BUILTIN_OPERATORS.index(name)
    return {"builtin_code": number, "deprecated_builtin_code": min(number, 127), "version": _VERSIONS.get(name, 1)}


class _Writer:
    """Appends tables behind those that refer to them, so that all offsets point forwards."""

    def __init__(self) -> None:
        self.out = bytearray()

    def align(self, size: int) -> None:
        self.out += b"\0" * (-len(self.out) % size)

    def refer(self, at: int) -> None:
        """Lets the offset at a location point to what is appended next."""
        self.out[at : at + 4] = (len(self.out) - at).to_bytes(4, "little")

    def table(self, kind: str, values: Mapping[str, Any], at: int) -> None:
        entries: list[tuple[int, int, bytes, Any]] = []  # slot, size, bytes, what comes behind
        count = 0
        for each in fields_of(kind):
            value = values.get(each.name)
            count = max(count, each.slot + 1 + (each.kind == "union"))
            if value is None:
                continue
            match each.kind:
                case "scalar":
                    content = np.array(value, SCALARS[each.of]).tobytes()
                    entries.append((each.slot, len(content), content, None))
                case "union":
                    number = UNIONS[each.of].index(value[0]) + 1
                    entries.append((each.slot, 1, bytes([number]), None))
                    entries.append((each.slot + 1, 4, bytes(4), ("table", value[0], value[1])))
                case _:
                    entries.append((each.slot, 4, bytes(4), (each.kind, each.of, value)))
        self.align(8)
        vtable = len(self.out)
        self.out += bytes(4 + 2 * count)
        self.align(8)
        self.refer(at)
        start = len(self.out)
        self.out += (start - vtable).to_bytes(4, "little", signed=True)
        behind = []
        for slot, size, content, child in entries:
            self.align(size)
            self.out[vtable + 4 + 2 * slot : vtable + 6 + 2 * slot] = (len(self.out) - start).to_bytes(2, "little")
            if child is not None:
                behind.append((len(self.out), child))
            self.out += content
        sizes = (4 + 2 * count).to_bytes(2, "little") + (len(self.out) - start).to_bytes(2, "little")
        self.out[vtable : vtable + 4] = sizes
        for offset, (child_kind, of, value) in behind:
            self.child(child_kind, of, value, offset)

    def child(self, kind: str, of: str, value: Any, at: int) -> None:
        if kind == "table":
            self.table(of, value, at)
            return
        if kind == "string":
            content = value.encode()
            self.align(4)
            self.refer(at)
            self.out += len(content).to_bytes(4, "little") + content + b"\0"
            return
        if of in SCALARS:
            array = np.asarray(value, SCALARS[of])
            self.out += b"\0" * (-(len(self.out) + 4) % 16)
            self.refer(at)
            self.out += array.size.to_bytes(4, "little") + array.tobytes()
            return
        self.align(4)
        self.refer(at)
        first = len(self.out) + 4
        self.out += len(value).to_bytes(4, "little") + bytes(4 * len(value))
        for index, each in enumerate(value):
            self.child("string" if of == "str" else "table", of, each, first + 4 * index)


def flatbuffer(kind: str, values: Mapping[str, Any], identifier: bytes = b"TFL3") -> bytes:
    """A flatbuffer with this root table."""
    writer = _Writer()
    writer.out += bytes(4) + identifier
    writer.table(kind, values, 0)
    return bytes(writer.out)


def reference(
    model: bytes, *runs: Sequence[np.ndarray], signature: str | None = None, optimized: bool = False
) -> list[list[np.ndarray]]:
    """What LiteRT's kernels give for inputs, run after run: the reference kernels, or the `optimized` ones.

    `signature` runs that one in place of the first subgraph.
    """
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    letters = OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES if optimized else OpResolverType.BUILTIN_REF
    interpreter = Interpreter(model_content=model, experimental_op_resolver_type=letters)
    if signature is not None:
        runner = interpreter.get_signature_runner(signature)
        names = list(runner.get_input_details())
        found = [runner(**dict(zip(names, inputs, strict=True))) for inputs in runs]
        return [[made[name] for name in runner.get_output_details()] for made in found]
    details = interpreter.get_input_details()
    if runs and any(list(d["shape"]) != list(x.shape) for d, x in zip(details, runs[0], strict=True)):
        for detail, value in zip(details, runs[0], strict=True):
            interpreter.resize_tensor_input(detail["index"], value.shape)
    interpreter.allocate_tensors()
    results = []
    for inputs in runs:
        for detail, value in zip(details, inputs, strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        results.append([interpreter.get_tensor(detail["index"]).copy() for detail in interpreter.get_output_details()])
    return results
