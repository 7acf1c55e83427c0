"""Declares the dot products that targets compute, as operators of TIR."""
