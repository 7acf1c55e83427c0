"""Schedule rules for CPUs, in the order in which they are tried."""

from nnefc.passes.schedule.cpu.channel_window import ChannelWindowRule
from nnefc.passes.schedule.cpu.column_reduction import ColumnReductionRule
from nnefc.passes.schedule.cpu.contraction import ContractionRule
from nnefc.passes.schedule.cpu.dot_accumulate import DotAccumulateRule
from nnefc.passes.schedule.cpu.fallback import FallbackRule
from nnefc.passes.schedule.cpu.independent_columns import IndependentColumnsRule
from nnefc.passes.schedule.cpu.matrix_unit_tiles import MatrixTilesRule
from nnefc.passes.schedule.cpu.row_reduction import RowReductionRule
from nnefc.passes.schedule.cpu.strassen import StrassenProductsRule, StrassenSumsRule
from nnefc.passes.schedule.cpu.tile_transform import TileTransformRule
from nnefc.passes.schedule.cpu.windows import WindowsRule

__all__ = ["CPU_RULES"]

CPU_RULES = (
    StrassenProductsRule(),
    StrassenSumsRule(),
    MatrixTilesRule(),
    DotAccumulateRule(),
    ContractionRule(),
    TileTransformRule(),
    ChannelWindowRule(),
    WindowsRule(),
    RowReductionRule(),
    ColumnReductionRule(),
    IndependentColumnsRule(),
    FallbackRule(),
)
