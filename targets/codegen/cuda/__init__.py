"""Compiles kernels to CUDA source, machine code and launches."""
