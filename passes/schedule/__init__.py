"""Schedules kernels: rules by target, and the analysis that they share."""
