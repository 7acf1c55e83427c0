"""Convolutions and matrix products: tiles of operands in shared memory, sums in registers."""
