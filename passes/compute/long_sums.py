"""What a computation says of its long sums to the rules that schedule it."""

__all__ = ["LONGEST_PART"]

LONGEST_PART = "nnefc.longest_part"
"""Attribute of a sum whose rounding errors weigh more than usual: how many terms may be added one after the other."""
