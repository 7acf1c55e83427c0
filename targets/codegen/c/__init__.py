"""Translates TIR functions to C99 source."""
