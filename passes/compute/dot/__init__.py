"""Sums of products of narrow numbers by the instructions of targets."""
