"""Writes into docs/precision.md which instructions multiply narrow numbers, from the compiler's declarations."""

from __future__ import annotations

from pathlib import Path

from nnefc.passes.tir.dot.dot_instructions import instructions
from nnefc.targets.machine.cpu.architecture import RISCV_LENGTHS
from nnefc.targets.machine.cpu.matrix_units import TILE_PRODUCTS

PAGE = Path(__file__).parent / "precision.md"
_BEGIN, _END = "<!-- instructions -->\n", "<!-- end of instructions -->\n"
_NAMES = {
    "pmaddwd": "pmaddwd, of bytes extended to 16 bits",
    "wasm_dot": "i32x4.dot_i16x8_s, of bytes extended to 16 bits",
    "wasm_udot": "i32x4.relaxed_dot_i8x16_i7x16_add_s",
    "wasm_sdot": "i32x4.relaxed_dot_i8x16_i7x16_add_s",
    "half_pairs": "multiply-adds of float16",
    "half_product": "multiply-adds of float16",
    **{f"riscv_product_{bits}": "`vwmacc`, of bytes extended to 16 bits" for bits in RISCV_LENGTHS},
    **{f"sve_{name}": f"`{name}` on vectors of SVE" for name in ("sdot", "udot", "bfdot")},
}


def table() -> str:
    """A row for each instruction set, its features, and the types of the weights."""
    types: dict[tuple[str, str, str, str], list[str]] = {}
    for architecture, features, weights, operator in instructions():
        name = operator.removeprefix("nnefc.")
        product = TILE_PRODUCTS.get(operator)
        in_tiles = ""
        if product is not None and features != {"avxvnni"}:  # processors with AMX have AVX-512
            in_tiles = f"`{', '.join(dict.fromkeys(product.instructions))}` with {product.feature}"
        row = architecture, ", ".join(sorted(features)), _NAMES.get(name, f"`{name}`"), in_tiles
        types.setdefault(row, []).append(weights)
    rows = ["| instruction set | features | weights | vectors | tiles of rows and columns |", "|---|---|---|---|---|"]
    rows += [
        f"| {a} | {features} | {', '.join(types[a, features, vectors, tiles])} | {vectors} | {tiles} |"
        for a, features, vectors, tiles in types
    ]
    return "\n".join(rows) + "\n"


def page() -> str:
    """The page with the table as it should be."""
    before, _, tail = PAGE.read_text(encoding="utf-8").partition(_BEGIN)
    return f"{before}{_BEGIN}{table()}{_END}{tail.partition(_END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
