"""Pass pipeline of the CPU backend in order, from the Relax function of a front end to object files.

`nnefc compile --print-passes -t TARGET` prints those that run for a target, and `--dump DIR` writes the program after
each that changes it. A line has a pass: its name, then what it runs, in the phase that the section is about. `when` is
a condition on the target and options, `where` one on a kernel or an object; `requires` and `ensures` are what must
hold before and what holds afterwards (:class:`nnefc.passes.manager.Property`).
"""

from __future__ import annotations

from functools import partial

from tvm import relax, s_tir, tirx

from nnefc.backends import cpu_steps as cpu
from nnefc.backends.kernel_context import DYNAMIC, STATIC, on_axes, on_body, on_function, tvm_pass
from nnefc.passes import program_passes
from nnefc.passes.graph.attention.fuse_attention import fuse_attention
from nnefc.passes.graph.canonical_dims import canonicalize_dims
from nnefc.passes.graph.fold_affine import fold_affine
from nnefc.passes.graph.fold_constants import fold_constants
from nnefc.passes.graph.fuse_local_response import fuse_local_response
from nnefc.passes.graph.fusion.fuse import fuse
from nnefc.passes.graph.fusion.fusion_barriers import values_between, values_spread, values_transposed
from nnefc.passes.graph.fusion.hierarchical_concat import group_parts
from nnefc.passes.graph.layout.assign_layouts import assign_layouts
from nnefc.passes.graph.layout.fold_permutations import fold_permutations
from nnefc.passes.graph.precision.promote_fp16 import promote_fp16
from nnefc.passes.graph.quantized.compute_in_integers import compute_in_integers
from nnefc.passes.graph.quantized.narrow_constants import narrow_constants
from nnefc.passes.graph.quantized.narrow_results import narrow_results
from nnefc.passes.graph.quantized.tabulate_bytes import tabulate_bytes
from nnefc.passes.legalize.element_wise import ELEMENT_WISE
from nnefc.passes.legalize.ieee_differences import rewrite_differences
from nnefc.passes.legalize.lower_row_reductions import lower_row_reductions
from nnefc.passes.legalize.lower_scans import lower_scans
from nnefc.passes.legalize.pack_block_matmul import pack_block_matmul, widen_blocks
from nnefc.passes.legalize.pack_low_precision_matmul import pack_low_precision_matmul
from nnefc.passes.legalize.pack_matmul import pack_matmul
from nnefc.passes.legalize.quantization import QUANTIZATION
from nnefc.passes.manager import PassList, Phase, Property, of_phase
from nnefc.passes.pipeline import legalizations
from nnefc.passes.schedule.cpu.fold_dot_accumulators import fold_dot_accumulators
from nnefc.passes.schedule.cpu.fp16_accumulators import accumulate_in_fp16
from nnefc.passes.schedule.cpu.int8_activations import use_int8_activations
from nnefc.passes.schedule.cpu.llvm_functions import call_llvm_functions
from nnefc.passes.schedule.cpu.tanh_to_sigmoid import rewrite_tanh_as_sigmoid
from nnefc.passes.schedule.schedules import without_dynamic_dims
from nnefc.passes.tir.common.align_stack_buffers import align_stack_buffers
from nnefc.passes.tir.common.allocate_scratch import keep_small_buffers_on_stack
from nnefc.passes.tir.common.annotate_trip_counts import annotate_trip_counts
from nnefc.passes.tir.common.distribute_borders import distribute_borders
from nnefc.passes.tir.common.group_lines import group_lines
from nnefc.passes.tir.common.hoist_divisions import hoist_divisions
from nnefc.passes.tir.common.hoist_offsets import hoist_offsets
from nnefc.passes.tir.common.mask_vector_tail import mask_vector_tails
from nnefc.passes.tir.common.parallelize_tiles import parallelize_tiles
from nnefc.passes.tir.common.partition_loops import partition_loops
from nnefc.passes.tir.common.serialize_parallel_loops import serialize_parallel_loops
from nnefc.passes.tir.common.strength_reduce_pointers import strength_reduce_pointers
from nnefc.passes.tir.cpu.convert_with_rounding import convert_with_rounding
from nnefc.passes.tir.cpu.divide_by_reciprocal import divide_by_reciprocal
from nnefc.passes.tir.cpu.high_products import match_high_products
from nnefc.passes.tir.cpu.load_lane_vectors import load_lane_vectors
from nnefc.passes.tir.cpu.lower_amx_tiles import lower_matrix_tiles
from nnefc.passes.tir.cpu.lower_dot_accumulate import lower_dot_accumulate
from nnefc.passes.tir.cpu.lower_fmin_fmax import lower_fmin_fmax
from nnefc.passes.tir.cpu.lower_i8mm import lower_i8mm
from nnefc.passes.tir.cpu.microkernels.emit_microkernels import emit_microkernels
from nnefc.passes.tir.cpu.partition_quad_pairs import partition_quad_pairs
from nnefc.passes.tir.cpu.permute_lanes import permute_lanes
from nnefc.passes.tir.cpu.prefetch_next_panel import prefetch_next_panel
from nnefc.passes.tir.cpu.prefetch_stream import prefetch_stream
from nnefc.passes.tir.cpu.round_as_integers import round_as_integers
from nnefc.passes.tir.cpu.round_by_magic_add import round_by_magic_add
from nnefc.passes.tir.cpu.soft_fp16 import lower_fp16_conversions
from nnefc.passes.tir.cpu.widen_int8_loads import widen_int8_loads
from nnefc.passes.tir.tvm_workarounds.bfloat16_rounding import round_to_bfloat16
from nnefc.passes.tir.tvm_workarounds.bfloat16_splats import splat_bfloat16
from nnefc.passes.tir.tvm_workarounds.disable_unrolling import disable_unrolling
from nnefc.passes.tir.tvm_workarounds.opaque_bounds import hide_bounds, show_bounds
from nnefc.passes.tir.tvm_workarounds.opaque_constants import hide_constants
from nnefc.targets.codegen.cpu.boolean_vectors import keep_boolean_vectors
from nnefc.targets.codegen.cpu.object_passes import checks, each, vectorized, where_values_are_chosen
from nnefc.targets.codegen.cpu.objects import bound_to_target, file_content, host_functions, llvm_module
from nnefc.targets.codegen.cpu.portable_arithmetic import (
    define_integer_conversions,
    insert_rounding_fences,
    use_portable_functions,
)

