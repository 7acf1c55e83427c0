"""Main loops in the machine code of kernels, as `cuobjdump -sass` writes it."""

from __future__ import annotations

import pytest
from machine_code import loops_of

SASS = """
Fatbin elf code:
================
arch = sm_100
		Function : product_kernel
        /*0010*/                   UMOV UR7, 0x8000 ;
        /*0020*/                   UMOV UR13, {descriptor:#x} ;
        /*0030*/              @P0 ELECT P1, URZ, PT ;
        /*0040*/                   {name} gdesc[UR4]{rows}, gdesc[UR6], tmem[UR14], tmem[UR12], idesc[UR13], UP0 ;
        /*0050*/              @P0 BRA.U.ANY 0x30 ;
        /*0060*/                   UTCBAR [UR4], URZ ;
        /*0070*/               @P0 BRA 0x20 ;
        /*0080*/                   UTMALDG.3D [UR8], [UR14] ;
        /*0090*/                   EXIT ;
"""


@pytest.mark.parametrize(
    ("name", "rows", "descriptor", "multiply_adds", "operands"),
    [
        ("UTCHMMA", "", 0x8410010, 128 * 256 * 16 // 4, 128 + 256),
        ("UTCHMMA", "", 0x8190490, 128 * 96 * 16 // 4, 128 + 96),
        ("UTCQMMA", "", 0x8100010, 128 * 64 * 32 // 4, 128 + 64),
        ("UTCHMMA.2CTA", ".A_KEEP", 0x10400010, 128 * 256 * 16 // 4, 128 + 128),  # columns of each block
        ("UTCHMMA.2CTA", ".A_REUSE", 0x10180010, 128 * 96 * 16 // 4, 48),
    ],
)
def test_sizes_of_products_into_tensor_memory_are_in_the_instruction_descriptor(
    name: str, rows: str, descriptor: int, multiply_adds: int, operands: int
) -> None:
    (loop,) = loops_of(SASS.format(name=name, rows=rows, descriptor=descriptor))
    assert (loop.kernel, loop.architecture, loop.multiply_adds) == ("product_kernel", 100, multiply_adds)
    assert (loop.products, loop.instructions) == (1, 6)
    assert loop.operand_bytes == operands * 32 * 2 // 4
    assert loop.is_copied
    assert loop.has_warpgroups
