"""Reads the tokenizers of language models, and serializes them for the runtime."""
