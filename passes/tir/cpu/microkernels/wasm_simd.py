"""Emits WebAssembly that multiplies vectors by broadcast elements and adds the products to accumulators in locals.

    sums of a tile of 6 × 2 vectors of float32, eight products each per iteration:

        local.get       14              # rows of A
        v128.load32_splat 0             # the first one's number, in all lanes
        local.tee       12
        local.get       15              # vectors of B
        v128.load       0
        local.tee       10
        local.get       0               # the sum
        f32x4.relaxed_madd
        local.set       0
        …                               # 96 products in all, 64 loads

An engine's compiler keeps the order of instructions. LLVM changes it, so that more vectors are in use at a time than
the engine has registers, and it does not know that addresses in a tensor do not overflow, so that it computes each
apart. Here they are numbers in the loads, relative to a pointer into each factor. Elements are floats, or two numbers
of 16 bits, whose products `i32x4.dot_i16x8_s` adds up; vectors of bytes are extended to these while they are loaded. Or
they are four bytes: `i32x4.relaxed_dot_i8x16_i7x16_add_s` takes the signed ones first.

A processor adds eight products while it waits for one sum. Of the few sums of a small tile, as the last rows of a
matrix are, there are therefore two to eight parts, which terms are added to in turn, and at the end to each other.
"""

from __future__ import annotations

import functools
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from nnefc.passes.tir.cpu.microkernels.aarch64_loop import Accumulation, LoopCode, terms_of

__all__ = ["OPERATORS", "EngineProduct", "code_of", "engine_product_of"]

_ELEMENT = 4  # bytes
_AT_ONCE = 8  # products that are added while one is: two in a cycle, for four cycles
_DOT, _OF_BYTES = "nnefc.wasm_dot", ("nnefc.wasm_udot", "nnefc.wasm_sdot")

OPERATORS = frozenset({_DOT, *_OF_BYTES})
"""The operators of TIR that multiply packed integers."""


@dataclass(frozen=True)
class EngineProduct:
    """Instructions that multiply a vector by one element, and add the product to another vector.

    Attributes:
        texts: they find the element at {a}, the vector at {b}, and the sum in the operand {sum}.
        sum: LLVM's type of a sum.
        load: the instruction that loads the vector.
        right_element: bytes of an element of the vector in memory.
        added: what adds two sums for LLVM.
        in_parts: whether terms may be added in another order than they come in.
    """

    texts: tuple[str, ...]
    sum: str = "<4 x float>"
    load: str = "v128.load"
    right_element: int = _ELEMENT
    added: str = "fadd"
    in_parts: bool = True

    @property
    def element(self) -> int:
        """Bytes of an element of the left factor, and of a sum."""
        return _ELEMENT

    @property
    def lanes(self) -> int:
        """The number of elements of a sum."""
        return 4


_FUSED = EngineProduct(("{a}", "{b}", "local.get ${sum}", "f32x4.relaxed_madd", "local.set ${sum}"))
_MULTIPLY_ADD = EngineProduct(("local.get ${sum}", "{a}", "{b}", "f32x4.mul", "f32x4.add", "local.set ${sum}"))
_OF_PAIRS = ("{a}", "{b}", "i32x4.dot_i16x8_s", "local.get ${sum}", "i32x4.add", "local.set ${sum}")
_PAIRS = {
    "": EngineProduct(_OF_PAIRS, "<4 x i32>", added="add"),
    "nnefc.extended_int8": EngineProduct(_OF_PAIRS, "<4 x i32>", "i16x8.load8x8_s", 2, "add"),
    "nnefc.extended_uint8": EngineProduct(_OF_PAIRS, "<4 x i32>", "i16x8.load8x8_u", 2, "add"),
}
_ADDED = ("local.get ${sum}", "i32x4.relaxed_dot_i8x16_i7x16_add_s", "local.set ${sum}")
_VECTOR_LAST, _VECTOR_FIRST = (
    EngineProduct((*operands, *_ADDED), "<4 x i32>", added="add") for operands in (("{a}", "{b}"), ("{b}", "{a}"))
)


def engine_product_of(
    kind: str, widening: str, element_first: bool, fused: bool, in_order: bool = False
) -> EngineProduct | None:
    """Returns the instructions for a kind of product.

    Args:
        kind: the type of floats, or one of OPERATORS.
        widening: the operator that the vector is read with, or "".
        element_first: whether the operator's first factor is the element, and not the vector.
        fused: whether an instruction multiplies floats and adds.
        in_order: whether sums of floats are of their terms in order, so that they have the same bits everywhere.
    """
    if kind == _DOT:
        return _PAIRS.get(widening)
    if kind in _OF_BYTES and not widening:
        return _VECTOR_FIRST if element_first else _VECTOR_LAST
    if kind != "float32" or widening:
        return None
    return replace(_FUSED if fused else _MULTIPLY_ADD, in_parts=not in_order)


@functools.lru_cache(1024)
def code_of(product: EngineProduct, steps: tuple[Accumulation, ...], once: bool) -> LoopCode:
    """Returns the loop of these steps; `once`: whether there is one iteration."""
    sums = sorted({step.sum for step in steps})
    left, right = min(step.left for step in steps), min(step.right for step in steps)
    groups = list(terms_of(steps))
    held = max(min(len({s.left for s in group}), len({s.right for s in group})) for group in groups) + 1
    parts = _parts(product, len(sums), len(groups))
    # operands: the sums, of each part, what is loaded, the two pointers
    position = {number: n for n, number in enumerate(sums)}
    count = parts * len(sums)
    lines = [
        line
        for term, group in enumerate(groups)
        for line in _products(
            product,
            [Accumulation(position[s.sum] + term % parts * len(sums), s.left - left, s.right - right) for s in group],
            count,
            count + held,
        )
    ]
    return _function(product, sums, parts, held, lines, (left, right), once)


