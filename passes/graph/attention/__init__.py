"""Fuses attention into one kernel: matched by what is computed, whatever operators spell it."""
