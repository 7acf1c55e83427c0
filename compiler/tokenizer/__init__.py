"""Compiles the tokenizers of language models into libraries."""
