"""The way of a model to a library: read, optimized, compiled, written."""
