"""Decides which operators are fused into one kernel."""
