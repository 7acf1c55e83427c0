"""Declares nnefc's own pure TIR operators."""

from __future__ import annotations

import threading
from collections.abc import Callable

import tvm
from tvm import tirx
from tvm.ir import _ffi_api as ir_ffi
from tvm.ir import register_op_attr

__all__ = ["register_pure_operator"]

_PURE = 1  # TVM's CallEffectKind

_lock = threading.Lock()
_known: set[str] = set()


def register_pure_operator(name: str, meaning: str, lowering: Callable[[tvm.ir.Call], tirx.Expr]) -> None:
    """Registers an operator with TVM and its code generator for CPUs, in this process, unless it is registered.

    Several threads may ask for the same one at the same time: it is known when any of them goes on.

    Args:
        name: begins with `nnefc.`.
        meaning: in a few words.
        lowering: what a call becomes for LLVM; one of a vector computes each lane by itself.
    """
    with _lock:
        if name in _known:  # TVM refuses a second time
            return
        ir_ffi.RegisterOp(name, meaning)
        register_op_attr(name, "TCallEffectKind", _PURE)
        register_op_attr(name, "TVectorizable", True)
        register_op_attr(name, "TScriptPrinterName", name)
        tirx.register_intrin_lowering(name, target="llvm", f=lowering, level=100)
        _known.add(name)
