"""Range of a dynamic dimension: min, max, and a number that divides it."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from nnefc.support.diagnostics import CompileError

__all__ = ["LARGEST", "MAX_ELEMENTS", "DynamicSize", "Range", "is_of_cache", "may_be_empty"]

MAX_ELEMENTS = (1 << 31) - 1
"""Maximum elements of a tensor: compiled code indexes tensors with 32-bit integers."""

LARGEST = 1 << 20
"""The default maximum of a dynamic dimension. Products of three such sizes fit in int64, beyond which TVM's proofs
are wrong. It is below the values that exporters write for `to the end`, about a billion.
"""


def may_be_empty(name: str, axis: int) -> bool:
    """Return whether a dimension at this axis of an input is a batch or a cache length by its name, which may be 0."""
    return axis == 0 or "batch" in name.lower() or name in ("N", "n", "B", "b") or is_of_cache(name)


def is_of_cache(name: str) -> bool:
    """Return whether a dimension is that of a cache by its name: caches are empty in the first run of a decoder."""
    return "past" in name.lower()


@dataclass(frozen=True)
class Range:
    """The values of a dynamic dimension, from `minimum` to `maximum` inclusive, and a value for estimates.

    Sizes are these values times `multiple`.
    """

    minimum: int
    maximum: int
    size_hint: int
    multiple: int = 1


@dataclass(frozen=True)
class DynamicSize:
    """A user's range of a dynamic dimension: `min..max:multiple`.

    Attributes:
        minimum, maximum: of the size; None: `LARGEST`.
        multiple: divides every size.
        likely: a size hint, used if there is no `maximum` below `LARGEST` to derive one from.
    """

    minimum: int = 1
    maximum: int | None = None
    multiple: int = 1
    likely: int = 64

    @classmethod
    def read(cls, text: str) -> DynamicSize | None:
        """Parse a range such as `1..64`, `32..1280:32` or `1..`; None for other texts.

        Raises:
            CompileError: the range is empty.
        """
        found = re.fullmatch(r"\s*(\d{1,18})\.\.(\d{1,18})?(?::(\d{1,18}))?\s*", text)
        if found is None:
            return None
        minimum, maximum, multiple = (None if number is None else int(number) for number in found.groups())
        made = cls(minimum or 0, maximum, max(multiple or 1, 1))
        if made.values.maximum < made.values.minimum:
            raise CompileError(f"no size is in the range {text.strip()}", hint="write MIN..MAX:MULTIPLE: 32..1280:32")
        return made

    @property
    def values(self) -> Range:
        """The range of the sizes divided by their multiple; the value for estimates is not far below the maximum."""
        minimum, maximum = (
            -(-self.minimum // self.multiple),
            (LARGEST if self.maximum is None else self.maximum) // self.multiple,
        )
        is_limited = self.maximum is not None and self.maximum < LARGEST
        size_hint = math.isqrt(max(minimum, maximum // 16) * maximum) if is_limited else self.likely // self.multiple
        return Range(minimum, maximum, max(minimum, min(maximum, size_hint)), self.multiple)
