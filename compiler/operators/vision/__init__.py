"""Operators on images and regions of interest."""
