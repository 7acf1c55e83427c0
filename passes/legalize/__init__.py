"""Legalization: replaces operators by calls of TIR kernels."""
