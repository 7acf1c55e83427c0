"""Element-wise computations and data movement."""
