"""Calls instructions on types that TVM lacks by small inlined functions in LLVM IR.

sum = nnefc.vdpbf16ps(sum, a, b)     →     import_llvm "define … @nnefc_vdpbf16ps_16 …"
                                           sum = nnefc_vdpbf16ps_16(sum, a, b)

These instructions are those on bfloat16, extensions of bytes (`nnefc_wider_…`, see
`passes/tir/cpu/widen_int8_loads.py`), those on pairs of rows (`nnefc_pairs_…`, see `passes/tir/cpu/lower_i8mm.py`), and
those on tiles of a matrix (`nnefc_tile_…`, see `tile_functions.py`).
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx

from nnefc.ir.rebuild import with_fields
from nnefc.passes.compute.dot.dot_intrinsics import llvm_text
from nnefc.passes.schedule.cpu import tile_functions
from nnefc.passes.tir.cpu.lower_i8mm import pair_calls
from nnefc.passes.tir.cpu.row_pairs import LOADS, PREFIX
from nnefc.passes.tir.cpu.widen_int8_loads import widening_text
from nnefc.passes.tir.dot.dot_instructions import PRODUCTS
from nnefc.targets.machine.cpu.matrix_units import ROW_PAIRS, TILE_PRODUCTS
from nnefc.targets.machine.cpu.target import Target

__all__ = ["call_llvm_functions"]


def call_llvm_functions(func: tirx.PrimFunc, target: Target) -> tirx.PrimFunc:
    """Returns a kernel with the text of the LLVM functions that it calls."""
    texts: dict[str, None] = {}
    architecture = target.triple.split("-")[0]

    def find(call: tvm.ir.Call) -> tvm.ir.Call:
        text = llvm_text(call) or widening_text(call, architecture)
        if text:
            texts[text] = None
        return call

    tvm_ffi.structural_map(func.body, (tvm.ir.Call, find))
    texts.update(dict.fromkeys(_PAIRS[name] for name in sorted(set(pair_calls(func.body)))))
    body = func.body
    for text in texts:
        body = tirx.AttrStmt("default", "pragma_import_llvm", text, body)
    func = with_fields(func, body=body) if texts else func
    return tile_functions.with_tile_functions(func)


def _of_pairs(operator: str, name: str) -> str:
    """Returns the text of a product of two rows and two columns, computed by one instruction."""
    product = PRODUCTS[operator]
    sum_type = "float" if product.sums == "float32" else "i32"
    elements = "<8 x bfloat>" if product.left == "bfloat16" else "<16 x i8>"
    intrinsic = f"llvm.aarch64.neon.{name}" + ("" if product.left == "bfloat16" else ".v4i32.v16i8")
    return f"""
declare <4 x {sum_type}> @{intrinsic}(<4 x {sum_type}>, {elements}, {elements})
define linkonce_odr hidden <4 x {sum_type}> @nnefc_pairs_{name}(<4 x {sum_type}> %s, <4 x i32> %a, <4 x i32> %b)
  alwaysinline {{
  %x = bitcast <4 x i32> %a to {elements}
  %y = bitcast <4 x i32> %b to {elements}
  %r = call <4 x {sum_type}> @{intrinsic}(<4 x {sum_type}> %s, {elements} %x, {elements} %y)
  ret <4 x {sum_type}> %r
}}
"""


def _load_of_pairs(load: str, register: int) -> str:
    """Returns the text of a load of pairs of rows, and of one of the registers that it loads. LLVM joins the loads of
    the same bytes."""
    count = LOADS[load].registers
    loaded = f"{{ {', '.join(['<2 x i64>'] * count)} }}" if count > 1 else "<2 x i64>"
    if count > 1:
        declared = f"declare {loaded} @llvm.aarch64.neon.{load}.v2i64.p0(ptr)"
        made = f"""  %r = call {loaded} @llvm.aarch64.neon.{load}.v2i64.p0(ptr %p)
  %h = extractvalue {loaded} %r, {register}"""
    else:
        declared = ""
        made = """  %e = load i64, ptr %p, align 4
  %i = insertelement <2 x i64> poison, i64 %e, i64 0
  %h = shufflevector <2 x i64> %i, <2 x i64> poison, <2 x i32> zeroinitializer"""
    return f"""
{declared}
define linkonce_odr hidden <4 x i32> @{PREFIX}{load}_{register}(ptr %p) alwaysinline {{
{made}
  %v = bitcast <2 x i64> %h to <4 x i32>
  ret <4 x i32> %v
}}
"""


_PAIRS = {
    name: _of_pairs(operator, name)
    for operator, product in TILE_PRODUCTS.items()
    if product.unit is ROW_PAIRS
    for name in product.instructions
} | {f"{load}_{n}": _load_of_pairs(load, n) for load, found in LOADS.items() for n in range(found.registers)}
