"""Pass pipeline of the CUDA backend in order, from the Relax function of a front end to host object files.

A kernel is for the device, unless the device could only run it in a single thread and it is much work: then the host
runs it, and passes named `host …` lower it. See `cpu_passes.py` for how to read the list.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from functools import partial

import tvm
from tvm import relax, tirx

from nnefc.backends import cpu_passes
from nnefc.backends.kernel_context import DYNAMIC, KernelContext, on_function
from nnefc.ir.attributes import ARRIVALS, NO_ALIAS
from nnefc.ir.dataflow import bindings_of
from nnefc.passes import program_passes
from nnefc.passes.backend import Settings
from nnefc.passes.graph.attention.fuse_for_gpu import fuse_attention_for_gpu
from nnefc.passes.graph.attention.merge_projections import merge_projections
from nnefc.passes.graph.canonical_dims import canonicalize_dims
from nnefc.passes.graph.fold_affine import fold_affine
from nnefc.passes.graph.fold_constants import fold_constants
from nnefc.passes.graph.fuse_local_response import fuse_local_response
from nnefc.passes.graph.fusion.fuse import fuse
from nnefc.passes.graph.fusion.hierarchical_concat import group_parts
from nnefc.passes.graph.layout.assign_layouts import assign_vector_layouts
from nnefc.passes.graph.layout.fold_permutations import fold_permutations
from nnefc.passes.graph.precision.use_16bit_floats import check_names, use_16bit_floats
from nnefc.passes.graph.quantized.compute_in_integers import compute_in_integers
from nnefc.passes.graph.quantized.float8 import dequantize_float8_constants, name_float8
from nnefc.passes.graph.quantized.narrow_results import narrow_results
from nnefc.passes.graph.quantized.packed_operands import EIGHT_BITS
from nnefc.passes.graph.rewriter import is_call
from nnefc.passes.graph.stored_weights import CONVOLUTIONS
from nnefc.passes.legalize.contiguous_slices import WHOLE_SLICES
from nnefc.passes.legalize.dequantize_on_fetch import fetch_blocks
from nnefc.passes.legalize.ieee_differences import rewrite_differences
from nnefc.passes.legalize.lower_row_reductions import lower_row_reductions
from nnefc.passes.legalize.lower_scans import lower_scans
from nnefc.passes.legalize.pack_block_matmul import widen_blocks
from nnefc.passes.legalize.pack_deep_matmul import pack_deep_matmul
from nnefc.passes.legalize.row_major_contractions import CONTRACTIONS
from nnefc.passes.manager import Pass, PassCondition, PassList, Phase, Property, of_phase
from nnefc.passes.pipeline import GraphContext, legalizations
from nnefc.passes.plan.join_steps import join_steps
from nnefc.passes.plan.symbols import exported
from nnefc.passes.program_passes import ProgramContext, ProgramState
from nnefc.passes.schedule.gpu.guards import guard_blocks
from nnefc.passes.schedule.gpu.vector_products.gated_product import is_gated_product
from nnefc.passes.schedule.schedules import scalars_of
from nnefc.passes.tir.common.drop_unread_blocks import drop_unread_blocks
from nnefc.passes.tir.cuda.round_by_sum import round_by_sum
from nnefc.passes.tir.gpu.narrow_indices import narrow_index_types
from nnefc.passes.tir.tvm_workarounds.float64_literals import write_float64_literals
from nnefc.passes.tir.tvm_workarounds.shifted_remainders import split_shifted_modulo
from nnefc.targets.machine.cpu.target import FLOAT16_TYPES
from nnefc.targets.machine.cuda.target import CudaTarget
from nnefc.targets.machine.gpu.description import LOAD_BYTES

__all__ = ["COMPUTATIONS", "PASSES", "CudaSettings", "host_symbol"]

COMPUTATIONS = {**CONTRACTIONS, **WHOLE_SLICES}
"""How operators are computed, besides what holds for all backends."""


@dataclass(frozen=True)
class CudaSettings(Settings):
    """The settings of NVIDIA GPUs."""

    target: CudaTarget


NARROW = PassCondition("with --precision bf16 or fp16", lambda s: s.target.precision in FLOAT16_TYPES)
FLOAT8_PRODUCTS = PassCondition(
    "with products of float8, from sm_89 on, without --strict",
    lambda s: s.target.has_float8_products and not s.strict,
)
TENSOR_CORES = PassCondition("with tensor cores, from sm_80 on", lambda s: s.target.has_byte_products)
NOT_STRICT = PassCondition("without --strict", lambda s: not s.strict)
OVERWRITES = PassCondition(
    "kernels that may overwrite an operand", lambda context: bool(context.use.in_place.overwritable)
)
ON_DEVICE = PassCondition("kernels of the device", lambda context: not context.on_host)
ON_HOST = PassCondition("kernels of the host", lambda context: context.on_host)


def check_kept(module: tvm.IRModule, context: GraphContext) -> tvm.IRModule:
    """Refuses names of layers that the network does not have."""
    check_names(context.modules, context.settings.target.keep_wide)
    return module


def merge_attention_projections(module: tvm.IRModule, context: GraphContext) -> tvm.IRModule:
    """Computes queries, keys and values of an attention by one product."""
    target: CudaTarget = context.settings.target
    return merge_projections(module, target.longest_attention, target.keep_wide)


def join_attention(module: tvm.IRModule, context: GraphContext) -> tvm.IRModule:
    """Computes each attention in one kernel, by tensor cores where these multiply 16-bit floats."""
    target: CudaTarget = context.settings.target
    dtype = target.tensor_core_type if target.precision in FLOAT16_TYPES else None
    return fuse_attention_for_gpu(module, target.longest_attention, dtype, target.keep_wide)


def narrow_floats(module: tvm.IRModule, context: GraphContext) -> tvm.IRModule:
    """Converts operands of convolutions and matrix products to 16-bit floats."""
    target: CudaTarget = context.settings.target
    return use_16bit_floats(module, FLOAT16_TYPES[target.precision], keep_wide=target.keep_wide)


def multiplies_bytes(module: tvm.IRModule) -> bool:
    """Whether a network has convolutions or matrix products of integers or floats of 8 bits."""
    calls = (binding.value for binding in bindings_of(module["main"]))
    products = (call for call in calls if is_call(call, "matmul", *CONVOLUTIONS))
    return any({str(arg.ty.dtype) for arg in call.args} <= set(EIGHT_BITS) for call in products)


def tensor_core_types(module: tvm.IRModule, context: GraphContext) -> Collection[str]:
    """Returns the types that tensor cores multiply in a network: that of the precision, and those of 8 bits if it
    multiplies such."""
    target: CudaTarget = context.settings.target
    own = () if target.tensor_core_type is None else (target.tensor_core_type,)
    return (*own, *EIGHT_BITS) if target.has_byte_products and multiplies_bytes(module) else own


def fold_channel_permutations(module: tvm.IRModule, context: GraphContext) -> tvm.IRModule:
    """Makes permutations of channels gathers, which cost nothing in blocks of channels."""
    return fold_permutations(module) if tensor_core_types(module, context) else module


def vector_layouts(module: tvm.IRModule, context: GraphContext) -> tvm.IRModule:
    """Keeps what convolutions by tensor cores read in blocks of the channels that a thread loads at once."""
    target: CudaTarget = context.settings.target
    types = tensor_core_types(module, context)
    if not types:
        return module
    return assign_vector_layouts(module, types, target.channels_of_a_block("int8" in types), target.host)


def deep_matmuls(module: tvm.IRModule, context: GraphContext) -> tvm.IRModule:
    """Lays the operands of matrix products along the depth, where tensor cores read them so: bytes, and TF32."""
    target: CudaTarget = context.settings.target
    types = EIGHT_BITS if multiplies_bytes(module) else ()
    has_single = target.precision == "tf32" and any(part.multiplies_boxes for part in (target, *target.parts))
    return pack_deep_matmul(module, LOAD_BYTES, (*types, *["float32"] * has_single))


def fuse_kernels(module: tvm.IRModule, context: GraphContext) -> tvm.IRModule:
    """Fuses element-wise kernels with those before them; where tensors hold bytes, memory holds no floats for them."""
    target: CudaTarget = context.settings.target
    return fuse(module, moves=[narrow_results] if target.has_byte_products and holds_bytes(module) else [])


def holds_bytes(module: tvm.IRModule) -> bool:
    """Whether a network computes tensors of bytes."""
    types = (binding.var.ty for binding in bindings_of(module["main"]))
    return any(isinstance(ty, relax.TensorType) and str(ty.dtype) in EIGHT_BITS for ty in types)


def join_gates(state: ProgramState, context: ProgramContext) -> ProgramState:
    """Computes what recurrent networks compute from the gates of a step in the kernel of the gates' product."""
    target = context.backend.target
    assert isinstance(target, CudaTarget)
    useful = partial(is_gated_product, target=target)
    return replace(state, program=join_steps(state.listed, useful, context.library_context.pool))


