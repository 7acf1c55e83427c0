"""Declares every attribute and annotation that the compiler writes into programs: its key, type and meaning.

    RESIZE = _declare("nnefc.resize", Site.FUNCTION, Value.INTEGERS, FROM_NETWORK, "…")
    kernel.with_attr(RESIZE, [2, 1])

Code uses the constants, never the text of a key. `passes/spec/` checks programs against these declarations, and
docs/ir-attributes.md is the table of them, with the modules that set and read each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType

__all__ = ["ATTRIBUTES", "AttributeKey", "Form", "Site", "ValueType"]


class Form(Enum):
    """The form of a program between two passes; kernels take these forms in this order."""

    NETWORK = "network"
    """Relax operators and calls of kernels, which are computations without a schedule."""
    KERNELS = "kernels"
    """Relax without operators: each call is that of a kernel."""
    SCHEDULED = "scheduled"
    """A kernel whose loops run as a schedule rule says; blocks, and buffers of any rank."""
    FLAT = "flat"
    """A kernel of loops over one-dimensional buffers, without blocks."""
    LOWERED = "lowered"
    """A function of pointers and dimensions, for LLVM."""


class Site(Enum):
    """The kind of program element that an attribute belongs to."""

    FUNCTION = "function"
    BLOCK = "block"
    LOOP = "loop"
    STATEMENT = "statement"
    CALL = "call"


class ValueType(Enum):
    """The types of attributes' values."""

    FLAG = "true"
    BOOLEAN = "boolean"
    INTEGER = "integer"
    INTEGERS = "integers"
    FLOATS = "floats"
    TEXT = "text"
    TEXTS = "texts"
    DIMENSION = "dimension"
    DIMENSIONS = "dimensions"
    VARIABLES = "variables"
    BINDINGS = "pairs of a variable and a dimension"
    TILED_AXES = "lists of two variables and integers"
    RANGES = "pairs of integers by name"
    NAME = "name of a function"


@dataclass(frozen=True)
class AttributeKey:
    """A declared key.

    Attributes:
        key: as programs have it. For `Site.CALL` the name of the called function, or the prefix of such names.
        site: what has it.
        value: the type of its value.
        forms: of the programs that may have it.
        meaning: what it says of its site.
    """

    key: str
    site: Site
    value: ValueType
    forms: tuple[Form, ...]
    meaning: str


_DECLARED: dict[str, AttributeKey] = {}

ATTRIBUTES: Mapping[str, AttributeKey] = MappingProxyType(_DECLARED)
"""All declarations by their keys, in the order of this file."""


def _declare(key: str, site: Site, value: ValueType, forms: tuple[Form, ...], meaning: str) -> str:
    if key in _DECLARED:
        raise ValueError(f"'{key}' is declared twice")
    _DECLARED[key] = AttributeKey(key, site, value, forms, meaning)
    return key


_FROM_NETWORK = tuple(Form)
_BEFORE_SCHEDULE = (Form.NETWORK, Form.KERNELS)
_UNTIL_SCHEDULED = (*_BEFORE_SCHEDULE, Form.SCHEDULED)
_FROM_SCHEDULE = (Form.SCHEDULED, Form.FLAT, Form.LOWERED)
_UNTIL_FLAT = (Form.SCHEDULED, Form.FLAT)
_FROM_FLAT = (Form.FLAT, Form.LOWERED)
_LOWERED = (Form.LOWERED,)

# --- what front ends and operators say of a kernel

