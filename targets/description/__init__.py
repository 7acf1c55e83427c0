"""Describes a library: its metadata, and the C source that contains them."""
