"""Dimensions that are known only at run time: expressions, ranges, constraints and proofs."""
