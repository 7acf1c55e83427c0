"""Assigns blocked layouts to regions of a network."""
