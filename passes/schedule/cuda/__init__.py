"""Schedule rules for CUDA, in the order in which they are tried."""

from nnefc.passes.schedule.cuda.attention import AttentionRule
from nnefc.passes.schedule.cuda.compaction import CompactionRule
from nnefc.passes.schedule.cuda.contraction import ContractionRule
from nnefc.passes.schedule.cuda.depthwise import DepthwiseRule
from nnefc.passes.schedule.cuda.element_wise import ElementWiseRule
from nnefc.passes.schedule.cuda.fallback import FallbackRule
from nnefc.passes.schedule.cuda.gated_product import GatedProductRule
from nnefc.passes.schedule.cuda.loops import LoopsRule
from nnefc.passes.schedule.cuda.matvec import VectorProductRule
from nnefc.passes.schedule.cuda.reduction import ReductionRule
from nnefc.passes.schedule.cuda.row_reduction import RowReductionRule
from nnefc.passes.schedule.cuda.single_query_attention import SingleQueryRule
from nnefc.passes.schedule.cuda.tensor_core import TensorCoreRule
from nnefc.passes.schedule.cuda.transposition import TranspositionRule

__all__ = ["CUDA_RULES"]

CUDA_RULES = (
    GatedProductRule(),
    SingleQueryRule(),
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
    LoopsRule(),
    FallbackRule(),
)