__all__ = ["BLOCKS", "FLAT", "GRAPH", "LEGALIZE", "OBJECT", "PASSES", "PLAN", "POINTERS", "PROGRAM", "SCHEDULE"]

# A network of operators: a module of Relax. `c.settings.graph` is the machine that the passes plan for.
graph = partial(of_phase, Phase.GRAPH)
GRAPH = (
    # What is known at compile time is computed. Computations on dequantized values become computations in integers.
    graph("fold constants", lambda m, c: fold_constants(m, keep=("dequantize",)), ensures=[Property.CONSTANTS]),
    graph("compute in single", on_function(promote_fp16)),
    graph(
        "tabulate bytes",
        lambda m, c: tabulate_bytes(m, c.settings.graph, {**ELEMENT_WISE, **QUANTIZATION}),
        optional=True,
    ),
    graph(
        "compute in integers",
        lambda m, c: compute_in_integers(m, c.settings.strict, c.settings.graph.quirks.keeps_ranges),
        optional=True,
    ),
    graph("fold moved constants", lambda m, c: fold_constants(m, keep=("dequantize",)), optional=True),
    graph("narrow constants", lambda m, c: narrow_constants(m, c.settings.graph, c.settings.strict), optional=True),
    graph("fold dequantized constants", on_function(fold_constants), optional=True),
    # Fewer operators: scales and shifts go into the weights before them, shuffles become gathers.
    graph("fold affine", lambda m, c: fold_affine(m, c.settings.graph.widens), optional=True),
    graph("join local response", on_function(fuse_local_response), optional=True),
    graph("fold permutations", on_function(fold_permutations), optional=True),
    graph("group parts", on_function(group_parts), optional=True),
    # Element types, layouts and, with them, the algorithms of convolutions, poolings and matrix products.
    graph("choose algorithms", cpu.choose, analyzes=True, ensures=[Property.CHOSEN]),
    graph("join attention", lambda m, c: fuse_attention(m, c.settings.graph), when=cpu.NOT_STRICT, optional=True),
    graph("use narrow floats", cpu.narrow_floats, when=cpu.NARROW, requires=[Property.CHOSEN]),
    graph(
        "assign layouts",
        lambda m, c: assign_layouts(m, c.settings.graph, c.algorithms, c.settings.strict),
        requires=[Property.CHOSEN],
        ensures=[Property.LAYOUTS],
    ),
    graph("pack block matmul", lambda m, c: pack_block_matmul(m, c.settings.graph, c.settings.strict)),
    graph("widen blocks", on_function(widen_blocks)),
    graph(
        "pack matmul",
        lambda m, c: pack_matmul(m, c.settings.graph, c.algorithms),
        requires=[Property.CHOSEN],
        optional=True,
    ),
    graph("pack narrow matmul", lambda m, c: pack_low_precision_matmul(m, c.settings.graph), optional=True),
)

