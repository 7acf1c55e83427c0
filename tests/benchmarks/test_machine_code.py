"""Main loops in the machine code of kernels, as `cuobjdump -sass` writes it."""

from __future__ import annotations

import pytest
from machine_code import loop_of
from sass import functions_of

from nnefc.targets.machine.cuda.capabilities import default_gpu

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
    (function,) = functions_of(SASS.format(name=name, rows=rows, descriptor=descriptor))
    loop = loop_of(function, (192, 1, 1))
    assert loop is not None
    assert (loop.kernel, loop.architecture, loop.multiply_adds) == ("product_kernel", 100, multiply_adds)
    assert (loop.products, loop.instructions) == (1, 6)
    assert loop.operand_bytes == operands * 32 * 2 // 4
    assert loop.fetched_bytes == loop.operand_bytes / 2
    assert loop.is_copied and loop.is_loop
    assert loop.has_warpgroups


SEVERAL_LOOPS = """
Fatbin elf code:
================
arch = sm_80
		Function : product_kernel
        /*0010*/                   LDGSTS.E.BYPASS.128 [R9], [R4.64] ;
        /*0020*/                   LDSM.16.M88.4 R8, [R9] ;
        /*0030*/                   HMMA.16816.F32 R12, R8, R10, R12 ;
        /*0040*/                   HMMA.16816.F32 R16, R8, R10, R16 ;
        /*0050*/               @P0 BRA 0x10 ;
        /*0060*/                   LDG.E.U16 R8, [R4.64] ;
        /*0070*/                   HMMA.1688.F32.TF32 R12, R8, R10, R12 ;
        /*0080*/               @P1 BRA 0x60 ;
        /*0090*/                   STG.E.U16 [R4.64], R12 ;
        /*00a0*/               @P2 BRA 0x10 ;
        /*00b0*/                   EXIT ;
"""


def test_the_main_loop_is_the_innermost_with_most_products() -> None:
    (function,) = functions_of(SEVERAL_LOOPS)
    loop = loop_of(function, (128, 1, 1))
    assert loop is not None and loop.is_loop
    assert loop.counts == {"LDGSTS.16": 1, "LDSM": 1, "HMMA": 2, "BRA": 1}
    assert (loop.multiply_adds, loop.narrow, loop.fetched_bytes) == (2 * 16 * 8 * 16, 0, 16 * 32)
    assert [loop.slots(pipe) for pipe in ("tensor", "shared", "memory", "control")] == [2, 1, 1, 1]


def test_a_loop_that_stores_results_is_none_over_the_depth() -> None:
    text = SEVERAL_LOOPS.replace("@P0 BRA", "@P0 NOP").replace("@P1 BRA", "@P1 NOP")
    (function,) = functions_of(text)
    loop = loop_of(function, (128, 1, 1))
    assert loop is not None and not loop.is_loop
    assert (loop.products, loop.narrow) == (3, 2)


def test_cycles_of_pipes_follow_from_the_rates_of_the_device() -> None:
    (function,) = functions_of(SEVERAL_LOOPS)
    loop = loop_of(function, (128, 1, 1))
    assert loop is not None
    cycles = loop.cycles(default_gpu(80), 1024)
    assert cycles["tensor"] == 2 * 16 * 8 * 16 / 256  # each of four schedulers has a quarter of 1,024
    assert cycles["fetch"] == 16 * 32 * 4 / default_gpu(80).fetch_bytes_per_cycle
    assert cycles["issue"] == 5
