"""Targets: machine descriptions, code generation, linking, and the C runtime."""