FUSION_CUTS = (values_between, values_spread, values_transposed)

# Every operator becomes a call of a kernel; element-wise kernels are fused with the kernel before them.
legalize = partial(of_phase, Phase.LEGALIZE)
LEGALIZE = (
    legalize("lower rows", lambda m, c: lower_row_reductions(m, c.settings.graph)),
    legalize("lower scans", lambda m, c: lower_scans(m, c.settings.graph)),
    legalize("legalize", lambda m, c: relax.transform.LegalizeOps(legalizations({}))(m), ensures=[Property.KERNELS]),
    legalize("IEEE differences", on_function(rewrite_differences), requires=[Property.KERNELS]),
    legalize(
        "canonical dimensions",
        on_function(canonicalize_dims),
        requires=[Property.KERNELS],
        ensures=[Property.DIMENSIONS],
    ),
    legalize("fold packed constants", on_function(fold_constants), optional=True),
    legalize(
        "fuse",
        lambda m, c: fuse(m, FUSION_CUTS, [] if c.settings.target.hosted else [narrow_results]),
        requires=[Property.KERNELS],
        ensures=[Property.FUSED],
    ),
    legalize("fold float32 constants", lambda m, c: fold_constants(m, dequantized=True), optional=True),
)

# The network is a list of calls of kernels.
PROGRAM = (
    of_phase(Phase.PROGRAM, "list calls", program_passes.list_calls, requires=[Property.KERNELS, Property.DIMENSIONS]),
    of_phase(Phase.PROGRAM, "split into patches", program_passes.split_into_patches, when=cpu.PATCHES),
)

