"""Blocked layouts of regions of a network."""
