"""Symbolic dimensions: expressions, ranges, constraints and proofs on sizes that are known only at run time."""
