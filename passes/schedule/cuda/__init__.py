"""Schedule rules for CUDA, in the order in which they are tried."""

from nnefc.passes.schedule.cuda.contraction import ContractionRule
from nnefc.passes.schedule.cuda.depthwise import DepthwiseRule
from nnefc.passes.schedule.cuda.fallback import FallbackRule
from nnefc.passes.schedule.cuda.vector_product import VectorProductRule

__all__ = ["CUDA_RULES"]

CUDA_RULES = (
    DepthwiseRule(),
    VectorProductRule(),
    ContractionRule(),
    FallbackRule(),
)
