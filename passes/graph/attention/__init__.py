"""Fuses attention into one kernel: matches the computation, whatever operators a model writes it with."""
