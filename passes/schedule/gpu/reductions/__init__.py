"""Reductions, and computations that use their results along the rows."""
