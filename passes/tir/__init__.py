"""Passes over scheduled TIR kernels."""
