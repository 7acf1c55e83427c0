"""Exports what users of the compiler need of passes: `after` and `PassTimes`.

`after` puts a pass of a user after one of a backend's list, `PassTimes` measures all passes; both are for
`nnefc.compile`. See docs/how-to/add-a-pass.md.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nnefc.passes.custom import after
    from nnefc.passes.times import PassTimes

__all__ = ["PassTimes", "after"]

_LAZY = {"PassTimes": "nnefc.passes.times", "after": "nnefc.passes.custom"}


def __getattr__(name: str) -> Any:
    """Imports what is here at its first use: passes import each other through this package."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
