"""Instructions on bfloat16, which TVM has no LLVM type for: by small functions of LLVM's that are inlined.

sum = nnefc.vdpbf16ps(sum, a, b)     →     import_llvm "define … @nnefc_vdpbf16ps_16 …"
                                           sum = nnefc_vdpbf16ps_16(sum, a, b)
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx

from nnefc.passes.compute.dot_product import llvm_text

__all__ = ["with_llvm_functions"]


def with_llvm_functions(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A kernel with the text of what it calls."""
    texts: dict[str, None] = {}

    def find(call: tvm.ir.Call) -> tvm.ir.Call:
        text = llvm_text(call)
        if text:
            texts[text] = None
        return call

    tvm_ffi.structural_map(func.body, (tvm.ir.Call, find))
    body = func.body
    for text in texts:
        body = tirx.AttrStmt("default", "pragma_import_llvm", text, body)
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs) if texts else func