# A kernel gets the order of its loops, then instructions of the target: a function in blocks.
# `c.machine` is the machine that schedules plan for.
schedule = partial(of_phase, Phase.SCHEDULE)
scheduled = partial(schedule, requires=[Property.SCHEDULED])
NAME_DIMENSIONS = schedule("name dimensions", lambda f, c: c.name_dimensions(f))
DROP_EMPTY = schedule("drop empty reductions", lambda f, c: c.without_empty_reductions(f))
APPLY_RULE = schedule("schedule", lambda f, c: c.schedule(f), ensures=[Property.SCHEDULED])
TENSOR_PARAMETERS = scheduled("tensor parameters", on_function(without_dynamic_dims), ensures=[Property.TENSORS])
OPAQUE_CONSTANTS = scheduled("opaque constants", on_function(hide_constants))
SCHEDULE = (
    NAME_DIMENSIONS,
    DROP_EMPTY,
    APPLY_RULE,
    TENSOR_PARAMETERS,
    scheduled("accumulate dot products", on_function(fold_dot_accumulators), optional=True),
    scheduled("accumulate in fp16", on_function(accumulate_in_fp16)),
    scheduled("tanh for sigmoid", on_function(rewrite_tanh_as_sigmoid), when=cpu.FREE_TO_ROUND, optional=True),
    scheduled(
        "approximate byte functions",
        lambda f, c: use_int8_activations(f, c.machine.features),
        when=cpu.FREE_TO_ROUND,
        optional=True,
    ),
    scheduled("convert fp16 in integers", on_function(lower_fp16_conversions), when=cpu.SOFT_FP16),
    scheduled("round as integers", lambda f, c: round_as_integers(f, c.machine.features), when=cpu.SOFT_ROUNDING),
    scheduled(
        "convert with rounding",
        lambda f, c: convert_with_rounding(f, c.machine.quirks.rounding_conversion, c.machine.lanes("float32")),
        when=cpu.ROUNDING_CONVERSIONS,
    ),
    scheduled("upper halves of products", on_function(match_high_products), when=cpu.HIGH_PRODUCTS, optional=True),
    scheduled("extend bytes", lambda f, c: widen_int8_loads(f, c.machine.triple.split("-")[0]), optional=True),
    scheduled("round by magic number", on_function(round_by_magic_add), when=cpu.NO_ROUNDING),
    scheduled("multiply by reciprocals", on_function(divide_by_reciprocal), when=cpu.FUSED_PRODUCTS, optional=True),
    OPAQUE_CONSTANTS,
)

# Allocations move to the blocks that use them; blocks and buffers of several dimensions disappear.
blocks = partial(of_phase, Phase.BLOCKS, requires=[Property.SCHEDULED])
WORKSPACE = (
    blocks("canonicalize loops", tvm_pass(s_tir.transform.CanonicalizeLoop())),
    blocks("lower cross-thread reductions", tvm_pass(s_tir.transform.LowerCrossThreadReduction())),
    blocks("lower initial values", tvm_pass(s_tir.transform.LowerInitBlock())),
    blocks("plan allocations", tvm_pass(s_tir.transform.PlanAndUpdateBufferAllocationLocation())),
    blocks("workspace parameters", lambda f, c: c.workspace_parameters(f), ensures=[Property.WORKSPACE]),
)
BLOCKS = (
    blocks("serialize loops", on_function(serialize_parallel_loops), when=cpu.SINGLE_THREADED),
    blocks("distribute borders", on_function(distribute_borders), when=cpu.THREADED),
    *WORKSPACE,
    blocks("opaque tile bounds", on_function(hide_bounds)),
    blocks("opaque blocks", tvm_pass(s_tir.transform.ConvertBlocksToOpaque())),
    blocks("compact buffers", tvm_pass(s_tir.transform.CompactBufferAllocation())),
    blocks("visible tile bounds", on_function(show_bounds)),
    blocks("decide min and max", cpu.decide_min_and_max),
    blocks("lower buffer views", tvm_pass(s_tir.transform.LowerMatchBuffer())),
    blocks("simplify blocks", tvm_pass(s_tir.transform.StmtSimplify())),
    blocks("lower blocks", tvm_pass(s_tir.transform.LowerOpaqueBlock())),
    blocks("flatten buffers", tvm_pass(tirx.transform.FlattenBuffer()), ensures=[Property.FLAT]),
)

