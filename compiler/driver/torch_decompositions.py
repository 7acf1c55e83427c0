"""Replaces operators of PyTorch that its ONNX exporter translates wrongly or not at all by equivalent ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["decomposed"]

_ATEN = torch.ops.aten

_SHIFTS = {
    _ATEN.__lshift__: torch.bitwise_left_shift,
    _ATEN.__rshift__: torch.bitwise_right_shift,
    _ATEN.bitwise_left_shift: torch.bitwise_left_shift,
    _ATEN.bitwise_right_shift: torch.bitwise_right_shift,
}


def decomposed(program: torch.export.ExportedProgram) -> torch.export.ExportedProgram:
    """Return a program without the operators that PyTorch 2.14 and onnxscript 0.7 do not export correctly.

    Cross entropies with label smoothing would lose it; shifts of uint8 would become those of int8, and shifts of two
    types are errors; attention would give fully masked rows the mean of all values, and supports neither dynamic
    numbers of heads nor three dimensions; writing to a diagonal is an error.
    """
    used = {node.target for node in program.graph.nodes}
    if _ATEN.diagonal.default in used:
        used.add(_ATEN.diagonal_scatter.default)  # of functional programs
    table = {target: decomposition for target, decomposition in _table().items() if target in used}
    return program.run_decompositions(table) if table else program


def _table() -> dict[Any, Callable[..., Any]]:
    cross_entropy = _ATEN.cross_entropy_loss.default
    table = {
        cross_entropy: torch.export.default_decompositions()[cross_entropy],
        _ATEN.diagonal_scatter.default: _diagonal_scatter,
        _ATEN.scaled_dot_product_attention.default: _attention,
    }
    for packet, shift in _SHIFTS.items():
        for name in packet.overloads():
            if not name.endswith("out"):
                table[getattr(packet, name)] = _shifted(shift, kept=packet in _KEPT)
    return table


_KEPT = (_ATEN.bitwise_left_shift, _ATEN.bitwise_right_shift)
"""Shifts that the exporter supports, for tensors of one type."""


def _shifted(shift: Callable[..., torch.Tensor], kept: bool) -> Callable[..., torch.Tensor]:
    """Return a decomposition of a shift: it shifts tensors of one type, int32 for uint8, and converts the result to the
    original type.

    Args:
        shift: the operator.
        kept: whether it is one of `_KEPT`, which is not decomposed for tensors of one type.
    """

    def shifted(x: torch.Tensor | int, bits: torch.Tensor | int) -> Any:
        dtype = torch.result_type(x, bits)
        is_byte = dtype is torch.uint8
        if kept and not is_byte and all(isinstance(each, torch.Tensor) and each.dtype is dtype for each in (x, bits)):
            return NotImplemented
        wide = torch.int32 if is_byte else dtype
        given = (e.to(wide) if isinstance(e, torch.Tensor) else torch.full((), e, dtype=wide) for e in (x, bits))
        result = shift(*given)
        return (result & 0xFF).to(torch.uint8) if is_byte else result

    return shifted


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Compute `torch.nn.functional.scaled_dot_product_attention`, whose arguments these are.

    The weights of fully masked rows are zero, as in PyTorch.
    """
    if attn_mask is None and not enable_gqa and query.dim() == key.dim() == value.dim() == 4:
        return NotImplemented  # the operator is left as it is
    if enable_gqa:
        key, value = (_repeated(each, query.shape[-3]) for each in (key, value))
    scores = (query * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)) @ key.transpose(-2, -1)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(~attn_mask, -math.inf)
    scores = scores if attn_mask is None else scores + attn_mask
    hidden = (scores == -math.inf).all(-1, keepdim=True)
    weights = torch.dropout(scores.softmax(-1).masked_fill(hidden, 0), dropout_p, dropout_p > 0)
    return weights @ value


def _repeated(heads: torch.Tensor, count: int) -> torch.Tensor:
    """Repeat each head so that there are `count`; heads are the third axis from the end."""
    *batch, own, length, width = heads.shape
    if isinstance(own, torch.SymInt) or isinstance(count, torch.SymInt):  # no shape says that one divides the other
        return heads.index_select(-3, torch.arange(count, device=heads.device) // (count // own))
    wider = heads.unsqueeze(-3).expand(*batch, own, count // own, length, width)
    return wider.reshape(*batch, count, length, width)


def _diagonal_scatter(x: torch.Tensor, source: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Return x with another diagonal; arguments as of `torch.diagonal_scatter`."""
    rows_last = x.movedim((dim1, dim2), (-2, -1))
    row, column = (torch.arange(size, device=x.device) for size in rows_last.shape[-2:])
    along = (row if offset >= 0 else column).clamp(max=source.shape[-1] - 1)
    values = source.index_select(-1, along).unsqueeze(-1 if offset >= 0 else -2)
    return torch.where(column - row[:, None] == offset, values, rows_last).movedim((-2, -1), (dim1, dim2))
