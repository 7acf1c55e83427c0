"""Drives a compilation: reads the model, runs the passes, generates code, writes the library."""