C_CALL = _declare(
    "nnefc.c_call", Site.FUNCTION, ValueType.TEXTS, _FROM_NETWORK,
    "The kernel calls a function in C: its source's text, name and folder, its own name, and its parameters' types.",
)  # fmt: skip
RESIZE = _declare(
    "nnefc.resize", Site.FUNCTION, ValueType.INTEGERS, _FROM_NETWORK,
    "The kernel resizes an image: pairs of an axis and the number of its interpolation mode.",
)  # fmt: skip
DEQUANTIZES_BLOCKS = _declare(
    "nnefc.dequantizes_blocks", Site.FUNCTION, ValueType.INTEGER, _FROM_NETWORK,
    "The kernel dequantizes blocks: bits of an integer, 0 for other formats. Its result is not computed at compile "
    "time, for it would be several times as large.",
)  # fmt: skip
MAY_BE_WIDE = _declare(
    "nnefc.may_be_wide", Site.FUNCTION, ValueType.FLAG, _FROM_NETWORK,
    "The kernel dequantizes blocks, and its result is computed at compile time if no product reads the blocks.",
)  # fmt: skip
ROW_BYTES = _declare(
    "nnefc.row_bytes", Site.FUNCTION, ValueType.INTEGER, _FROM_NETWORK,
    "The kernel dequantizes blocks; the other factor of its products may be rounded to integers of 1 or 2 bytes with a "
    "scale for each block. 0: the other factor stays float32.",
)  # fmt: skip
ADDS_OFFSETS = _declare(
    "nnefc.adds_offsets", Site.FUNCTION, ValueType.FLAG, _FROM_NETWORK,
    "The kernel dequantizes blocks and adds its last operand after scaling, instead of subtracting it before.",
)  # fmt: skip
FLOAT_BLOCKS = _declare(
    "nnefc.float_blocks", Site.FUNCTION, ValueType.FLAG, _FROM_NETWORK,
    "The kernel dequantizes blocks of floats of 8 bits (E4M3) in place of integers.",
)  # fmt: skip
FLOAT8_TYPE = _declare(
    "nnefc.float8_type", Site.FUNCTION, ValueType.TEXT, _FROM_NETWORK,
    "The kernel quantizes its first operand to floats of 8 bits of this type, or dequantizes them. Codes are uint8; "
    "its second operand has the scales, with as many axes.",
)  # fmt: skip
EXPERT_PRODUCTS = _declare(
    "nnefc.expert_products", Site.FUNCTION, ValueType.INTEGER, _FROM_NETWORK,
    "The kernel multiplies each row, its first operand, with matrices that its second operand chooses; there are as "
    "many as the attribute says, one below the other in its third operand.",
)  # fmt: skip
UPDATES = _declare(
    "nnefc.updates", Site.FUNCTION, ValueType.INTEGER, _FROM_NETWORK,
    "The index of the operand that the kernel's first result is a changed copy of: the memory plan lets both share "
    "memory, or copies the operand first.",
)  # fmt: skip
INDEPENDENT = _declare(
    "nnefc.independent", Site.LOOP, ValueType.FLAG, _FROM_NETWORK,
    "The iterations of the loop may run in any order and in parallel.",
)  # fmt: skip
SIZE_HINT = _declare(
    "nnefc.size_hint", Site.LOOP, ValueType.INTEGER, _FROM_NETWORK,
    "The usual trip count of a loop whose trip count is data-dependent.",
)  # fmt: skip
SCRATCH_RESULTS = _declare(
    "nnefc.scratch_results", Site.FUNCTION, ValueType.INTEGER, _FROM_NETWORK,
    "How many of the kernel's last results are its scratch memory, which no other kernel reads: a schedule may leave "
    "them unwritten.",
)  # fmt: skip
CONTROL = _declare(
    "nnefc.control.", Site.CALL, ValueType.NAME, _BEFORE_SCHEDULE,
    "The call runs a branch or a loop of the network; the number that follows is its index in `Network.controls`.",
)  # fmt: skip

# --- what graph passes note

