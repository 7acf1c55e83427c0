"""What came of one test."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PASSED", "Outcome"]

PASSED = ("pass", "lowered", "fixed", "known")


@dataclass(frozen=True)
class Outcome:
    """What came of a test.

    Attributes:
        status: `pass`; `lowered`: passes with the older versions in `reason` stated; `fixed`: passes when the values
            of the inputs in `reason` are known at compile time; `known`: the same, and these are all inputs, so that
            the results are computed at compile time; `refused`: an error that says why; `wrong`: other results;
            `broken`: no such error, a crash, no end.
        reason: why it does not pass, in one line.
    """

    status: str
    reason: str = ""

    @property
    def passed(self) -> bool:
        """Whether the results are as expected."""
        return self.status in PASSED
