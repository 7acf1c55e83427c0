"""Replaces operators of PyTorch that its ONNX exporter translates wrongly, or not at all, by others."""

from __future__ import annotations

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
    """Returns a program without the operators that PyTorch 2.14 and onnxscript 0.7 do not write as they are.

    Cross entropies lose their label smoothing, shifts of uint8 become those of int8, and writing to a diagonal is an
    error.
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
    }
    for packet, shift in _SHIFTS.items():
        for name in packet.overloads():
            if name in ("Tensor", "Scalar", "Tensor_Scalar"):
                table[getattr(packet, name)] = _shifted(shift)
    return table


def _shifted(shift: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Returns a shift whose bits of uint8 are in int32; 8 bits and more leave zero."""

    def shifted(x: torch.Tensor, bits: torch.Tensor | int) -> Any:
        if x.dtype is not torch.uint8:
            return NotImplemented  # the operator is left as it is
        wide = bits.to(torch.int32).clamp(max=8) if isinstance(bits, torch.Tensor) else min(bits, 8)
        return (shift(x.to(torch.int32), wide) & 0xFF).to(torch.uint8)

    return shifted


def _diagonal_scatter(x: torch.Tensor, source: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """Returns x with another diagonal: arguments as of `torch.diagonal_scatter`."""
    rows_last = x.movedim((dim1, dim2), (-2, -1))
    row, column = (torch.arange(size, device=x.device) for size in rows_last.shape[-2:])
    along = (row if offset >= 0 else column).clamp(max=source.shape[-1] - 1)
    values = source.index_select(-1, along).unsqueeze(-1 if offset >= 0 else -2)
    return torch.where(column - row[:, None] == offset, values, rows_last).movedim((-2, -1), (dim1, dim2))