CAPTURED_DIMENSIONS = _declare(
    "nnefc.captured_dimensions", Site.FUNCTION, ValueType.TEXTS, _FROM_NETWORK,
    "The names of the dynamic dimensions in the kernel that its operands' shapes do not show; it keeps TVM from "
    "merging kernels that differ in them alone.",
)  # fmt: skip
OPERAND_SHAPES = _declare(
    "nnefc.operand_shapes", Site.FUNCTION, ValueType.TEXT, _FROM_NETWORK,
    "The shapes of the operands of a kernel with dynamic dimensions; it keeps TVM from merging kernels that differ in "
    "their variables alone.",
)  # fmt: skip
DYNAMIC_DIMENSIONS = _declare(
    "nnefc.dynamic_dimensions", Site.FUNCTION, ValueType.VARIABLES, _FROM_NETWORK,
    "The variables of the dynamic dimensions that the kernel needs as arguments.",
)  # fmt: skip
ELEMENT_OF_TUPLE = _declare(
    "nnefc.element_of_tuple", Site.CALL, ValueType.NAME, _BEFORE_SCHEDULE,
    "The call stands for an element of a tuple while operators are fused.",
)  # fmt: skip
LOCAL_RESPONSE = _declare(
    "nnefc.local_response", Site.FUNCTION, ValueType.FLOATS, _FROM_NETWORK,
    "The kernel normalizes over neighbouring channels: channels before, channels after, scale, bias, power.",
)  # fmt: skip
INTERLEAVED_PHASES = _declare(
    "nnefc.interleaved_phases", Site.FUNCTION, ValueType.INTEGERS, _FROM_NETWORK,
    "The kernel interleaves the phases of a transposed convolution: strides, then what is cropped before, of each "
    "spatial dimension.",
)  # fmt: skip
CONVERTS_CONSTANTS = _declare(
    "nnefc.converts_constants", Site.FUNCTION, ValueType.FLAG, _FROM_NETWORK,
    "The kernel converts constants that are stored in a narrow type; constant folding leaves it.",
)  # fmt: skip
GATHERS_ROWS = _declare(
    "nnefc.gathers_rows", Site.FUNCTION, ValueType.TEXT, _FROM_NETWORK,
    "The kernel gathers rows of its first operand by the indices in its second one; the value says what indices out of "
    "range do, as for Relax's `take`: clip, wrap or fast.",
)  # fmt: skip
CONCATENATION = _declare(
    "nnefc.concatenation", Site.FUNCTION, ValueType.FLAG, _BEFORE_SCHEDULE,
    "The result's bytes are those of the operands, one after the other, so that the memory plan needs no kernel.",
)  # fmt: skip
SPLIT = _declare(
    "nnefc.split", Site.FUNCTION, ValueType.FLAG, _BEFORE_SCHEDULE,
    "The results' bytes are those of the operand, one after the other, so that the memory plan needs no kernel.",
)  # fmt: skip
SAME_BYTES = _declare(
    "nnefc.same_bytes", Site.FUNCTION, ValueType.FLAG, _BEFORE_SCHEDULE,
    "The result's bytes are those of the operand, with another shape or type, so that the memory plan needs no kernel.",
)  # fmt: skip

# --- what computations say to schedule rules

