"""Addresses that machine code computes, compared with those of its source, and the bank conflicts that follow."""

from __future__ import annotations

import numpy as np
import pytest
from sass import Instruction, functions_of
from shared_addresses import addresses_of, shared_wavefronts, wavefronts

SM_80 = """
Fatbin elf code:
================
arch = sm_80
		Function : gather
        /*0010*/                   S2R R3, SR_TID.X ;
        /*0020*/                   I2F R5, c[0x0][0x168] ;
        /*0040*/                   S2R R0, SR_TID.Y ;
        /*0060*/                   IMAD R2, R3, 0x21, R0 ;
        /*0070*/                   STS [R2.X4], R5 ;
        /*0080*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*0090*/              @!P0 EXIT ;
        /*00a0*/                   IMAD.HI R2, R3.reuse, 0x55555556, RZ ;
        /*00b0*/                   SHF.R.U32.HI R7, RZ, 0x3, R3.reuse ;
        /*00d0*/                   SHF.L.U32 R6, R3, 0x7, RZ ;
        /*00e0*/                   IMAD R4, R0, 0x20, R3 ;
        /*00f0*/                   LEA.HI R2, R2, R2, RZ, 0x1 ;
        /*0100*/                   LOP3.LUT R8, R6, 0xf80, RZ, 0xc0, !PT ;
        /*0110*/                   LOP3.LUT R7, R4, 0x7, R7, 0x78, !PT ;
        /*0120*/                   IMAD R5, R2, -0x3, R3 ;
        /*0140*/                   LDS R11, [R8] ;
        /*0160*/                   IMAD R5, R0, 0x21, R5 ;
        /*01a0*/                   IMAD R5, R2, 0x4, R5 ;
        /*01b0*/                   LDS.128 R12, [R7.X16+0x1080] ;
        /*01c0*/                   LDS R5, [R5.X4] ;
        /*01d0*/                   LDS R6, [R11] ;
        /*01e0*/                   EXIT ;
"""
SM_90 = """
Fatbin elf code:
================
arch = sm_90
		Function : gather
        /*0010*/                   S2R R0, SR_TID.X ;
        /*0020*/                   S2UR UR5, SR_CgaCtaId ;
        /*0030*/                   UMOV UR4, 0x400 ;
        /*0040*/                   S2R R3, SR_TID.Y ;
        /*0060*/                   ULEA UR6, UR5, UR4, 0x18 ;
        /*0070*/                   I2FP.F32.S32 R5, R2 ;
        /*0090*/                   IMAD R4, R0, 0x21, R3 ;
        /*00a0*/                   LEA R4, R4, UR6, 0x2 ;
        /*00b0*/                   STS [R4], R5 ;
        /*00c0*/                   BAR.SYNC.DEFER_BLOCKING 0x0 ;
        /*00d0*/              @!P0 EXIT ;
        /*00e0*/                   IMAD.HI R4, R0, 0x55555556, RZ ;
        /*00f0*/                   UIADD3 UR4, UR4, 0x1080, URZ ;
        /*0100*/                   SHF.R.U32.HI R7, RZ, 0x3, R0.reuse ;
        /*0110*/                   IMAD R6, R3, 0x20, R0.reuse ;
        /*0120*/                   LEA.HI R5, R4, R4, RZ, 0x1 ;
        /*0130*/                   ULEA UR4, UR5, UR4, 0x18 ;
        /*0150*/                   LOP3.LUT R7, R6, 0x7, R7, 0x78, !PT ;
        /*0160*/                   IMAD R4, R5, -0x3, R0 ;
        /*0180*/                   IMAD R4, R3, 0x21, R4 ;
        /*0190*/                   LEA R7, R7, UR4, 0x4 ;
        /*01b0*/                   IMAD R4, R5, 0x4, R4 ;
        /*01c0*/                   SHF.L.U32 R5, R0, 0x7, RZ ;
        /*01e0*/                   LEA R4, R4, UR6, 0x2 ;
        /*0200*/                   LOP3.LUT R10, R5, 0xf80, RZ, 0xc0, !PT ;
        /*0210*/                   LDS R13, [R10+UR6] ;
        /*0220*/                   LDS.128 R8, [R7] ;
        /*0230*/                   LDS R11, [R4] ;
        /*0240*/                   LDS R6, [R11] ;
        /*0250*/                   EXIT ;
"""
"""What NVIDIA's compiler makes of this source, without what has no part in it, and with one load whose address is data:

    padded[x * 33 + y] = n;                                       // float, at 0 and 1,024
    a = padded[x * 32 & 1023];
    b = wide[(y * 32 + x) ^ (x >> 3 & 7)];                        // float4, 4,224 bytes behind
    c = padded[y * 33 + (x / 3) * 4 + x % 3];
"""