def mark_aliases(func: tirx.PrimFunc, _context: KernelContext) -> tirx.PrimFunc:
    """Says that operands may share memory."""
    return func.with_attr(NO_ALIAS, False)


def parameters_for_blocks(func: tirx.PrimFunc, context: KernelContext) -> tirx.PrimFunc:
    """Makes what blocks of one launch exchange parameters; TVM would allocate it in each block."""
    return context.workspace_parameters(func) if ARRIVALS in func.attrs else func


def host_symbol(name: str) -> str:
    """Returns the symbol of a kernel that the host runs."""
    return f"nnefc_host_{name}"


def export_host(func: tirx.PrimFunc, context: KernelContext) -> tirx.PrimFunc:
    """Gives a kernel of the host its symbol and the calling convention of C."""
    return exported(func, host_symbol(context.use.name))


def on_host(*passes: Pass) -> Iterable[Pass]:
    """Yields passes of the CPU backend for the kernels that the host runs."""
    for step in passes:
        yield replace(step, name=f"host {step.name}", where=ON_HOST & step.where)


def on_device(*passes: Pass) -> Iterable[Pass]:
    """Yields passes for the kernels of the device."""
    for step in passes:
        yield replace(step, where=ON_DEVICE & step.where)


# A network of operators: a module of Relax.
graph = partial(of_phase, Phase.GRAPH)
GRAPH = (
    graph("name float8", on_function(name_float8), when=FLOAT8_PRODUCTS),
    graph(
        "fold constants",
        lambda m, c: fold_constants(m, keep=("dequantize",), converts=True),
        ensures=[Property.CONSTANTS],
    ),
    graph(
        "compute in integers",
        lambda m, c: compute_in_integers(m, c.settings.strict, with_limits=True),
        when=TENSOR_CORES,
        optional=True,
    ),
    graph(
        "fold moved constants",
        lambda m, c: fold_constants(m, keep=("dequantize",), converts=True),
        when=TENSOR_CORES,
        optional=True,
    ),
    graph("dequantize float8 constants", on_function(dequantize_float8_constants), when=FLOAT8_PRODUCTS),
    graph("fold dequantized constants", lambda m, c: fold_constants(m, converts=True)),
    graph("fold affine", on_function(fold_affine)),
    graph("join local response", on_function(fuse_local_response)),
    graph("fold permutations", fold_channel_permutations, when=TENSOR_CORES),
    graph("group parts", on_function(group_parts)),
    graph("check kept names", check_kept, when=NARROW, analyzes=True),
    graph("merge projections", merge_attention_projections, when=NOT_STRICT),
    graph("join attention", join_attention, when=NOT_STRICT),
    # tf32 is a matter of instructions alone.
    graph("use narrow floats", narrow_floats, when=NARROW),
    graph("fetch blocks", on_function(fetch_blocks)),
    graph("widen blocks", on_function(widen_blocks)),
    graph("assign layouts", vector_layouts, when=TENSOR_CORES, ensures=[Property.LAYOUTS]),
    graph("pack deep matmul", deep_matmuls, when=TENSOR_CORES),
)

