"""Lowers control flow: If, Loop, Scan, and sequences in them."""
