"""Schedule rules for CUDA, in the order in which they are tried."""

from nnefc.passes.schedule.cuda.contraction import ContractionRule
from nnefc.passes.schedule.cuda.fallback import FallbackRule

__all__ = ["CUDA_RULES"]

CUDA_RULES = (
    ContractionRule(),
    FallbackRule(),
)