def _parts(product: EngineProduct, sums: int, terms: int) -> int:
    """Returns the partial accumulators of each sum: as many as products are in flight, a power of two."""
    parts = 1
    while product.in_parts and 2 * parts <= terms and 2 * parts * sums <= _AT_ONCE:
        parts *= 2
    return parts


def _products(product: EngineProduct, group: Sequence[Accumulation], held: int, pointers: int) -> Iterator[str]:
    """Returns the instructions of one term of each sum.

    Those factors of which there are fewer are kept, in operands from `held + 1` on; the others are loaded one after the
    other, to the operand `held`.
    """
    keeps_left = len({s.left for s in group}) < len({s.right for s in group})
    kept = {
        number: held + 1 + n for n, number in enumerate(_distinct(s.left if keeps_left else s.right for s in group))
    }
    uses = Counter(s.left if keeps_left else s.right for s in group)
    loaded: set[int] = set()
    for passing in _distinct(s.right if keeps_left else s.left for s in group):
        row = [s for s in group if (s.right if keeps_left else s.left) == passing]
        for n, step in enumerate(row):
            other = step.left if keeps_left else step.right
            one = (
                _load(product, pointers, passing, not keeps_left, held if len(row) > 1 else None)
                if n == 0
                else f"local.get ${held}"
            )
            two = f"local.get ${kept[other]}"
            if other not in loaded:
                two = _load(product, pointers, other, keeps_left, kept[other] if uses[other] > 1 else None)
                loaded.add(other)
            element, vector = (two, one) if keeps_left else (one, two)
            for text in product.texts:
                yield text.format(a=element, b=vector, sum=step.sum)


def _distinct(elements: Iterable[int]) -> list[int]:
    return list(dict.fromkeys(elements))


def _load(product: EngineProduct, pointers: int, number: int, is_left: bool, into: int | None) -> str:
    """Returns instructions that load a left element or a right vector, and keep it if it is used again."""
    name, size = ("v128.load32_splat", _ELEMENT) if is_left else (product.load, product.right_element)
    text = f"local.get ${pointers + (0 if is_left else 1)}\\0A{name} {number * size}:p2align={size.bit_length() - 1}"
    return text if into is None else f"{text}\\0Alocal.tee ${into}"


def _function(
    product: EngineProduct,
    sums: Sequence[int],
    parts: int,
    held: int,
    lines: Sequence[str],
    first: tuple[int, int],
    once: bool,
) -> LoopCode:
    """Returns LLVM's function around the instructions."""
    count, vector = parts * len(sums), product.sum
    results = ", ".join([vector] * (count + held))
    constraints = ",".join(["=&r"] * (count + held) + ["r", "r"] + [str(n) for n in range(count)] + ["~{memory}"])
    given = ", ".join(["ptr %a", "ptr %b", *(f"{vector} %s{n}" for n in range(count))])
    text = ["begin:"]
    for n, number in enumerate(sums):
        text.append(f"  %p{n} = getelementptr inbounds i8, ptr %s, i32 {number * _ELEMENT}")
        text.append(f"  %z{n} = load {vector}, ptr %p{n}, align {_ELEMENT}")
    text += ["  %da = trunc i64 %left to i32", "  %db = trunc i64 %right to i32", "  br label %round", "round:"]
    starts = [f"%z{n}" if n < len(sums) else "zeroinitializer" for n in range(count)]
    text += [f"  %s{n} = phi {vector} [ {start}, %begin ], [ %r{n}, %round ]" for n, start in enumerate(starts)]
    text += [f"  %{x} = phi ptr [ %{x}0, %begin ], [ %{x}1, %round ]" for x in "ab"]
    text.append("  %i = phi i64 [ %n, %begin ], [ %i1, %round ]")
    assembler = "\\0A".join(lines)
    text.append(f'  %r = call {{ {results} }} asm "{assembler}", "{constraints}"({given}) noduplicate nounwind')
    text += [f"  %r{n} = extractvalue {{ {results} }} %r, {n}" for n in range(count)]
    text += [f"  %{x}1 = getelementptr i8, ptr %{x}, i32 %d{x}" for x in "ab"]
    text += ["  %i1 = sub i64 %i, 1", "  %more = icmp ne i64 %i1, 0"]
    text += [f"  br i1 {'false' if once else '%more'}, label %round, label %end", "end:"]
    for n in range(len(sums)):
        total = f"%r{n}"
        for m in range(n + len(sums), count, len(sums)):
            text.append(f"  %t{m} = {product.added} {vector} {total}, %r{m}")
            total = f"%t{m}"
        text.append(f"  store {vector} {total}, ptr %p{n}, align {_ELEMENT}")
    inside = "\n".join([*text, "  ret void"])
    name = f"nnefc_sums_{hashlib.sha256(inside.encode()).hexdigest()[:16]}"
    given = "ptr %s, ptr %a0, ptr %b0, i64 %n, i64 %left, i64 %right"
    head = f"define linkonce_odr hidden void @{name}({given}) alwaysinline nounwind"
    instructions = sum(line.count("\\0A") + 1 for line in lines)
    return LoopCode(name, f"\n{head} {{\n{inside}\n}}\n", (first[0],), (first[1],), instructions)
