"""Inline assembly of CUDA source as calls of functions of emulator.h."""

from __future__ import annotations

import re

__all__ = ["without_assembly"]

_ASM = re.compile(r"\b(?:asm|__asm__)\s+(?:volatile|__volatile__)?\s*\(")
_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')

# Templates, without white space, and the calls that stand for them; {0}, {1}, … are the operands, \1, \2, … groups.
_INSTRUCTIONS = (
    (r"", "(void)0"),  # what only keeps the compiler from moving code across it
    (r"fence\.proxy\.async(?:\.shared::cta)?;", "emulator_fence_async()"),
    (r"fence\.mbarrier_init\.release\.cluster;", "emulator_fence_barriers()"),
    (
        r"barrier\.cluster\.arrive\.release\.aligned;barrier\.cluster\.wait\.acquire\.aligned;",
        "emulator_cluster_barrier(__LINE__)",
    ),
    (r"mapa\.shared::cluster\.u32%0,%0,(\d+);", r"{0} = emulator_map_to_rank({0}, \1)"),
    (r"mbarrier\.init\.shared::cta\.b64\[%0\],%1;", "emulator_mbarrier_init({0}, {1})"),
    (r"mbarrier\.arrive\.shared::cta\.b64_,\[%0\];", "emulator_mbarrier_arrive({0}, 0)"),
    (r"mbarrier\.arrive\.expect_tx\.shared::cta\.b64_,\[%0\],%1;", "emulator_mbarrier_arrive({0}, {1})"),
    (
        r"\{\.reg\.predp;mbarrier\.try_wait\.parity\.shared::cta\.b64p,\[%1\],%2;selp\.u32%0,1,0,p;\}",
        "{0} = emulator_mbarrier_wait({1}, {2}, __LINE__)",
    ),
    (
        r"cp\.async\.bulk\.tensor\.3d(?:\.cta_group::([12]))?\.shared::cluster\.global"
        r"(?:\.tile)?\.mbarrier::complete_tx::bytes"
        r"\[%0\],\[%1,\{%2,%3,%4\}\],\[%5\];",
        "emulator_bulk_copy((const void *){1}, 3, (const int[]){{{2}, {3}, {4}}}, {0}, {5}, 0\\1)",
    ),
    (
        r"cp\.async\.bulk\.tensor\.4d(?:\.cta_group::([12]))?\.shared::cluster\.global"
        r"(?:\.tile)?\.mbarrier::complete_tx::bytes"
        r"\[%0\],\[%1,\{%2,%3,%4,%5\}\],\[%6\];",
        "emulator_bulk_copy((const void *){1}, 4, (const int[]){{{2}, {3}, {4}, {5}}}, {0}, {6}, 0\\1)",
    ),
    (
        r"cp\.async\.bulk\.tensor\.5d(?:\.cta_group::([12]))?\.shared::cluster\.global"
        r"(?:\.tile)?\.mbarrier::complete_tx::bytes"
        r"\[%0\],\[%1,\{%2,%3,%4,%5,%6\}\],\[%7\];",
        "emulator_bulk_copy((const void *){1}, 5, (const int[]){{{2}, {3}, {4}, {5}, {6}}}, {0}, {7}, 0\\1)",
    ),
    (
        r"tcgen05\.alloc\.cta_group::([12])\.sync\.aligned\.shared::cta\.b32\[%0\],(\d+);",
        r"emulator_tensor_allocate({0}, \2, \1, __LINE__)",
    ),
    (
        r"tcgen05\.relinquish_alloc_permit\.cta_group::([12])\.sync\.aligned;",
        r"emulator_tensor_relinquish(\1, __LINE__)",
    ),
    (
        r"tcgen05\.dealloc\.cta_group::([12])\.sync\.aligned\.b32%0,(\d+);",
        r"emulator_tensor_free({0}, \2, \1, __LINE__)",
    ),
    (
        r"tcgen05\.commit\.cta_group::([12])\.mbarrier::arrive::one\.shared::cluster\.b64\[%0\];",
        r"emulator_tensor_commit({0}, 0, \1)",
    ),
    (
        r"tcgen05\.commit\.cta_group::([12])\.mbarrier::arrive::one\.shared::cluster\.multicast::cluster\.b64"
        r"\[%0\],%1;",
        r"emulator_tensor_commit({0}, {1}, \1)",
    ),
    (
        r"\{\.reg\.predp;setp\.ne\.b32p,%4,0;tcgen05\.mma\.cta_group::([12])\.kind::(f16|tf32|i8|f8f6f4)"
        r"(?:\.collector::a::(fill|use|lastuse))?\[%0\],%1,%2,%3,p;\}",
        r"emulator_tensor_multiply({0}, {1}, {2}, {3}, {4} != 0, emulator_tensor_\2, emulator_rows_\3, \1)",
    ),
    (r"tcgen05\.wait::ld\.sync\.aligned;", "emulator_tensor_wait(__LINE__)"),
    (r"tcgen05\.fence::before_thread_sync;", "emulator_tensor_fence(true)"),
    (r"tcgen05\.fence::after_thread_sync;", "emulator_tensor_fence(false)"),
    (r"setmaxnreg\.inc\.sync\.aligned\.u32(\d+);", r"emulator_set_registers(\1, true, __LINE__)"),
    (r"setmaxnreg\.dec\.sync\.aligned\.u32(\d+);", r"emulator_set_registers(\1, false, __LINE__)"),
    (r"wgmma\.fence\.sync\.aligned;", "emulator_warpgroup_fence()"),
    (r"wgmma\.commit_group\.sync\.aligned;", "emulator_warpgroup_commit()"),
    (r"wgmma\.wait_group\.sync\.aligned(\d+);", r"emulator_warpgroup_wait(\1)"),
    (r"cp\.async\.c[ag]\.shared\.global(?:\.L2::\d+B)?\[%0\],\[%1\],%2;", "emulator_copy({0}, {1}, {2}, {2})"),
    (r"cp\.async\.c[ag]\.shared\.global(?:\.L2::\d+B)?\[%0\],\[%1\],%2,%3;", "emulator_copy({0}, {1}, {2}, {3})"),
    (r"cp\.async\.c[ag]\.shared\.global(?:\.L2::\d+B)?\[%0\],\[%1\],(\d+),%2;", r"emulator_copy({0}, {1}, \1, {2})"),
    (r"cp\.async\.commit_group;", "emulator_copy_commit()"),
    (r"cp\.async\.wait_group(\d+);", r"emulator_copy_wait(\1)"),
    (r"cp\.async\.wait_all;", "(emulator_copy_commit(), emulator_copy_wait(0))"),
    (r"lop3\.b32%0,%1,%2,%3,0xea;", "{0} = {1} & {2} | {3}"),
    (r"ex2\.approx\.ftz\.f32%0,%1;", "{0} = exp2f({1})"),
    (r"cvt\.rn\.f16x2\.f32%0,%1,%2;", "{0} = emulator_half_bits({2}) | (unsigned)emulator_half_bits({1}) << 16"),
    (r"cvt\.rn\.bf16x2\.f32%0,%1,%2;", "{0} = emulator_bfloat_bits({2}) | (unsigned)emulator_bfloat_bits({1}) << 16"),
    (r"cvt\.rna\.tf32\.f32%0,%1;", "{0} = emulator_to_tf32({1})"),
    (r"cvt\.rn\.satfinite\.(e4m3|e5m2)x2\.f32%0,%1,%2;", r"{0} = emulator_\1_codes({1}, {2})"),
    (r"cvt\.rn\.f16x2\.(e4m3|e5m2)x2%0,%1;", r"{0} = emulator_\1_to_fp16({1})"),
    (r"cvt\.f32\.f16%0,%1;", "{0} = emulator_half_value({1})"),
)
_LOAD_MATRIX = re.compile(
    r"ldmatrix\.sync\.aligned\.m8n8\.x([124])(\.trans)?\.shared(?:::cta)?\.b16\{([^}]*)\},\[%(\d+)\];"
)
_MULTIPLY = re.compile(
    r"mma\.sync\.aligned\.m16n8k(\d+)\.row\.col\."
    r"(?:f32\.(f16|bf16|tf32)\.(\2)\.f32"
    r"|s32\.([su]8)\.([su]8)\.s32|f32\.(e[45]m[23])\.(e[45]m[23])\.f32)"
    r"\{([^}]*)\},\{([^}]*)\},\{([^}]*)\},\{([^}]*)\};"
)
_MULTIPLY_WARPGROUP = re.compile(
    r"wgmma\.mma_async\.sync\.aligned\.m64n(\d+)"
    r"(?:k16\.f32\.(f16|bf16)\.\2|k8\.f32\.(tf32)\.tf32|k32\.s32\.([su]8)\.([su]8)|k32\.f32\.(e[45]m[23])\.(e[45]m[23]))"
    r"\{([^}]*)\},(?:%(\d+)|\{([^}]*)\}),%(\d+),([01])((?:,[01])*);"
)
_LOAD_TENSOR_MEMORY = re.compile(r"tcgen05\.ld\.sync\.aligned\.(16x256b|32x32b)\.x(\d+)\.b32\{([^}]*)\},\[%(\d+)\];")
_KINDS = {
    "f16": "emulator_half_kind",
    "bf16": "emulator_bfloat_kind",
    "tf32": "emulator_tf32_kind",
    "s8": "emulator_byte_kind<int8_t>",
    "u8": "emulator_byte_kind<uint8_t>",
    "e4m3": "emulator_e4m3_kind",
    "e5m2": "emulator_e5m2_kind",
}


