"""Computes on integers in place of dequantized values."""
