"""Compiles TIR functions to object files for CPUs."""