PERIODS = _declare(
    "nnefc.periods", Site.BLOCK, ValueType.INTEGERS, _UNTIL_SCHEDULED,
    "The computation has a formula of its own for each index of a tile: the tile's size along each axis, 1 where the "
    "formula does not depend on the axis. The loops over a tile are to be unrolled.",
)  # fmt: skip
LONGEST_PART = _declare(
    "nnefc.longest_part", Site.BLOCK, ValueType.INTEGER, _UNTIL_SCHEDULED,
    "How many terms the sum may add one after the other, because its rounding errors weigh more than usual.",
)  # fmt: skip
STRASSEN_PRODUCTS = _declare(
    "nnefc.strassen_products", Site.BLOCK, ValueType.FLAG, _UNTIL_SCHEDULED,
    "The computation is the seven products of Strassen's algorithm, `[…, 7, rows, columns]`.",
)  # fmt: skip
DEQUANTIZED = _declare(
    "nnefc.dequantized", Site.BLOCK, ValueType.INTEGER, _UNTIL_SCHEDULED,
    "The sum of products dequantizes one factor, in so many instructions; its first reduced axis runs over blocks.",
)  # fmt: skip
FULL_BLOCKS = _declare(
    "nnefc.full_blocks", Site.BLOCK, ValueType.FLAG, _UNTIL_SCHEDULED,
    "The vectors of the computation are the channels of a block, however many registers their accumulators take.",
)  # fmt: skip
COMPUTED_OPERANDS = _declare(
    "nnefc.computed_operands", Site.BLOCK, ValueType.FLAG, _UNTIL_SCHEDULED,
    "Operands of the computation are computed as they are read, and neighbours along the last reduced axis share them.",
)  # fmt: skip
SHARED_WORDS = _declare(
    "nnefc.shared_words", Site.BLOCK, ValueType.INTEGER, _UNTIL_SCHEDULED,
    "How many neighbours along the last axis but one read the same packed words.",
)  # fmt: skip
PADDING = _declare(
    "nnefc.padding", Site.BLOCK, ValueType.INTEGER, _UNTIL_SCHEDULED,
    "The block copies an array into the interior of a padded one: the value of the padding.",
)  # fmt: skip
INTERIOR = _declare(
    "nnefc.interior", Site.BLOCK, ValueType.DIMENSIONS, _UNTIL_SCHEDULED,
    "The extents that such a block copies, where its axes are not the dimensions of the padded array.",
)  # fmt: skip
STAGED = _declare(
    "nnefc.staged", Site.BLOCK, ValueType.INTEGER, _UNTIL_SCHEDULED,
    "The block copies its operand into scratch memory, for each index of so many leading axes all that the result for "
    "these indices needs, so that the result may overwrite the operand. It is not inlined.",
)  # fmt: skip

# --- what schedule rules say

