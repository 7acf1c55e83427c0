"""Computes the frequencies of rotary position embeddings, also where they are scaled for longer contexts.

The scalings are named as `rope_type` of Hugging Face's configurations names them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from nnefc.support.diagnostics import CompileError

__all__ = ["KINDS", "RotaryScaling", "frequencies"]

Array = npt.NDArray[np.float64]

KINDS = ("none", "linear", "dynamic", "yarn", "longrope", "llama3")


@dataclass(frozen=True)
class RotaryScaling:
    """How angles are scaled.

    Attributes:
        kind: one of `KINDS`.
        factor: by how much the context is longer than in training.
        original_context: of the training.
        attention_factor: of rotated elements; None where it follows from the factor.
        options: other numbers of the kind.
        short_factors, long_factors: by which the frequencies of contexts up to the original one, and of longer ones,
            are divided; empty for none.
    """

    kind: str = "none"
    factor: float = 1.0
    original_context: int = 0
    attention_factor: float | None = None
    options: Mapping[str, float] = field(default_factory=dict)
    short_factors: Sequence[float] = ()
    long_factors: Sequence[float] = ()


def frequencies(rotated: int, base: float, scaling: RotaryScaling, context: int, source: str) -> tuple[Array, float]:
    """Returns the angle of each pair from one position to the next, and the scale of rotated elements.

    Args:
        rotated: elements of a head that are rotated.
        base: of the powers.
        scaling: for longer contexts.
        context: the largest number of positions of a session: by it the scaling of some kinds is chosen.
        source: the file, for messages.

    Raises:
        CompileError: the scaling is not known, or not complete.
    """
    if base <= 0 or rotated < 2 or rotated % 2:
        raise CompileError(f"'{source}': positions cannot rotate {rotated} elements by powers of {base}")
    unscaled = base ** -(np.arange(0, rotated, 2, dtype=np.float64) / rotated)
    if scaling.kind not in KINDS:
        raise CompileError(
            f"'{source}': positions scaled as '{scaling.kind[:80]}' are not supported",
            hint=f"known are {', '.join(KINDS)}",
        )
    if scaling.kind != "none" and not scaling.factor > 0:
        raise CompileError(f"'{source}': positions are scaled by {scaling.factor}, which is not above 0")
    match scaling.kind:
        case "linear":
            return unscaled / scaling.factor, 1.0
        case "dynamic":
            return _dynamic(rotated, base, unscaled, scaling, context), 1.0
        case "yarn":
            return _yarn(rotated, base, unscaled, scaling)
        case "longrope":
            return _longrope(unscaled, scaling, context, source)
        case "llama3":
            return _llama3(unscaled, scaling), 1.0
    return unscaled, 1.0


def _dynamic(rotated: int, base: float, unscaled: Array, scaling: RotaryScaling, context: int) -> Array:
    """A base that grows with the context, beyond the original one."""
    original = scaling.original_context
    if not original or context <= original:
        return unscaled
    grown = base * (scaling.factor * context / original - (scaling.factor - 1)) ** (rotated / (rotated - 2))
    found: Array = grown ** -(np.arange(0, rotated, 2, dtype=np.float64) / rotated)
    return found


def _yarn(rotated: int, base: float, unscaled: Array, scaling: RotaryScaling) -> tuple[Array, float]:
    """Low frequencies are divided by the factor, high ones stay (Peng et al., "YaRN", 2023)."""
    own = scaling.options
    original = scaling.original_context or 4096

    def pair_of(turns: float) -> float:
        """The pair that turns so often in the original context."""
        return rotated * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair_of(own.get("beta_fast", 32)), pair_of(own.get("beta_slow", 1))
    if own.get("truncate", 1):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rotated - 1)
    ramp = np.clip((np.arange(rotated // 2) - low) / max(high - low, 1e-3), 0, 1)
    made = unscaled / scaling.factor * ramp + unscaled * (1 - ramp)
    if scaling.attention_factor is not None:
        return made, scaling.attention_factor
    mscale, all_dims = own.get("mscale", 0.0), own.get("mscale_all_dim", 0.0)
    if mscale and all_dims:
        return made, _growth(scaling.factor, mscale) / _growth(scaling.factor, all_dims)
    return made, _growth(scaling.factor, 1.0)


def _growth(factor: float, scale: float) -> float:
    return 0.1 * scale * math.log(factor) + 1 if factor > 1 else 1.0


def _longrope(unscaled: Array, scaling: RotaryScaling, context: int, source: str) -> tuple[Array, float]:
    """A factor for each pair (Ding et al., "LongRoPE", 2024)."""
    original = scaling.original_context
    factors = np.asarray(scaling.long_factors if context > original else scaling.short_factors, np.float64)
    if factors.shape != unscaled.shape:
        raise CompileError(f"'{source}': positions have {factors.size} factors for {unscaled.size} pairs of elements")
    scale = scaling.attention_factor
    if scale is None:
        scale = math.sqrt(1 + math.log(scaling.factor) / math.log(original)) if scaling.factor > 1 else 1.0
    return unscaled / factors, scale


def _llama3(unscaled: Array, scaling: RotaryScaling) -> Array:
    """Low frequencies are divided by the factor, those between two wavelengths in part."""
    own, original = scaling.options, scaling.original_context or 8192
    low, high = own.get("low_freq_factor", 1.0), own.get("high_freq_factor", 4.0)
    turns = original * unscaled / (2 * math.pi)
    share = np.clip((turns - low) / (high - low), 0, 1)
    return (1 - share) * unscaled / scaling.factor + share * unscaled
