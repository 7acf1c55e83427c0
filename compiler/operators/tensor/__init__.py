"""Operators that create, move, select and sort elements."""
