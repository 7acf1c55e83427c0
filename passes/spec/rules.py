"""Defines a rule about programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from nnefc.ir.attributes import Form

__all__ = ["ALL", "BLOCKS", "GRAPH", "KERNELS", "LOOPS", "LOWERED", "SCHEDULED", "Rule"]

ALL = frozenset(Form)
GRAPH = frozenset({Form.NETWORK, Form.KERNELS})
KERNELS = frozenset({Form.KERNELS})
SCHEDULED = frozenset({Form.SCHEDULED})
BLOCKS = GRAPH | SCHEDULED
LOWERED = frozenset({Form.LOWERED})
LOOPS = frozenset({Form.FLAT}) | LOWERED

_Subject = TypeVar("_Subject")


@dataclass(frozen=True)
class Rule(Generic[_Subject]):
    """A rule that every valid program of some forms satisfies.

    Attributes:
        text: what holds of every valid program.
        forms: of the programs that the rule is about.
        broken: yields what breaks the rule, in words; nothing for a valid program.
    """

    text: str
    forms: frozenset[Form]
    broken: Callable[[_Subject], Iterator[str]]
