"""Emits inner loops in assembly."""
