"""Defines the operations on tiles of a matrix unit as functions in LLVM IR.

    nnefc_tile_zero_0()     →     define … @nnefc_tile_zero_0() alwaysinline { call void @llvm.x86.tilezero(i8 0) … }

The operations are those of `passes/tir/cpu/lower_amx_tiles.py`. On Arm there is one for a product of whole matrices,
`nnefc_tile_fmopa` and the like: see `passes/tir/cpu/microkernels/aarch64_sme.py`.
"""

from __future__ import annotations

from tvm import tirx

from nnefc.ir.rebuild import with_fields
from nnefc.passes.tir.cpu.lower_amx_tiles import tile_calls
from nnefc.passes.tir.cpu.microkernels.aarch64_sme import OUTER_PRODUCTS, outer_product_text
from nnefc.targets.machine.cpu.matrix_units import AMX, TILE_PRODUCTS
from nnefc.targets.machine.cpu.target import Target

__all__ = ["features_of_tiles", "with_tile_functions"]

_INTRINSICS = {
    "release": ("llvm.x86.tilerelease", ""),
    "shape": ("llvm.x86.ldtilecfg", "ptr"),
    "zero": ("llvm.x86.tilezero", "i8 immarg"),
    "load": ("llvm.x86.tileloadd64", "i8 immarg, ptr, i64"),
    "store": ("llvm.x86.tilestored64", "i8 immarg, ptr, i64"),
    **{
        name: (f"llvm.x86.{name}", "i8 immarg, i8 immarg, i8 immarg")
        for product in TILE_PRODUCTS.values()
        if product.unit is AMX
        for name in product.instructions
    },
}
"""The LLVM intrinsic, and the types of its parameters, for each prefix of a function's name. Tests replace these
intrinsics by C functions: see `tests/targets/emulated_amx.py`.
"""


def features_of_tiles(func: tirx.PrimFunc, target: Target) -> tuple[str, ...]:
    """Returns the features of the matrix unit, if a kernel has operations on tiles."""
    return target.tiles if any(tile_calls(func.body)) else ()


def with_tile_functions(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Adds to a kernel the text of the tile functions that it calls."""
    names = sorted(set(tile_calls(func.body)))
    if not names:
        return func
    body = tirx.AttrStmt("default", "pragma_import_llvm", _text(names), func.body)
    return with_fields(func, body=body)


def _text(names: list[str]) -> str:
    """Returns the text of functions on tiles, given their names without `nnefc_tile_`."""
    outer = [name for name in names if name in OUTER_PRODUCTS.values()]
    others = [name for name in names if name not in outer]
    kinds = sorted({name.partition("_")[0] for name in others})
    return "".join([*map(_declaration, kinds), *map(_definition, others), *map(outer_product_text, outer)])


def _declaration(kind: str) -> str:
    name, types = _INTRINSICS[kind]
    return f"declare void @{name}({types})\n"


def _definition(name: str) -> str:
    kind, *numbers = name.split("_")
    own, given, constant = "", ", ".join(f"i8 {number}" for number in numbers), ""
    if kind in ("load", "store"):
        own, given = "ptr %p, i64 %s", f"{given}, ptr %p, i64 %s"
    elif kind == "shape":
        data = "".join(f"\\{byte:02X}" for byte in _configuration(numbers))
        constant = f'@nnefc_tile_{name}_data = linkonce_odr hidden constant [64 x i8] c"{data}", align 64\n'
        given = f"ptr @nnefc_tile_{name}_data"
    head = f"define linkonce_odr hidden void @nnefc_tile_{name}({own}) alwaysinline"
    return f"{constant}{head} {{\n  call void @{_INTRINSICS[kind][0]}({given})\n  ret void\n}}\n"


def _configuration(shapes: list[str]) -> bytes:
    """Returns the operand of LDTILECFG: the palette, then the bytes of a row and the number of rows of each tile."""
    rows, words = zip(*(map(int, shape.split("x")) for shape in shapes), strict=True)
    data = bytearray(64)
    data[0] = 1
    for number, (height, width) in enumerate(zip(rows, words, strict=True)):
        data[16 + 2 * number] = 4 * width
        data[48 + number] = height
    return bytes(data)
