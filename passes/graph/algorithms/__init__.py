"""Chooses Winograd, Strassen or the direct algorithm by cost models."""
