"""Defines the interface of targets that are GPUs, which schedule rules for every GPU ask."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from nnefc.targets.machine.gpu.description import Gpu

__all__ = ["GpuTarget"]


class GpuTarget(Hashable, Protocol):
    """Devices to make code for; what holds of them holds of each."""

    @property
    def gpu(self) -> Gpu:
        """Returns the device that tiles and blocks are chosen for."""

    @property
    def threads_per_warp(self) -> int:
        """Threads that exchange values without a barrier."""

    @property
    def load_bytes(self) -> int:
        """What a thread may load or store at once."""

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a block, without asking for more."""

    @property
    def max_shared_bytes(self) -> int:
        """Shared memory that a block may ask for."""

    @property
    def has_asynchronous_copies(self) -> bool:
        """Whether threads copy to shared memory past the registers, `load_bytes` at once."""

    def channels_of_a_block(self, has_bytes: bool) -> int:
        """Channels that lie side by side in the layout for matrix units, in networks with or without bytes."""

    def lanes(self, dtype: str) -> int:
        """Elements of `dtype` that a thread loads at once."""