# Every operator becomes a call of a kernel; element-wise kernels are fused with the kernel before them.
legalize = partial(of_phase, Phase.LEGALIZE)
LEGALIZE = (
    # Threads share rows of any length.
    legalize("lower rows", lambda m, c: lower_row_reductions(m, replace(c.settings.target, load_bytes=1))),
    legalize("lower scans", lambda m, c: lower_scans(m, c.settings.target.gpu.busy_threads)),
    legalize(
        "legalize", lambda m, c: relax.transform.LegalizeOps(legalizations(COMPUTATIONS))(m), ensures=[Property.KERNELS]
    ),
    legalize("IEEE differences", on_function(rewrite_differences), requires=[Property.KERNELS]),
    legalize(
        "canonical dimensions",
        on_function(canonicalize_dims),
        requires=[Property.KERNELS],
        ensures=[Property.DIMENSIONS],
    ),
    legalize("fold packed constants", on_function(fold_constants)),
    legalize("fuse", fuse_kernels, requires=[Property.KERNELS], ensures=[Property.FUSED]),
    legalize("fold float32 constants", lambda m, c: fold_constants(m, dequantized=True)),
)

PROGRAM = (
    of_phase(Phase.PROGRAM, "list calls", program_passes.list_calls, requires=[Property.KERNELS, Property.DIMENSIONS]),
    of_phase(Phase.PROGRAM, "join gates", join_gates),
)