# Loops over one-dimensional buffers: tails of tiles and vectors, hoisting, data movement.
flat = partial(of_phase, Phase.FLAT, requires=[Property.FLAT])
FLAT = (
    flat("assume ranges", lambda f, c: c.assume_ranges(f)),
    flat("partition loops", on_body(partition_loops), optional=True),
    flat("partition quad pairs", on_body(partition_quad_pairs)),
    flat("prefetch panels", on_body(prefetch_next_panel), optional=True),
    flat("prefetch streams", on_body(prefetch_stream), optional=True),
    flat("partition windows", cpu.partition_into_vectors, where=cpu.NOT_TILED, optional=True),
    flat("peel static tail tiles", cpu.peel_tail_tiles, where=STATIC & cpu.TILED),
    flat("peel dynamic tail tiles", cpu.peel_tail_tiles, where=DYNAMIC),
    flat("distribute tiles", on_axes(parallelize_tiles), where=DYNAMIC & cpu.JOINED, optional=True),
    flat("hoist divisions", on_body(hoist_divisions), where=DYNAMIC, optional=True),
    flat("group lines", on_body(group_lines), where=DYNAMIC, optional=True),
    flat("mask vector tails", on_axes(mask_vector_tails), where=DYNAMIC),
    flat("hoist offsets", on_body(hoist_offsets), where=DYNAMIC, optional=True),
    flat("matrix unit tiles", on_body(lower_matrix_tiles)),
    flat("row pairs", on_body(lower_i8mm)),
    flat("accumulate in lanes", on_body(lower_dot_accumulate)),
    flat("load lanes", on_body(load_lane_vectors), optional=True),
    flat("serialize bf16 broadcasts", on_body(splat_bfloat16)),
    flat("round to bf16", on_body(round_to_bfloat16)),
    flat("split vector tails", cpu.split_vector_tails),
    flat("permute loaded lanes", on_body(permute_lanes), optional=True),
    flat("align stack frames", on_body(align_stack_buffers)),
    flat("stack buffers", lambda f, c: keep_small_buffers_on_stack(f, c.frames)),
    flat("large scratch parameters", lambda f, c: c.large_scratch_parameters(f), when=cpu.THREADED),
    flat("scratch parameters", lambda f, c: c.scratch_parameters(f), when=cpu.SINGLE_THREADED),
    flat(
        "raw pointers",
        lambda f, c: c.raw_pointers(f),
        requires=[Property.FLAT, Property.WORKSPACE, Property.TENSORS],
        ensures=[Property.POINTERS],
    ),
)

# Functions of raw pointers, until the code generator has them.
pointers = partial(of_phase, Phase.POINTERS, requires=[Property.POINTERS])
TRIP_COUNTS = pointers("trip-count hints", lambda f, c: annotate_trip_counts(f, c.machine), optional=True)
EXPORT = pointers("export", cpu.export, ensures=[Property.SYMBOL])
POINTERS = (
    pointers("add row versions", cpu.add_row_versions, where=DYNAMIC, optional=True),
    pointers("min and max instructions", lambda f, c: lower_fmin_fmax(f, c.machine)),
    TRIP_COUNTS,
    pointers("assembly microkernels", lambda f, c: emit_microkernels(f, c.target), where=cpu.UNCHECKED, optional=True),
    pointers("import LLVM functions", lambda f, c: call_llvm_functions(f, c.machine)),
    pointers(
        "loop pointers",
        lambda f, c: strength_reduce_pointers(f, c.machine.quirks.searches_deep_loops),
        optional=True,
    ),
    pointers("disable unrolling", on_function(disable_unrolling), optional=True),
    pointers("mark checks", cpu.mark_checks, where=cpu.CHECKED_KERNELS),
    pointers("mark staged operands", cpu.mark_staged),
    EXPORT,
)

# All kernels: the memory plan, and the entry that calls them.
plan = partial(of_phase, Phase.PLAN, requires=[Property.SYMBOL])
PLAN = (
    plan("merge kernels", program_passes.merge_kernels, when=cpu.SMALL, where=cpu.MERGED),
    plan("plan buffers", program_passes.plan_buffers, ensures=[Property.PLANNED]),
    plan("build entry", program_passes.build_entry, requires=[Property.PLANNED]),
)

