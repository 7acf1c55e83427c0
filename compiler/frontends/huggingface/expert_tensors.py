"""Joins the tensors of experts: each layer of all of them becomes one matrix, the experts' rows below each other.

Folders have a tensor for each expert, or one for all, in which the gate and what it is multiplied with may be one:
`[experts, 2 inner, size]`, the gate first, or, of gpt-oss, `[experts, size, 2 inner]`, where both take turns.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from nnefc.frontends.decoder import StoredTensor
from nnefc.frontends.decoder.weights import JoinedTensor, shown, stacked
from nnefc.operators.base import Array
from nnefc.support.diagnostics import CompileError

__all__ = ["joined_experts"]

_STEM = r"((?:model\.)?layers\.\d{1,4}\.)(?:mlp|block_sparse_moe|feed_forward)\."
_ONE = re.compile(_STEM + r"experts\.(\d{1,5})\.(gate_proj|up_proj|down_proj|w1|w2|w3)\.weight")
_ALL = re.compile(_STEM + r"(?:experts\.(gate_up_proj|down_proj)(|\.weight|_bias)|(input|output)_linear\.weight)")
_PARTS = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}
_LINEAR = {"input": "gate_up_proj", "output": "down_proj"}


def joined_experts(source: str, tensors: Mapping[str, StoredTensor], is_interleaved: bool) -> dict[str, StoredTensor]:
    """Returns the tensors of a folder with those of experts under the names `layers.N.experts.PART.weight`.

    Args:
        source: the folder, for messages.
        tensors: of the folder.
        is_interleaved: whether gates and what they are multiplied with take turns, and floats are transposed.

    Raises:
        CompileError: an expert is missing, or has another shape than others.
    """
    made: dict[str, StoredTensor] = {}
    single: dict[str, dict[int, StoredTensor]] = {}
    for label, tensor in tensors.items():
        if one := _ONE.fullmatch(label):
            name = f"{one[1]}experts.{_PARTS.get(one[3], one[3])}.weight"
            single.setdefault(name, {})[int(one[2])] = tensor
        elif every := _ALL.fullmatch(label):
            part = every[2] or _LINEAR[every[4]]
            if every[3] == "_bias":
                made |= _biases(f"{every[1]}experts", part, tensor, is_interleaved)
            else:
                matrix = _below(tensor, is_transposed=is_interleaved and every[3] == "")
                made |= _matrices(f"{every[1]}experts", part, matrix, _count(tensors, every[1], tensor), is_interleaved)
        else:
            made[label] = tensor
    for name, parts in single.items():
        shapes = {part.final_shape for part in parts.values()}
        if sorted(parts) != list(range(len(parts))) or len(shapes) > 1 or {len(shape) for shape in shapes} != {2}:
            raise CompileError(f"'{source}': the experts of '{shown(name)}' are not all there, or of several shapes")
        made[name] = stacked([parts[n] for n in range(len(parts))])
    return made


def _count(tensors: Mapping[str, StoredTensor], stem: str, tensor: StoredTensor) -> int:
    """Returns how many experts a layer has; where their matrices lie below each other, by its router."""
    if len(tensor.final_shape) == 3:
        return tensor.final_shape[0]
    routers = (f"{stem}mlp.router.weight", f"{stem}mlp.gate.weight", f"{stem}block_sparse_moe.router.weight")
    return next((tensors[name].shape[0] for name in routers if name in tensors), 1)


def _below(tensor: StoredTensor, is_transposed: bool) -> StoredTensor:
    """Returns `[experts, rows, columns]` as matrices below each other."""
    shape = tensor.final_shape
    if len(shape) == 2:
        return tensor
    if len(shape) != 3:
        raise CompileError(f"a tensor of experts has the shape {list(shape)}, which is not [experts, rows, columns]")
    count, rows, columns = shape
    if not is_transposed and tensor.is_stored_whole:
        return replace(tensor, shape=(count * rows, columns))
    if not is_transposed:
        return _made(tensor, (count * rows, columns), lambda: tensor.value_as_floats().reshape(count * rows, columns))
    return _made(
        tensor,
        (count * columns, rows),
        lambda: np.ascontiguousarray(tensor.value_as_floats().transpose(0, 2, 1)).reshape(count * columns, rows),
    )


def _matrices(stem: str, part: str, matrix: StoredTensor, count: int, takes_turns: bool) -> dict[str, StoredTensor]:
    """Returns the matrices that one holds, by their names."""
    if part == "down_proj" or not matrix.final_shape[0] or matrix.final_shape[0] % (2 * max(count, 1)):
        return {f"{stem}.{part}.weight": matrix}
    rows = np.arange(matrix.final_shape[0]).reshape(count, -1)
    return {f"{stem}.{name}.weight": matrix.rows(own.reshape(-1)) for name, own in _both(rows, takes_turns).items()}


def _biases(stem: str, part: str, tensor: StoredTensor, takes_turns: bool) -> dict[str, StoredTensor]:
    if part == "down_proj" or len(tensor.shape) != 2 or tensor.shape[1] % 2:
        return {f"{stem}.{part}.bias": tensor}
    count, width = tensor.shape
    made: dict[str, StoredTensor] = {}
    for name, own in _both(np.arange(width)[None], takes_turns).items():
        columns = own.reshape(-1)
        join = _columns_of(tensor, columns)
        made[f"{stem}.{name}.bias"] = _made(tensor, (count, width // 2), join)
    return made


def _columns_of(tensor: StoredTensor, columns: Array) -> Callable[[], Array]:
    return lambda: np.ascontiguousarray(tensor.value_as_floats()[:, columns])


def _both(lines: Array, takes_turns: bool) -> dict[str, Array]:
    """Returns which elements of each line are of the gate, and of what it is multiplied with."""
    half = lines.shape[1] // 2
    first, second = (lines[:, ::2], lines[:, 1::2]) if takes_turns else (lines[:, :half], lines[:, half:])
    return {"gate_proj": first, "up_proj": second}


def _made(tensor: StoredTensor, shape: tuple[int, ...], join: Callable[[], Array]) -> JoinedTensor:
    return JoinedTensor(tensor.type, shape, tensor.data[:0], parts=(tensor,), join=join)
