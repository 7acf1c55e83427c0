"""Schedule rules for CUDA, in the order in which they are tried."""

from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cuda.tensor_core import TensorCoreRule
from nnefc.passes.schedule.cuda.tensor_core_attention import TensorCoreAttentionRule
from nnefc.passes.schedule.gpu.attention.attention import AttentionRule
from nnefc.passes.schedule.gpu.attention.single_query import SingleQueryRule
from nnefc.passes.schedule.gpu.contractions.contraction import ContractionRule
from nnefc.passes.schedule.gpu.contractions.depthwise import DepthwiseRule
from nnefc.passes.schedule.gpu.element_wise.element_wise import ElementWiseRule
from nnefc.passes.schedule.gpu.element_wise.transposition import TranspositionRule
from nnefc.passes.schedule.gpu.fallback import FallbackRule
from nnefc.passes.schedule.gpu.loops.compaction import CompactionRule
from nnefc.passes.schedule.gpu.loops.greedy_selection import GreedySelectionRule
from nnefc.passes.schedule.gpu.loops.loops import LoopsRule
from nnefc.passes.schedule.gpu.reductions.reduction import ReductionRule
from nnefc.passes.schedule.gpu.reductions.row_reduction import RowReductionRule
from nnefc.passes.schedule.gpu.vector_products.gated_product import GatedProductRule
from nnefc.passes.schedule.gpu.vector_products.matvec import VectorProductRule
from nnefc.targets.machine.cuda.target import CudaTarget

__all__ = ["CUDA_RULES", "has_own_instructions"]

CUDA_RULES = (
    GatedProductRule(),
    SingleQueryRule(),
    TensorCoreAttentionRule(),
    AttentionRule(),
    DepthwiseRule(),
    VectorProductRule(),
    TensorCoreRule(),
    ContractionRule(),
    RowReductionRule(),
    TranspositionRule(),
    ElementWiseRule(),
    ReductionRule(),
    CompactionRule(),
    GreedySelectionRule(),
    LoopsRule(),
    FallbackRule(),
)


_OF_PRODUCTS = frozenset(rule.__name__ for rule in (TensorCoreRule, ContractionRule))
_OF_ATTENTION = frozenset(rule.__name__ for rule in (TensorCoreAttentionRule, AttentionRule))


def has_own_instructions(kernel: KernelAnalysis, rule: str, target: CudaTarget) -> bool:
    """Whether a kernel is scheduled with instructions that the target's architectures have, and others do not.

    Args:
        rule: the name of the rule that schedules it for others.
    """
    if rule in _OF_ATTENTION:
        return TensorCoreAttentionRule.has_own_instructions(kernel, target)
    return rule in _OF_PRODUCTS and TensorCoreRule.has_own_instructions(kernel, target)
