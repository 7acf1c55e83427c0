"""Attention as one kernel: matched by what is computed, in any spelling."""