def without_assembly(source: str) -> str:
    """The source with calls in place of inline assembly; unknown instructions fail when they are reached."""
    parts, position = [], 0
    while (match := _ASM.search(source, position)) is not None:
        end = _closing(source, match.end())
        parts += [source[position : match.start()], _call_of(source[match.end() : end])]
        position = end + 1
    return "".join([*parts, source[position:]])


def _call_of(statement: str) -> str:
    """What stands for the text between the parentheses of one `asm`."""
    template = ""
    position = 0
    while (match := re.compile(rf"\s*{_STRING.pattern}").match(statement, position)) is not None:
        template += match[1].replace("\\n", " ").replace("\\t", " ")
        position = match.end()
    template = re.sub(r"\s+", "", template)
    operands = []
    while (match := _STRING.search(statement, position)) is not None:
        position = match.end()
        if (opening := re.compile(r"\s*\(").match(statement, position)) is not None:
            position = _closing(statement, opening.end())
            operands.append(statement[opening.end() : position])
    if (found := _LOAD_MATRIX.fullmatch(template)) is not None:
        results = [operands[int(number[1:])] for number in found[3].split(",")]
        stores = " ".join(f"({result}) = emulator_r[{i}];" for i, result in enumerate(results))
        transposed, address = str(found[2] is not None).lower(), operands[int(found[4])]
        call = f"emulator_load_matrix<{found[1]}, {transposed}>(emulator_r, {address}, __LINE__)"
        return f"{{ unsigned emulator_r[4]; {call}; {stores} }}"
    if (found := _LOAD_TENSOR_MEMORY.fullmatch(template)) is not None:
        results = [operands[int(number[1:])] for number in found[3].split(",")]
        by_rows = found[1] == "32x32b"
        if len(results) == int(found[2]) * (1 if by_rows else 4):
            targets = ", ".join(f"&({result})" for result in results)
            arguments = f"{len(results)}, {operands[int(found[4])]}, {str(by_rows).lower()}, __LINE__"
            return f"{{ void *emulator_r[] = {{{targets}}}; emulator_tensor_load(emulator_r, {arguments}); }}"
    if (found := _MULTIPLY.fullmatch(template)) is not None:
        d, a, b, c = ([operands[int(number[1:])] for number in group.split(",")] for group in found.groups()[7:])
        total = "int" if found[4] else "float"
        left, right = filter(None, found.groups()[1:7])
        values = "; ".join(
            f"{kind} {name}[] = {{{', '.join(f'({kind})({element})' for element in elements)}}}"
            for kind, name, elements in (
                ("unsigned", "emulator_a", a),
                ("unsigned", "emulator_b", b),
                (total, "emulator_c", c),
            )
        )
        stores = " ".join(f"({result}) = emulator_d[{i}];" for i, result in enumerate(d))
        call = f"emulator_multiply<{_KINDS[left]}, {_KINDS[right]}, {total}, {found[1]}>"
        call += "(emulator_d, emulator_a, emulator_b, emulator_c, __LINE__)"
        return f"{{ {total} emulator_d[4]; {values}; {call}; {stores} }}"
    if (found := _MULTIPLY_WARPGROUP.fullmatch(template)) is not None and _has_options(found):
        columns, half, *types, registers, left, fragment, right, adds, options = found.groups()
        sums, kept = (
            ", ".join(f"&({operands[int(number[1:])]})" for number in names.split(",")) if names else ""
            for names in (registers, fragment)
        )
        sides = options[5:6] if left else "0", options[7:8] if left else options[5:6]
        by_depths = [str(half is not None and option == "1").lower() for option in sides]
        matrices = [operands[int(number)] if number else "0" for number in (left, right)]
        kind = "_".join(("emulator", *filter(None, (half, *types))))
        arguments = ", ".join((columns, *matrices, *by_depths, kind, str(adds == "1").lower(), "__LINE__"))
        of_left = f"const void *emulator_a[] = {{{kept}}}; " if kept else ""
        call = f"emulator_warpgroup_multiply(emulator_d, {'emulator_a' if kept else 'nullptr'}, {arguments});"
        return f"{{ void *emulator_d[] = {{{sums}}}; {of_left}{call} }}"
    for pattern, call in _INSTRUCTIONS:
        if (found := re.fullmatch(pattern, template)) is not None:
            return found.expand(call).format(*(f"({operand})" for operand in operands))
    return f'emulator_fail("the emulator does not know the assembly {template}")'


def _has_options(product: re.Match[str]) -> bool:
    """Whether a wgmma has the options of its types: floats have signs, 16-bit floats transpositions besides.

    A left operand in registers has four of them, is of 16-bit floats, and is not transposed.
    """
    _, half, single, _, _, float8, *_, fragment, _, _, options = product.groups()
    if fragment:
        return half is not None and fragment.count(",") == 3 and re.fullmatch(",1,1,[01]", options) is not None
    return re.fullmatch(",1,1,[01],[01]" if half else ",1,1" if single or float8 else "", options) is not None


def _closing(text: str, position: int) -> int:
    """Where the parenthesis closes that opened before `position`."""
    depth = 1
    while depth:
        if (string := _STRING.match(text, position)) is not None:
            position = string.end()
            continue
        depth += {"(": 1, ")": -1}.get(text[position], 0)
        position += 1
    return position - 1
