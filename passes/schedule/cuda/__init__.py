"""Schedule rules for CUDA, in the order in which they are tried."""

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

__all__ = ["CUDA_RULES"]

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
