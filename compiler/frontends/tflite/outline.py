"""Outlines a TFLite file before it is lowered."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

from nnefc.frontends.tflite.frontend import signature_of, unsupported_reason
from nnefc.frontends.tflite.model import Subgraph, read_model
from nnefc.ir.outline import DynamicTensor, Outline, range_option, shape_option

__all__ = ["outline"]


def outline(path: Path | str, *, entry: str | None = None) -> Outline:
    """The outline of a model, or of the part of it that a signature names.

    Raises:
        CompileError: the file is no TFLite model, or has no such signature.
    """
    model = read_model(Path(path))
    signature = signature_of(model, entry)
    main = model.subgraphs[signature.subgraph]
    operators = [operator for subgraph in model.subgraphs for operator in subgraph.operators]
    counts = Counter(operator.name for operator in operators)
    inputs = tuple(_tensor(main, name, index) for name, index in signature.inputs)
    used = {t.buffer: t for subgraph in model.subgraphs for t in subgraph.tensors if model.buffers[t.buffer].size}
    about = f"TFLite {model.version}" + (f", {model.description}" if model.description else "")
    if model.signatures:
        about += "; signatures: " + ", ".join(each.key for each in model.signatures)
    return Outline(
        name=Path(path).stem,
        about=about,
        inputs=inputs,
        outputs=tuple(_tensor(main, name, index) for name, index in signature.outputs),
        operations=dict(sorted(counts.items(), key=lambda element: (-element[1], element[0]))),
        parameters=sum(math.prod(size or 1 for size in tensor.shape) for tensor in used.values()),
        parameter_bytes=sum(model.buffers[index].size for index in used),
        unsupported=frozenset(operator.name for operator in operators if unsupported_reason(operator)),
        option=shape_option(inputs),
        range_option=range_option(inputs),
    )


def _tensor(subgraph: Subgraph, name: str, index: int) -> DynamicTensor:
    tensor = subgraph.tensors[index]
    return DynamicTensor(name, tensor.dtype, tensor.shape if tensor.has_shape else None)