RULE = _declare(
    "nnefc.rule", Site.FUNCTION, ValueType.TEXT, _FROM_SCHEDULE,
    "The class of the schedule rule that the kernel got.",
)  # fmt: skip
FOR_FEW_ROWS = _declare(
    "nnefc.for_few_rows", Site.FUNCTION, ValueType.FLAG, _FROM_NETWORK,
    "The kernel is a version for few rows, and is not called with more.",
)  # fmt: skip
JOINED_ROWS = _declare(
    "nnefc.joined_rows", Site.FUNCTION, ValueType.FLAG, _FROM_NETWORK,
    "Two axes of the kernel are joined, so that tiles reach over the ends of rows.",
)  # fmt: skip
TILED_AXES = _declare(
    "nnefc.tiled_axes", Site.FUNCTION, ValueType.TILED_AXES, _FROM_SCHEDULE,
    "The axes that the kernel computes in tiles: the variables of size and trip count, the tile's size, tail tiles.",
)  # fmt: skip
LET_BOUND_DIMENSIONS = _declare(
    "nnefc.let_bound_dimensions", Site.FUNCTION, ValueType.BINDINGS, _FROM_NETWORK,
    "Variables in the kernel that stand for expressions of its dynamic dimensions and of variables before them.",
)  # fmt: skip
SYNCHRONIZED = _declare(
    "nnefc.synchronized", Site.FUNCTION, ValueType.FLAG, (Form.SCHEDULED,),
    "The kernel has the barriers between the threads of a block itself; TVM adds none.",
)  # fmt: skip
ARRIVALS = _declare(
    "nnefc.arrivals", Site.FUNCTION, ValueType.TEXT, (Form.SCHEDULED,),
    "The buffer of the kernel's workspace that counts the blocks that have arrived; 0 before and after each launch.",
)  # fmt: skip
FP16_ACCUMULATORS = _declare(
    "nnefc.fp16_accumulators", Site.BLOCK, ValueType.FLAG, _UNTIL_SCHEDULED,
    "The block accumulates in fp16: products, or sums of others that do.",
)  # fmt: skip
DOT_ACCUMULATE = _declare(
    "nnefc.dot_accumulate", Site.LOOP, ValueType.FLAG, _UNTIL_FLAT,
    "The loop is over as many elements as one instruction multiplies and accumulates.",
)  # fmt: skip
LANE_FACTORS = _declare(
    "nnefc.lane_factors", Site.LOOP, ValueType.INTEGER, _UNTIL_FLAT,
    "Of the innermost loop of a sum: how many numbers one vector holds by whose lanes others are multiplied.",
)  # fmt: skip
ASSEMBLY_MICROKERNEL = _declare(
    "nnefc.assembly_microkernel", Site.LOOP, ValueType.INTEGERS, _FROM_SCHEDULE,
    "The sum of the innermost loop may become assembly: vectors that one instruction loads, terms to unroll.",
)  # fmt: skip
TILE_LOOP = _declare(
    "nnefc.tile_loop", Site.LOOP, ValueType.TEXT, _FROM_SCHEDULE,
    "The role of the loop in a product of tiles, one of `TileLoop`.",
)  # fmt: skip
TAIL_ROWS = _declare(
    "nnefc.tail_rows", Site.LOOP, ValueType.INTEGER, _FROM_SCHEDULE,
    "Of the loop over a tile's rows: rows of the last tile, 0 if it is full.",
)  # fmt: skip
PREFETCH_NEXT_PANEL = _declare(
    "nnefc.prefetch_next_panel", Site.LOOP, ValueType.INTEGER, _UNTIL_FLAT,
    "Of the innermost loop of a sum: how many iterations of the parallel loop around it read one panel.",
)  # fmt: skip
PREFETCH_STREAM = _declare(
    "nnefc.prefetch_stream", Site.LOOP, ValueType.INTEGER, _UNTIL_FLAT,
    "Each iteration of the parallel loop reads vectors that no earlier one has read: bytes to prefetch ahead.",
)  # fmt: skip
GROUPED_LINES = _declare(
    "nnefc.grouped_lines", Site.LOOP, ValueType.INTEGERS, _UNTIL_FLAT,
    "The parallel loop is over panels, and over lines: how many panels, and how many tiles of lines a cache holds.",
)  # fmt: skip
ALIGNED_FRAME = _declare(
    "nnefc.aligned_frame", Site.LOOP, ValueType.FLAG, _UNTIL_FLAT,
    "The body of the parallel loop becomes a function whose stack frame is aligned.",
)  # fmt: skip

# --- what passes over TIR say to later ones, and to code generators

TAIL_TILE = _declare(
    "nnefc.tail_tile", Site.LOOP, ValueType.FLAG, _FROM_FLAT,
    "The loop is over the tail tiles of an axis.",
)  # fmt: skip
MASK = _declare(
    "nnefc.mask", Site.STATEMENT, ValueType.DIMENSION, _FROM_FLAT,
    "How many lanes of the vectorized loops in the statement are valid.",
)  # fmt: skip
DYNAMIC_SHAPES = _declare(
    "nnefc.dynamic_shapes", Site.FUNCTION, ValueType.FLAG, _LOWERED,
    "The function computes dynamic shapes, in tiles of several sizes.",
)  # fmt: skip
CONDITIONAL_VALUES = _declare(
    "nnefc.conditional_values", Site.FUNCTION, ValueType.BOOLEAN, _LOWERED,
    "Whether values in a function of dynamic shapes depend on conditions that are not about its dimensions.",
)  # fmt: skip
CHECKED = _declare(
    "nnefc.checked", Site.FUNCTION, ValueType.FLAG, _LOWERED,
    "The code generator adds checks of every index and divisor to the function.",
)  # fmt: skip
ELEMENT_RANGES = _declare(
    "nnefc.element_ranges", Site.FUNCTION, ValueType.RANGES, _LOWERED,
    "Min and max of the elements of the checked function's integer parameters that are constants in all calls, by "
    "their index.",
)  # fmt: skip

NO_ALIAS = "tirx.noalias"
"""TVM's attribute: the function's parameters never share memory; they are `__restrict__` in CUDA source."""
