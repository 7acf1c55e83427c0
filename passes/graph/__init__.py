"""Passes over Relax modules: the network before kernels are scheduled."""
