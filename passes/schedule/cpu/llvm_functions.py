"""Instructions that TVM has no types for: by small functions of LLVM's that are inlined.

sum = nnefc.vdpbf16ps(sum, a, b)     →     import_llvm "define … @nnefc_vdpbf16ps_16 …"
                                           sum = nnefc_vdpbf16ps_16(sum, a, b)

Those on bfloat16, those that make bytes wider, `nnefc_wider_…`: see `passes/tir/widened_bytes.py`, those on pairs of
rows, `nnefc_pairs_…`: see `passes/tir/row_pairs.py`, and those on tiles of a matrix, `nnefc_tile_…`: see
`passes/tir/matrix_tiles.py`. Where the matrix unit is emulated, the latter call functions in C, of
`targets/runtime/emulation/tiles.c`.
"""

from __future__ import annotations

from pathlib import Path

import tvm
import tvm_ffi
from tvm import tirx

from nnefc.c_sources import CCall, CSource
from nnefc.passes.compute.dot_code import llvm_text
from nnefc.passes.tir.matrix_tiles import tile_calls
from nnefc.passes.tir.row_pairs import pair_calls
from nnefc.passes.tir.widened_bytes import widening_text
from nnefc.targets.machine.target import Target
from nnefc.targets.runtime import emulation

__all__ = ["with_llvm_functions"]


def with_llvm_functions(func: tirx.PrimFunc, target: Target) -> tirx.PrimFunc:
    """A kernel with the text of what it calls."""
    texts: dict[str, None] = {}
    architecture = target.triple.split("-")[0]

    def find(call: tvm.ir.Call) -> tvm.ir.Call:
        text = llvm_text(call) or widening_text(call, architecture)
        if text:
            texts[text] = None
        return call

    tvm_ffi.structural_map(func.body, (tvm.ir.Call, find))
    tiles = sorted(set(tile_calls(func.body)))
    if tiles:
        texts[_tile_functions(tiles, target.emulates_tiles)] = None
    texts.update(dict.fromkeys(_PAIRS[name] for name in sorted(set(pair_calls(func.body)))))
    body = func.body
    for text in texts:
        body = tirx.AttrStmt("default", "pragma_import_llvm", text, body)
    if tiles and target.emulates_tiles:
        func = func.with_attrs(CCall.of(_EMULATION, "nnefc_emulated_tiles", (), (), ()).attributes)
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs) if texts else func


def _of_pairs(name: str, sum_type: str, items: str) -> str:
    """The text of a product of two rows and two columns."""
    intrinsic = f"llvm.aarch64.neon.{name}" + ("" if name == "bfmmla" else ".v4i32.v16i8")
    return f"""
declare <4 x {sum_type}> @{intrinsic}(<4 x {sum_type}>, {items}, {items})
define linkonce_odr hidden <4 x {sum_type}> @nnefc_pairs_{name}(<4 x {sum_type}> %s, <4 x i32> %a, <4 x i32> %b)
  alwaysinline {{
  %x = bitcast <4 x i32> %a to {items}
  %y = bitcast <4 x i32> %b to {items}
  %r = call <4 x {sum_type}> @{intrinsic}(<4 x {sum_type}> %s, {items} %x, {items} %y)
  ret <4 x {sum_type}> %r
}}
"""


_PAIRS = {
    "smmla": _of_pairs("smmla", "i32", "<16 x i8>"),
    "ummla": _of_pairs("ummla", "i32", "<16 x i8>"),
    "bfmmla": _of_pairs("bfmmla", "float", "<8 x bfloat>"),
}
_EMULATION = CSource.file(Path(emulation.__file__).parent / "tiles.c")
_INTRINSICS = {
    "release": ("llvm.x86.tilerelease", ""),
    "shape": ("llvm.x86.ldtilecfg", "ptr"),
    "zero": ("llvm.x86.tilezero", "i8 immarg"),
    "load": ("llvm.x86.tileloadd64", "i8 immarg, ptr, i64"),
    "store": ("llvm.x86.tilestored64", "i8 immarg, ptr, i64"),
    "bf16ps": ("llvm.x86.tdpbf16ps", "i8 immarg, i8 immarg, i8 immarg"),
    "busd": ("llvm.x86.tdpbusd", "i8 immarg, i8 immarg, i8 immarg"),
    "bsud": ("llvm.x86.tdpbsud", "i8 immarg, i8 immarg, i8 immarg"),
}
"""What a function on tiles becomes, by the beginning of its name: LLVM's name, and the types of its parameters."""


def _tile_functions(names: list[str], emulated: bool) -> str:
    """The text of functions on tiles, given their names without `nnefc_tile_`."""
    kinds = sorted({name.partition("_")[0] for name in names})
    return "".join(
        [*(_declaration(kind, emulated) for kind in kinds), *(_definition(name, emulated) for name in names)]
    )


def _callee(kind: str, emulated: bool) -> str:
    return f"nnefc_emulated_{kind}" if emulated else _INTRINSICS[kind][0]


def _declaration(kind: str, emulated: bool) -> str:
    types = _INTRINSICS[kind][1]
    return f"declare void @{_callee(kind, emulated)}({types.replace(' immarg', '') if emulated else types})\n"


def _definition(name: str, emulated: bool) -> str:
    kind, *numbers = name.split("_")
    own, given, constant = "", ", ".join(f"i8 {number}" for number in numbers), ""
    if kind in ("load", "store"):
        own, given = "ptr %p, i64 %s", f"{given}, ptr %p, i64 %s"
    elif kind == "shape":
        data = "".join(f"\\{byte:02X}" for byte in _configuration(numbers))
        constant = f'@nnefc_tile_{name}_data = linkonce_odr hidden constant [64 x i8] c"{data}", align 64\n'
        given = f"ptr @nnefc_tile_{name}_data"
    head = f"define linkonce_odr hidden void @nnefc_tile_{name}({own}) alwaysinline"
    return f"{constant}{head} {{\n  call void @{_callee(kind, emulated)}({given})\n  ret void\n}}\n"


def _configuration(shapes: list[str]) -> bytes:
    """What LDTILECFG reads: the palette, then of each tile the bytes of a row, and the rows."""
    rows, words = zip(*(map(int, shape.split("x")) for shape in shapes), strict=True)
    data = bytearray(64)
    data[0] = 1
    for number, (height, width) in enumerate(zip(rows, words, strict=True)):
        data[16 + 2 * number] = 4 * width
        data[48 + number] = height
    return bytes(data)
