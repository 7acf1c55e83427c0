"""Keeps compiled libraries and kernels in the user's folder of caches."""