X, Y = np.arange(256) % 32, np.arange(256) // 32
EXPECTED = (
    (X * 33 + Y) * 4,
    X * 32 % 1024 * 4,
    4224 + 16 * ((Y * 32 + X) ^ (X >> 3 & 7)),
    (Y * 33 + X // 3 * 4 + X % 3) * 4,
)


@pytest.mark.parametrize(("text", "base"), [(SM_80, 0), (SM_90, 1024)])
def test_addresses_are_those_of_the_source(text: str, base: int) -> None:
    (function,) = functions_of(text)
    found = [addresses for _, addresses in addresses_of(function.body, (32, 8, 1))]
    for addresses, expected in zip(found, EXPECTED, strict=False):
        np.testing.assert_array_equal(addresses, base + expected)
    assert found[len(EXPECTED) :] == [None]  # it depends on memory
    found_wavefronts = shared_wavefronts(function.body, range(len(function.body)), (32, 8, 1))
    assert found_wavefronts.unknown == 1
    assert found_wavefronts.needed == 1 + 1 + 4 + 1
    assert (
        found_wavefronts.taken == 1 + 32 + 4 + 2
    )  # rows of 32 floats share a bank; x / 3 * 4 + x % 3 reaches 41, over 32


@pytest.mark.parametrize(
    ("addresses", "size", "expected"),
    [
        (np.arange(32) * 4, 4, (1, 1)),
        (np.arange(32) * 8, 4, (1, 2)),
        (np.arange(32) * 132, 4, (1, 1)),
        (np.arange(32) * 128, 4, (1, 32)),
        (np.zeros(32), 4, (1, 1)),  # one word for all
        (np.arange(32) * 2, 2, (1, 1)),
        (np.arange(32) * 16, 16, (4, 4)),
        (np.arange(32) % 16 * 128 + np.arange(32) // 16 * 16, 16, (4, 32)),  # rows of 128 bytes
        (np.arange(32) % 16 * 128 + (np.arange(32) // 16 ^ np.arange(32) % 8) * 16, 16, (4, 4)),  # swizzled
        (np.where(np.arange(32) < 8, np.arange(32) * 16, -1), 16, (1, 1)),
    ],
)
def test_wavefronts_are_the_words_of_the_fullest_bank(
    addresses: np.ndarray, size: int, expected: tuple[int, int]
) -> None:
    assert wavefronts(addresses.astype(np.int64), size) == expected


def test_threads_whose_guard_is_false_access_nothing() -> None:
    body = [
        Instruction(0x00, "", "S2R", "R0, SR_TID.X"),
        Instruction(0x10, "", "IMAD.SHL.U32", "R1, R0, 0x80, RZ"),
        Instruction(0x20, "", "ISETP.LT.AND", "P0, PT, R0, 0x4, PT"),
        Instruction(0x30, "P0", "LDS", "R2, [R1]"),
        Instruction(0x40, "!P0", "LDS", "R2, [R0.X4]"),
    ]
    assert shared_wavefronts(body, [3], (64, 1, 1)).taken == 4
    assert shared_wavefronts(body, [4], (64, 1, 1)).taken == 1
