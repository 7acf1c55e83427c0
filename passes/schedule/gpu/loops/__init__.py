"""Kernels written as ordered loops: scatters, top-k, selections, suppression."""
