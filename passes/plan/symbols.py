"""Names the functions of a library's program, and defines how other objects call them."""

from __future__ import annotations

import re

from tvm import tirx

__all__ = ["ENTRY", "SIZES", "entry_symbol", "exported", "kernel_symbol", "symbol_of_content"]

ENTRY = "nnefc_network"
SIZES = "nnefc_network_sizes"

_LONGEST = 60
"""The maximum length of a kernel's name in a symbol."""

_C_CALLING_CONVENTION = 1  # an explicit one, so that TVM leaves the signature alone


def entry_symbol(level: int) -> str:
    """Returns the symbol of a level's program; to those for some sizes, a number from 1 on is added."""
    return ENTRY + f"_level{level}" * (level > 0)


def kernel_symbol(name: str) -> str:
    """Returns the symbol by which the entry calls the kernel of this name."""
    return f"nnefc_kernel_{name}"


def symbol_of_content(name: str, content: str) -> str:
    """Returns the symbol of a kernel that is called by what it computes, with the words of its name but no numbers,
    which differ from network to network.
    """
    words = re.sub(r"\d+(?=_|$)", "", name)[:_LONGEST]
    return f"{kernel_symbol(words)}_{content}"


def exported(func: tirx.PrimFunc, symbol: str) -> tirx.PrimFunc:
    """Returns `func` under a symbol that other objects of the library can call as a C function."""
    return func.with_attrs({"global_symbol": symbol, "calling_conv": _C_CALLING_CONVENTION})