# A kernel of the device gets the order of its loops: a function in blocks, whose loops are bound to threads.
scheduled = partial(of_phase, Phase.SCHEDULE, requires=[Property.SCHEDULED])
DEVICE = (
    *on_device(
        cpu_passes.NAME_DIMENSIONS,
        cpu_passes.schedule("drop unread blocks", on_function(drop_unread_blocks)),
        cpu_passes.DROP_EMPTY,
        cpu_passes.APPLY_RULE,
        cpu_passes.TENSOR_PARAMETERS,
        scheduled("guard blocks", on_function(guard_blocks), where=DYNAMIC),
        scheduled("narrow indices", lambda f, c: narrow_index_types(f, scalars_of(f)), where=DYNAMIC),
        scheduled("round by sum", on_function(round_by_sum), optional=True),
        scheduled("non-negative remainders", on_function(split_shifted_modulo)),
        scheduled("exact doubles", on_function(write_float64_literals)),
        cpu_passes.OPAQUE_CONSTANTS,
        scheduled("mark aliases", mark_aliases, where=OVERWRITES),
        cpu_passes.blocks("memory of all blocks", parameters_for_blocks),
        *cpu_passes.WORKSPACE,
    ),
)
"""What follows, down to CUDA source, is in `targets/codegen/cuda/kernels.py`."""

HOST = (
    *on_host(
        cpu_passes.NAME_DIMENSIONS,
        cpu_passes.DROP_EMPTY,
        cpu_passes.APPLY_RULE,
        cpu_passes.TENSOR_PARAMETERS,
        cpu_passes.OPAQUE_CONSTANTS,
        *cpu_passes.BLOCKS,
        *cpu_passes.FLAT,
        cpu_passes.TRIP_COUNTS,
        of_phase(Phase.POINTERS, "export", export_host, requires=[Property.POINTERS], ensures=[Property.SYMBOL]),
    ),
)

# The memory plan, and the entry, which runs on the host and launches kernels.
plan = partial(of_phase, Phase.PLAN)
PLAN = (
    plan("plan buffers", program_passes.plan_buffers, ensures=[Property.PLANNED]),
    plan("build entry", program_passes.build_entry, requires=[Property.PLANNED]),
)

PASSES = PassList([*GRAPH, *LEGALIZE, *PROGRAM, *DEVICE, *HOST, *PLAN, *cpu_passes.OBJECT])
