"""Lists the overheads of loops beyond their instructions, which cost estimates of kernels share.

None of them is published for a processor. They rank candidates (tiles, layouts, algorithms) that differ by far more
than the numbers are off. Sources, by the names of `costs.py`; *estimate*: derived as stated, not measured separately.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LOOPS", "LoopCosts"]


@dataclass(frozen=True)
class LoopCosts:
    """Costs on one core.

    Attributes:
        iteration_cycles: of the loop itself, in an iteration: an addition and a branch, on a core that issues four
            instructions in a cycle (Intel, AMD, Arm).
        lane_share: of what it takes to convert a value that is multiplied by lane: one vector holds four of them, and
            they are converted together, but not for free (estimate).
        kept_vectors: for each column of a tile, as a bias and a scale, that engines of WebAssembly load before the loop
            (seen in V8's code).
        conversion: times the cycles of a tile whose results are narrowed lane by lane (estimate: see
            `Quirks.converts_lane_by_lane`).
        spill_cycles: from storing a sum to adding to it again: four or five until a store is forwarded to a load, and
            the addition (Agner).
        tile_cycles: of a tile besides its sums: about a mispredicted branch at the end of the loop (Agner: 15 to 20).
        register_cycles: of a tile, for each register: setting it to zero, and storing the result (Agner).
        exposed_share: of the time that columns take to arrive from an outer cache, which arithmetic does not hide
            (estimate).
        transform_waiting: times the arithmetic of Winograd's transforms, for loads, stores, and results that are not
            there yet (estimate).
        tap_cycles: of a vector of a depthwise convolution, for one tap: its loads, and a multiply-add (estimate).
        tile_share: of the matrix unit's speed: the rest of its time goes into loading tiles, and short ones (estimate).
        half_sum_products: products in float16 that would be made while the sums of one part become float32: two
            conversions and additions of each half (estimate).
        half_add_products: the same where the sums of parts are added up in float16 (estimate).
        instruction_cycles: of an instruction in a loop that is not among the main loops: two are issued in a cycle
            (estimate: half of what large cores can).
        call_instructions: of an elementary function: a polynomial of about so many terms (estimate).
        prefetch_share: one part in so many of the first cache is asked for ahead of its use (estimate).
    """

    iteration_cycles: float = 0.5
    lane_share: float = 0.6
    kept_vectors: int = 2
    conversion: float = 1.2
    spill_cycles: int = 8
    tile_cycles: int = 20
    register_cycles: int = 2
    exposed_share: float = 0.25
    transform_waiting: float = 1.3
    tap_cycles: int = 2
    tile_share: float = 0.5
    half_sum_products: int = 10
    half_add_products: int = 2
    instruction_cycles: float = 0.5
    call_instructions: int = 8
    prefetch_share: int = 4


LOOPS = LoopCosts()
"""Those of every processor so far."""
