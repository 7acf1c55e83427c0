"""Schedules attention of 16-bit floats by tensor cores, as one launch: its scores stay in registers.

    scores = Q Kᵀ;  weights = softmax(mask(scores));  result = weights V          →          one launch

The loops are those of `schedule/gpu/attention/launch.py`; other types are multiplied by multiply-adds. Warps multiply
(`warp_attention.py`), or warpgroups where the target has their products (`warpgroup_attention.py`).
"""

from __future__ import annotations

from tvm import s_tir

from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cuda.warp_attention import WarpAttentionLaunch, WarpAttentionTile, warp_attention_tiles
from nnefc.passes.schedule.cuda.warpgroup_attention import (
    WarpgroupAttentionLaunch,
    WarpgroupAttentionTile,
    warpgroup_attention_tiles,
)
from nnefc.passes.schedule.gpu.attention.analysis import Attention, attention_of
from nnefc.passes.schedule.gpu.attention.tiles import choose_tile
from nnefc.targets.machine.cuda.capabilities import MATRIX_INSTRUCTIONS
from nnefc.targets.machine.cuda.target import CudaTarget

__all__ = ["TensorCoreAttentionRule", "attention_tiles"]


class TensorCoreAttentionRule:
    """An attention of any number of queries in 16-bit floats, where threads have registers for their tiles.

    Keys and values of other types, as caches have, are converted on their way to shared memory.
    """

    def apply(self, kernel: KernelAnalysis, target: CudaTarget) -> s_tir.Schedule | None:
        attention = _multiplied(kernel, target)
        if attention is None:
            return None
        dtype = attention.left.stored.dtype
        match choose_tile(attention, attention_tiles(attention, target), target):
            case WarpAttentionTile() as tile:
                return WarpAttentionLaunch(attention, tile, target, dtype).schedule()
            case WarpgroupAttentionTile() as tile:
                return WarpgroupAttentionLaunch(attention, tile, target, dtype).schedule()
        return None

    @staticmethod
    def has_own_instructions(kernel: KernelAnalysis, target: CudaTarget) -> bool:
        """Whether the rule takes instructions that only some architectures have: `wgmma`."""
        attention = _multiplied(kernel, target) if target.has_warpgroup_products else None
        if attention is None:
            return False
        return isinstance(choose_tile(attention, attention_tiles(attention, target), target), WarpgroupAttentionTile)


def _multiplied(kernel: KernelAnalysis, target: CudaTarget) -> Attention | None:
    """Returns the attention that a kernel is, if tensor cores of all architectures multiply its types."""
    attention = attention_of(kernel, target)
    if attention is None:
        return None
    dtype = attention.left.stored.dtype
    is_multiplied = dtype in ("float16", "bfloat16") and target.oldest >= MATRIX_INSTRUCTIONS[dtype].oldest
    return attention if is_multiplied else None


def attention_tiles(attention: Attention, target: CudaTarget) -> tuple[WarpAttentionTile | WarpgroupAttentionTile, ...]:
    """Returns the tiles of the instructions that all architectures of the target have."""
    of_warps = warp_attention_tiles(attention, target.gpu.architecture)
    return (*of_warps, *(warpgroup_attention_tiles(attention) if target.has_warpgroup_products else ()))