# Functions with symbols become an object file; objects are made in several threads.
# The reasons for this order, and for the conditions, are in `targets/codegen/cpu/object_passes.py`.
objects = partial(of_phase, Phase.OBJECT)
for_target = partial(objects, requires=[Property.TARGET])
OBJECT = (
    objects("check functions", cpu.check_reproducible, when=cpu.REPRODUCIBLE),
    objects("bind target", lambda m, c: bound_to_target(m, c.target), ensures=[Property.TARGET]),
    for_target("legalize bf16 arithmetic", cpu.tvm_step(tirx.transform.BF16ComputeLegalize())),
    for_target("widen indices", lambda m, c: cpu.narrow_data_type(c.target.pointer_bits)(m)),
    for_target("partition conditions", cpu.tvm_step(s_tir.transform.LoopPartition())),
    for_target("unroll", cpu.chosen_first(tirx.transform.UnrollLoop())),
    for_target("simplify unrolled", cpu.chosen_first(tirx.transform.StmtSimplify())),
    for_target("vectorize", cpu.tvm_step(each(vectorized)), ensures=[Property.VECTORS]),
    for_target("hoist conditions", cpu.tvm_step(s_tir.transform.HoistIfThenElse()), where=cpu.STATIC_OBJECTS),
    for_target("renormalize splits", cpu.tvm_step(s_tir.transform.RenormalizeSplitPattern())),
    for_target("simplify vectors", cpu.tvm_step(tirx.transform.StmtSimplify())),
    for_target(
        "unroll vectors",
        cpu.tvm_step(where_values_are_chosen(False, tirx.transform.UnrollLoop())),
        where=cpu.DYNAMIC_OBJECTS,
    ),
    for_target("remove no-ops", cpu.tvm_step(tirx.transform.RemoveNoOp()), where=cpu.STATIC_OBJECTS),
    for_target("guard selects", cpu.tvm_step(s_tir.transform.RewriteUnsafeSelect())),
    for_target("common subexpressions", cpu.chosen_first(tirx.transform.CommonSubexprElim())),
    for_target("unbind predicates", cpu.chosen_first(each(keep_boolean_vectors))),
    for_target("add checks", cpu.tvm_step(each(checks)), where=cpu.CHECKED_OBJECTS),
    for_target("split host and device", cpu.tvm_step(tirx.transform.SplitHostDevice())),
    for_target("make packed functions", cpu.tvm_step(tirx.transform.MakePackedAPI())),
    for_target("legalize bf16 storage", cpu.tvm_step(tirx.transform.BF16StorageLegalize())),
    for_target("keep host functions", on_function(host_functions)),
    for_target("lower builtins", cpu.tvm_step(tirx.transform.LowerTVMBuiltin())),
    # Before `lower intrinsics`, which would make multiply-adds.
    for_target("portable conversions", cpu.tvm_step(each(define_integer_conversions)), when=cpu.REPRODUCIBLE),
    for_target("portable functions", cpu.tvm_step(each(use_portable_functions)), when=cpu.REPRODUCIBLE),
    for_target("contraction fences", cpu.tvm_step(each(insert_rounding_fences)), when=cpu.REPRODUCIBLE),
    for_target("lower intrinsics", cpu.tvm_step(tirx.transform.LowerIntrin()), ensures=[Property.BUILTINS]),
    for_target("LLVM IR", lambda m, c: llvm_module(m, c.target), requires=[Property.VECTORS, Property.BUILTINS]),
    for_target("machine code", lambda m, c: file_content(m, c.target, c.path)),
)

PASSES = PassList([*GRAPH, *LEGALIZE, *PROGRAM, *SCHEDULE, *BLOCKS, *FLAT, *POINTERS, *PLAN, *OBJECT])
